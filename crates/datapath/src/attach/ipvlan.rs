//! IP addresses of pods behind the Ethernet address of the node's wire.

use linux::features::Feature;
use linux::{IpvlanMode, LinkKind};
use plan::{Plan, Step};

use super::macvlan;
use crate::draft::Draft;
use crate::links;
use crate::trace::{PacketDirection, Traces};
use crate::{Attach, NodeSpec, Pod, SpecError, Talk, Trace};

pub(crate) const IPVLAN_L2: Ipvlan = Ipvlan { name: "ipvlan-l2", mode: IpvlanMode::L2 };
pub(crate) const IPVLAN_L3: Ipvlan = Ipvlan { name: "ipvlan-l3", mode: IpvlanMode::L3 };
pub(crate) const IPVLAN_L3S: Ipvlan = Ipvlan { name: "ipvlan-l3s", mode: IpvlanMode::L3s };

/// An ipvlan link, moved into the pod.
pub(crate) struct Ipvlan {
    name: &'static str,
    mode: IpvlanMode,
}

impl Attach for Ipvlan {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self) -> &'static [Feature] {
        match self.mode {
            IpvlanMode::L2 | IpvlanMode::L3 => &[Feature::Ipvlan],
            IpvlanMode::L3s => &[Feature::IpvlanL3s],
        }
    }

    fn has_own_mac(&self) -> bool {
        false
    }

    fn leads_out(&self) -> bool {
        !matches!(self.mode, IpvlanMode::L2)
    }

    /// Nothing, not even forwarding: the driver hands a packet for a pod over before the node's stack would forward
    /// it, and sends a pod's packet by the node's routes as if the node had made it.
    fn node(&self, _node: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        Ok(Plan::new())
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        let kind = LinkKind::Ipvlan { parent: node.wire.clone(), mode: self.mode };
        let mut outside = Draft::at(&node.place, node.families());
        let born = links::born(pod);
        // The Ethernet address is the wire's; the kernel refuses another.
        outside.link(&born, kind, mtu, None);

        outside.step(Step::MoveLink { link: born, to: pod.place.clone(), name: pod.ifname.clone() });
        let mut plan = outside.into_plan();
        plan.extend(self.inside(node, pod));
        Ok(plan)
    }

    /// The node forwards nothing: the driver hands packets over before the node would.
    fn traces(&self, node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&pod.place, &pod.ifname, talk);
        traces.forwarded(&node.place, PacketDirection::None);
        traces.into_list()
    }

    fn toward_node(&self, pod: &Pod, bare: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        Ok(match self.mode {
            IpvlanMode::L2 => macvlan::neighbours(pod, bare),
            IpvlanMode::L3 | IpvlanMode::L3s => Plan::new(),
        })
    }
}

impl Ipvlan {
    /// L2: a neighbour on the network's one Ethernet. L3 and L3s: a single address; the node's table decides about
    /// everything, and no neighbour is ever asked for.
    fn inside(&self, node: &NodeSpec, pod: &Pod) -> Plan {
        let mut inside = Draft::at(&pod.place, node.families());
        inside.up(&pod.ifname);
        match self.mode {
            IpvlanMode::L2 => {
                macvlan::neighbourhood(&mut inside, node, pod);
            }
            IpvlanMode::L3 | IpvlanMode::L3s => {
                inside.addresses(&pod.ifname, pod.addresses.alone());
                inside.routes_on(&pod.ifname, node.destinations(pod).iter());
            }
        }
        inside.into_plan()
    }
}
