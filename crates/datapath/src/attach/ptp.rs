//! A routed veth pair to each pod, without a bridge and without netfilter: Calico's way.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linux::features::Feature;
use plan::{Place, Plan};

use super::bridge::everywhere;
use super::veth;
use crate::draft::Draft;
use crate::links::{self, MacOf};
use crate::{Addresses, Attach, NodeSpec, Pod, SpecError};

pub(crate) const PTP: Ptp = Ptp;

/// The pods' gateway. No link has these addresses: the pod only needs the Ethernet address behind them, which a
/// permanent neighbour entry tells it.
const GATEWAY: Addresses =
    Addresses { v4: Ipv4Addr::new(169, 254, 1, 1), v6: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1) };

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
        &[Feature::Veth, Feature::Ipv6]
    }

    fn node(&self, node: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        let mut draft = Draft::at(&node.place);
        draft.forwarding();
        Ok(draft.into_plan())
    }

    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError> {
        let mut outside = Draft::at(&node.place);
        let link = veth::pair(&mut outside, node, pod, mtu);
        outside.up(&link);

        let place = Place::Netns(pod.netns.clone());
        let mut inside = Draft::at(&place);
        inside.up(&pod.ifname);
        inside.addresses(&pod.ifname, pod.addresses.alone());
        // IPv6 needs no such route: fe80::/64 is on every link.
        inside.routes_on(&pod.ifname, [IpAddr::from(GATEWAY.v4).into()]);
        inside.neighbours(&pod.ifname, GATEWAY.both(), links::pod_mac(node, pod, MacOf::NodeEnd));
        inside.routes_via(&pod.ifname, everywhere(), GATEWAY.both());

        // The node's routes come when the pod can answer: until then a caller gets "unreachable" and not silence.
        let mut routes = Draft::at(&node.place);
        routes.neighbours(&link, pod.addresses.both(), links::pod_mac(node, pod, MacOf::Pod));
        routes.routes_on(&link, pod.addresses.alone());

        let mut plan = outside.into_plan();
        plan.extend(inside.into_plan());
        plan.extend(routes.into_plan());
        Ok(plan)
    }
}
