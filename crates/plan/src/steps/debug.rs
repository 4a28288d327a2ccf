//! Numbers in the kernel's debugfs.

use linux::debugfs::{DebugFile, Debugfs};

use super::{Past, put_back};
use crate::entry::{After, Before, Undone};
use crate::error::StepError;

pub(super) fn before(file: DebugFile) -> Result<Before, StepError> {
    Ok(Before::Debug { value: Debugfs::kernel().read(file)? })
}

pub(super) fn write(file: DebugFile, value: u64) -> Result<(), StepError> {
    Ok(Debugfs::kernel().write(file, value)?)
}

pub(super) fn after(file: DebugFile) -> Result<After, StepError> {
    Ok(After::Debug { value: Debugfs::kernel().read(file)? })
}

pub(super) fn undo(past: &Past, file: DebugFile, wanted: u64) -> Result<Undone, StepError> {
    let Before::Debug { value: old } = &past.intent.before else { unreachable!("before made another state") };
    let ours = match &past.after {
        Some(After::Debug { value }) => *value,
        _ => wanted,
    };
    put_back(&Debugfs::kernel().read(file)?, old, &ours, || write(file, *old))
}
