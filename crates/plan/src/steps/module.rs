//! Numbers that are parameters of the kernel's modules.

use linux::module::{ModuleParameter, Modules};

use super::{Past, put_back};
use crate::entry::{After, Before, Undone};
use crate::error::StepError;

pub(super) fn before(parameter: ModuleParameter) -> Result<Before, StepError> {
    Ok(Before::Module { value: Modules::kernel().read(parameter)? })
}

pub(super) fn write(parameter: ModuleParameter, value: u64) -> Result<(), StepError> {
    Ok(Modules::kernel().write(parameter, value)?)
}

pub(super) fn after(parameter: ModuleParameter) -> Result<After, StepError> {
    Ok(After::Module { value: Modules::kernel().read(parameter)? })
}

/// A module that was unloaded since took the number with it, and comes back with its own.
pub(super) fn undo(past: &Past, parameter: ModuleParameter, wanted: u64) -> Result<Undone, StepError> {
    let Before::Module { value: old } = &past.intent.before else {
        unreachable!("before made another state")
    };
    let ours = match &past.after {
        Some(After::Module { value }) => *value,
        _ => wanted,
    };
    match Modules::kernel().read(parameter) {
        Ok(now) => put_back(&now, old, &ours, || write(parameter, *old)),
        Err(error) if error.errno() == Some(rustix::io::Errno::NOENT.raw_os_error()) => Ok(Undone::Gone),
        Err(error) => Err(error.into()),
    }
}
