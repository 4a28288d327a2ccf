//! Which states belong to which step. A journal's line can be whole and have its checksum, and yet be no line that a step
//! writes: another program's, or one that somebody has put together. Undo would take one thing for another then.

use crate::Step;
use crate::entry::{After, Before};

/// Whether it is the kind of state that the step looks at before it acts.
pub(super) fn is_before(step: &Step, before: &Before) -> bool {
    match step {
        Step::AddNetns
        | Step::AddLink(_)
        | Step::AddAddress { .. }
        | Step::AddRoute(_)
        | Step::AddNeighbour(_)
        | Step::AddFdb(_)
        | Step::AddNftTable(_)
        | Step::LoadPrograms(_)
        | Step::AddCgroup(_)
        | Step::LoadSplice(_)
        | Step::AttachSplice(_)
        | Step::AddMember(_) => matches!(before, Before::Absent),
        Step::MoveLink { .. } => matches!(before, Before::Placed { .. }),
        Step::SetLinkUp { .. } => matches!(before, Before::Up { .. }),
        Step::SetLinkMtu { .. } => matches!(before, Before::Mtu { .. }),
        Step::SetLinkMaster { .. } => matches!(before, Before::Master { .. }),
        Step::SetHairpin { .. } => matches!(before, Before::Hairpin { .. }),
        Step::SetSysctl { .. } => matches!(before, Before::Sysctl { .. }),
        Step::SetQueueCpus { .. } => matches!(before, Before::QueueCpus { .. }),
        Step::SetQueueFlows { .. } => matches!(before, Before::QueueFlows { .. }),
        Step::SetRouteMetric { .. } => matches!(before, Before::RouteMetric { .. }),
        Step::SetGsoMaxSegs { .. } => matches!(before, Before::GsoMaxSegs { .. }),
        Step::SetRootQdisc { .. } => matches!(before, Before::RootQdisc { .. }),
        Step::SetNic { .. } => matches!(before, Before::Nic { .. }),
        Step::SetIndirection { .. } => matches!(before, Before::Indirection { .. }),
        Step::SetRssHash { hash, .. } => {
            matches!(before, Before::RssHash { was, .. } if hash.is_about_what(was))
        }
        Step::SetLinkAttribute { .. } => matches!(before, Before::LinkAttribute { .. }),
        Step::SetDebug { .. } => matches!(before, Before::Debug { .. }),
        Step::SetModule { .. } => matches!(before, Before::Module { .. }),
        Step::SetIrqCpus { .. } => matches!(before, Before::IrqCpus { .. }),
        Step::AttachProgram(_) => matches!(before, Before::Unattached { .. }),
        Step::AddEndpoint(_) | Step::AddTunnel(_) => matches!(before, Before::Unlisted { .. }),
    }
}

/// Whether it is the kind of state that is read back after the step.
pub(super) fn is_after(step: &Step, after: &After) -> bool {
    match after {
        After::AsPlanned => true,
        After::Netns { .. } => matches!(step, Step::AddNetns),
        After::Link { .. } => {
            matches!(step, Step::AddLink(_) | Step::MoveLink { .. } | Step::SetLinkMaster { .. })
        }
        After::Mtu { .. } => matches!(step, Step::SetLinkMtu { .. }),
        After::Sysctl { .. } => matches!(step, Step::SetSysctl { .. }),
        After::QueueCpus { .. } => matches!(step, Step::SetQueueCpus { .. }),
        After::QueueFlows { .. } => matches!(step, Step::SetQueueFlows { .. }),
        After::RouteMetric { .. } => matches!(step, Step::SetRouteMetric { .. }),
        After::Nic { .. } => matches!(step, Step::SetNic { .. }),
        After::Indirection { .. } => matches!(step, Step::SetIndirection { .. }),
        After::RssHash { .. } => matches!(step, Step::SetRssHash { .. }),
        After::LinkAttribute { .. } => matches!(step, Step::SetLinkAttribute { .. }),
        After::Debug { .. } => matches!(step, Step::SetDebug { .. }),
        After::Module { .. } => matches!(step, Step::SetModule { .. }),
        After::IrqCpus { .. } => matches!(step, Step::SetIrqCpus { .. }),
        After::RootQdisc { .. } => matches!(step, Step::SetRootQdisc { .. }),
    }
}
