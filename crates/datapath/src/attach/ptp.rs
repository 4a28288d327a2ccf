//! A routed veth pair to each pod, without a bridge and, unless the network masquerades or a pod publishes ports,
//! without netfilter: Calico's way.

use std::net::{Ipv4Addr, Ipv6Addr};

use linux::features::Feature;
use linux::{IfName, Mac};
use plan::Plan;

use super::veth::{self, Pair};
use crate::draft::{Draft, OfLink};
use crate::links;
use crate::trace::{PacketDirection, Traces};
use crate::{Addresses, AntiSpoofing, Attach, NodeSpec, Pod, ReceiveLimit, SpecError, Talk, Trace, rules};

pub(crate) const PTP: Ptp = Ptp;

/// The pods' gateway for IPv4.
pub(super) const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The pods' gateway. No link needs these addresses: the pod only wants the Ethernet address behind them, which a
/// permanent neighbour entry has it.
pub(super) const GATEWAY: Addresses =
    Addresses { v4: Some(GATEWAY_V4), v6: Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)) };

/// A point-to-point link with single addresses on it and routes to them.
///
/// Both ends know each other's Ethernet address from the start. Calico lets the node answer the pod's ARP request by
/// `proxy_arp` instead; that answers for every address the node has a route to, may hold the answer back for up to
/// `proxy_delay` (0.8 s by default), and renews the entry in the middle of traffic, which would show in the tail. IPv6
/// has no such proxy for whole prefixes.
pub(crate) struct Ptp;

impl Attach for Ptp {
    fn name(&self) -> &'static str {
        "ptp"
    }

    fn needs(&self) -> &'static [Feature] {
        &[Feature::Veth]
    }

    fn node(&self, node: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        let mut draft = Draft::at(&node.place, node.families());
        draft.forwarding();
        draft.guard(node);
        draft.tables(rules::border::tables(node));
        Ok(draft.into_plan())
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

    fn anti_spoofing(&self) -> AntiSpoofing {
        AntiSpoofing::Optional
    }

    /// The bare pair races. The pool of a Calico installation masquerades (`natOutgoing`), and the chains of its
    /// workloads look up each packet's connection; the pages say so.
    fn usually_masquerades(&self) -> bool {
        false
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        let gateway = links::node_end_mac(node, pod);
        let (mut outside, link) = link(node, pod, mtu, Pair::Veth, gateway);
        outside.guarded(node, pod, &link);
        outside.refuse_routers(&node.network, (&link, mtu), OfLink::Own);
        outside.up(&link);
        let mut plan = outside.into_plan();
        plan.extend(inside(node, pod, gateway));
        plan.extend(routes(node, pod, &link));
        if !pod.published.is_empty() {
            let families = pod.addresses.families();
            let mut ports = Draft::at(&node.place, families);
            ports.publish(pod, rules::ports::tables(families));
            ports.publish_on_loopback(pod, &link, OfLink::Own);
            plan.extend(ports.into_plan());
        }
        Ok(plan)
    }

    fn publishes_ports(&self) -> bool {
        true
    }

    /// To a neighbour, too, all packets are routed.
    fn traces(&self, node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&pod.place, &pod.ifname, talk);
        traces.inward(&node.place, &links::node_end(pod), talk);
        traces.forwarded(&node.place, PacketDirection::Both);
        traces.into_list()
    }
}

/// The link between node and pod, still down, and the draft that goes on on the node's side.
pub(super) fn link<'a>(
    node: &'a NodeSpec,
    pod: &Pod,
    mtu: u32,
    pair: Pair,
    gateway: Mac,
) -> (Draft<'a>, IfName) {
    let mut outside = Draft::at(&node.place, node.families());
    let link = veth::pair(&mut outside, node, pod, mtu, pair, gateway);
    (outside, link)
}

/// The pod's addresses, and all its routes by way of the gateway.
pub(super) fn inside(node: &NodeSpec, pod: &Pod, gateway: Mac) -> Plan {
    let mut inside = Draft::at(&pod.place, node.families());
    inside.up(&pod.ifname);
    inside.addresses(&pod.ifname, pod.addresses.alone());
    let gateways = GATEWAY.only(pod.addresses.families());
    inside.neighbours(&pod.ifname, gateways.iter(), gateway);
    // No route leads to the gateway itself: a pod's next interface has the same one.
    inside.routes_via_onlink(&pod.ifname, &node.destinations(pod), &gateways);
    inside.own_routes(pod, &gateways, true);
    inside.into_plan()
}

/// The node's routes to the pod. They come when the pod can answer: until then a caller gets "unreachable" and not
/// silence.
pub(super) fn routes(node: &NodeSpec, pod: &Pod, link: &IfName) -> Plan {
    let mut routes = Draft::at(&node.place, node.families());
    routes.neighbours(link, pod.addresses.iter(), links::pod_mac(node, pod));
    routes.routes_on(link, pod.addresses.alone());
    routes.into_plan()
}
