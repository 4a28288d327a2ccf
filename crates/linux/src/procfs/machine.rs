//! What the machine is: its CPU's name, its memory, its load.

use std::collections::BTreeMap;

use super::Procfs;
use crate::Result;

/// The contents of `/proc/loadavg`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadAverage {
    /// Runnable and disk-waiting tasks, averaged over about a minute.
    pub minute: f64,
    /// Over about five minutes.
    pub five_minutes: f64,
    /// Over about fifteen minutes.
    pub quarter: f64,
    /// Tasks runnable now, this one included.
    pub runnable: u32,
}

impl Procfs {
    /// The load averages of `/proc/loadavg`, and how many threads can run now.
    pub fn load_average(&self) -> Result<LoadAverage> {
        let text = self.required("loadavg")?;
        let parse = || {
            let mut words = text.split_ascii_whitespace();
            let mut number = || words.next()?.parse().ok();
            let (minute, five_minutes, quarter) = (number()?, number()?, number()?);
            let runnable = words.next()?.split_once('/')?.0.parse().ok()?;
            Some(LoadAverage { minute, five_minutes, quarter, runnable })
        };
        parse().ok_or_else(|| self.misread("loadavg", text.trim_end()))
    }

    /// The name of the first CPU; `None` where the kernel reports none (arm64 has only part numbers).
    pub fn cpu_model(&self) -> Result<Option<String>> {
        let text = self.required("cpuinfo")?;
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let named = fields.map(|(name, value)| (name.trim(), value.trim()));
        Ok(named.into_iter().find(|(name, _)| *name == "model name").map(|(_, value)| value.to_owned()))
    }

    /// Whether the CPU says that a hypervisor runs it (the flag `hypervisor`, which x86 reserves for that). On other
    /// architectures nothing says so, and the answer is no.
    pub fn is_virtual_machine(&self) -> Result<bool> {
        let text = self.required("cpuinfo")?;
        let flags =
            text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.trim() == "flags");
        Ok(flags.is_some_and(|(_, flags)| flags.split_whitespace().any(|flag| flag == "hypervisor")))
    }

    /// The fields of `/proc/meminfo` in bytes (`MemTotal`, `MemAvailable`, …); fields that count pages are left out.
    pub fn memory_bytes(&self) -> Result<BTreeMap<String, u64>> {
        let mut fields = BTreeMap::new();
        for line in self.required("meminfo")?.lines() {
            let Some((name, value)) = line.split_once(':') else { return Err(self.misread("meminfo", line)) };
            if let Some(kibibytes) = value.trim().strip_suffix(" kB") {
                let kibibytes: u64 = kibibytes.parse().map_err(|_| self.misread("meminfo", line))?;
                fields.insert(name.to_owned(), kibibytes.saturating_mul(1024));
            }
        }
        Ok(fields)
    }

    /// How often an allocation found no free memory and had to reclaim some itself (`allocstall_*` of `/proc/vmstat`,
    /// summed over all zones).
    pub fn memory_stalls(&self) -> Result<u64> {
        let text = self.read("vmstat")?.unwrap_or_default();
        let counts = text.lines().filter_map(|line| line.strip_prefix("allocstall_")?.split_once(' '));
        Ok(counts.filter_map(|(_, count)| count.parse::<u64>().ok()).fold(0, u64::saturating_add))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::proc_with;
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let files = [
            ("loadavg", "0.50 1.25 2.00 3/456 789\n"),
            (
                "cpuinfo",
                "processor\t: 0\nmodel name\t: Some CPU @ 3.00GHz\n\nprocessor\t: 1\nmodel name\t: Other\n",
            ),
            ("meminfo", "MemTotal:        2048 kB\nHugePages_Total:       7\n"),
            ("vmstat", "nr_free_pages 5\nallocstall_dma 1\nallocstall_normal 8\nallocstall_movable 20\n"),
        ];
        let (_directory, procfs) = proc_with(&files);
        assert_eq!(procfs.memory_stalls().unwrap(), 29);
        let load = procfs.load_average().unwrap();
        assert_eq!((load.minute, load.quarter, load.runnable), (0.5, 2.0, 3));
        assert_eq!(procfs.cpu_model().unwrap().as_deref(), Some("Some CPU @ 3.00GHz"));
        assert_eq!(procfs.memory_bytes().unwrap(), BTreeMap::from([("MemTotal".to_owned(), 2_097_152)]));
    }

    #[test]
    fn the_kernels_own_files_are_understood() {
        let procfs = Procfs::kernel();
        assert!(procfs.load_average().unwrap().runnable > 0);
        assert!(procfs.memory_bytes().unwrap()["MemTotal"] > 0);
        procfs.cpu_model().unwrap();
    }
}
