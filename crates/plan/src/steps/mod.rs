//! What each step means: the state it reads, the change, what is read back, and the way back. One file a family.
//!
//! Every function is called in one order only: `before`, then (with the intent on disk) `act`, then `after`; perhaps
//! much later and in another process, `undo`.

mod attribute;
mod debug;
mod interrupt;
mod link;
mod look;
mod module;
mod netns;
mod nic;
mod object;
mod parameter;
mod program;
mod qdisc;
mod queue;
mod queues;
mod route;
mod rss;
mod setting;
mod splice;

use std::collections::BTreeMap;
use std::fmt;

use linux::IfName;
use linux::netlink::{LinkInfo, Netlink};

use crate::entry::{After, Before, Intent, Undone};
use crate::error::StepError;
use crate::{Kernel, Place, Placed, Step};
use link::Move;
pub(crate) use link::peer_netns;
pub(crate) use look::look;
pub(crate) use nic::spread;
pub(crate) use parameter::is_about_code;

/// A step of the past.
#[derive(Debug, Clone)]
pub(crate) struct Past {
    /// What was about to be done.
    pub(crate) intent: Intent,
    /// What was read back; `None`: it may have happened or not.
    pub(crate) after: Option<After>,
}

/// How undoing went, and the index of a link that was moved back.
pub(crate) struct Outcome {
    pub(crate) undone: Undone,
    pub(crate) index: Option<u32>,
}

/// Indexes of links that undo has moved back, by the index they had there: the kernel may give a new one.
#[derive(Debug, Default)]
pub(crate) struct MovedBack(BTreeMap<(Place, u32), u32>);

/// Reads the state that the step will change; refuses what cannot be undone.
pub(crate) fn before(kernel: &mut Kernel, placed: &Placed) -> Result<Before, StepError> {
    let Placed { place, step } = placed;
    match step {
        Step::AddNetns => netns::before(place),
        Step::AddLink(wanted) => link::before_add(kernel, place, wanted),
        Step::MoveLink { link, to, name } => link::before_move(kernel, place, Move { link, to, name }),
        Step::SetLinkUp { link } => setting::before_up(kernel, place, link),
        Step::SetLinkMtu { link, mtu } => setting::before_mtu(kernel, place, link, *mtu),
        Step::SetLinkMaster { link, master } => setting::before_master(kernel, place, link, master),
        Step::SetHairpin { link } => setting::before_hairpin(kernel, place, link),
        Step::AddAddress { .. }
        | Step::AddRoute(_)
        | Step::AddNeighbour(_)
        | Step::AddFdb(_)
        | Step::AddNftTable(_) => object::before(kernel, place, step),
        Step::SetSysctl { key, value } => parameter::before(kernel, place, key, value),
        Step::SetQueueCpus { link, queue, .. } => queue::before(kernel, place, link, *queue),
        Step::SetQueueFlows { link, rx, .. } => queue::before_flows(kernel, place, link, *rx),
        Step::SetRouteMetric { dst, link, metric, .. } => route::before(kernel, place, (dst, link), *metric),
        Step::SetGsoMaxSegs { link, .. } => setting::before_gso(kernel, place, link),
        Step::SetRootQdisc { link, .. } => qdisc::before(kernel, place, link),
        Step::SetNic { link, parameter, value } => nic::before(kernel, place, link, *parameter, *value),
        Step::SetIndirection { link, .. } => nic::before_table(kernel, place, link),
        Step::SetRssHash { link, hash } => rss::before(kernel, place, link, hash),
        Step::SetLinkAttribute { link, attribute, .. } => attribute::before(kernel, place, link, *attribute),
        Step::SetDebug { file, .. } => debug::before(*file),
        Step::SetModule { parameter, .. } => module::before(*parameter),
        Step::SetIrqCpus { irq, name, .. } => interrupt::before(*irq, name),
        Step::LoadPrograms(programs) => program::before_load(programs),
        Step::AttachProgram(attachment) => program::before_attach(kernel, place, attachment),
        Step::AddEndpoint(endpoint) => program::before_endpoint(kernel, place, endpoint),
        Step::AddTunnel(tunnel) => program::before_tunnel(kernel, place, tunnel),
        Step::AddCgroup(splice) => splice::before_cgroup(splice),
        Step::LoadSplice(splice) => splice::before_load(splice),
        Step::AttachSplice(splice) => splice::before_attach(splice),
        Step::AddMember(member) => splice::before_member(kernel, place, member),
    }
}

/// Changes the machine.
pub(crate) fn act(kernel: &mut Kernel, placed: &Placed, before: &Before) -> Result<(), StepError> {
    let Placed { place, step } = placed;
    match step {
        Step::AddNetns => netns::act(place),
        Step::AddLink(wanted) => Ok(kernel.at(place)?.netlink.link_add(wanted)?),
        Step::MoveLink { link, to, name } => link::act_move(kernel, place, Move { link, to, name }, before),
        Step::SetLinkUp { link } => setting::act_up(kernel, place, link),
        Step::SetLinkMtu { link, mtu } => setting::act_mtu(kernel, place, link, *mtu),
        Step::SetLinkMaster { link, master } => setting::act_master(kernel, place, link, master),
        Step::SetHairpin { link } => setting::act_hairpin(kernel, place, link),
        Step::AddAddress { .. }
        | Step::AddRoute(_)
        | Step::AddNeighbour(_)
        | Step::AddFdb(_)
        | Step::AddNftTable(_) => object::act(kernel, place, step),
        Step::SetSysctl { key, value } => parameter::write(kernel, place, key, value),
        Step::SetQueueCpus { link, queue, cpus } => queue::write(kernel, place, link, *queue, cpus),
        Step::SetQueueFlows { link, rx, flows } => queue::write_flows(kernel, place, link, *rx, *flows),
        Step::SetRouteMetric { dst, metric, value, .. } => {
            route::act(kernel, place, dst, *metric, value, before)
        }
        Step::SetGsoMaxSegs { link, segments } => setting::act_gso(kernel, place, link, *segments),
        Step::SetRootQdisc { link, qdisc } => qdisc::act(kernel, place, link, qdisc),
        Step::SetNic { link, parameter, value } => nic::act(kernel, place, link, *parameter, *value),
        Step::SetIndirection { link, queues } => nic::act_table(kernel, place, link, *queues, before),
        Step::SetRssHash { link, hash } => rss::act(kernel, place, link, hash, before),
        Step::SetLinkAttribute { link, attribute, value } => {
            attribute::write(kernel, place, link, *attribute, *value)
        }
        Step::SetDebug { file, value } => debug::write(*file, *value),
        Step::SetModule { parameter, value } => module::write(*parameter, *value),
        Step::SetIrqCpus { irq, cpus, .. } => interrupt::write(*irq, cpus),
        Step::LoadPrograms(programs) => program::load(kernel, place, programs),
        Step::AttachProgram(attachment) => program::attach(kernel, place, attachment, before),
        Step::AddEndpoint(endpoint) => program::add_endpoint(endpoint, before),
        Step::AddTunnel(tunnel) => program::add_tunnel(tunnel, before),
        Step::AddCgroup(splice) => Ok(splice.cgroup()?.create()?),
        Step::LoadSplice(splice) => splice::load(splice),
        Step::AttachSplice(splice) => splice::attach(splice),
        Step::AddMember(member) => splice::add_member(kernel, place, member),
    }
}

/// Reads back what is there now.
pub(crate) fn after(kernel: &mut Kernel, placed: &Placed, before: &Before) -> Result<After, StepError> {
    let Placed { place, step } = placed;
    match step {
        Step::AddNetns => Ok(After::Netns { cookie: kernel.at(place)?.cookie }),
        Step::AddLink(wanted) => link::after_add(kernel, place, wanted),
        Step::MoveLink { to, name, .. } => Ok(After::Link { index: existing(kernel, to, name)?.index }),
        Step::SetLinkUp { link } => setting::after_up(kernel, place, link),
        Step::SetLinkMtu { link, mtu } => setting::after_mtu(kernel, place, link, *mtu, before),
        Step::SetLinkMaster { link, master } => setting::after_master(kernel, place, link, master),
        Step::SetHairpin { link } => setting::after_hairpin(kernel, place, link),
        Step::AddAddress { .. }
        | Step::AddRoute(_)
        | Step::AddNeighbour(_)
        | Step::AddFdb(_)
        | Step::AddNftTable(_) => object::after(kernel, place, step),
        Step::SetSysctl { key, .. } => parameter::after(kernel, place, key, before),
        Step::SetQueueCpus { link, queue, .. } => queue::after(kernel, place, link, *queue),
        Step::SetQueueFlows { link, rx, .. } => queue::after_flows(kernel, place, link, *rx),
        Step::SetRouteMetric { dst, link, metric, .. } => route::after(kernel, place, (dst, link), *metric),
        Step::SetGsoMaxSegs { link, segments } => setting::after_gso(kernel, place, link, *segments),
        Step::SetRootQdisc { link, .. } => qdisc::after(kernel, place, link),
        Step::SetNic { link, parameter, .. } => nic::after(kernel, place, link, *parameter, before),
        Step::SetIndirection { link, .. } => nic::after_table(kernel, place, link),
        Step::SetRssHash { link, hash } => rss::after(kernel, place, link, hash),
        Step::SetLinkAttribute { link, attribute, .. } => attribute::after(kernel, place, link, *attribute),
        Step::SetDebug { file, .. } => debug::after(*file),
        Step::SetModule { parameter, .. } => module::after(*parameter),
        Step::SetIrqCpus { irq, name, .. } => interrupt::after(*irq, name),
        // They return when they have done it, and there is nothing else to read.
        Step::LoadPrograms(_)
        | Step::AttachProgram(_)
        | Step::AddEndpoint(_)
        | Step::AddTunnel(_)
        | Step::AddCgroup(_)
        | Step::LoadSplice(_)
        | Step::AttachSplice(_)
        | Step::AddMember(_) => Ok(After::AsPlanned),
    }
}

/// Compares what was read back with what was wanted, where the kernel may take a value and make another of it.
pub(crate) fn verify(step: &Step, after: &After) -> Result<(), StepError> {
    match (step, after) {
        (Step::SetSysctl { key, value }, After::Sysctl { value: found, .. }) => {
            parameter::verify(key, value, found)
        }
        (Step::SetQueueCpus { cpus, .. }, After::QueueCpus { cpus: found }) => queue::verify(cpus, found),
        (Step::SetQueueFlows { flows, .. }, After::QueueFlows { flows: found }) => {
            queue::verify_flows(*flows, *found)
        }
        (Step::SetRouteMetric { metric, value, .. }, After::RouteMetric { state }) => {
            route::verify(*metric, value, state)
        }
        (Step::SetRootQdisc { qdisc, .. }, After::RootQdisc { qdisc: found }) => qdisc::verify(qdisc, found),
        (Step::SetNic { value, parameter, .. }, After::Nic { value: found, .. }) => {
            taken(value, found, |value| format!("{value} for {parameter}"))
        }
        (Step::SetIndirection { queues, .. }, After::Indirection { table }) => {
            taken(&spread(table.len(), *queues), table, |table| format!("{table:?}"))
        }
        (Step::SetRssHash { hash, .. }, After::RssHash { is }) => rss::verify(hash, is),
        (Step::SetLinkAttribute { value, attribute, .. }, After::LinkAttribute { value: found }) => {
            taken(value, found, |value| format!("{attribute} {value}"))
        }
        (Step::SetDebug { value, file }, After::Debug { value: found }) => {
            taken(value, found, |value| format!("{file} {value}"))
        }
        (Step::SetModule { value, parameter }, After::Module { value: found }) => {
            taken(value, found, |value| format!("{} {value}", parameter.name()))
        }
        (Step::SetIrqCpus { cpus, .. }, After::IrqCpus { cpus: found }) => queue::verify(cpus, found),
        _ => Ok(()),
    }
}

/// Brings back the state before the step, if what is there now is what the step left.
pub(crate) fn undo(kernel: &mut Kernel, past: &Past, moved: &MovedBack) -> Result<Outcome, StepError> {
    let Intent { placed: Placed { place, step }, before, .. } = &past.intent;
    let after = past.after.as_ref();
    let undone = match step {
        Step::AddNetns => netns::undo(kernel, place, after)?,
        Step::AddLink(made) => link::undo_add(kernel, place, made, after, moved)?,
        Step::MoveLink { link, to, name } => {
            return link::undo_move(kernel, past, Move { link, to, name }, moved);
        }
        Step::SetLinkUp { .. }
        | Step::SetLinkMtu { .. }
        | Step::SetLinkMaster { .. }
        | Step::SetHairpin { .. }
        | Step::SetGsoMaxSegs { .. } => setting::undo(kernel, past, moved)?,
        Step::AddAddress { .. }
        | Step::AddRoute(_)
        | Step::AddNeighbour(_)
        | Step::AddFdb(_)
        | Step::AddNftTable(_) => object::undo(kernel, place, step, after)?,
        Step::SetSysctl { key, value } => parameter::undo(kernel, place, (key, value), before, after)?,
        Step::SetQueueCpus { queue, cpus, .. } => queue::undo(kernel, past, *queue, cpus, moved)?,
        Step::SetQueueFlows { rx, flows, .. } => queue::undo_flows(kernel, past, *rx, *flows, moved)?,
        Step::SetRouteMetric { dst, metric, value, .. } => {
            route::undo(kernel, past, (dst, *metric, value), moved)?
        }
        Step::SetRootQdisc { qdisc, .. } => qdisc::undo(kernel, past, qdisc, moved)?,
        Step::SetNic { parameter, value, .. } => nic::undo(kernel, past, *parameter, *value, moved)?,
        Step::SetIndirection { queues, .. } => nic::undo_table(kernel, past, *queues, moved)?,
        Step::SetRssHash { hash, .. } => rss::undo(kernel, past, hash, moved)?,
        Step::SetLinkAttribute { attribute, value, .. } => {
            attribute::undo(kernel, past, *attribute, *value, moved)?
        }
        Step::SetDebug { file, value } => debug::undo(past, *file, *value)?,
        Step::SetModule { parameter, value } => module::undo(past, *parameter, *value)?,
        Step::SetIrqCpus { irq, name, cpus } => interrupt::undo(past, (*irq, name), cpus)?,
        Step::LoadPrograms(programs) => program::undo_load(programs, after)?,
        Step::AttachProgram(attachment) => program::undo_attach(kernel, place, attachment, before, after)?,
        Step::AddEndpoint(endpoint) => program::undo_endpoint(endpoint, before, after)?,
        Step::AddTunnel(tunnel) => program::undo_tunnel(tunnel, before, after)?,
        Step::AddCgroup(splice) => splice::undo_cgroup(splice, after)?,
        Step::LoadSplice(splice) => splice::undo_load(splice, after)?,
        Step::AttachSplice(splice) => splice::undo_attach(splice, after)?,
        Step::AddMember(member) => splice::undo_member(past, member)?,
    };
    Ok(Outcome { undone, index: None })
}

impl MovedBack {
    /// Notes that undo has moved a link back; `before` is what the move's intent says.
    pub(crate) fn note(&mut self, place: &Place, before: &Before, now: Option<u32>) {
        if let (Before::Placed { index, .. }, Some(now)) = (before, now) {
            self.0.insert((place.clone(), *index), now);
        }
    }

    /// The index that a link has now.
    fn now(&self, place: &Place, index: u32) -> u32 {
        self.0.get(&(place.clone(), index)).copied().unwrap_or(index)
    }
}

/// Compares a value that was read back with the one that was wanted.
fn taken<T: PartialEq>(wanted: &T, found: &T, text: impl Fn(&T) -> String) -> Result<(), StepError> {
    if wanted == found {
        Ok(())
    } else {
        Err(StepError::NotTaken { wanted: text(wanted), found: text(found) })
    }
}

/// The value is as before, or is ours and is put back, or is somebody else's and is left alone.
fn put_back<T: PartialEq + fmt::Display>(
    now: &T,
    old: &T,
    ours: &T,
    write: impl FnOnce() -> Result<(), StepError>,
) -> Result<Undone, StepError> {
    if now == old {
        Ok(Undone::AlreadySo)
    } else if now == ours {
        write()?;
        Ok(Undone::Restored)
    } else {
        Ok(Undone::ChangedByOther { found: now.to_string() })
    }
}

/// What an `Add…` step made is not there: with a `Done` somebody has removed it, else it never was.
fn absent(after: Option<&After>) -> Undone {
    if after.is_some() { Undone::Gone } else { Undone::AlreadySo }
}

fn existing(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<LinkInfo, StepError> {
    let found = kernel.at(place)?.netlink.link(link)?;
    found.ok_or_else(|| StepError::NoLink { link: link.to_string() })
}

fn by_index(netlink: &Netlink, index: u32) -> Result<Option<LinkInfo>, StepError> {
    Ok(netlink.links()?.into_iter().find(|link| link.index == index))
}
