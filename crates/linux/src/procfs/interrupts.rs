//! `/proc/interrupts`, `/proc/softirqs` and `/proc/irq`: which CPU was interrupted how often, by whom, and which may
//! be.

use std::collections::BTreeMap;

use super::Procfs;
use crate::{CpuSet, Error, Result};

/// A number for each CPU that is on line.
pub type PerCpu = BTreeMap<u16, u64>;

/// An interrupt line of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interrupt {
    /// Its number, as in `/proc/irq`.
    pub number: u32,
    /// What its driver calls it, the last word of its line: `virtio2-input.0`, `eth0-rx-1`.
    pub name: String,
    /// How often each CPU took it since the machine's start.
    pub counts: PerCpu,
    /// The CPUs that take it from its next time on; empty where that is not reported.
    pub affinity: CpuSet,
}

impl Procfs {
    /// The interrupts with a number, which are those of devices, with those CPUs that may take them.
    pub fn interrupts(&self) -> Result<Vec<Interrupt>> {
        let mut interrupts = Vec::new();
        let text = self.required("interrupts")?;
        // The kernel always writes a heading. Where there is none, a container's runtime has put
        // /dev/null in its place.
        let Some(heading) = text.lines().next() else {
            let why = "it is empty: a container's runtime masks it".to_owned();
            return Err(Error::invalid(self.attempted("interrupts"), why));
        };
        let cpus = cpus(heading);
        for line in text.lines().skip(1) {
            let Some((number, rest)) = line.split_once(':') else {
                return Err(self.misread("interrupts", line));
            };
            let Ok(number) = number.trim().parse() else { continue };
            let counts = per_cpu(&cpus, rest);
            let name = rest.split_ascii_whitespace().skip(counts.len()).last().unwrap_or_default().to_owned();
            interrupts.push(Interrupt { number, name, counts, affinity: CpuSet::default() });
        }
        Ok(interrupts)
    }

    /// The CPUs that will serve an interrupt: the set programmed into the hardware (`effective_affinity_list`), or
    /// else the requested set (`smp_affinity_list`). The latter applies where the kernel does not report the former,
    /// or has yet to program the hardware, which for many interrupts happens when the next one arrives (`irq_move_irq`
    /// in kernel/irq/migration.c). Empty if neither is reported.
    pub fn interrupt_affinity(&self, number: u32) -> Result<CpuSet> {
        let asked = self.interrupt_cpus(number, "smp_affinity_list")?;
        let effective = self.interrupt_cpus(number, "effective_affinity_list")?;
        let is_so = effective.iter().any(|cpu| asked.contains(cpu)) || asked.is_empty();
        Ok(if is_so { effective } else { asked })
    }

    /// Empty where there is no such file; the effective list of an interrupt that is not in use is empty, too.
    fn interrupt_cpus(&self, number: u32, file: &str) -> Result<CpuSet> {
        let file = format!("irq/{number}/{file}");
        let text = self.read(&file)?.unwrap_or_default();
        text.trim().parse().map_err(|_| self.misread(&file, text.trim()))
    }

    /// How often each CPU ran each kind of soft interrupt (`NET_RX`, `NET_TX`, …).
    pub fn softirqs(&self) -> Result<BTreeMap<String, PerCpu>> {
        let text = self.required("softirqs")?;
        let cpus = cpus(text.lines().next().unwrap_or_default());
        let rows = text.lines().skip(1).filter_map(|line| line.split_once(':'));
        Ok(rows.map(|(name, rest)| (name.trim().to_owned(), per_cpu(&cpus, rest))).collect())
    }
}

/// The heading: `CPU0 CPU2 …`, those on line.
fn cpus(heading: &str) -> Vec<u16> {
    let words = heading.split_ascii_whitespace();
    words.filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect()
}

/// As many numbers as there are CPUs; a line may have fewer (`ERR`).
fn per_cpu(cpus: &[u16], columns: &str) -> PerCpu {
    let numbers = columns.split_ascii_whitespace().map_while(|word| word.parse().ok());
    cpus.iter().copied().zip(numbers).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fake::proc_with;
    use super::*;

    const INTERRUPTS: &str = "           CPU0       CPU2       
 24:          1          5  IO-APIC   5-edge      ACPI:Ged
 38:          0       6377 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
NMI:          0          0   Non-maskable interrupts
ERR:          0
";

    #[test]
    fn numbered_interrupts_have_their_cpus_and_names() {
        let files = [
            ("interrupts", INTERRUPTS),
            ("softirqs", "     CPU0 CPU2\nNET_RX:   7  9\n"),
            ("irq/38/effective_affinity_list", "\n"),
            ("irq/38/smp_affinity_list", "0-1\n"),
            ("irq/39/effective_affinity_list", "1\n"),
            ("irq/39/smp_affinity_list", "0-1\n"),
            ("irq/40/effective_affinity_list", "1\n"),
            ("irq/40/smp_affinity_list", "0\n"),
            ("irq/41/effective_affinity_list", "1\n"),
        ];
        let (_directory, procfs) = proc_with(&files);
        let found = procfs.interrupts().unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].number, found[1].name.as_str()), (38, "virtio2-input.0"));
        assert_eq!(found[1].counts, PerCpu::from([(0, 0), (2, 6377)]));
        assert_eq!(procfs.softirqs().unwrap()["NET_RX"][&2], 9);
        let affinities = [38, 39, 40, 41, 24].map(|irq| procfs.interrupt_affinity(irq).unwrap().to_string());
        assert_eq!(affinities, ["0-1", "1", "0", "1", ""]);
    }

    #[test]
    fn a_masked_file_is_not_a_machine_without_interrupts() {
        let (_directory, procfs) = proc_with(&[("interrupts", "")]);
        assert!(procfs.interrupts().unwrap_err().to_string().contains("a container's runtime masks it"));
    }

    #[test]
    fn the_kernels_own_files_are_understood() {
        assert!(!Procfs::kernel().interrupts().unwrap().is_empty());
        let online = crate::cpu::online().unwrap().len();
        assert_eq!(Procfs::kernel().softirqs().unwrap()["NET_RX"].len(), online);
    }
}
