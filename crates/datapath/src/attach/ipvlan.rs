//! IP addresses of pods behind the Ethernet address of the node's wire.

use linux::features::Feature;
use linux::{IpvlanMode, LinkKind};
use plan::Plan;

use super::{host_link, macvlan};
use crate::draft::Draft;
use crate::trace::{PacketDirection, Traces};
use crate::{Addresses, Attach, NodeSpec, Pod, ReceiveLimit, SpecError, Talk, Trace};

pub(crate) const IPVLAN_L2: Ipvlan = Ipvlan { name: "ipvlan-l2", mode: IpvlanMode::L2 };
pub(crate) const IPVLAN_L3: Ipvlan = Ipvlan { name: "ipvlan-l3", mode: IpvlanMode::L3 };
pub(crate) const IPVLAN_L3S: Ipvlan = Ipvlan { name: "ipvlan-l3s", mode: IpvlanMode::L3s };

/// An ipvlan link, made in the pod.
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

    /// In L3s a packet of the wire becomes the pod's interface's only where the node would take it for its own
    /// (`ipvlan_nf_input` in drivers/net/ipvlan/ipvlan_l3s.c), which is behind every ingress.
    fn receive_limit(&self) -> ReceiveLimit {
        match self.mode {
            IpvlanMode::L2 | IpvlanMode::L3 => ReceiveLimit::Pod,
            IpvlanMode::L3s => ReceiveLimit::Nowhere(
                "what comes by the wire passes the node's netfilter, and not the ingress of the pod's interface",
            ),
        }
    }

    fn has_own_mac(&self) -> bool {
        false
    }

    fn leads_out(&self) -> bool {
        !matches!(self.mode, IpvlanMode::L2)
    }

    /// In L3 and L3s the driver asks the node's routes for a way by the wire alone (`flowi4_oif` in
    /// `ipvlan_process_v4_outbound`). Where the routes lead elsewhere, it takes the destination for a neighbour there.
    fn leaves_by_wire(&self) -> bool {
        true
    }

    /// In L2 the pods have the wire's Ethernet address too, so that the node would have to be found by another.
    fn takes_host_link(&self) -> bool {
        self.leads_out()
    }

    /// Nothing but the node's own link, not even forwarding: the driver hands a packet for a pod over before the node's
    /// stack would forward it, and sends a pod's packet by the node's routes as if the node had made it.
    fn node(&self, node: &NodeSpec, mtu: u32) -> Result<Plan, SpecError> {
        Ok(host_link::node(node, self.kind(node), mtu, None))
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        let mut inside = Draft::at(&pod.place, node.families());
        // The Ethernet address is the wire's; the kernel refuses another.
        inside.interface_on(&node.place, pod, self.kind(node), mtu, None);
        inside.up(&pod.ifname);
        self.addresses_and_routes(&mut inside, node, pod);
        let mut plan = inside.into_plan();
        plan.extend(host_link::routes(node, pod, None));
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
    fn kind(&self, node: &NodeSpec) -> LinkKind {
        LinkKind::Ipvlan { parent: node.wire.clone(), mode: self.mode }
    }

    /// L2: a neighbour on the network's one Ethernet. L3 and L3s: a single address; the node's table decides about
    /// everything, and no neighbour is ever asked for.
    fn addresses_and_routes(&self, inside: &mut Draft<'_>, node: &NodeSpec, pod: &Pod) {
        match self.mode {
            IpvlanMode::L2 => macvlan::neighbourhood(inside, node, pod, &pod.gateways, false),
            IpvlanMode::L3 | IpvlanMode::L3s => {
                inside.addresses(&pod.ifname, pod.addresses.alone());
                inside.routes_on(&pod.ifname, node.destinations(pod).iter());
                inside.own_routes(pod, &Addresses::default(), false);
            }
        }
    }
}
