//! What ends the effect of a step, beside undo.

use linux::NetnsName;

use crate::{Place, Step, steps};

/// What takes the effect of a step with it when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime<'s> {
    /// The step makes its namespace.
    Own,
    /// The namespace of the step.
    Netns,
    /// That, and this other namespace: the effect reaches into both.
    Both(&'s NetnsName),
    /// Nothing but the machine. The effect is found through the namespace of the step.
    Machine,
    /// A mount or a control group, which are in no network namespace: the effect is found without one.
    Outside,
}

impl Step {
    /// What takes its effect with it.
    pub(crate) fn lifetime(&self) -> Lifetime<'_> {
        match self {
            Step::AddNetns => Lifetime::Own,
            // A namespace dies some time after its name; the other end of a pair must not outlive undo elsewhere.
            Step::AddLink(link) => steps::peer_netns(link).map_or(Lifetime::Netns, Lifetime::Both),
            Step::MoveLink { to: Place::Netns(to), .. } => Lifetime::Both(to),
            Step::MoveLink { to: Place::Host, .. } => Lifetime::Machine,
            // Outside `net` there is one value for the whole machine.
            Step::SetSysctl { key, .. } if key.as_str().starts_with("net/") => Lifetime::Netns,
            Step::SetSysctl { .. } | Step::SetDebug { .. } | Step::SetModule { .. } => Lifetime::Machine,
            // A card survives its namespace, and interrupts belong to the machine.
            Step::SetNic { .. }
            | Step::SetIndirection { .. }
            | Step::SetRssHash { .. }
            | Step::SetIrqCpus { .. } => Lifetime::Machine,
            Step::SetLinkUp { .. }
            | Step::SetLinkMtu { .. }
            | Step::SetLinkMaster { .. }
            | Step::SetHairpin { .. }
            | Step::AddAddress { .. }
            | Step::AddRoute(_)
            | Step::AddNeighbour(_)
            | Step::AddFdb(_)
            | Step::AddNftTable(_)
            | Step::SetQueueCpus { .. }
            | Step::SetQueueFlows { .. }
            | Step::SetRouteMetric { .. }
            | Step::SetGsoMaxSegs { .. }
            | Step::SetRootQdisc { .. }
            | Step::SetLinkAttribute { .. } => Lifetime::Netns,
            // These end with the links of the namespace and with the mount of the node's pins.
            Step::AttachProgram(_) | Step::AddEndpoint(_) | Step::AddTunnel(_) => Lifetime::Netns,
            // A pod may go while its node and that mount stay.
            Step::LoadPrograms(_)
            | Step::AddCgroup(_)
            | Step::LoadSplice(_)
            | Step::AttachSplice(_)
            | Step::AddMember(_) => Lifetime::Outside,
        }
    }
}
