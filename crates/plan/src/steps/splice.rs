//! The short cut of TCP between pods of one node: its control group, its programs, its pods.

use bpf::{pins, splice};

use super::{Past, absent};
use crate::entry::{After, Before, Undone};
use crate::error::StepError;
use crate::forwarding::{Member, Splice};
use crate::{Kernel, Place};

pub(super) fn before_cgroup(splice: &Splice) -> Result<Before, StepError> {
    let cgroup = splice.cgroup()?;
    let what = format!("control group {}", cgroup.path().display());
    absent_or(cgroup.exists(), what, "if nobody needs it, end what runs in it and remove the directory")
}

pub(super) fn before_load(splice: &Splice) -> Result<Before, StepError> {
    let remedy = format!("if nobody needs it: hostgap bpf unload {}", splice.node);
    absent_or(splice::is_loaded(&splice.folder()), format!("the splice of {}", splice.node), &remedy)
}

pub(super) fn load(splice: &Splice) -> Result<(), StepError> {
    Ok(splice::load(&splice.folder())?)
}

pub(super) fn before_attach(splice: &Splice) -> Result<Before, StepError> {
    let what = format!("the splice of {} at a control group", splice.node);
    let remedy = format!("if nobody needs it: hostgap bpf unload {}", splice.node);
    absent_or(splice::is_attached(&splice.folder()), what, &remedy)
}

pub(super) fn attach(splice: &Splice) -> Result<(), StepError> {
    Ok(splice::attach(&splice.folder(), splice.cgroup()?.path())?)
}

pub(super) fn before_member(
    kernel: &mut Kernel,
    place: &Place,
    member: &Member,
) -> Result<Before, StepError> {
    let cookie = kernel.at(place)?.cookie;
    let found = splice::has_member(&member.folder(), cookie, &member.addresses)?;
    absent_or(found.is_some(), "a pod with one of the addresses".to_owned(), "undo the plan that added it")
}

pub(super) fn add_member(kernel: &mut Kernel, place: &Place, member: &Member) -> Result<(), StepError> {
    let cookie = kernel.at(place)?.cookie;
    Ok(splice::add_member(&member.folder(), cookie, &member.addresses)?)
}

pub(super) fn undo_cgroup(splice: &Splice, after: Option<&After>) -> Result<Undone, StepError> {
    let cgroup = splice.cgroup()?;
    put_away(cgroup.exists(), after, || cgroup.remove())
}

pub(super) fn undo_load(splice: &Splice, after: Option<&After>) -> Result<Undone, StepError> {
    let folder = splice.folder();
    put_away(splice::is_loaded(&folder), after, || splice::remove(&folder))
}

pub(super) fn undo_attach(splice: &Splice, after: Option<&After>) -> Result<Undone, StepError> {
    let folder = splice.folder();
    put_away(splice::is_attached(&folder), after, || splice::detach(&folder))
}

/// The namespace may be gone; what tells its entries from another's is what the journal has of it.
pub(super) fn undo_member(past: &Past, member: &Member) -> Result<Undone, StepError> {
    let (folder, after) = (member.folder(), past.after.as_ref());
    let Some(cookie) = past.intent.netns_cookie else {
        return Err(StepError::Refused { why: "the journal does not tell the pod's namespace".to_owned() });
    };
    let there = pins::exists(&folder)
        && splice::is_loaded(&folder)
        && splice::has_member(&folder, cookie, &member.addresses)?.is_some();
    put_away(there, after, || splice::remove_member(&folder, cookie, &member.addresses))
}

fn put_away(
    there: bool,
    after: Option<&After>,
    remove: impl FnOnce() -> linux::Result<()>,
) -> Result<Undone, StepError> {
    if !there {
        return Ok(absent(after));
    }
    remove()?;
    Ok(Undone::Restored)
}

fn absent_or(there: bool, what: String, remedy: &str) -> Result<Before, StepError> {
    if there { Err(StepError::Exists { what, remedy: remedy.to_owned() }) } else { Ok(Before::Absent) }
}
