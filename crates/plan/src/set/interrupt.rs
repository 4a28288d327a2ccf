//! Which CPUs serve an interrupt.

use linux::CpuSet;
use linux::interrupts::Interrupts;
use serde::{Deserialize, Serialize};

use super::queue::words_of;
use super::register::{At, Register};
use crate::Place;
use crate::error::StepError;
use crate::lifetime::Lifetime;

/// Let these CPUs serve an interrupt. Interrupts belong to the machine; the place is that of its card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetIrqCpus {
    /// Its number, as in `/proc/irq`.
    pub irq: u32,
    /// Its name: another driver may have got the number meanwhile.
    pub name: String,
    /// The CPUs that may handle it; the kernel picks one.
    pub cpus: CpuSet,
}

impl Register for SetIrqCpus {
    type Value = CpuSet;
    type Along = ();

    fn read(&self, _: &At<'_>) -> Result<Option<CpuSet>, StepError> {
        read(self.irq, &self.name)
    }

    fn write(&self, _: &At<'_>, cpus: &CpuSet) -> Result<(), StepError> {
        Ok(Interrupts::kernel().write_cpus(self.irq, cpus)?)
    }

    fn wanted(&self, _: &CpuSet) -> CpuSet {
        self.cpus.clone()
    }

    fn subject(&self) -> String {
        format!("the set of CPUs of interrupt {} ({})", self.irq, self.name)
    }

    fn words(&self, cpus: &CpuSet) -> String {
        words_of(cpus)
    }

    fn command(&self, _: &Place) -> String {
        format!("echo {} > /proc/irq/{}/smp_affinity_list", self.cpus, self.irq)
    }

    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Machine
    }

    fn missing(&self) -> StepError {
        StepError::Refused { why: format!("there is no interrupt {} called {:?}", self.irq, self.name) }
    }
}

/// The CPUs of an interrupt. One of another name is another's: its driver has given it back, and the CPUs with it.
pub(super) fn read(irq: u32, name: &str) -> Result<Option<CpuSet>, StepError> {
    let interrupts = Interrupts::kernel();
    let is_it = interrupts.list()?.iter().any(|one| one.number == irq && one.name == name);
    Ok(if is_it { interrupts.read_cpus(irq)? } else { None })
}
