//! What each step does to the kernel: one trait, one file a family.

mod address;
mod ensure;
mod guard;
mod link;
mod listed;
mod neighbour;
mod netns;
mod object;
mod ovs;
mod program;
mod rdma;
mod redirect;
mod replace;
mod route;
mod rules;
mod service;
mod setting;
mod share;
mod splice;
mod user_net;
mod wireguard;
mod xfrm;

use std::collections::BTreeMap;
use std::fmt::Debug;

use linux::IfName;
use linux::netlink::LinkInfo;
use rustix::io::Errno;

use crate::entry::{After, Before, Intent, Undone};
use crate::error::StepError;
use crate::lack::Lack;
use crate::lifetime::Lifetime;
use crate::listing::Listing;
use crate::look::StepState;
use crate::preview::Preview;
use crate::{Kernel, Place, Step};
pub use guard::{renew_guard, replace_guard};
use listed::Lists;
use object::Adds;
pub use program::{renew_programs, replace_programs};
use replace::Replaces;
pub use service::{has_services, leads_services, renew_services};

/// What a step does, and all that is to be known of it.
///
/// `before`, then (with the intent on disk) `act`, then `after` are called in this order; `undo` perhaps much later, in
/// another process.
pub(crate) trait Effect {
    /// Reads the state that the step will change; refuses what cannot be undone.
    fn before(&self, kernel: &mut Kernel, place: &Place) -> Result<Before, StepError>;

    /// Changes the machine; the intent is on disk.
    fn act(&self, kernel: &mut Kernel, place: &Place, before: &Before) -> Result<(), StepError>;

    /// As `act`, of a step that takes over, where its place was free a moment ago: `EEXIST` if it no longer is.
    fn act_on_free(&self, _kernel: &mut Kernel, _place: &Place) -> Result<(), StepError> {
        Err(StepError::Refused { why: format!("{} is not made in a free place alone", self.subject()) })
    }

    /// Whether what an earlier step of the same unit made becomes what this one makes by a change in place, which takes
    /// nothing from what rests on it.
    fn adapts(&self, _kernel: &mut Kernel, _place: &Place, _earlier: &Step) -> Result<bool, StepError> {
        Ok(false)
    }

    /// As `act`, where the step adapts what stands.
    fn adapt(&self, _kernel: &mut Kernel, _place: &Place) -> Result<(), StepError> {
        Err(StepError::Refused { why: format!("{} cannot be changed in place", self.subject()) })
    }

    /// Reads back what is there now. Many steps have done it when `act` returns, and there is nothing else to read.
    fn after(&self, _kernel: &mut Kernel, _place: &Place, _before: &Before) -> Result<After, StepError> {
        Ok(After::AsPlanned)
    }

    /// Compares what was read back with what was wanted.
    fn verify(&self, _after: &After) -> Result<(), StepError> {
        Ok(())
    }

    /// Brings back the state before the step, if what is there now is what the step left.
    fn undo(&self, kernel: &mut Kernel, past: &Past, moved: &MovedBack) -> Result<UndoOutcome, StepError>;

    /// Makes what stands in part, or as another version made it, what the step makes, and keeps what is in it: entries
    /// of units whose journals would not make them again. False: undo takes nothing from others.
    fn renew(&self, _kernel: &mut Kernel, _place: &Place) -> Result<bool, StepError> {
        Ok(false)
    }

    /// What of other programs rests on what the step made, as a phrase: undo of the journal would take it from them.
    fn in_use(&self, _kernel: &mut Kernel, _past: &Past) -> Result<Option<String>, StepError> {
        Ok(None)
    }

    /// The link by which others can come to use what the step made, so that its undo fails until they are gone. The
    /// link stays where it is as long, so that another undo finds it.
    fn lends(&self) -> Option<IfName> {
        None
    }

    /// The link, in the place where it is, at which the step sets something or on which it stands what it makes.
    fn rests_on(&self, _place: &Place) -> Option<(Place, IfName)> {
        None
    }

    /// The place into which the step moves a link, and the name that the link has there.
    fn brings(&self) -> Option<(&Place, &IfName)> {
        None
    }

    /// Whether it is so now. `listing` is what its namespace holds.
    fn look(&self, kernel: &mut Kernel, place: &Place, listing: &Listing) -> Result<StepState, StepError>;

    /// As `look`, and nothing of others stands beside what the step made and may take from it what it is there for. A
    /// measurement asks so. Who repairs does not: what is made again stands beside them as before.
    fn look_alone(
        &self,
        kernel: &mut Kernel,
        place: &Place,
        listing: &Listing,
    ) -> Result<StepState, StepError> {
        self.look(kernel, place, listing)
    }

    /// What the step would change; `None` for one that changes no value.
    fn preview(&self, _kernel: &mut Kernel, _place: &Place) -> Result<Option<Preview>, StepError> {
        Ok(None)
    }

    /// Whether a state is of the kind that the step looks at before it acts. A journal's line can be whole and have its
    /// checksum, and yet be no line that a step writes: undo would take one thing for another then.
    fn admits_before(&self, before: &Before) -> bool {
        *before == Before::Absent
    }

    /// Whether a state is of the kind that is read back after the step.
    fn admits_after(&self, after: &After) -> bool {
        *after == After::AsPlanned
    }

    /// What ends the effect, beside undo.
    fn lifetime(&self) -> Lifetime<'_> {
        Lifetime::Netns
    }

    /// Whether an inventory of the namespace shows it.
    fn is_listed(&self) -> bool {
        false
    }

    /// As [`Step::lack`].
    fn lack(&self) -> Option<Lack> {
        None
    }

    /// What distinguishes it from others of its kind with the same subject, which can stand beside it.
    /// It stands in files.
    fn distinction(&self) -> String {
        String::new()
    }

    /// What it is about, as a text that no step about something else has.
    fn identity(&self) -> String;

    /// The place in the kernel that it takes, of which there is one: two steps with different identities may want it.
    fn slot(&self) -> String {
        self.identity()
    }

    /// Whether it can take its place from an earlier step of the same unit at once, and leave to undo
    /// what that one found.
    fn takes_over(&self) -> bool {
        false
    }

    /// What it is about, as a phrase.
    fn subject(&self) -> String;

    /// What to say when nothing is left of it.
    fn gone(&self) -> String {
        format!("{} is gone", self.subject())
    }

    /// What to say when something else is there.
    fn changed(&self, found: &str) -> String {
        format!("{} is now {found}", self.subject())
    }

    /// What a person would type.
    fn commands(&self, place: &Place) -> Vec<String>;

    /// What a person would type to take away what no removal of a namespace takes along.
    fn removal(&self, _place: &Place) -> Option<String> {
        None
    }
}

impl Step {
    /// The effect that the step has on the kernel.
    pub(crate) fn effect(&self) -> Box<dyn Effect + '_> {
        match self {
            Step::AddNetns => Box::new(netns::AddNetns),
            Step::AddLink(link) => Box::new(link::AddLink(link)),
            Step::AddLinkOn { link, parent_in } => Box::new(link::AddLinkOn { link, parent_in }),
            Step::EnsureLink(link) => Box::new(ensure::EnsureLink(link)),
            Step::MoveLink { link, to, name } => Box::new(link::MoveLink { link, to, name }),
            Step::AddAddress { link, address } => Box::new(Adds(address::LinkAddress { link, address })),
            Step::EnsureAddress { link, address } => Box::new(ensure::EnsureAddress { link, address }),
            Step::AddRoute(route) => Box::new(Adds(route)),
            Step::ReplaceRoute(route) => Box::new(Replaces(route)),
            Step::AddNeighbour(neighbour) => Box::new(Adds(neighbour)),
            Step::ReplaceNeighbour(neighbour) => Box::new(Replaces(neighbour)),
            Step::AddFdb(entry) => Box::new(Adds(entry)),
            Step::ReplaceFdb(entry) => Box::new(Replaces(entry)),
            Step::AddWireGuardPeer(peer) => Box::new(Adds(peer)),
            Step::AddXfrmState { state, key_file } => Box::new(Adds(xfrm::KeyedState { state, key_file })),
            Step::AddXfrmPolicy(policy) => Box::new(Adds(policy)),
            Step::AddRdmaLink(device) => Box::new(Adds(device)),
            Step::AddRedirect { from, to } => Box::new(Adds(redirect::Redirect { from, to })),
            Step::AddNftTable(table) => Box::new(Adds(table)),
            Step::AddNftElement(element) => Box::new(Adds(element)),
            Step::StartOvs(switch) => Box::new(ovs::StartOvs(switch)),
            Step::AddOvsBridge(bridge) => Box::new(Adds(bridge)),
            Step::AddOvsPort(port) => Box::new(Adds(port)),
            Step::StartUserNet(net) => Box::new(user_net::StartUserNet(net)),
            Step::LoadPrograms(programs) => Box::new(program::LoadPrograms(programs)),
            Step::AttachProgram(attachment) => Box::new(program::AttachProgram(attachment)),
            Step::AddEndpoint(endpoint) => Box::new(Lists(endpoint)),
            Step::AddTunnel(tunnel) => Box::new(Lists(tunnel)),
            Step::AddUplink(uplink) => Box::new(Lists(uplink)),
            Step::AddCgroup(splice) => Box::new(splice::AddCgroup(splice)),
            Step::LoadSplice(splice) => Box::new(splice::LoadSplice(splice)),
            Step::AttachSplice(splice) => Box::new(splice::AttachSplice(splice)),
            Step::AddMember(member) => Box::new(splice::AddMember(member)),
            Step::LoadGuard(guard) => Box::new(guard::LoadGuard(guard)),
            Step::AddGuarded(guarded) => Box::new(guard::AddGuarded(guarded)),
            Step::LoadServices(programs) => Box::new(service::LoadServices(programs)),
            Step::AttachServices(attachment) => Box::new(service::AttachServices(attachment)),
            Step::ReplaceService(entry) => Box::new(service::ReplaceService(entry)),
            Step::Set(set) => setting::effect(set),
            Step::Share(step) => Box::new(share::SharedStep(step)),
        }
    }
}

/// A step of the past.
#[derive(Debug, Clone)]
pub(crate) struct Past {
    /// What was about to be done.
    pub(crate) intent: Intent,
    /// What was read back; `None`: it may have happened or not.
    pub(crate) after: Option<After>,
}

/// How undoing went, and the index of a link that was moved back.
pub(crate) struct UndoOutcome {
    pub(crate) undone: Undone,
    pub(crate) index: Option<u32>,
}

impl From<Undone> for UndoOutcome {
    fn from(undone: Undone) -> UndoOutcome {
        UndoOutcome { undone, index: None }
    }
}

/// Indexes of links that undo has moved back, by the index they had there: the kernel may give a new one.
#[derive(Debug, Default)]
pub(crate) struct MovedBack(BTreeMap<(Place, u32), u32>);

impl MovedBack {
    /// Notes that undo has moved a link back; `before` is what the move's intent says.
    pub(crate) fn note(&mut self, place: &Place, before: &Before, now: Option<u32>) {
        if let (Before::Placed { index, .. }, Some(now)) = (before, now) {
            self.0.insert((place.clone(), *index), now);
        }
    }

    /// The index that a link has now.
    pub(crate) fn now(&self, place: &Place, index: u32) -> u32 {
        self.0.get(&(place.clone(), index)).copied().unwrap_or(index)
    }
}

/// What an `Add…` step made is not there: with a `Done` another program has removed it, else it never was.
fn absent(after: Option<&After>) -> Undone {
    if after.is_some() { Undone::Gone } else { Undone::AlreadySo }
}

/// A link that the step needs.
pub(crate) fn existing(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<LinkInfo, StepError> {
    let found = kernel.at(place)?.netlink.link(link)?;
    found.ok_or_else(|| StepError::NoLink { link: link.to_string() })
}

/// The index of a link at which programs are to read Ethernet headers: from packets without them they would take the
/// destination from what the sender wrote behind it.
fn ethernet_index(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<u32, StepError> {
    let found = existing(kernel, place, link)?;
    if found.mac.is_none() {
        let why = format!("packets of link {link} have no Ethernet header, and the programs read one");
        return Err(StepError::Refused { why });
    }
    Ok(found.index)
}

/// The index of a link that the step needs.
pub(crate) fn existing_index(kernel: &mut Kernel, place: &Place, link: &IfName) -> Result<u32, StepError> {
    kernel.at(place)?.netlink.index_of(link).map_err(|error| match error.is(Errno::NODEV.raw_os_error()) {
        true => StepError::NoLink { link: link.to_string() },
        false => error.into(),
    })
}

/// A journal that says something else than was written for this step.
pub(crate) fn mistaken(state: &impl Debug) -> StepError {
    StepError::Refused { why: format!("the journal has {state:?} for a step of another kind") }
}
