//! Control groups with a CPU quota, and how often that quota stopped them: version 2 (`cpu.max`, `cpu.stat`) and the
//! `cpu` hierarchy of version 1 (`cpu.cfs_quota_us`). Also groups of version 2 that are close to their memory limit
//! (`memory.max`), which includes socket buffers.

use crate::{Files, Result};

/// A group that has a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Throttled {
    /// Its path below `/sys/fs/cgroup`.
    pub path: String,
    /// Microseconds of CPU time in a period.
    pub quota_us: u64,
    /// The length of a period, in microseconds.
    pub period_us: u64,
    /// Periods in which it had work.
    pub periods: u64,
    /// Periods in which it was stopped.
    pub throttled: u64,
    /// Microseconds for which its CPUs were stopped, all together.
    pub throttled_us: u64,
}

/// A group that is close to its memory limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tight {
    /// Its path below `/sys/fs/cgroup`.
    pub path: String,
    /// The limit in bytes (`memory.max`).
    pub most: u64,
    /// Bytes in use (`memory.current`).
    pub taken: u64,
    /// Bytes among them in buffers of sockets.
    pub sockets: u64,
    /// How often it was about to have more.
    pub reached: u64,
}

/// What control groups are short of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limited {
    /// Those with a quota of CPU time, by path.
    pub throttled: Vec<Throttled>,
    /// Those with less than a fifth of their memory left, by path.
    pub tight: Vec<Tight>,
}

/// Groups are read to this depth: a container of a pod of a slice, and one more level.
const DEPTH_MAX: usize = 6;
/// The most groups that are read; a node runs a few hundred containers.
const GROUPS_MAX: usize = 2000;

impl Files {
    /// The groups that are short of something. Of a machine with very many groups, the first two thousand are read.
    ///
    /// # Errors
    /// A directory may not be listed.
    pub fn limited_groups(&self) -> Result<Limited> {
        let mut found = Limited::default();
        let mut seen = 0;
        // Where both controllers share a hierarchy, systemd makes "cpu" a symbolic link to it.
        let has_cpu = self.read("sys/fs/cgroup/cpu/release_agent")?.is_some();
        let first = if has_cpu { "cpu" } else { "cpu,cpuacct" };
        for (root, version) in [("", 2), ("unified", 2), (first, 1)] {
            // A file that the top of a hierarchy has, and a plain directory in which hierarchies are mounted has not.
            let mark = if version == 2 { "cgroup.controllers" } else { "release_agent" };
            if self.read(&format!("sys/fs/cgroup/{root}/{mark}").replace("//", "/"))?.is_none() {
                continue;
            }
            let mut pending = vec![(root.to_owned(), 0)];
            while let Some((path, depth)) = pending.pop() {
                seen += 1;
                let names = self.list(format!("sys/fs/cgroup/{path}").trim_end_matches('/'))?;
                if version == 2 {
                    found.throttled.extend(self.unified(&path)?);
                    found.tight.extend(self.tight(&path)?);
                } else {
                    found.throttled.extend(self.first(&path)?);
                }
                if depth < DEPTH_MAX && seen < GROUPS_MAX {
                    let below = names.iter().filter(|name| !is_file(name));
                    let join =
                        |name: &String| if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                    pending.extend(below.map(|name| (join(name), depth + 1)));
                }
            }
        }
        found.throttled.sort_by(|a, b| a.path.cmp(&b.path));
        found.tight.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    fn tight(&self, path: &str) -> Result<Option<Tight>> {
        let at = format!("sys/fs/cgroup/{path}");
        // A group without a limit reads "max", and the root group has no such file.
        let number = |file: &str| -> Result<Option<u64>> {
            Ok(self.read(&format!("{at}/{file}"))?.and_then(|text| text.trim().parse().ok()))
        };
        let Some(most) = number("memory.max")? else { return Ok(None) };
        let taken = number("memory.current")?.unwrap_or_default();
        // The next read adds up the counts of all CPUs and costs more than all the others.
        if taken < most / 5 * 4 {
            return Ok(None);
        }
        let count = |file: &str, name: &str| -> Result<u64> {
            let text = self.read(&format!("{at}/{file}"))?.unwrap_or_default();
            Ok(value_of(&text, name))
        };
        let (sockets, reached) = (count("memory.stat", "sock")?, count("memory.events", "max")?);
        Ok(Some(Tight { path: path.to_owned(), most, taken, sockets, reached }))
    }

    fn unified(&self, path: &str) -> Result<Option<Throttled>> {
        let Some(max) = self.read(&format!("sys/fs/cgroup/{path}/cpu.max"))? else { return Ok(None) };
        let mut words = max.split_ascii_whitespace().map(|word| word.parse().ok());
        let (Some(Some(quota_us)), Some(Some(period_us))) = (words.next(), words.next()) else {
            return Ok(None);
        };
        self.with_counts(path, quota_us, period_us, "throttled_usec", 1)
    }

    fn first(&self, path: &str) -> Result<Option<Throttled>> {
        let quota = self.number(&format!("sys/fs/cgroup/{path}/cpu.cfs_quota_us"))?;
        let period = self.number(&format!("sys/fs/cgroup/{path}/cpu.cfs_period_us"))?;
        let Some((quota_us, period_us)) = quota.zip(period) else { return Ok(None) };
        self.with_counts(path, quota_us, period_us, "throttled_time", 1000)
    }

    fn with_counts(
        &self,
        path: &str,
        quota_us: u64,
        period_us: u64,
        time: &str,
        per_us: u64,
    ) -> Result<Option<Throttled>> {
        let text = self.read(&format!("sys/fs/cgroup/{path}/cpu.stat"))?.unwrap_or_default();
        let count = |name: &str| value_of(&text, name);
        Ok(Some(Throttled {
            path: path.to_owned(),
            quota_us,
            period_us,
            periods: count("nr_periods"),
            throttled: count("nr_throttled"),
            throttled_us: count(time) / per_us,
        }))
    }
}

/// Of lines of a name and a number.
fn value_of(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_default()
}

/// Files of a group are named `controller.what`, or are the few of version 1 without a dot. Other names with a dot are
/// groups (`docker-1a2b.scope`, `lxc.payload.web` of LXC and Incus, `k8s.io` of containerd).
fn is_file(name: &str) -> bool {
    /// Those of both versions, and what every group has. Source: kernel/cgroup, mm, block, net/core.
    const CONTROLLERS: [&str; 19] = [
        "cgroup",
        "cpu",
        "cpuacct",
        "cpuset",
        "memory",
        "io",
        "blkio",
        "pids",
        "hugetlb",
        "rdma",
        "misc",
        "irq",
        "dmem",
        "devices",
        "freezer",
        "net_cls",
        "net_prio",
        "perf_event",
        "debug",
    ];
    let is_plain = ["tasks", "notify_on_release", "release_agent"].contains(&name);
    is_plain || name.split_once('.').is_some_and(|(controller, _)| CONTROLLERS.contains(&controller))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_both_versions_are_read() {
        let texts = [
            ("cgroup.controllers", "cpu\n"),
            ("kube.slice/cpu.max", "max 100000\n"),
            ("kube.slice/pod.scope/cpu.max", "20000 100000\n"),
            (
                "kube.slice/pod.scope/cpu.stat",
                "usage_usec 5\nnr_periods 10\nnr_throttled 9\nthrottled_usec 800\n",
            ),
            ("lxc.payload.web/cpu.max", "50000 100000\n"),
            ("lxc.payload.web/cpu.stat", "nr_periods 7\nnr_throttled 6\nthrottled_usec 5\n"),
            ("cpu/release_agent", "\n"),
            ("cpu/box/cpu.cfs_quota_us", "50000\n"),
            ("cpu/box/cpu.cfs_period_us", "100000\n"),
            ("cpu/box/cpu.stat", "nr_periods 4\nnr_throttled 2\nthrottled_time 3000000\n"),
            ("cpu/free/cpu.cfs_quota_us", "-1\n"),
            ("cpu/free/cpu.cfs_period_us", "100000\n"),
            ("cpu/free/cpu.stat", "nr_periods 0\n"),
        ];
        let texts = texts.iter().map(|(path, text)| (format!("sys/fs/cgroup/{path}"), (*text).to_owned()));
        let groups = Files::of(texts.collect()).limited_groups().unwrap().throttled;
        let throttled_groups: Vec<_> =
            groups.iter().map(|group| (group.path.as_str(), group.throttled, group.throttled_us)).collect();
        assert_eq!(
            throttled_groups,
            [("cpu/box", 2, 3000), ("kube.slice/pod.scope", 9, 800), ("lxc.payload.web", 6, 5)]
        );
        assert_eq!((groups[1].quota_us, groups[1].periods), (20_000, 10));
    }

    #[test]
    fn a_hierarchy_with_two_names_is_read_once() {
        let root = tempfile::tempdir().unwrap();
        let groups = root.path().join("sys/fs/cgroup");
        let texts = [
            ("release_agent", "\n"),
            ("box/cpu.cfs_quota_us", "50000\n"),
            ("box/cpu.cfs_period_us", "100000\n"),
            ("box/cpu.stat", "nr_periods 4\nnr_throttled 2\nthrottled_time 3000000\n"),
        ];
        std::fs::create_dir_all(groups.join("cpu,cpuacct/box")).unwrap();
        for (path, text) in texts {
            std::fs::write(groups.join("cpu,cpuacct").join(path), text).unwrap();
        }
        let paths = || -> Vec<String> {
            let found = Files::at(root.path()).limited_groups().unwrap().throttled;
            found.into_iter().map(|group| group.path).collect()
        };
        assert_eq!(paths(), ["cpu,cpuacct/box"]);
        std::os::unix::fs::symlink("cpu,cpuacct", groups.join("cpu")).unwrap();
        assert_eq!(paths(), ["cpu/box"]);
    }

    #[test]
    fn memory_that_is_nearly_all_taken_is_reported() {
        let texts = [
            ("cgroup.controllers", "memory\n"),
            ("free/memory.max", "1000000\n"),
            ("free/memory.current", "700000\n"),
            ("endless/memory.max", "max\n"),
            ("endless/memory.current", "9000000\n"),
            ("full/memory.max", "1000000\n"),
            ("full/memory.current", "990000\n"),
            ("full/memory.stat", "anon 100000\nsocket_pages 5\nsock 640000\n"),
            ("full/memory.events", "low 0\nhigh 3\nmax 12\noom 0\n"),
        ];
        let texts = texts.map(|(path, text)| (format!("sys/fs/cgroup/{path}"), text.to_owned()));
        let groups = Files::of(texts.into()).limited_groups().unwrap().tight;
        let full =
            Tight { path: "full".to_owned(), most: 1_000_000, taken: 990_000, sockets: 640_000, reached: 12 };
        assert_eq!(groups, [full]);
    }

    #[test]
    fn the_kernels_own_groups_are_understood() {
        Files::kernel().limited_groups().unwrap();
    }
}
