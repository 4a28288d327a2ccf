//! Ethernet in UDP between the nodes: flannel's vxlan. Every node has one tunnel device; a peer is a route, a
//! neighbour and a forwarding entry, all permanent, so that no packet waits for a look-up.

use linux::features::Feature;
use linux::{LinkKind, Vxlan as VxlanLink};
use plan::Plan;

use crate::draft::Draft;
use crate::links;
use crate::rules::tunnel;
use crate::trace::Traces;
use crate::{Family, NodeSpec, Peer, SocketRole, SpecError, Talk, Trace, Transport};

pub(crate) const VXLAN: Vxlan = Vxlan;

/// Bytes of the outer IPv4 (20), UDP (8), VXLAN (8) and inner Ethernet (14) headers.
const OVERHEAD_V4: u32 = 50;
/// The same with an outer IPv6 header of 40 bytes.
const OVERHEAD_V6: u32 = 70;

/// A tunnel with the node's underlay address as its end.
pub(crate) struct Vxlan;

impl Transport for Vxlan {
    fn name(&self) -> &'static str {
        "vxlan"
    }

    fn needs(&self) -> &'static [Feature] {
        &[Feature::Vxlan]
    }

    fn overhead_bytes(&self, outer: Family, _underlay_mtu: u32) -> u32 {
        match outer {
            Family::V4 => OVERHEAD_V4,
            Family::V6 => OVERHEAD_V6,
        }
    }

    fn is_open_tunnel(&self) -> bool {
        true
    }

    /// The device carries both families of pods whatever its outer family is. Its addresses are the first ones of the
    /// pods' prefixes: the peers' next hops, and the source of what the node itself sends to pods.
    fn node(&self, node: &NodeSpec) -> Result<Plan, SpecError> {
        node.check_underlay_apart()?;
        let device = links::vxlan(&node.network);
        let kind = LinkKind::Vxlan(VxlanLink {
            vni: node.network.vni,
            parent: node.wire.clone(),
            local: node.outer_address()?,
            port: node.network.port,
            learning: false,
        });
        let mtu = node.wire_mtu - self.overhead_bytes(node.outer, node.wire_mtu);
        let mut draft = Draft::at(&node.place, node.families());
        let (mac, addresses) = (links::own_tunnel_end_mac(node), node.pods.networks().alone());
        if node.network.tunnel.is_some() {
            draft.found_link(&device, kind, mtu, mac);
            draft.up(&device);
            draft.found_addresses(&device, addresses);
        } else {
            draft.link(&device, kind, mtu, Some(mac));
            draft.up(&device);
            draft.addresses(&device, addresses);
        }
        Ok(draft.into_plan())
    }

    fn port_guard(&self, node: &NodeSpec) -> Plan {
        let mut draft = Draft::at(&node.place, node.families());
        draft.tables(tunnel::port_guard(node));
        draft.into_plan()
    }

    /// The route comes last: when it attracts packets, everything they need is there.
    fn peer(&self, node: &NodeSpec, peer: &Peer) -> Result<Plan, SpecError> {
        node.check_underlay_apart()?;
        let device = links::vxlan(&node.network);
        let reachable = node.reachable(peer);
        let (hops, mac) = (links::tunnel_hops(peer, &reachable), links::tunnel_end_mac(peer));
        let mut draft = Draft::at(&node.place, node.families());
        draft.neighbours(&device, hops.iter(), mac);
        draft.fdb(&device, mac, node.outer_address_of(peer)?);
        draft.routes_via_onlink(&device, &reachable, &hops);
        Ok(draft.into_plan())
    }

    fn traces(&self, node: &NodeSpec, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&node.place, &links::vxlan(&node.network), talk);
        traces.outward(&node.place, &node.wire, talk);
        traces.into_list()
    }

    /// A node calls pods from its tunnel's address, and is answered there. A pod calls a node at the address that the
    /// tunnel itself goes by, which is not within any node's prefix of pods.
    fn refuses_nodes(&self, part: SocketRole) -> Option<&'static str> {
        match part {
            SocketRole::Client => {
                Some("packets of a pod to another node's own address do not enter the tunnel")
            }
            SocketRole::Server => None,
        }
    }
}
