//! Numbers that are files of a link.

mod napis;

use linux::IfName;
use linux::sysfs::LinkAttribute;
use serde::{Deserialize, Serialize};

use super::register::{At, Register};
use crate::Place;
use crate::error::StepError;
use crate::kernel::device_taken;
use crate::lifetime::Lifetime;
use crate::show::echo_at;
use napis::NapiNumbers;

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
    type Along = NapiNumbers;

    fn read(&self, at: &At<'_>) -> Result<Option<u64>, StepError> {
        Ok(Some(at.opened.sysfs()?.read_attribute(at.name(), self.attribute)?))
    }

    fn write(&self, at: &At<'_>, value: &u64) -> Result<(), StepError> {
        Ok(at.opened.sysfs()?.write_attribute(at.name(), self.attribute, *value)?)
    }

    fn wanted(&self, _: &u64) -> u64 {
        self.value
    }

    /// The kernel lets a card have another number of virtual functions only by way of none (`EBUSY` from
    /// `sriov_numvfs_store` in drivers/pci/iov.c), and takes them from their users without asking.
    fn refusal(&self, at: &At<'_>, was: &u64) -> Result<Option<String>, StepError> {
        if self.attribute != LinkAttribute::VirtualFunctions || *was == 0 || *was == self.value {
            return Ok(None);
        }
        if self.value == 0 {
            return self.used(at);
        }
        let (link, none) = (at.name(), SetLinkAttribute { value: 0, ..self.clone() });
        Ok(Some(format!(
            "link {link} has {was} virtual functions, and the kernel makes another number of them only from 0; take those away \
             first, with `{}` or by a rollback of what made them",
            none.command(&Place::Host)
        )))
    }

    fn makes_what_is_used(&self) -> bool {
        self.attribute == LinkAttribute::VirtualFunctions
    }

    /// The namespace or program that has one of a card's virtual functions. Their links in this namespace go with them.
    fn used(&self, at: &At<'_>) -> Result<Option<String>, StepError> {
        let link = at.name();
        for (number, device) in at.opened.sysfs()?.functions(link)? {
            if at.opened.sysfs()?.elsewhere(&device).is_some() {
                let taken = device_taken(at.opened, &device)?;
                // It may have come back while it was looked for.
                if taken.is_none() && at.opened.sysfs()?.elsewhere(&device).is_none() {
                    continue;
                }
                let whose =
                    taken.unwrap_or_else(|| format!("the link of device {device} is in another namespace"));
                return Ok(Some(format!("virtual function {number} of link {link} is in use: {whose}")));
            }
        }
        Ok(None)
    }

    /// A card survives its namespace, and its functions with it.
    fn lifetime(&self) -> Lifetime<'_> {
        match self.attribute {
            LinkAttribute::VirtualFunctions => Lifetime::Machine,
            _ => Lifetime::Netns,
        }
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
