//! `/proc/stat`: what the CPUs did, counted in ticks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Procfs;
use crate::Result;

/// What a CPU did since the machine's start, in ticks of [`Stat::tick_ns`]. The kernel adds to some of these at each
/// timer interrupt, by what it finds then: a sample, good in sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuTicks {
    /// User mode, guests included.
    pub user: u64,
    /// User mode at low priority.
    pub nice: u64,
    /// Kernel mode without interrupts.
    pub system: u64,
    /// Idle, with no task waiting for a disk.
    pub idle: u64,
    /// Idle while a task waits for a disk.
    pub iowait: u64,
    /// In hardware interrupt handlers.
    pub irq: u64,
    /// In software interrupts, where most network code runs.
    pub softirq: u64,
    /// Taken by the hypervisor.
    pub steal: u64,
}

/// The part of `/proc/stat` that the project uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stat {
    /// Per CPU that is on line.
    pub cpus: BTreeMap<u16, CpuTicks>,
    /// Context switches of all CPUs.
    pub context_switches: u64,
}

impl Procfs {
    /// What each CPU did since the machine's start.
    pub fn stat(&self) -> Result<Stat> {
        let mut stat = Stat::default();
        for line in self.required("stat")?.lines() {
            let bad = || self.misread("stat", line);
            let Some((name, rest)) = line.split_once(' ') else { continue };
            if name == "ctxt" {
                stat.context_switches = rest.trim().parse().map_err(|_| bad())?;
            } else if let Some(cpu) = name.strip_prefix("cpu").filter(|cpu| !cpu.is_empty()) {
                let cpu = cpu.parse().map_err(|_| bad())?;
                stat.cpus.insert(cpu, CpuTicks::parse(rest).ok_or_else(bad)?);
            }
        }
        Ok(stat)
    }
}

impl Stat {
    /// Nanoseconds of a tick (`USER_HZ`, 100 per second on every architecture in use).
    pub fn tick_ns() -> u64 {
        1_000_000_000 / rustix::param::clock_ticks_per_second()
    }
}

impl CpuTicks {
    /// The first eight columns; the later ones (guests) are already included in the first two.
    fn parse(columns: &str) -> Option<CpuTicks> {
        let numbers: Vec<u64> =
            columns.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = numbers[..] else { return None };
        Some(CpuTicks { user, nice, system, idle, iowait, irq, softirq, steal })
    }

    /// The sum of all states: the time that has passed.
    pub fn total(&self) -> u64 {
        self.busy() + self.idle + self.iowait + self.steal
    }

    /// All time except idle and stolen time.
    pub fn busy(&self) -> u64 {
        self.user + self.nice + self.system + self.irq + self.softirq
    }

    /// What was done since an earlier reading. A column that went backwards (iowait may) counts as zero.
    pub fn since(&self, before: &CpuTicks) -> CpuTicks {
        CpuTicks {
            user: self.user.saturating_sub(before.user),
            nice: self.nice.saturating_sub(before.nice),
            system: self.system.saturating_sub(before.system),
            idle: self.idle.saturating_sub(before.idle),
            iowait: self.iowait.saturating_sub(before.iowait),
            irq: self.irq.saturating_sub(before.irq),
            softirq: self.softirq.saturating_sub(before.softirq),
            steal: self.steal.saturating_sub(before.steal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::proc_with;
    use super::*;

    const STAT: &str = "cpu  11 22 33 44 55 66 77 88 0 0
cpu0 1 2 3 4 5 6 7 8 0 0
cpu3 10 20 30 40 50 60 70 80 0 0
intr 5 0 0
ctxt 4711
btime 1
softirq 1 2 3
";

    #[test]
    fn each_cpu_has_its_columns() {
        let (_directory, procfs) = proc_with(&[("stat", STAT)]);
        let stat = procfs.stat().unwrap();
        assert_eq!(stat.context_switches, 4711);
        assert_eq!(stat.cpus.keys().copied().collect::<Vec<_>>(), [0, 3]);
        let cpu = stat.cpus[&3];
        assert_eq!((cpu.user, cpu.softirq, cpu.steal), (10, 70, 80));
        assert_eq!((cpu.busy(), cpu.total()), (190, 360));
        let since = cpu.since(&stat.cpus[&0]);
        assert_eq!((since.user, since.idle), (9, 36));
        assert_eq!(stat.cpus[&0].since(&cpu), CpuTicks::default());
    }

    #[test]
    fn a_bad_line_is_named() {
        let (_directory, procfs) = proc_with(&[("stat", "cpu0 1 2 three\n")]);
        let error = procfs.stat().unwrap_err().to_string();
        assert!(error.ends_with("/stat: line \"cpu0 1 2 three\" was not understood"), "{error}");
    }

    #[test]
    fn the_kernels_own_file_is_understood() {
        let stat = Procfs::kernel().stat().unwrap();
        assert_eq!(stat.cpus.len(), crate::cpu::online().unwrap().len());
        assert!(stat.context_switches > 0);
        assert_eq!(Stat::tick_ns(), 10_000_000);
    }
}
