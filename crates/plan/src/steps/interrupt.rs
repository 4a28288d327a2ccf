//! Which CPUs serve an interrupt.

use linux::CpuSet;
use linux::interrupts::Interrupts;

use super::{Past, put_back};
use crate::entry::{After, Before, Undone};
use crate::error::StepError;

pub(super) fn before(irq: u32, name: &str) -> Result<Before, StepError> {
    match read(irq, name)? {
        Some(cpus) => Ok(Before::IrqCpus { cpus }),
        None => Err(missing(irq, name)),
    }
}

pub(super) fn write(irq: u32, cpus: &CpuSet) -> Result<(), StepError> {
    Ok(Interrupts::kernel().write_cpus(irq, cpus)?)
}

pub(super) fn after(irq: u32, name: &str) -> Result<After, StepError> {
    match read(irq, name)? {
        Some(cpus) => Ok(After::IrqCpus { cpus }),
        None => Err(missing(irq, name)),
    }
}

/// An interrupt of another name is another's: its driver has given it back, and the CPUs with it.
pub(super) fn undo(past: &Past, (irq, name): (u32, &str), wanted: &CpuSet) -> Result<Undone, StepError> {
    let Before::IrqCpus { cpus: old } = &past.intent.before else {
        unreachable!("before made another state")
    };
    let ours = match &past.after {
        Some(After::IrqCpus { cpus }) => cpus,
        _ => wanted,
    };
    match read(irq, name)? {
        Some(now) => put_back(&now, old, ours, || write(irq, old)),
        None => Ok(Undone::Gone),
    }
}

/// The CPUs of an interrupt; `None` if there is none of that number and name.
pub(super) fn read(irq: u32, name: &str) -> Result<Option<CpuSet>, StepError> {
    let interrupts = Interrupts::kernel();
    let is_it = interrupts.list()?.iter().any(|one| one.number == irq && one.name == name);
    Ok(if is_it { interrupts.read_cpus(irq)? } else { None })
}

fn missing(irq: u32, name: &str) -> StepError {
    StepError::Refused { why: format!("there is no interrupt {irq} called {name:?}") }
}
