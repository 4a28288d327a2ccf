//! Namespaces.

use linux::{Netns, NetnsName, netns};

use super::absent;
use crate::entry::{After, Before, Undone};
use crate::error::StepError;
use crate::{Kernel, Place};

pub(super) fn before(place: &Place) -> Result<Before, StepError> {
    let name = named(place)?;
    if netns::exists(name) {
        return Err(StepError::Exists {
            what: format!("namespace {name}"),
            remedy: format!("remove it with `ip netns del {name}` if nobody needs it"),
        });
    }
    Ok(Before::Absent)
}

pub(super) fn act(place: &Place) -> Result<(), StepError> {
    Netns::create(named(place)?)?;
    Ok(())
}

pub(super) fn undo(kernel: &mut Kernel, place: &Place, after: Option<&After>) -> Result<Undone, StepError> {
    let name = named(place)?;
    if !netns::exists(name) {
        return Ok(absent(after));
    }
    if let Some(After::Netns { cookie }) = after
        && kernel.at(place)?.cookie != *cookie
    {
        return Ok(Undone::ChangedByOther { found: format!("another namespace with the name {name}") });
    }
    // Our own descriptors would keep it alive.
    kernel.forget(name);
    netns::delete(name)?;
    Ok(Undone::Restored)
}

fn named(place: &Place) -> Result<&NetnsName, StepError> {
    match place {
        Place::Netns(name) => Ok(name),
        Place::Host => Err(StepError::Refused { why: "the host's namespace cannot be made".to_owned() }),
    }
}
