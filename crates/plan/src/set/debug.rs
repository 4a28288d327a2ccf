//! Numbers in the kernel's debugfs.

use linux::debugfs::{DebugFile, Debugfs};
use serde::{Deserialize, Serialize};

use super::register::{At, Register};
use crate::Place;
use crate::error::StepError;
use crate::lifetime::Lifetime;

/// Set a number in the kernel's debugfs, which is the machine's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetDebug {
    /// The file below `/sys/kernel/debug`.
    pub file: DebugFile,
    /// The number to write, in the unit of the file.
    pub value: u64,
}

impl Register for SetDebug {
    type Value = u64;
    type Along = ();

    fn read(&self, _: &At<'_>) -> Result<Option<u64>, StepError> {
        Ok(Some(Debugfs::kernel().read(self.file)?))
    }

    fn write(&self, _: &At<'_>, value: &u64) -> Result<(), StepError> {
        Ok(Debugfs::kernel().write(self.file, *value)?)
    }

    fn wanted(&self, _: &u64) -> u64 {
        self.value
    }

    fn subject(&self) -> String {
        self.file.to_string()
    }

    fn words(&self, value: &u64) -> String {
        value.to_string()
    }

    fn command(&self, _: &Place) -> String {
        format!("echo {} > /sys/kernel/debug/{}", self.value, self.file)
    }

    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Machine
    }
}
