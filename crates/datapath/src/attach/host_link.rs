//! A link of the node's own beside its pods', where theirs hang on the node's wire. The driver of such links hands
//! packets from one to another, and past them to and from the wire's neighbours, but the wire itself, where the node's
//! addresses are, is none of them: without such a link the node and its own pods do not reach each other.

use linux::{LinkKind, Mac, Route};
use plan::{Plan, Step};

use super::ptp::GATEWAY;
use crate::draft::{Draft, OfLink};
use crate::{Family, NodeSpec, Pod, links, rules};

/// Makes the link, where the network has one, and masquerades what pods send out by it.
///
/// It needs no address: the node's routes to pods say from which one it sends.
pub(super) fn node(node: &NodeSpec, kind: LinkKind, mtu: u32, mac: Option<Mac>) -> Plan {
    let mut draft = Draft::at(&node.place, node.families());
    if node.network.host_link {
        draft.forwarding();
        let link = links::host_link(&node.network);
        draft.link(&link, kind, mtu, mac);
        draft.refuse_routers(&node.network, (&link, mtu), OfLink::Own);
        draft.up(&link);
        draft.tables(rules::border::tables(node));
    }
    draft.into_plan()
}

/// The node's routes to a pod by it, and the pod's Ethernet address where it has one of its own.
///
/// What the node sends has its address on the wire. Where a route names none and its link has none, the kernel prefers
/// one of the loopback (`inet_select_addr`), and an answer to that finds no way: the driver asks for one by the wire.
pub(super) fn routes(node: &NodeSpec, pod: &Pod, mac: Option<Mac>) -> Plan {
    let mut draft = Draft::at(&node.place, node.families());
    if node.network.host_link {
        let link = links::host_link(&node.network);
        if let Some(mac) = mac {
            draft.neighbours(&link, pod.addresses.iter(), mac);
        }
        for dst in pod.addresses.alone() {
            let src = node.underlay.of(Family::of(dst.addr()));
            draft.step(Step::AddRoute(Route { src, ..Route::on_link(dst, link.clone()) }));
        }
    }
    draft.into_plan()
}

/// What leads a pod to the node by it, where the pod has to name the Ethernet address to which it sends: the gateway's,
/// and routes to the node's own addresses.
pub(super) fn way_to_node(inside: &mut Draft<'_>, node: &NodeSpec, pod: &Pod, mac: Mac) {
    let families = pod.addresses.families();
    let gateways = GATEWAY.only(families);
    inside.neighbours(&pod.ifname, gateways.iter(), mac);
    let own = node.underlay.only(families).alone().filter(|own| !pod.replaces_route(*own));
    inside.routes_via_onlink(&pod.ifname, &own.collect(), &gateways);
}
