//! An Ethernet address of its own on the node's wire for each pod.

use ipnet::IpNet;
use linux::features::Feature;
use linux::{LinkKind, MacvlanMode};
use plan::Plan;

use super::host_link;
use super::ptp::GATEWAY;
use crate::draft::Draft;
use crate::links;
use crate::trace::{PacketDirection, Traces};
use crate::{Addresses, Attach, NodeSpec, Pod, Prefixes, ReceiveLimit, SpecError, Talk, Trace};

pub(crate) const MACVLAN: Macvlan = Macvlan;

/// A macvlan link in bridge mode, made in the pod. All pods of the network are neighbours on one Ethernet, so they
/// have the network's prefix length and need no gateway to reach each other.
pub(crate) struct Macvlan;

impl Attach for Macvlan {
    fn name(&self) -> &'static str {
        "macvlan"
    }

    fn needs(&self) -> &'static [Feature] {
        &[Feature::Macvlan]
    }

    fn receive_limit(&self) -> ReceiveLimit {
        ReceiveLimit::Pod
    }

    fn leads_out(&self) -> bool {
        false
    }

    fn takes_host_link(&self) -> bool {
        true
    }

    fn node(&self, node: &NodeSpec, mtu: u32) -> Result<Plan, SpecError> {
        Ok(host_link::node(node, kind(node), mtu, Some(links::host_link_mac(node))))
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        let mac = links::pod_mac(node, pod);
        let mut inside = interface(node, pod, mtu);
        if node.network.host_link {
            host_link::way_to_node(&mut inside, node, pod, links::host_link_mac(node));
            neighbourhood(&mut inside, node, pod, &GATEWAY.only(pod.addresses.families()), true);
        } else {
            neighbourhood(&mut inside, node, pod, &pod.gateways, false);
        }
        let mut plan = inside.into_plan();
        plan.extend(host_link::routes(node, pod, Some(mac)));
        Ok(plan)
    }

    fn can_ask_wire(&self) -> bool {
        true
    }

    fn interface(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        Ok(interface(node, pod, mtu).into_plan())
    }

    /// The node forwards nothing: the driver hands packets over before the node would.
    fn traces(&self, node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&pod.place, &pod.ifname, talk);
        traces.forwarded(&node.place, PacketDirection::None);
        traces.into_list()
    }

    fn toward_node(&self, pod: &Pod, bare: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        Ok(neighbours(pod, bare))
    }
}

/// A pod's interface, up.
fn interface<'a>(node: &NodeSpec, pod: &'a Pod, mtu: u32) -> Draft<'a> {
    let mut inside = Draft::at(&pod.place, node.families());
    inside.interface_on(&node.place, pod, kind(node), mtu, Some(links::pod_mac(node, pod)));
    inside.up(&pod.ifname);
    inside
}

fn kind(node: &NodeSpec) -> LinkKind {
    LinkKind::Macvlan { parent: node.wire.clone(), mode: MacvlanMode::Bridge }
}

/// A pod's addresses, and the network's prefixes on its link: those of all pods on the one Ethernet. All else is behind
/// the gateways there, if there are any; those that are `onlink` have no route.
pub(super) fn neighbourhood(
    inside: &mut Draft<'_>,
    node: &NodeSpec,
    pod: &Pod,
    gateways: &Addresses,
    onlink: bool,
) {
    let addresses = node.addresses_within(&node.network.prefixes, pod);
    let others = node.network.prefixes.only(pod.addresses.families());
    let own: Prefixes = addresses.iter().copied().collect();
    inside.addresses(&pod.ifname, addresses);
    // An address brings the route to its own prefix along.
    let is_made = |net: IpNet| own.iter().any(|own| own == net) || pod.replaces_route(net);
    inside.routes_on(&pod.ifname, others.iter().filter(|net| !is_made(*net)));
    if pod.default_route {
        let everywhere = Prefixes::everywhere(pod.addresses.families());
        let usual = everywhere.iter().filter(|net| !pod.replaces_route(*net)).collect();
        if onlink {
            inside.routes_via_onlink(&pod.ifname, &usual, gateways);
        } else {
            inside.routes_via(&pod.ifname, &usual, gateways);
        }
    }
    inside.own_routes(pod, gateways, onlink);
}

/// A pod on the wire and another node as neighbours, though their subnets differ: each finds the other's on its link.
pub(super) fn neighbours(pod: &Pod, bare: &NodeSpec) -> Plan {
    let families = pod.addresses.families();
    let mut inside = Draft::at(&pod.place, families);
    inside.routes_on(&pod.ifname, bare.underlay.only(families).alone());
    let mut outside = Draft::at(&bare.place, families);
    outside.routes_on(&bare.wire, bare.network.prefixes.only(families).iter());
    let mut plan = inside.into_plan();
    plan.extend(outside.into_plan());
    plan
}
