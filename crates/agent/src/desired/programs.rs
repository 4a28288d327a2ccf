//! What lets the programs of the node's pods send and receive by its tunnels. Without it their packets take the
//! kernel's own way through the same tunnels.

use plan::forwarding::{Program, ProgramAttachment, Uplink};
use plan::{Place, Plan, Step};

use super::offload::tunnels_of;

/// The part of the programs at tunnels. It rests on the node's, in which the tunnels are; its name comes after
/// that and the peers'.
pub const PROGRAMS_PART: &str = "programs";

/// The programs of this name at the tunnels of the node's plan; `None`: it has no tunnel. What arrives goes to a pod
/// from there, and what pods send to where the kernel's routes lead is put into the tunnel's device.
pub(super) fn plan(node: &str, node_plan: &Plan) -> Option<Plan> {
    let mut plan = Plan::new();
    for tunnel in tunnels_of(node_plan) {
        let (node, link) = (node.to_owned(), tunnel.name.clone());
        plan.push(
            &Place::Host,
            Step::AttachProgram(ProgramAttachment {
                node: node.clone(),
                program: Program::FromWire,
                link: link.clone(),
                at_once: false,
            }),
        );
        plan.push(&Place::Host, Step::AddUplink(Uplink { node, link }));
    }
    (!plan.steps.is_empty()).then_some(plan)
}
