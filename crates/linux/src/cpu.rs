//! CPUs as the kernel counts them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Attempt;
use crate::{Error, NameError, Result};

/// How the kernel chooses when a thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    /// The kernel's fair scheduler (`SCHED_OTHER`), the default.
    Normal,
    /// Before all fair ones, until it waits (`SCHED_FIFO`); the priority is 1 to 99, highest first.
    Fifo(u8),
}

/// A set of CPUs; prints and parses the kernel's list format, `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(BTreeSet<u16>);

/// The CPUs that are on line.
pub fn online() -> Result<CpuSet> {
    list(Path::new("/sys/devices/system/cpu/online"))
}

/// The CPUs that the scheduler does not use unless a task is pinned there (`isolcpus=` on the kernel's command line),
/// and those without the timer (`nohz_full=`); often none. RPS takes neither of them: `rps_cpumask_housekeeping` in
/// net/core/net-sysfs.c leaves out both.
pub fn isolated() -> Result<CpuSet> {
    isolated_at(Path::new("/sys/devices/system/cpu"))
}

fn isolated_at(root: &Path) -> Result<CpuSet> {
    let mut all = list(&root.join("isolated"))?;
    // A kernel that can do without the timer, but was not told to, reports "(null)"; others have no such file.
    if let Ok(text) = std::fs::read_to_string(root.join("nohz_full")) {
        all.0.extend(text.parse::<CpuSet>().unwrap_or_default().0);
    }
    Ok(all)
}

fn list(path: &Path) -> Result<CpuSet> {
    let attempted = || format!("read {}", path.display());
    let text = std::fs::read_to_string(path).attempt(attempted)?;
    text.parse().map_err(|error: NameError| Error::invalid(attempted(), error.to_string()))
}

/// The CPUs on which the calling thread may run: on line, and not forbidden by a cpuset or `taskset`.
pub fn allowed() -> Result<CpuSet> {
    let set = rustix::thread::sched_getaffinity(None).attempt(|| "read the CPU affinity")?;
    Ok((0..CPUS_MAX).filter(|cpu| set.is_set(usize::from(*cpu))).collect())
}

/// The CPUs grouped by core: the hyper-threads of one core form a set, and the cores of a package follow each other. A
/// CPU without topology files counts as a core of its own.
pub fn cores(cpus: &CpuSet) -> Vec<CpuSet> {
    cores_at(Path::new("/sys/devices/system/cpu"), cpus)
}

fn cores_at(root: &Path, cpus: &CpuSet) -> Vec<CpuSet> {
    let mut cores = BTreeMap::new();
    for cpu in cpus.iter() {
        let read = |file: &str| std::fs::read_to_string(root.join(format!("cpu{cpu}/topology/{file}"))).ok();
        let package: u32 = read("physical_package_id").and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let siblings: CpuSet =
            read("thread_siblings_list").and_then(|text| text.parse().ok()).unwrap_or_default();
        let first = siblings.iter().next().unwrap_or(cpu);
        cores.entry((package, first)).or_insert_with(BTreeSet::new).insert(cpu);
    }
    cores.into_values().map(CpuSet).collect()
}

/// Restricts the calling thread to these CPUs. `EINVAL` if none of them exists.
pub fn pin_current_thread(cpus: &CpuSet) -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| *cpu < CPUS_MAX) {
        set.set(cpu.into());
    }
    rustix::thread::sched_setaffinity(None, &set).attempt(|| format!("run on CPUs {cpus}"))
}

/// Changes how the calling thread is scheduled; threads and processes that it starts inherit it. `EPERM` without
/// `CAP_SYS_NICE`.
pub fn set_current_thread_scheduling(scheduling: Scheduling) -> Result<()> {
    let (policy, priority) = match scheduling {
        Scheduling::Normal => (libc::SCHED_OTHER, 0),
        Scheduling::Fifo(priority) => (libc::SCHED_FIFO, priority.into()),
    };
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: `parameters` is a valid `sched_param` for the length of the call, which only reads it; 0 is the calling
    // thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    let outcome = if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
    outcome.attempt(|| format!("set the scheduling policy to {scheduling}"))
}

/// Whether threads of this process may be scheduled as [`Scheduling::Fifo`]; tried on a thread that then ends.
pub fn can_realtime() -> bool {
    let attempt = || set_current_thread_scheduling(Scheduling::Fifo(1)).is_ok();
    std::thread::spawn(attempt).join().expect("the attempt does not panic")
}

/// As many CPUs as `cpu_set_t` has bits for; the kernel's own limit is 8192, on no machine that is raced on.
const CPUS_MAX: u16 = 1024;

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheduling::Normal => f.write_str("SCHED_OTHER"),
            Scheduling::Fifo(priority) => write!(f, "SCHED_FIFO {priority}"),
        }
    }
}

impl CpuSet {
    /// True if the CPU is in it.
    pub fn contains(&self, cpu: u16) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().copied()
    }

    /// The number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of its CPUs that the other set does not have.
    #[must_use]
    pub fn without(&self, other: &CpuSet) -> CpuSet {
        CpuSet(&self.0 - &other.0)
    }

    /// The kernel's mask format for `rps_cpus` and `xps_cpus`: 32-bit hexadecimal words joined by commas, the
    /// highest first (`bitmap_print_to_pagebuf`); without leading zero words.
    pub fn to_mask(&self) -> String {
        let words = self.0.last().map_or(1, |cpu| usize::from(*cpu) / 32 + 1);
        let mut mask = vec![0_u32; words];
        for cpu in &self.0 {
            mask[usize::from(*cpu) / 32] |= 1 << (cpu % 32);
        }
        let mut text = mask.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",");
        let zeros = text.len() - text.trim_start_matches('0').len();
        text.drain(..zeros.min(text.len() - 1));
        text
    }

    /// Parses the kernel's mask format.
    pub fn from_mask(text: &str) -> Result<CpuSet, NameError> {
        let bad = || NameError {
            kind: "CPU mask",
            text: text.to_owned(),
            why: "hexadecimal words joined by commas are expected",
        };
        let mut set = BTreeSet::new();
        for (index, word) in text.trim().rsplit(',').enumerate() {
            let word = u32::from_str_radix(word, 16).map_err(|_| bad())?;
            let first = u16::try_from(index * 32).map_err(|_| bad())?;
            set.extend((0..32).filter(|bit| word & (1 << bit) != 0).map(|bit| first + bit));
        }
        Ok(CpuSet(set))
    }
}

impl FromIterator<u16> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u16>>(cpus: I) -> CpuSet {
        CpuSet(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus: Vec<u16> = self.iter().collect();
        let runs = cpus.chunk_by(|a, b| a + 1 == *b);
        for (index, run) in runs.enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            match run {
                [one] => write!(f, "{one}")?,
                [first, .., last] => write!(f, "{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = NameError;

    fn from_str(text: &str) -> Result<CpuSet, NameError> {
        let bad =
            || NameError { kind: "CPU list", text: text.to_owned(), why: "a list such as 0-3,8 is expected" };
        let mut set = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u16 = first.trim().parse().map_err(|_| bad())?;
            let last: u16 = last.trim().parse().map_err(|_| bad())?;
            if first > last {
                return Err(bad());
            }
            set.extend(first..=last);
        }
        Ok(CpuSet(set))
    }
}

impl TryFrom<String> for CpuSet {
    type Error = NameError;
    fn try_from(text: String) -> Result<CpuSet, NameError> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> String {
        set.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(list: &str, mask: &str) {
        let set: CpuSet = list.parse().unwrap();
        assert_eq!(set.to_string(), list);
        assert_eq!(set.to_mask(), mask);
        assert_eq!(CpuSet::from_mask(mask).unwrap(), set);
    }

    #[test]
    fn hyper_threads_are_one_core_and_packages_stay_together() {
        let root = tempfile::tempdir().unwrap();
        for (cpu, package, siblings) in
            [(0, 0, "0,4"), (1, 1, "1,5"), (2, 0, "2,6"), (4, 0, "0,4"), (5, 1, "1,5")]
        {
            let dir = root.path().join(format!("cpu{cpu}/topology"));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("physical_package_id"), format!("{package}\n")).unwrap();
            std::fs::write(dir.join("thread_siblings_list"), format!("{siblings}\n")).unwrap();
        }
        let cores = cores_at(root.path(), &"0-2,4-5,9".parse().unwrap());
        let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
        // CPU 6 is not in the request, and CPU 9 has no topology files.
        assert_eq!(cores, ["0,4", "2", "9", "1,5"]);
    }

    #[test]
    fn cpus_without_a_timer_are_isolated_too() {
        let root = tempfile::tempdir().unwrap();
        let isolated = |file: &str, text: &str| {
            std::fs::write(root.path().join(file), text).unwrap();
            isolated_at(root.path()).unwrap().to_string()
        };
        assert_eq!(isolated("isolated", "6\n"), "6");
        assert_eq!(isolated("nohz_full", "(null)\n"), "6");
        assert_eq!(isolated("nohz_full", "4-5\n"), "4-6");
    }

    #[test]
    fn a_pinned_thread_is_where_it_was_put() {
        let first = allowed().unwrap().iter().next().unwrap();
        let one: CpuSet = [first].into_iter().collect();
        let (seen, ran_on) = std::thread::scope(|scope| {
            let work = || {
                pin_current_thread(&one).unwrap();
                (allowed().unwrap(), rustix::thread::sched_getcpu())
            };
            scope.spawn(work).join().unwrap()
        });
        assert_eq!(seen, one);
        assert_eq!(ran_on, usize::from(first));
        let error = pin_current_thread(&CpuSet::default()).unwrap_err();
        assert!(error.is(libc::EINVAL), "{error}");
    }

    #[test]
    fn online_cpus_include_the_allowed_ones() {
        let online = online().unwrap();
        assert!(allowed().unwrap().iter().all(|cpu| online.contains(cpu)));
    }

    #[test]
    fn lists_and_masks_are_the_kernels() {
        check("", "0");
        check("0", "1");
        check("1", "2");
        check("0-3", "f");
        check("0-3,8", "10f");
        check("32", "1,00000000");
        check("1-8,10-17", "3fdfe");
        assert!("3-1".parse::<CpuSet>().is_err());
        assert!("x".parse::<CpuSet>().is_err());
        assert_eq!(CpuSet::from_mask("00000003").unwrap().to_string(), "0-1");
    }
}
