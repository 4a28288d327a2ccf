//! Links as `RTM_NEWLINK` messages, both ways.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_route::link::{
    InfoBridgePort, InfoData, InfoIpVlan, InfoKind, InfoMacVlan, InfoNetkit, InfoPortData, InfoVeth,
    InfoVxlan, IpVlanMode, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo as Info, LinkMessage, LinkXdp,
    MacVlanMode, NetkitMode, NetkitPolicy,
};

use super::{LinkInfo, VxlanInfo};
use crate::{IfName, IpvlanMode, Link, LinkKind, Mac, MacvlanMode, Netns, VethPeer, Vxlan};

/// What a kind's names stand for.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    /// The index of the link below.
    pub(super) lower: Option<u32>,
    /// The namespace in which a pair's other end is born.
    pub(super) peer_netns: Option<Netns>,
}

/// The kernel's default of the segments of one packet (`GSO_MAX_SEGS` in include/linux/netdevice.h).
const GSO_MAX_SEGS: u32 = 65_535;

/// The message that makes a link.
pub(super) fn creation(link: &Link, found: &Resolved) -> LinkMessage {
    let mut message = named(&link.name, link.mtu, link.mac);
    if matches!(link.kind, LinkKind::Macvlan { .. } | LinkKind::Ipvlan { .. }) {
        message.attributes.extend(found.lower.map(LinkAttribute::Link));
    }
    let mut infos = vec![Info::Kind(kind(&link.kind))];
    infos.extend(data(&link.kind, found).map(Info::Data));
    message.attributes.push(LinkAttribute::LinkInfo(infos));
    message
}

/// A message about a link that exists.
pub(super) fn indexed(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

/// A question for links; statistics would be most of the answer.
pub(super) fn without_statistics() -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    message
}

/// What the kernel reports of a link.
pub(super) fn read(message: &LinkMessage) -> Result<LinkInfo, String> {
    let flags = message.header.flags;
    let mut name = None;
    let mut link = LinkInfo {
        index: message.header.index,
        // Replaced below; without a name the message is refused.
        name: IfName::new("unnamed").expect("a valid name"),
        kind: None,
        mtu: 0,
        mtu_max: None,
        mac: None,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        master: None,
        ifalias: None,
        parent: None,
        parent_netns: None,
        hairpin: None,
        isolated: None,
        rx_queues: 1,
        tx_queues: 1,
        gso_max_segs: GSO_MAX_SEGS,
        xdp: None,
        vxlan: None,
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.as_str()),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            // 0 is no limit (`dev_validate_mtu` in net/core/dev.c).
            LinkAttribute::MaxMtu(most) => link.mtu_max = Some(*most).filter(|most| *most != 0),
            LinkAttribute::Address(bytes) => link.mac = <[u8; 6]>::try_from(bytes.as_slice()).ok().map(Mac),
            LinkAttribute::Controller(index) => link.master = Some(*index).filter(|index| *index != 0),
            LinkAttribute::IfAlias(text) => link.ifalias = Some(text.clone()),
            LinkAttribute::Link(index) => link.parent = Some(*index).filter(|index| *index != 0),
            LinkAttribute::LinkNetNsId(id) => link.parent_netns = Some(*id),
            LinkAttribute::NumRxQueues(count) => link.rx_queues = *count,
            LinkAttribute::NumTxQueues(count) => link.tx_queues = *count,
            LinkAttribute::GsoMaxSegs(segments) => link.gso_max_segs = *segments,
            LinkAttribute::Xdp(attributes) => {
                link.xdp = attributes.iter().find_map(|attribute| match attribute {
                    LinkXdp::ProgId(id) => Some(*id),
                    _ => None,
                });
            }
            LinkAttribute::LinkInfo(infos) => read_infos(infos, &mut link),
            _ => {}
        }
    }
    let name = name.ok_or_else(|| format!("link {} has no name", link.index))?;
    link.name = IfName::new(name).map_err(|error| error.to_string())?;
    Ok(link)
}

fn read_infos(infos: &[Info], link: &mut LinkInfo) {
    for info in infos {
        match info {
            Info::Kind(kind) => link.kind = Some(kind.to_string()),
            Info::Data(InfoData::Vxlan(attributes)) => link.vxlan = Some(read_tunnel(attributes)),
            Info::PortData(InfoPortData::BridgePort(port)) => {
                for attribute in port {
                    match attribute {
                        InfoBridgePort::HairpinMode(on) => link.hairpin = Some(*on),
                        InfoBridgePort::Isolated(on) => link.isolated = Some(*on),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

fn read_tunnel(attributes: &[InfoVxlan]) -> VxlanInfo {
    let mut tunnel = VxlanInfo::default();
    for attribute in attributes {
        match attribute {
            InfoVxlan::Id(vni) => tunnel.vni = *vni,
            InfoVxlan::Link(index) => tunnel.parent = Some(*index).filter(|index| *index != 0),
            InfoVxlan::Local(local) => tunnel.local = Some((*local).into()),
            InfoVxlan::Local6(local) => tunnel.local = Some((*local).into()),
            InfoVxlan::Port(port) => tunnel.port = *port,
            InfoVxlan::Learning(learning) => tunnel.learning = *learning,
            _ => {}
        }
    }
    tunnel
}

fn named(name: &IfName, mtu: Option<u32>, mac: Option<Mac>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_string()));
    message.attributes.extend(mtu.map(LinkAttribute::Mtu));
    message.attributes.extend(mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
    message
}

fn kind(kind: &LinkKind) -> InfoKind {
    match kind {
        LinkKind::Veth { .. } => InfoKind::Veth,
        LinkKind::Netkit { .. } => InfoKind::Netkit,
        LinkKind::Bridge => InfoKind::Bridge,
        LinkKind::Ifb => InfoKind::Ifb,
        LinkKind::Vxlan(_) | LinkKind::VxlanExternal { .. } => InfoKind::Vxlan,
        LinkKind::WireGuard => InfoKind::Wireguard,
        LinkKind::Macvlan { .. } => InfoKind::MacVlan,
        LinkKind::Ipvlan { .. } => InfoKind::IpVlan,
    }
}

fn data(kind: &LinkKind, found: &Resolved) -> Option<InfoData> {
    Some(match kind {
        LinkKind::Veth { peer } => InfoData::Veth(InfoVeth::Peer(other_end(peer, found))),
        LinkKind::Netkit { peer } => InfoData::Netkit(vec![
            InfoNetkit::Mode(NetkitMode::L2),
            InfoNetkit::Policy(NetkitPolicy::Pass),
            InfoNetkit::PeerPolicy(NetkitPolicy::Pass),
            InfoNetkit::Peer(other_end(peer, found)),
        ]),
        LinkKind::Bridge | LinkKind::Ifb | LinkKind::WireGuard => return None,
        LinkKind::Vxlan(vxlan) => InfoData::Vxlan(tunnel(vxlan, found)),
        LinkKind::VxlanExternal { port } => InfoData::Vxlan(external_tunnel(*port)),
        LinkKind::Macvlan { mode, .. } => InfoData::MacVlan(vec![InfoMacVlan::Mode(match mode {
            MacvlanMode::Bridge => MacVlanMode::Bridge,
            MacvlanMode::Private => MacVlanMode::Private,
        })]),
        LinkKind::Ipvlan { mode, .. } => InfoData::IpVlan(vec![InfoIpVlan::Mode(match mode {
            IpvlanMode::L2 => IpVlanMode::L2,
            IpvlanMode::L3 => IpVlanMode::L3,
            IpvlanMode::L3s => IpVlanMode::L3S,
        })]),
    })
}

fn other_end(peer: &VethPeer, found: &Resolved) -> LinkMessage {
    let mut message = named(&peer.name, peer.mtu, peer.mac);
    let netns = found.peer_netns.as_ref();
    message.attributes.extend(netns.map(|netns| LinkAttribute::NetNsFd(netns.as_fd().as_raw_fd())));
    message
}

/// The outer UDP checksum differs by family.
///
/// Over IPv4 it is zero, as RFC 7348 recommends and flannel does: the IPv4 header has a checksum of its own, and
/// network cards that segment tunnels without an outer checksum are the more common ones. Over IPv6 it is sent, which
/// is the kernel's default: no other checksum protects the outer addresses there, and a receiver drops a zero unless
/// it is configured to accept it (RFC 6935). It costs almost nothing, since the sum over the inner packet is already
/// known when the inner checksum is left to the card (local checksum offload). Both choices keep segmentation offload
/// for the inner packets.
fn tunnel(vxlan: &Vxlan, found: &Resolved) -> Vec<InfoVxlan> {
    let mut data =
        vec![InfoVxlan::Id(vxlan.vni), InfoVxlan::Port(vxlan.port), InfoVxlan::Learning(vxlan.learning)];
    data.extend(found.lower.map(InfoVxlan::Link));
    match vxlan.local {
        IpAddr::V4(local) => data.extend([InfoVxlan::Local(local), InfoVxlan::UDPCsum(false)]),
        IpAddr::V6(local) => {
            let zero = [InfoVxlan::UDPZeroCsumTX(false), InfoVxlan::UDPZeroCsumRX(false)];
            data.push(InfoVxlan::Local6(local));
            data.extend(zero);
        }
    }
    data
}

/// Each packet's metadata selects here whether an outer UDP checksum is sent. The device only sets what it accepts:
/// over IPv6 a zero as well. (Over IPv4 it accepts both anyway.) It must not learn: its remotes are configured.
fn external_tunnel(port: u16) -> Vec<InfoVxlan> {
    vec![
        InfoVxlan::CollectMetadata(true),
        InfoVxlan::Port(port),
        InfoVxlan::Learning(false),
        InfoVxlan::UDPZeroCsumRX(true),
    ]
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable;

    use super::*;

    /// The kernel numbers that the tests of links on the real kernel cannot reach where it lacks the kind.
    #[track_caller]
    fn check(kind: LinkKind, lower: Option<u32>, parts: &[&[u8]]) {
        let link = Link { name: name("iv0"), kind, mtu: None, mac: None };
        let message = creation(&link, &Resolved { lower, peer_netns: None });
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        for part in parts {
            assert!(bytes.windows(part.len()).any(|window| window == *part), "{part:?} in {bytes:?}");
        }
    }

    fn name(text: &str) -> IfName {
        IfName::new(text).unwrap()
    }

    #[track_caller]
    fn check_ipvlan(mode: IpvlanMode, number: u8) {
        // IFLA_LINK (5) with the parent's index; IFLA_INFO_KIND (1); IFLA_IPVLAN_MODE (1) with two bytes.
        let parts: [&[u8]; 3] =
            [&[8, 0, 5, 0, 7, 0, 0, 0], b"\x0b\0\x01\0ipvlan\0", &[6, 0, 1, 0, number, 0]];
        check(LinkKind::Ipvlan { parent: name("eth0"), mode }, Some(7), &parts);
    }

    #[test]
    fn ipvlan_modes_have_the_kernels_numbers() {
        check_ipvlan(IpvlanMode::L2, 0);
        check_ipvlan(IpvlanMode::L3, 1);
        check_ipvlan(IpvlanMode::L3s, 2);
    }

    #[test]
    fn a_netkit_pair_is_of_mode_l2_and_passes() {
        let mac = Some(Mac([2, 0, 0, 0, 0, 9]));
        let peer = VethPeer { name: name("nk1"), netns: None, mtu: None, mac };
        // IFLA_INFO_KIND (1); IFLA_NETKIT_MODE (5), _POLICY (3) and _PEER_POLICY (4), each zero in four bytes;
        // IFLA_NETKIT_PEER_INFO (1): a header of sixteen bytes, IFLA_IFNAME (3), IFLA_ADDRESS (1).
        let other_end =
            [&[40, 0, 1, 0][..], &[0; 16], b"\x08\0\x03\0nk1\0", &[10, 0, 1, 0, 2, 0, 0, 0, 0, 9]].concat();
        let mode_and_policies =
            [[8, 0, 5, 0, 0, 0, 0, 0], [8, 0, 3, 0, 0, 0, 0, 0], [8, 0, 4, 0, 0, 0, 0, 0]];
        let parts: [&[u8]; 3] = [b"\x0b\0\x01\0netkit\0", &mode_and_policies.concat(), &other_end];
        check(LinkKind::Netkit { peer }, None, &parts);
    }

    #[test]
    fn a_link_without_a_name_is_refused() {
        assert_eq!(read(&indexed(3)).unwrap_err(), "link 3 has no name");
    }
}
