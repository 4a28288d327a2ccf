//! Open vSwitch in the node with a veth pair to each pod. The node has daemons of its own, and their switch forwards as a
//! bridge that learns: no flows but its one rule `NORMAL`.

use linux::features::Feature;
use plan::switching::{OvsBridge, OvsPort, OvsSwitch};
use plan::{Plan, Step};

use super::bridge::{inside, port_traces};
use super::macvlan::neighbourhood;
use super::veth::{self, Pair};
use crate::draft::Draft;
use crate::links::{self, MacOf};
use crate::trace::{PacketDirection, Traces};
use crate::{Attach, NodeSpec, Pod, ReceiveLimit, SpecError, Talk, Trace};

pub(crate) const OVS: Ovs = Ovs { beyond: Beyond::Routed };
pub(crate) const OVS_TUNNEL: Ovs = Ovs { beyond: Beyond::Switched };

/// A switch that is the pods' gateway.
pub(crate) struct Ovs {
    beyond: Beyond,
}

/// How pods of other nodes are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beyond {
    /// By the gateway: the node routes.
    Routed,
    /// As neighbours, by tunnels that are ports of the switch.
    Switched,
}

impl Attach for Ovs {
    fn name(&self) -> &'static str {
        match self.beyond {
            Beyond::Routed => "ovs",
            Beyond::Switched => "ovs-tunnel",
        }
    }

    fn needs(&self) -> &'static [Feature] {
        &[Feature::Veth, Feature::OpenVSwitch]
    }

    fn receive_limit(&self) -> ReceiveLimit {
        ReceiveLimit::NodeEnd
    }

    fn needs_wire(&self) -> bool {
        false
    }

    fn has_neighbours(&self) -> bool {
        true
    }

    fn node(&self, node: &NodeSpec, mtu: u32) -> Result<Plan, SpecError> {
        let name = links::bridge(&node.network);
        let mac = links::node_mac(node, MacOf::Bridge);
        let mut draft = Draft::at(&node.place, node.families());
        draft.step(Step::StartOvs(OvsSwitch { node: node.programs() }));
        draft.step(Step::AddOvsBridge(OvsBridge { node: node.programs(), name: name.clone(), mac, mtu }));
        draft.up(&name);
        draft.addresses(&name, node.gateways());
        draft.forwarding();
        Ok(draft.into_plan())
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        let mut outside = Draft::at(&node.place, node.families());
        let link = veth::pair(&mut outside, node, pod, mtu, Pair::Veth, links::port_mac(node, pod));
        outside.up(&link);
        let (node_name, bridge) = (node.programs(), links::bridge(&node.network));
        outside.step(Step::AddOvsPort(OvsPort { node: node_name, bridge, name: link, tunnel: None }));

        let mut plan = outside.into_plan();
        plan.extend(match self.beyond {
            Beyond::Routed => inside(node, pod),
            Beyond::Switched => {
                let mut inside = Draft::at(&pod.place, node.families());
                inside.up(&pod.ifname);
                neighbourhood(&mut inside, node, pod, &node.gateways_of(pod), false);
                inside.into_plan()
            }
        });
        Ok(plan)
    }

    fn traces(&self, node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace> {
        match self.beyond {
            Beyond::Routed => port_traces(node, pod, talk),
            Beyond::Switched => {
                let mut traces = Traces::default();
                traces.outward(&pod.place, &pod.ifname, talk);
                traces.inward(&node.place, &links::node_end(pod), talk);
                traces.forwarded(&node.place, PacketDirection::None);
                traces.into_list()
            }
        }
    }
}
