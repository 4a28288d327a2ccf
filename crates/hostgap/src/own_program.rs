//! This program, as records name it and as it starts itself.

use ::lab::OwnProgram;
use anyhow::Context;

/// This program, for records and for what it starts.
pub(crate) fn own_program() -> anyhow::Result<OwnProgram> {
    let program = std::env::current_exe().context("find this executable")?;
    Ok(OwnProgram { program, version: env!("CARGO_PKG_VERSION") })
}
