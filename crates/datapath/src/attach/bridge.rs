//! A bridge in the node with a veth pair to each pod, and flannel's rules: the classic CNI bridge.

use ipnet::IpNet;
use linux::features::Feature;
use linux::netlink::PortFlag;
use linux::{Link, LinkKind};
use plan::{Plan, SetLinkMaster, SetPortFlag, Step};

use super::veth::{self, Pair};
use crate::draft::{Draft, OfLink};
use crate::links::{self, MacOf};
use crate::trace::{PacketDirection, Traces};
use crate::{
    AntiSpoofing, Attach, NodeSpec, Pod, Prefixes, ReceiveLimit, SpecError, Talk, Trace, With, rules,
};

pub(crate) const BRIDGE: Bridge = Bridge;

/// A bridge that is the pods' gateway, with masquerading of what leaves the cluster.
pub(crate) struct Bridge;

impl Attach for Bridge {
    fn name(&self) -> &'static str {
        "bridge"
    }

    fn needs(&self) -> &'static [Feature] {
        &[Feature::Veth, Feature::Bridge, Feature::Nftables]
    }

    fn receive_limit(&self) -> ReceiveLimit {
        ReceiveLimit::NodeEnd
    }

    fn needs_wire(&self) -> bool {
        false
    }

    fn masquerades(&self) -> bool {
        true
    }

    fn has_neighbours(&self) -> bool {
        true
    }

    fn anti_spoofing(&self) -> AntiSpoofing {
        AntiSpoofing::Optional
    }

    fn node(&self, node: &NodeSpec, mtu: u32) -> Result<Plan, SpecError> {
        let mut draft = Draft::at(&node.place, node.families());
        gateway(&mut draft, node, mtu);
        draft.guard(node);
        draft.tables(rules::flannel::tables(node));
        // Where nothing else makes the kernel track connections, this table would let every packet pay for it.
        if node.network.services && node.network.masquerade {
            for table in rules::ports::neighbours(node, node.families()) {
                // Pods that publish ports want it, too.
                draft.share(Step::AddNftTable(table));
            }
        }
        Ok(draft.into_plan())
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        // Where the bridge lets netfilter translate (br_netfilter), a pod's call of its own port, or of a Service that
        // leads to itself, goes back by its own port of the bridge.
        let calls_itself = node.network.services || !pod.published.is_empty();
        let mut plan = port(node, pod, mtu, if calls_itself { Hairpin::On } else { Hairpin::Off });
        if pod.published.is_empty() {
            return Ok(plan);
        }
        let families = pod.addresses.families();
        let mut ports = Draft::at(&node.place, families);
        ports.publish(
            pod,
            [rules::ports::tables(families), rules::ports::neighbours(node, families)].concat(),
        );
        ports.publish_on_loopback(pod, &links::bridge(&node.network), OfLink::Shared);
        plan.extend(ports.into_plan());
        Ok(plan)
    }

    fn publishes_ports(&self) -> bool {
        true
    }

    fn traces(&self, node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace> {
        port_traces(node, pod, talk)
    }
}

/// Whether a bridge port sends a frame back to where it came from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hairpin {
    On,
    Off,
}

/// The bridge with the pods' gateway addresses, and forwarding.
///
/// A bridge of the user's name may be there, with other containers on it, and is used as it is. Several networks may
/// name it, so all that is done to it is shared. One with our own name belongs to us alone.
///
/// The bridge has an Ethernet address of its own. One that follows its ports (the kernel's default) would change
/// under the pods' neighbour entries when the port with the lowest address leaves.
pub(super) fn gateway(draft: &mut Draft<'_>, node: &NodeSpec, mtu: u32) {
    let bridge = links::bridge(&node.network);
    let mac = Some(links::node_mac(node, MacOf::Bridge));
    let link = Link { name: bridge.clone(), kind: LinkKind::Bridge, mtu: Some(mtu), mac };
    if node.network.bridge.is_some() {
        draft.share(Step::EnsureLink(link));
        draft.refuse_routers(&node.network, (&bridge, mtu), OfLink::Shared);
        draft.shared_up(&bridge);
        for address in node.gateways() {
            draft.share(Step::EnsureAddress { link: bridge.clone(), address });
        }
    } else {
        draft.step(Step::AddLink(link));
        draft.refuse_routers(&node.network, (&bridge, mtu), OfLink::Own);
        draft.up(&bridge);
        draft.addresses(&bridge, node.gateways());
    }
    draft.forwarding();
}

/// A pod's port of the bridge, and the pod's side.
pub(super) fn port(node: &NodeSpec, pod: &Pod, mtu: u32, hairpin: Hairpin) -> Plan {
    let mut outside = Draft::at(&node.place, node.families());
    let mac = links::port_mac(node, pod);
    let link = veth::pair(&mut outside, node, pod, mtu, Pair::Veth, mac);
    outside.step(SetLinkMaster { link: link.clone(), master: links::bridge(&node.network) });
    if hairpin == Hairpin::On {
        outside.step(SetPortFlag { link: link.clone(), flag: PortFlag::Hairpin });
    }
    if node.network.isolates_pods {
        outside.step(SetPortFlag { link: link.clone(), flag: PortFlag::Isolated });
    }
    outside.guarded(node, pod, &link);
    outside.up(&link);
    let mut plan = outside.into_plan();
    plan.extend(inside(node, pod));
    plan
}

/// The pod's addresses, with its node's prefixes on its link and all else behind the gateway there.
pub(super) fn inside(node: &NodeSpec, pod: &Pod) -> Plan {
    let mut inside = Draft::at(&pod.place, node.families());
    inside.up(&pod.ifname);
    inside.addresses(&pod.ifname, node.addresses_within(&node.pods, pod));
    let gateways = node.gateways_of(pod);
    // An address brings the route to its own prefix along: there the neighbours are.
    let own = |net: &IpNet| node.pods.iter().any(|own| own == *net);
    let others: Prefixes = node.destinations(pod).iter().filter(|net| !own(net)).collect();
    inside.routes_via(&pod.ifname, &others, &gateways);
    inside.own_routes(pod, &gateways, false);
    inside.into_plan()
}

/// A port and the pod behind it. To other nodes the bridge itself is a link of the node, by which packets are routed;
/// to a neighbour they go from port to port.
pub(super) fn port_traces(node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace> {
    let mut traces = Traces::default();
    traces.outward(&pod.place, &pod.ifname, talk);
    traces.inward(&node.place, &links::node_end(pod), talk);
    let mut traces = traces.into_list();
    traces.extend(behind_port(node, talk));
    traces
}

/// What the packets of a port leave beside it, whatever is at its other end.
pub(super) fn behind_port(node: &NodeSpec, talk: Talk) -> Vec<Trace> {
    let mut traces = Traces::default();
    match talk.with {
        With::Remote => {
            traces.inward(&node.place, &links::bridge(&node.network), talk);
            traces.forwarded(&node.place, PacketDirection::Both);
        }
        With::Neighbour => traces.forwarded(&node.place, PacketDirection::None),
    }
    traces.into_list()
}
