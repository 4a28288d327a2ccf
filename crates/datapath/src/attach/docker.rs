//! Docker's default network: the bridge of [`super::bridge`] with Docker's rules instead of flannel's.

use linux::features::Feature;
use plan::{Plan, Step};

use super::bridge::{self, Hairpin};
use crate::draft::Draft;
use crate::{Attach, Family, NodeSpec, Pod, ReceiveLimit, SpecError, Talk, Trace, rules};

pub(crate) const DOCKER: Docker = Docker;

/// A bridge whose pods leave masqueraded and are entered by ports of the node. It is Docker with
/// `userland-proxy` off: a published port is always a DNAT rule, also for a pod that calls itself.
pub(crate) struct Docker;

impl Attach for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn needs(&self) -> &'static [Feature] {
        &[Feature::Veth, Feature::Bridge, Feature::Nftables, Feature::BridgeNetfilter]
    }

    fn masquerades(&self) -> bool {
        true
    }

    fn receive_limit(&self) -> ReceiveLimit {
        ReceiveLimit::NodeEnd
    }

    fn node(&self, node: &NodeSpec, mtu: u32) -> Result<Plan, SpecError> {
        let mut draft = Draft::at(&node.place, node.families());
        bridge::gateway(&mut draft, node, mtu);
        // A pod that calls a neighbour by the node's port gets its answer through the bridge alone; conntrack must see
        // that answer to put the node's address back.
        for family in node.families() {
            match family {
                Family::V4 => draft.shared("net/bridge/bridge-nf-call-iptables", "1"),
                Family::V6 => draft.shared("net/bridge/bridge-nf-call-ip6tables", "1"),
            }
        }
        draft.tables(rules::docker::tables(node));
        for table in rules::ports::tables(node.families()) {
            draft.share(Step::AddNftTable(table));
        }
        Ok(draft.into_plan())
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        let mut plan = bridge::port(node, pod, mtu, Hairpin::On);
        let mut ports = Draft::at(&node.place, node.families());
        ports.publish(pod, []);
        plan.extend(ports.into_plan());
        Ok(plan)
    }

    fn publishes_ports(&self) -> bool {
        true
    }

    /// A neighbour's published port, too, is reached from port to port: the bridge lets netfilter translate the address
    /// and finds that the frame need not leave it (`br_nf_pre_routing_finish`).
    fn traces(&self, node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace> {
        bridge::port_traces(node, pod, talk)
    }
}
