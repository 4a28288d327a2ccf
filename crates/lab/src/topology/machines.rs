//! A topology whose nodes are two machines that are there: what each of them does of it.

use datapath::{NodeSpec, PacketDirection, Pod, SocketRole, SpecError, Trace};
use plan::{Place, Plan, Step};

use super::{data_path, redirect};
use crate::{ByRole, Shape};

/// What each machine does of it.
pub(super) fn plans(
    shape: &Shape,
    nodes: &ByRole<NodeSpec>,
    pods: &ByRole<Pod>,
) -> Result<ByRole<Plan>, SpecError> {
    let [client, server] = nodes.as_ref().facing();
    let half = |facing, part| {
        let mut plan = Plan::new();
        if shape.has_pod(part) {
            plan.push(&pods.of(part).place, Step::AddNetns);
        }
        plan.extend(data_path::one_node(shape, facing, (nodes, pods), None)?);
        Ok(plan)
    };
    Ok(ByRole { client: half(client, SocketRole::Client)?, server: half(server, SocketRole::Server)? })
}

/// What counters of this machine have to show, and those of the server's where that is another.
pub(super) fn divided(
    shape: &Shape,
    [mut here, far]: [Vec<Trace>; 2],
    processes: &ByRole<Place>,
) -> (Vec<Trace>, Vec<Trace>) {
    if shape.machines.is_none() {
        here.extend(far);
        here.extend(redirect::traces(shape, processes));
        return (here, Vec::new());
    }
    // A machine may forward what is none of the race's, so that its own count says nothing about packets that are not to be
    // among it.
    let is_conclusive = |trace: &Trace| trace.place != Place::Host || trace.packets != PacketDirection::None;
    let of = |traces: Vec<Trace>| traces.into_iter().filter(is_conclusive).collect();
    (of(here), of(far))
}

/// The commands for both machines.
pub(super) fn commands(here: &Plan, there: &Plan) -> Vec<String> {
    let whose = |whose: &str| format!("# on the {whose}'s machine");
    let [here, there] = [here.commands(), there.commands()];
    if here.is_empty() && there.is_empty() {
        return Vec::new();
    }
    std::iter::once(whose("client")).chain(here).chain([whose("server")]).chain(there).collect()
}
