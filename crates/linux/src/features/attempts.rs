//! Each feature is tried as it would be used.

use std::net::IpAddr;

use super::{Feature, bpf, has_ipv6};
use crate::netlink::{OvsDatapaths, RdmaDevices, Xfrm};
use crate::nft::{self, Base, Chain, ChainKind, Family, Hook, Table};
use crate::qdisc::{Fq, FqCodel, Netem, Tbf};
use crate::rdma::VerbsDevice;
use crate::xdp::XdpSocket;
use crate::{
    Encap, EspKey, EspTunnel, IfName, IpvlanMode, Link, LinkKind, Mac, MacvlanMode, Netlink, Netns, Qdisc,
    RdmaLink, RdmaName, Result, Route, Spi, VethPeer, Vxlan, XfrmState, ovs, sysctl, user_net,
};
/// Tries one feature; the reason if it does not work.
pub(super) fn attempt(feature: Feature, world: &Netns, netlink: &Netlink) -> Result<(), String> {
    let parent = name(PARENT);
    let passing = |kind| make(netlink, "hgprobe", kind).and_then(|index| remove(netlink, index));
    match feature {
        // It stays, as the others' parent.
        Feature::Veth => {
            let peer = VethPeer { name: name("hgpeer"), netns: None, mtu: None, mac: None };
            make(netlink, PARENT, LinkKind::Veth { peer }).map(drop)
        }
        Feature::Netkit => netkit(netlink),
        Feature::Bridge => passing(LinkKind::Bridge),
        Feature::Vxlan => {
            let local = std::net::Ipv4Addr::new(192, 0, 2, 1).into();
            passing(LinkKind::Vxlan(Vxlan { vni: 1, parent, local, port: 8472, learning: false }))
        }
        Feature::VxlanExternal => vxlan_external(netlink),
        Feature::WireGuard => passing(LinkKind::WireGuard),
        Feature::IpSec => ipsec(world),
        Feature::OpenVSwitch => open_vswitch(world),
        Feature::OpenVSwitchGeneve => {
            datapaths(world).and_then(|datapaths| reason_of(datapaths.try_geneve()))
        }
        Feature::OpenVSwitchAfXdp => ovs::find_af_xdp(),
        Feature::OpenVSwitchDpdk => ovs::find_dpdk(),
        Feature::Macvlan => passing(LinkKind::Macvlan { parent, mode: MacvlanMode::Bridge }),
        Feature::Ipvlan => passing(LinkKind::Ipvlan { parent, mode: IpvlanMode::L2 }),
        Feature::IpvlanL3s => passing(LinkKind::Ipvlan { parent, mode: IpvlanMode::L3s }),
        Feature::Ipv6 => ipv6(netlink),
        Feature::Nftables => nft::add(world, &translation()).map_err(|error| error.reason()),
        Feature::BridgeNetfilter => bridge_netfilter(world),
        Feature::Netem => at_root(netlink, &Qdisc::Netem(Netem { limit: 1, ..Netem::default() })),
        Feature::Fq => at_root(netlink, &Qdisc::Fq(Fq::default())),
        Feature::FqCodel => at_root(netlink, &Qdisc::FqCodel(FqCodel::default())),
        Feature::Tbf => {
            let inner = Qdisc::Pfifo { limit: 1 };
            at_root(
                netlink,
                &Qdisc::Tbf(Box::new(Tbf { rate_bytes_per_s: 1_000_000, burst_bytes: 3000, inner })),
            )
        }
        Feature::BpfTc => bpf::try_programs(),
        Feature::BpfSockets => bpf::try_sockets(),
        Feature::BpfServices => bpf::try_services(),
        Feature::AfXdp => af_xdp(world, netlink),
        Feature::Pasta => user_net::find_pasta(),
        Feature::Slirp4netns => user_net::find_slirp4netns(),
        Feature::Verbs => verbs(world),
    }
}

/// The link that the others are made on.
const PARENT: &str = "hgparent";

pub(super) fn name(text: &str) -> IfName {
    IfName::new(text).expect("the names used here are valid")
}

fn make(netlink: &Netlink, link: &str, kind: LinkKind) -> Result<u32, String> {
    add(netlink, &Link { name: name(link), kind, mtu: None, mac: None })
}

fn add(netlink: &Netlink, link: &Link) -> Result<u32, String> {
    netlink.link_add(link).map_err(|error| error.reason())?;
    netlink.index_of(&link.name).map_err(|error| error.to_string())
}

fn remove(netlink: &Netlink, index: u32) -> Result<(), String> {
    netlink.link_del(index).map_err(|error| error.to_string())
}

/// With addresses of both ends, which kernels before 6.10 refuse.
fn netkit(netlink: &Netlink) -> Result<(), String> {
    let mac = |id| Some(Mac::from_id(1, id));
    let peer = VethPeer { name: name("hgprobe1"), netns: None, mtu: None, mac: mac(1) };
    let link = Link { name: name("hgprobe0"), kind: LinkKind::Netkit { peer }, mtu: None, mac: mac(0) };
    add(netlink, &link).and_then(|index| remove(netlink, index))
}

fn vxlan_external(netlink: &Netlink) -> Result<(), String> {
    let index = make(netlink, "hgprobe", LinkKind::VxlanExternal { port: 8472 })?;
    let via = std::net::Ipv4Addr::new(198, 51, 100, 0).into();
    let dst = "198.51.100.0/24".parse().expect("a valid prefix");
    let encap = Some(Encap { id: 1, remote: std::net::Ipv4Addr::new(192, 0, 2, 1).into() });
    let route = Route { onlink: true, encap, ..Route::via(dst, via, name("hgprobe")) };
    let up = netlink.link_set_up(index, true);
    let routed = up.and_then(|()| netlink.route_add(&route)).map_err(|error| error.reason());
    // The route goes with the link.
    remove(netlink, index).and(routed)
}

/// The kernel makes the algorithm of an association when it gets one.
fn ipsec(world: &Netns) -> Result<(), String> {
    let xfrm = Xfrm::open_in(world).map_err(|error| error.reason())?;
    let key = EspKey::generate().map_err(|error| error.to_string())?;
    let v4: [IpAddr; 2] = [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()];
    let v6 = [1, 2].map(|host| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]));
    for [src, dst] in [Some(v4), has_ipv6().then_some(v6)].into_iter().flatten() {
        let spi = Spi::generate().map_err(|error| error.to_string())?;
        let state = XfrmState { tunnel: EspTunnel { src, dst, reqid: 1 }, spi };
        xfrm.state_add(&state, &key).map_err(|error| error.reason())?;
        xfrm.state_del(&state).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The kernel's part first: where it is missing, an installation of the programs would not help.
fn open_vswitch(world: &Netns) -> Result<(), String> {
    reason_of(datapaths(world)?.try_datapath())?;
    ovs::find_programs()
}

fn datapaths(world: &Netns) -> Result<OvsDatapaths, String> {
    OvsDatapaths::open_in(world).map_err(|error| match error.errno() {
        Some(libc::ENOENT) => "the kernel has no module openvswitch".to_owned(),
        _ => error.reason(),
    })
}

fn reason_of<T>(tried: Result<T>) -> Result<T, String> {
    tried.map_err(|error| error.reason())
}

/// A socket with its memory, bound to the link that the others are made on.
fn af_xdp(world: &Netns, netlink: &Netlink) -> Result<(), String> {
    let parent = netlink.index_of(&name(PARENT)).map_err(|error| error.reason())?;
    let bound = world.run(|| XdpSocket::bind(parent)).map_err(|error| error.to_string())?;
    bound.map(drop).map_err(|error| error.reason())
}

/// The kernel's part first: where it is missing, an installation of the library would not help.
fn verbs(world: &Netns) -> Result<(), String> {
    let devices = RdmaDevices::open_in(world).map_err(|error| match error.errno() {
        Some(libc::EPROTONOSUPPORT) => {
            "the kernel has no RDMA, or its modules are not loaded (modprobe rdma_rxe ib_uverbs)".to_owned()
        }
        _ => error.reason(),
    })?;
    let name = RdmaName::new("hgprobe").expect("the name is valid");
    let wanted = RdmaLink { name, link: self::name(PARENT) };
    devices.add(&wanted).map_err(|error| match error.errno() {
        Some(libc::EINVAL) => "the kernel has no module rdma_rxe".to_owned(),
        _ => error.reason(),
    })?;
    let made = devices.find(&wanted.name).map_err(|error| error.to_string())?;
    made.map_or(Ok(()), |made| devices.remove(&made)).map_err(|error| error.to_string())?;
    if !std::path::Path::new("/sys/class/infiniband_verbs").exists() {
        return Err("programs cannot use RDMA devices: the module ib_uverbs is not loaded".to_owned());
    }
    VerbsDevice::find_library()
}

fn at_root(netlink: &Netlink, qdisc: &Qdisc) -> Result<(), String> {
    let parent = netlink.index_of(&name(PARENT)).map_err(|error| error.reason())?;
    let placed = netlink.set_root_qdisc(parent, qdisc).map_err(|error| error.reason());
    placed.and_then(|()| netlink.delete_root_qdisc(parent).map_err(|error| error.to_string()))
}

fn ipv6(netlink: &Netlink) -> Result<(), String> {
    let address = "2001:db8::1/128".parse().expect("a valid address");
    let lo = netlink.index_of(&name("lo")).map_err(|error| error.to_string())?;
    netlink.address_add(lo, &address).map_err(|error| error.reason())
}

fn bridge_netfilter(world: &Netns) -> Result<(), String> {
    let key = sysctl::Key::new("net/bridge/bridge-nf-call-iptables").expect("a valid key");
    match world.run(|| sysctl::read(&key)) {
        Ok(Ok(Some(_))) => Ok(()),
        Ok(Ok(None)) => Err(format!("there is no /proc/sys/{key}: module br_netfilter is not loaded")),
        Ok(Err(error)) | Err(error) => Err(error.to_string()),
    }
}

/// A table with the hardest thing that the project asks of nftables.
fn translation() -> Table {
    let base = Some(Base { kind: ChainKind::Nat, hook: Hook::Postrouting, priority: 100 });
    let rules = vec![nft::Rule {
        matches: vec![nft::Match::Established],
        then: nft::Statement::Masquerade { random: true },
    }];
    let out = Chain { name: "out".to_owned(), base, rules };
    let parts = vec![nft::PacketField::Protocol, nft::PacketField::Dport];
    let value = vec![nft::PacketField::Daddr, nft::PacketField::Dport];
    let ports = nft::Map { name: "ports".to_owned(), key: parts.clone(), value };
    let then = nft::Statement::DnatBy { parts, map: ports.name.clone() };
    let base = Some(Base { kind: ChainKind::Nat, hook: Hook::Prerouting, priority: -100 });
    let into = Chain { name: "into".to_owned(), base, rules: vec![nft::Rule { matches: Vec::new(), then }] };
    Table { family: Family::Ip, name: "hgprobe".to_owned(), maps: vec![ports], chains: vec![out, into] }
}
