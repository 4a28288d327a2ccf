//! Interrupts and the CPUs that serve them: `/proc/interrupts` and `/proc/irq`.
//!
//! Interrupts belong to the machine, not to a namespace. A driver that is reset releases its interrupts, and another
//! device may then get their numbers. So an interrupt is identified by number and name together.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use crate::error::Attempt;
use crate::procfs::Procfs;
use crate::{CpuSet, Error, NameError, Result};

/// A `/proc` with interrupts: the kernel's, or one that a test wrote.
#[derive(Debug, Clone)]
pub struct Interrupts {
    root: PathBuf,
}

/// A numbered interrupt of `/proc/interrupts`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Interrupt {
    pub number: u32,
    /// The driver's name for it: `virtio1-input.0`.
    pub name: String,
}

impl Interrupts {
    /// The interrupts of the running kernel, below `/proc`.
    pub fn kernel() -> Interrupts {
        Interrupts::at("/proc")
    }

    /// A tree of files in another directory.
    pub fn at(root: impl Into<PathBuf>) -> Interrupts {
        Interrupts { root: root.into() }
    }

    /// The numbered interrupts, in the kernel's order. Those of the processor (`NMI`, `LOC`) have no number and are
    /// left out.
    pub fn list(&self) -> Result<Vec<Interrupt>> {
        let all = Procfs::at(&self.root).interrupts()?.into_iter();
        Ok(all.map(|one| Interrupt { number: one.number, name: one.name }).collect())
    }

    /// The CPUs that may serve the interrupt; `None` if it does not exist.
    pub fn read_cpus(&self, number: u32) -> Result<Option<CpuSet>> {
        let path = self.path(number);
        let attempted = || format!("read {}", path.display());
        match fs::read_to_string(&path) {
            Ok(text) => {
                let cpus = text.trim().parse();
                cpus.map(Some).map_err(|error: NameError| Error::invalid(attempted(), error.to_string()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).attempt(attempted),
        }
    }

    /// Lets these CPUs serve the interrupt. `EIO` if the kernel manages its CPUs, `EINVAL` if none of these is on
    /// line.
    pub fn write_cpus(&self, number: u32, cpus: &CpuSet) -> Result<()> {
        let path = self.path(number);
        let attempted = || format!("write {cpus} to {}", path.display());
        let mut file = OpenOptions::new().write(true).truncate(true).open(&path).attempt(attempted)?;
        file.write_all(format!("{cpus}\n").as_bytes()).attempt(attempted)
    }

    fn path(&self, number: u32) -> PathBuf {
        self.root.join(format!("irq/{number}/smp_affinity_list"))
    }
}

/// The queue that an interrupt serves, taken from the number at the end of its name; mlx5 appends an address to that. A
/// card with one interrupt gives it the name of its link, whose number says nothing: that is of the first queue. `None`
/// for an interrupt without a queue (`virtio1-config`, `mlx5_async0`, `eth0-event-4` of vmxnet3).
pub fn queue_of(name: &str) -> Option<u16> {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    if name.contains("async") || name.contains("event") {
        return None;
    }
    if !name.contains(['-', '.', '_']) {
        return Some(0);
    }
    let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name[digits..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "           CPU0       CPU1\n\
        \u{20}25:          0        118  PCI-MSIX-0000:00:03.0   1-edge      virtio1-input.0\n\
        \u{20}26:         10          0  PCI-MSIX-0000:00:03.0   2-edge      virtio1-output.0\n\
        NMI:          0          0   Non-maskable interrupts\n";

    #[test]
    fn interrupts_have_a_number_and_a_name() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("interrupts"), TABLE).unwrap();
        fs::create_dir_all(directory.path().join("irq/25")).unwrap();
        fs::write(directory.path().join("irq/25/smp_affinity_list"), "0-1\n").unwrap();
        let interrupts = Interrupts::at(directory.path());
        let names: Vec<_> =
            interrupts.list().unwrap().into_iter().map(|one| (one.number, one.name)).collect();
        assert_eq!(names, [(25, "virtio1-input.0".to_owned()), (26, "virtio1-output.0".to_owned())]);
        interrupts.write_cpus(25, &"1".parse().unwrap()).unwrap();
        assert_eq!(interrupts.read_cpus(25).unwrap(), Some("1".parse().unwrap()));
        assert_eq!(interrupts.read_cpus(26).unwrap(), None);
    }

    #[test]
    fn the_number_of_a_queue_is_at_the_end_of_a_name() {
        assert_eq!(queue_of("virtio1-output.3"), Some(3));
        assert_eq!(queue_of("eth0-TxRx-12"), Some(12));
        assert_eq!(queue_of("mlx5_comp7@pci:0000:3b:00.0"), Some(7));
        for none in ["virtio1-config", "mlx5_async0@pci:0000:3b:00.0", "eth0-event-4"] {
            assert_eq!(queue_of(none), None);
        }
        assert_eq!(queue_of("enp3s0f1"), Some(0));
    }
}
