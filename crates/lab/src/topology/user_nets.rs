//! Where the processes run that carry pods' connections, and how they are scheduled: as proxies beside client and
//! server do, so that what they cost is their node's and none of them waits for the other candidates' threads.

use datapath::Pod;
use linux::UserNet;
use linux::cpu::Scheduling;
use plan::{Place, Plan, Step};

use crate::{ByRole, NodeCpus, Topology};

/// Gives them the CPUs of their pods' sides.
pub(super) fn place(pods: &ByRole<Pod>, cpus: &NodeCpus, plan: &mut Plan) {
    for net in processes(plan) {
        let pod = Place::from(net.pod.clone());
        net.cpus = Some(if pod == pods.client.place { cpus.client.clone() } else { cpus.server.clone() });
    }
}

impl Topology {
    /// Has them scheduled as client and server are.
    pub(crate) fn schedule(&mut self, scheduling: Scheduling) {
        processes(&mut self.plan).for_each(|net| net.scheduling = scheduling);
    }
}

fn processes(plan: &mut Plan) -> impl Iterator<Item = &mut UserNet> {
    plan.steps.iter_mut().filter_map(|placed| match &mut placed.step {
        Step::StartUserNet(net) => Some(net.as_mut()),
        _ => None,
    })
}
