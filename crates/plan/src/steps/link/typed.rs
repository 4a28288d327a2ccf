//! A link as the words of `ip link add`.

use linux::{IpvlanMode, Link, LinkKind, Mac, MacvlanMode, VethPeer, Vxlan};

use crate::show::word;

/// All that stands behind `ip link add`. `netns` are the words for another namespace than the command's, or nothing.
pub(super) fn link(link: &Link, netns: &str) -> String {
    let mut text = format!("name {}", word(&link.name));
    match &link.kind {
        LinkKind::Macvlan { parent, .. } | LinkKind::Ipvlan { parent, .. } => {
            text += &format!(" link {}", word(parent));
        }
        LinkKind::Veth { .. }
        | LinkKind::Netkit { .. }
        | LinkKind::Bridge
        | LinkKind::Ifb
        | LinkKind::WireGuard
        | LinkKind::Vxlan(_)
        | LinkKind::VxlanExternal { .. } => {}
    }
    text += &mtu_and_mac(link.mtu, link.mac);
    text += netns;
    text += &format!(" type {}", link.kind.name());
    match &link.kind {
        LinkKind::Veth { peer } => text += &other_end(peer),
        // Both policies are `forward`, ip's default, which is "pass" to the kernel.
        LinkKind::Netkit { peer } => text += &format!(" mode l2{}", other_end(peer)),
        LinkKind::Bridge | LinkKind::Ifb | LinkKind::WireGuard => {}
        LinkKind::Vxlan(vxlan) => text += &vxlan_options(vxlan),
        // That it does not learn is what ip makes of `external`.
        LinkKind::VxlanExternal { port } => text += &format!(" external dstport {port} udp6zerocsumrx"),
        LinkKind::Macvlan { mode, .. } => text += &format!(" mode {}", macvlan_mode(*mode)),
        LinkKind::Ipvlan { mode, .. } => text += &format!(" mode {}", ipvlan_mode(*mode)),
    }
    text
}

fn mtu_and_mac(mtu: Option<u32>, mac: Option<Mac>) -> String {
    let mtu = mtu.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
    let mac = mac.map(|mac| format!(" address {mac}")).unwrap_or_default();
    mtu + &mac
}

fn other_end(peer: &VethPeer) -> String {
    let netns = peer.netns.as_ref().map(|netns| format!(" netns {netns}")).unwrap_or_default();
    format!(" peer name {}{}{netns}", word(&peer.name), mtu_and_mac(peer.mtu, peer.mac))
}

fn vxlan_options(vxlan: &Vxlan) -> String {
    let Vxlan { vni, parent, local, port, learning } = vxlan;
    let learning = if *learning { "learning" } else { "nolearning" };
    // Over IPv4 ours go without a checksum of the outer UDP packet, over IPv6 with one, which is the kernel's default.
    let checksums = if local.is_ipv4() { " noudpcsum" } else { "" };
    format!(" id {vni} dev {} local {local} dstport {port} {learning}{checksums}", word(parent))
}

fn macvlan_mode(mode: MacvlanMode) -> &'static str {
    match mode {
        MacvlanMode::Bridge => "bridge",
        MacvlanMode::Private => "private",
    }
}

fn ipvlan_mode(mode: IpvlanMode) -> &'static str {
    match mode {
        IpvlanMode::L2 => "l2",
        IpvlanMode::L3 => "l3",
        IpvlanMode::L3s => "l3s",
    }
}
