//! Encrypted IP in UDP between the nodes: flannel's wireguard. Every node has one device and one key; a peer is the
//! public key of another node, where it is, and the prefixes of its pods, from which alone its packets may come.

use std::net::SocketAddr;

use linux::features::Feature;
use linux::{LinkKind, WireGuardPeer};
use plan::{Plan, SetWireGuard, Step};

use crate::draft::Draft;
use crate::links;
use crate::trace::Traces;
use crate::{Family, NodeSpec, Peer, SocketRole, SpecError, Talk, Trace, Transport};

pub(crate) const WIREGUARD: WireGuard = WireGuard;

/// Bytes of the outer IPv4 (20) and UDP (8) headers, of WireGuard's header (16), and of the code that
/// authenticates the packet (16).
const OVERHEAD_V4: u32 = 60;
/// The same with an outer IPv6 header of 40 bytes.
const OVERHEAD_V6: u32 = 80;

/// A tunnel between the nodes' underlay addresses.
pub(crate) struct WireGuard;

impl Transport for WireGuard {
    fn name(&self) -> &'static str {
        "wireguard"
    }

    fn needs(&self) -> &'static [Feature] {
        &[Feature::WireGuard]
    }

    fn overhead_bytes(&self, outer: Family, _underlay_mtu: u32) -> u32 {
        match outer {
            Family::V4 => OVERHEAD_V4,
            Family::V6 => OVERHEAD_V6,
        }
    }

    fn is_open_tunnel(&self) -> bool {
        false
    }

    /// The one that the project's own examples have, and flannel.
    fn usual_port(&self) -> u16 {
        51820
    }

    /// The device carries both families of pods whatever the outer one is, and listens in both. Its addresses are the
    /// first ones of the pods' prefixes: the source of what the node itself sends to pods, which the peers allow it.
    fn node(&self, node: &NodeSpec) -> Result<Plan, SpecError> {
        node.check_underlay_apart()?;
        node.outer_address()?;
        let key = node.tunnel_key.as_ref().ok_or_else(|| without_key(format!("node {}", node.id)))?;
        let device = links::wireguard(&node.network);
        let mtu = node.wire_mtu - self.overhead_bytes(node.outer, node.wire_mtu);
        let mut draft = Draft::at(&node.place, node.families());
        draft.link(&device, LinkKind::WireGuard, mtu, None);
        draft.step(SetWireGuard {
            link: device.clone(),
            key_file: key.file.clone(),
            public: key.public,
            port: node.network.port,
        });
        // The device does it itself when it comes up, and no one takes it back (`wg_open` in
        // drivers/net/wireguard/device.c).
        draft.shared("net/ipv4/conf/all/send_redirects", "0");
        draft.up(&device);
        draft.addresses(&device, node.pods.networks().alone());
        Ok(draft.into_plan())
    }

    /// The routes come last: when they attract packets, the device knows for whom they are. It needs no next hop. But a
    /// kernel takes the first address of an IPv6 prefix whose route has none for an anycast address
    /// (`ipv6_anycast_destination`), and sends it no errors: the peer's own address in the tunnel is that one, so its
    /// route has a hop that no packet carries.
    fn peer(&self, node: &NodeSpec, peer: &Peer) -> Result<Plan, SpecError> {
        node.check_underlay_apart()?;
        let what = || format!("peer {} of node {}", peer.id, node.id);
        let key = peer.tunnel_key.ok_or_else(|| without_key(what()))?;
        if node.tunnel_key.as_ref().is_some_and(|own| own.public == key) {
            let why = format!("its public key {key} is the node's own");
            return Err(SpecError { what: what(), why });
        }
        let device = links::wireguard(&node.network);
        let reachable = node.reachable(peer);
        let mut draft = Draft::at(&node.place, node.families());
        draft.step(Step::AddWireGuardPeer(WireGuardPeer {
            dev: device.clone(),
            key,
            endpoint: SocketAddr::new(node.outer_address_of(peer)?, node.network.port),
            allowed: reachable.iter().collect(),
            keepalive_s: 0,
        }));
        draft.routes_on(&device, reachable.only(&[Family::V4]).iter());
        let (v6, hops) = (reachable.only(&[Family::V6]), links::tunnel_hops(peer, &reachable));
        draft.routes_via_onlink(&device, &v6, &hops);
        Ok(draft.into_plan())
    }

    fn traces(&self, node: &NodeSpec, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&node.place, &links::wireguard(&node.network), talk);
        traces.outward(&node.place, &node.wire, talk);
        traces.into_list()
    }

    /// As [`super::vxlan::VXLAN`]: a node calls pods from its tunnel's address, and is not itself called by the tunnel.
    fn refuses_nodes(&self, part: SocketRole) -> Option<&'static str> {
        super::vxlan::VXLAN.refuses_nodes(part)
    }
}

fn without_key(what: String) -> SpecError {
    SpecError { what, why: "its tunnel is encrypted, and no key is given for its end".to_owned() }
}
