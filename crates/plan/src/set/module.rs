//! Numbers that are parameters of the kernel's modules.

use linux::module::{ModuleParameter, Modules};
use serde::{Deserialize, Serialize};

use super::register::{At, Register};
use crate::Place;
use crate::error::StepError;
use crate::lifetime::Lifetime;

/// Set a number that is a parameter of a module, which is the machine's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetModule {
    /// The file below `/sys/module`.
    pub parameter: ModuleParameter,
    /// The number to write.
    pub value: u64,
}

impl Register for SetModule {
    type Value = u64;
    type Along = ();

    /// A module that was unloaded took the number with it, and comes back with its own.
    fn read(&self, _: &At<'_>) -> Result<Option<u64>, StepError> {
        match Modules::kernel().read(self.parameter).map_err(StepError::from) {
            Err(error) if error.is_no_file() => Ok(None),
            read => read.map(Some),
        }
    }

    fn write(&self, _: &At<'_>, value: &u64) -> Result<(), StepError> {
        Ok(Modules::kernel().write(self.parameter, *value)?)
    }

    fn wanted(&self, _: &u64) -> u64 {
        self.value
    }

    fn subject(&self) -> String {
        self.parameter.to_string()
    }

    fn words(&self, value: &u64) -> String {
        value.to_string()
    }

    fn command(&self, _: &Place) -> String {
        format!("echo {} > /sys/module/{}", self.value, self.parameter)
    }

    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Machine
    }

    fn missing(&self) -> StepError {
        let why = format!("there is no {}: the module is not loaded", self.parameter.name());
        StepError::Refused { why }
    }
}
