//! Numbers that are files of a link.

use linux::IfName;
use linux::sysfs::LinkAttribute;
use serde::{Deserialize, Serialize};

use super::register::{At, Register};
use crate::Place;
use crate::error::StepError;
use crate::show::echo_at;

/// Set a number that is a file of a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetLinkAttribute {
    /// The link whose file it is.
    pub link: IfName,
    /// The file in `/sys/class/net/<link>`.
    pub attribute: LinkAttribute,
    /// The number to write, in the unit of the file.
    pub value: u64,
}

impl Register for SetLinkAttribute {
    type Value = u64;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<u64>, StepError> {
        Ok(Some(at.opened.sysfs()?.read_attribute(at.name(), self.attribute)?))
    }

    fn write(&self, at: &At<'_>, value: &u64) -> Result<(), StepError> {
        Ok(at.opened.sysfs()?.write_attribute(at.name(), self.attribute, *value)?)
    }

    fn wanted(&self, _: &u64) -> u64 {
        self.value
    }

    fn subject(&self) -> String {
        format!("{} of link {}", self.attribute, self.link)
    }

    fn words(&self, value: &u64) -> String {
        value.to_string()
    }

    fn command(&self, place: &Place) -> String {
        echo_at(place, &self.value.to_string(), &format!("/sys/class/net/{}/{}", self.link, self.attribute))
    }
}
