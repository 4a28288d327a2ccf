//! Control groups with a CPU quota, and how often that quota stopped them: version 2 (`cpu.max`, `cpu.stat`) and the
//! `cpu` hierarchy of version 1 (`cpu.cfs_quota_us`). Also groups of version 2 that are close to their memory limit
//! (`memory.max`), which includes socket buffers.

use std::time::Duration;

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
            if self.read(&file_of(root, mark))?.is_none() {
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

    /// The quotas that hold for the calling process: that of its own control group and those above it, as far as they
    /// are seen from here. In a container those are its own.
    ///
    /// # Errors
    /// A file may not be read.
    pub fn own_quotas(&self) -> Result<Vec<Throttled>> {
        let mut found = Vec::new();
        for line in self.read("proc/self/cgroup")?.unwrap_or_default().lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
            let is_first = controllers.split(',').any(|controller| controller == "cpu");
            let hierarchy = match (controllers, is_first) {
                ("", _) => "",
                (of_cpu, true) => of_cpu,
                _ => continue,
            };
            for path in lineage(group) {
                let path = match (hierarchy, path) {
                    ("", one) | (one, "") => one.to_owned(),
                    (hierarchy, path) => format!("{hierarchy}/{path}"),
                };
                let quota = if is_first { self.first(&path)? } else { self.unified(&path)? };
                found.extend(quota);
            }
        }
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
        let Some(max) = self.read(&file_of(path, "cpu.max"))? else { return Ok(None) };
        let mut words = max.split_ascii_whitespace().map(|word| word.parse().ok());
        let (Some(Some(quota_us)), Some(Some(period_us))) = (words.next(), words.next()) else {
            return Ok(None);
        };
        self.with_counts(path, quota_us, period_us, "throttled_usec", 1)
    }

    fn first(&self, path: &str) -> Result<Option<Throttled>> {
        let quota = self.number(&file_of(path, "cpu.cfs_quota_us"))?;
        let period = self.number(&file_of(path, "cpu.cfs_period_us"))?;
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
        let text = self.read(&file_of(path, "cpu.stat"))?.unwrap_or_default();
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

impl Throttled {
    /// For how long its CPUs were stopped since an earlier look at it, all together.
    pub fn stopped_since(&self, earlier: &Throttled) -> Duration {
        Duration::from_micros(self.throttled_us.saturating_sub(earlier.throttled_us))
    }

    /// As many CPUs as the quota is worth.
    pub fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us.max(1) as f64
    }
}

/// The group with this path, and those above it, topmost first. A container without a namespace of control groups sees
/// its path on the node, but its own group where the hierarchy begins.
fn lineage(group: &str) -> impl Iterator<Item = &str> {
    let group = group.trim_start_matches('/');
    let above = group.match_indices('/').map(|(end, _)| &group[..end]);
    std::iter::once("").chain(above).chain(Some(group).filter(|group| !group.is_empty()))
}

/// The file of a group; that at the top of a hierarchy may have no path.
fn file_of(path: &str, name: &str) -> String {
    if path.is_empty() { format!("sys/fs/cgroup/{name}") } else { format!("sys/fs/cgroup/{path}/{name}") }
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
    fn the_quotas_of_a_process_are_its_group_s_and_those_above() {
        let own = |texts: &[(&str, &str)]| {
            let texts = texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
            let found = Files::of(texts.collect()).own_quotas().unwrap();
            found.into_iter().map(|quota| (quota.path.clone(), quota.cpus())).collect::<Vec<_>>()
        };
        let unified = [
            ("proc/self/cgroup", "0::/pods/one/box\n"),
            ("sys/fs/cgroup/pods/one/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/pods/one/box/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/pods/two/cpu.max", "10000 100000\n"),
        ];
        assert_eq!(own(&unified), [("pods/one".to_owned(), 0.5)]);
        // In a container, and with version 1, whose path there may be that on the node.
        assert_eq!(
            own(&[("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cpu.max", "200000 100000\n")]),
            [(String::new(), 2.0)]
        );
        let first = [
            ("proc/self/cgroup", "4:cpu,cpuacct:/docker/1a\n3:cpuset:/\n0::/\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(own(&first), [("cpu,cpuacct".to_owned(), 1.5)]);
        assert!(own(&[]).is_empty());
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
