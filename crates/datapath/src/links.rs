//! The names and Ethernet addresses of what drivers make, derived from ids: a plan made again names the same things.

use std::net::IpAddr;
use std::path::PathBuf;

use linux::{IfName, Mac};
use plan::switching;

use crate::{Addresses, Network, NodeSpec, Peer, Pod, Prefixes};

/// What an Ethernet address belongs to: the `space` of [`Mac::from_id`], so that no two makers share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MacOf {
    /// The bridge of a node.
    Bridge = 1,
    /// The tunnel end of a node.
    TunnelEnd = 2,
    /// The node's end of a pod's veth pair.
    NodeEnd = 3,
    /// The end of a pod's link that is inside the pod.
    Pod = 4,
    /// The node's end of any pod's link, where programs forward.
    Gateway = 5,
    /// The node's own link beside its pods' on the wire.
    HostLink = 6,
    /// The link in a pod through which what arrives at its interface is led.
    Arrivals = 7,
}

/// The bridge of a network on a node.
pub(crate) fn bridge(network: &Network) -> IfName {
    network.bridge.clone().unwrap_or_else(|| valid(format!("hgbr{}", network.id)))
}

/// The vxlan device of a network on a node.
pub(crate) fn vxlan(network: &Network) -> IfName {
    network.tunnel.clone().unwrap_or_else(|| valid(format!("hgvx{}", network.id)))
}

/// The WireGuard device of a network on a node.
pub(crate) fn wireguard(network: &Network) -> IfName {
    valid(format!("hgwg{}", network.id))
}

/// The port of a node's Open vSwitch that is the tunnel to a peer.
pub(crate) fn tunnel_port(peer: &Peer) -> IfName {
    valid(format!("hgtn{}", peer.id))
}

/// Loopback, which each namespace has from its beginning.
pub(crate) fn loopback() -> IfName {
    valid("lo".to_owned())
}

/// The node's own link beside its pods' on the wire.
pub(crate) fn host_link(network: &Network) -> IfName {
    valid(format!("hghl{}", network.id))
}

/// An nftables table of a network on a node.
pub(crate) fn table(kind: &str, network: &Network) -> String {
    format!("hg-{kind}-{}", network.id)
}

/// The nftables table of a bridge whose pods call each other by ports of the node.
pub(crate) fn neighbours_table(network: &Network) -> String {
    table("neighbours", network)
}

/// The nftables table of a node's published ports, in which ever of its networks the pods are.
pub(crate) const PORTS_TABLE: &str = "hg-ports";
/// The table for published ports of the node's loopback.
pub(crate) const LOOPBACK_TABLE: &str = "hg-loopback";

/// The node's end of a pod's veth pair.
pub(crate) fn node_end(pod: &Pod) -> IfName {
    valid(format!("hgp{}", pod.id))
}

/// The socket of the program that has a pod's place at the node's switch ([`Pod::vhost_user`]). It goes with the
/// switch.
pub fn vhost_user_socket(node: &NodeSpec, pod: &Pod) -> PathBuf {
    switching::vhost_user_socket(&node.programs(), &node_end(pod))
}

/// The name under which a pod's macvlan or ipvlan link is made. Before Linux 6.14 the kernel refuses a name that is
/// taken where the parent is, though the link is not made there, and `eth0` often is the parent.
pub(crate) fn born(pod: &Pod) -> IfName {
    valid(format!("hgb{}", pod.id))
}

/// The link in the pod through which what arrives at its interface is led.
pub(crate) fn arrivals(pod: &Pod) -> IfName {
    valid(format!("hgi{}", pod.id))
}

/// The Ethernet address of all pods' gateways on all nodes, where programs forward: with one for all, what a pod sends
/// to its gateway is in order wherever it arrives. (Calico's is `ee:ee:ee:ee:ee:ee`, for a similar reason.)
pub(crate) fn gateway_mac() -> Mac {
    Mac::from_id(MacOf::Gateway as u8, 0)
}

/// The Ethernet address of something a node has once in each network.
pub(crate) fn node_mac(node: &NodeSpec, of: MacOf) -> Mac {
    node.mac(of as u8, 0)
}

/// The Ethernet address of the node's own link beside its pods'. A wire has no two links with one address.
pub(crate) fn host_link_mac(node: &NodeSpec) -> Mac {
    node.mac(MacOf::HostLink as u8, node.network.id)
}

/// The Ethernet address of a pod's interface.
pub(crate) fn pod_mac(node: &NodeSpec, pod: &Pod) -> Mac {
    pod.mac.unwrap_or_else(|| node.mac(MacOf::Pod as u8, pod.id))
}

/// The Ethernet address of the link through which what arrives at a pod's interface is led. No frame has it.
pub(crate) fn arrivals_mac(node: &NodeSpec, pod: &Pod) -> Mac {
    node.mac(MacOf::Arrivals as u8, pod.id)
}

/// The Ethernet address of the node's end of a pod's veth pair.
pub(crate) fn node_end_mac(node: &NodeSpec, pod: &Pod) -> Mac {
    node.mac(MacOf::NodeEnd as u8, pod.id)
}

/// The Ethernet address of the node's end where it is a port of a bridge.
///
/// A bridge that got no address of its own has the lowest of its ports'. Where the bridge may be another program's, a
/// pod that comes or goes must not change it under the neighbours' entries, so ours is higher than that of any card.
/// (libvirt's taps begin with `fe` for the same reason.)
pub(crate) fn port_mac(node: &NodeSpec, pod: &Pod) -> Mac {
    let mut mac = node_end_mac(node, pod);
    if node.network.bridge.is_some() {
        mac.0[0] = 0xfe;
    }
    mac
}

/// The Ethernet address of a node's own tunnel end.
pub(crate) fn own_tunnel_end_mac(node: &NodeSpec) -> Mac {
    node.tunnel_mac.unwrap_or_else(|| node_mac(node, MacOf::TunnelEnd))
}

/// The Ethernet address of a peer's tunnel end: what the peer says, or what [`own_tunnel_end_mac`] gives
/// on the peer itself.
pub(crate) fn tunnel_end_mac(peer: &Peer) -> Mac {
    let derived = || Mac::from_id(MacOf::TunnelEnd as u8, u32::from(peer.id) << 16);
    peer.tunnel_mac.unwrap_or_else(derived)
}

/// The next hops by which a peer's pods are reached in a tunnel: names for the peer's end of it, which no packet
/// carries. In IPv4 it is the first address of the pods' prefix, as flannel has it. The kernel refuses such a hop in
/// IPv6 while the prefix has a route by another link (`ip6_route_check_nh_onlink`), and then the route could not be
/// replaced: there it is the link-local address of the peer's end.
pub(crate) fn tunnel_hops(peer: &Peer, reachable: &Prefixes) -> Addresses {
    let hop = |network: IpAddr| match network {
        IpAddr::V4(_) => network,
        IpAddr::V6(_) => tunnel_end_mac(peer).link_local().into(),
    };
    reachable.networks().iter().map(hop).collect()
}

fn valid(name: String) -> IfName {
    IfName::new(name).expect("a prefix of four letters and at most five digits make a valid name")
}
