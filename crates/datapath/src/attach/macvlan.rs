//! An Ethernet address of its own on the node's wire for each pod.

use ipnet::IpNet;
use linux::features::Feature;
use linux::{LinkKind, MacvlanMode};
use plan::Plan;

use crate::draft::Draft;
use crate::links;
use crate::trace::{PacketDirection, Traces};
use crate::{Attach, NodeSpec, Pod, Prefixes, SpecError, Talk, Trace};

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

    fn leads_out(&self) -> bool {
        false
    }

    fn node(&self, _node: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        Ok(Plan::new())
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        let kind = LinkKind::Macvlan { parent: node.wire.clone(), mode: MacvlanMode::Bridge };
        let mut inside = Draft::at(&pod.place, node.families());
        inside.interface_on(&node.place, pod, kind, mtu, Some(links::pod_mac(node, pod)));
        inside.up(&pod.ifname);
        neighbourhood(&mut inside, node, pod);
        Ok(inside.into_plan())
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

/// A pod's addresses, and the network's prefixes on its link: those of all pods on the one Ethernet. All else is behind
/// the gateways there, if there are any.
pub(super) fn neighbourhood(inside: &mut Draft<'_>, node: &NodeSpec, pod: &Pod) {
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
        inside.routes_via(&pod.ifname, &usual, &pod.gateways);
    }
    inside.own_routes(pod, &pod.gateways, false);
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
