//! What NAPIs of a link have for themselves, by `napi-set` of netlink: to write the link's number overwrites it.

use std::collections::BTreeMap;

use linux::napi::{NapiNumber, Napis};
use linux::sysfs::LinkAttribute;
use serde::{Deserialize, Serialize};

use super::SetLinkAttribute;
use crate::error::StepError;
use crate::set::register::{Along, At, Times, Undoing};

/// The numbers that differ from the link's, by the NAPI's id. Hardly a host has any.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct NapiNumbers(BTreeMap<u32, u64>);

impl Along<SetLinkAttribute> for NapiNumbers {
    fn read(register: &SetLinkAttribute, at: &At<'_>) -> Result<NapiNumbers, StepError> {
        let Some((number, napis)) = open(register.attribute, at)? else { return Ok(NapiNumbers::default()) };
        let mut own = napis.read(at.link().index, number)?;
        let of_link = at.opened.sysfs()?.read_attribute(at.name(), register.attribute)?;
        own.retain(|_, value| *value != of_link);
        Ok(NapiNumbers(own))
    }

    /// After the step all have the link's number.
    fn changed_since(self, _: &NapiNumbers) -> NapiNumbers {
        NapiNumbers::default()
    }

    /// A number that undo finds to differ from the link's was set by another program after the step, and is set again.
    fn put_back(
        undoing: &Undoing<'_, SetLinkAttribute>,
        along: &Times<'_, NapiNumbers>,
    ) -> Result<bool, StepError> {
        let mut targets = along.was.0.clone();
        targets.extend(&along.found.0);
        if targets.is_empty() {
            return Ok(false);
        }
        let Some((number, napis)) = open(undoing.register.attribute, undoing.at)? else { return Ok(false) };
        let mut written = false;
        // A NAPI that is gone is left out.
        for (id, now) in napis.read(undoing.at.link().index, number)? {
            if let Some(target) = targets.get(&id).filter(|target| **target != now) {
                napis.write(id, number, *target)?;
                written = true;
            }
        }
        Ok(written)
    }
}

/// `None` for a number that no NAPI has, and where the kernel does not list them.
fn open(attribute: LinkAttribute, at: &At<'_>) -> Result<Option<(NapiNumber, Napis)>, StepError> {
    let number = match attribute {
        LinkAttribute::GroFlushTimeout => NapiNumber::GroFlushTimeout,
        LinkAttribute::NapiDeferHardIrqs => NapiNumber::DeferHardIrqs,
        LinkAttribute::Threaded | LinkAttribute::TxQueueLen | LinkAttribute::VirtualFunctions => {
            return Ok(None);
        }
    };
    Ok(Napis::open_in(&at.opened.netns)?.map(|napis| (number, napis)))
}
