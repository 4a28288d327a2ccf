//! What this kernel can do, probed and never guessed from its version.

mod bpf;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::netlink::{OvsDatapaths, RdmaDevices, Xfrm};
use crate::nft::{self, Base, Chain, ChainKind, Family, Hook, Table};
use crate::qdisc::{Fq, FqCodel, Netem, Tbf};
use crate::rdma::VerbsDevice;
use crate::xdp::XdpSocket;
use crate::{
    Encap, EspKey, EspTunnel, IfName, IpvlanMode, Link, LinkKind, Mac, MacvlanMode, Netlink, Netns, Qdisc,
    RdmaLink, RdmaName, Result, Route, Spi, VethPeer, Vxlan, XfrmState, ovs, sysctl, user_net,
};

/// Something that a data path or a knob may need of the kernel or of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// Links of kind veth.
    Veth,
    /// Links of kind netkit, in L2 mode and with Ethernet addresses that are given.
    Netkit,
    /// Links of kind bridge.
    Bridge,
    /// Links of kind vxlan.
    Vxlan,
    /// Vxlan links in external mode, and routes that lead into tunnels. A kernel can be built without them
    /// (`CONFIG_LWTUNNEL`).
    VxlanExternal,
    /// Links of kind wireguard.
    #[serde(rename = "wireguard")]
    WireGuard,
    /// IPsec: security associations of ESP in tunnel mode with AES-GCM, between addresses of either family.
    #[serde(rename = "ipsec")]
    IpSec,
    /// A datapath of Open vSwitch in the kernel, and the programs that lead it.
    #[serde(rename = "open_vswitch")]
    OpenVSwitch,
    /// Tunnels of GENEVE as ports of such a datapath.
    #[serde(rename = "open_vswitch_geneve")]
    OpenVSwitchGeneve,
    /// What an Open vSwitch needs that forwards in user space, with ports of AF_XDP: its programs, what libxdp loads,
    /// and links of kind tun.
    #[serde(rename = "open_vswitch_af_xdp")]
    OpenVSwitchAfXdp,
    /// The program of Open vSwitch that has DPDK.
    #[serde(rename = "open_vswitch_dpdk")]
    OpenVSwitchDpdk,
    /// Links of kind macvlan.
    Macvlan,
    /// Links of kind ipvlan, in modes l2 and l3.
    Ipvlan,
    /// Links of kind ipvlan in mode l3s, which a kernel may be built without (`CONFIG_IPVLAN_L3S`).
    IpvlanL3s,
    /// IPv6 in a new namespace.
    Ipv6,
    /// nftables with address translation, and the `nft` program.
    Nftables,
    /// Bridged packets pass netfilter (`br_netfilter`).
    BridgeNetfilter,
    /// Queueing discipline netem: delay, loss and rate of a wire.
    Netem,
    /// The fq queueing discipline: fair queueing with pacing.
    Fq,
    /// The fq_codel queueing discipline: fair queueing with CoDel.
    FqCodel,
    /// Queueing discipline tbf: the line rate of a link, with a queue before it.
    Tbf,
    /// eBPF programs for tc and netkit with `bpf_redirect_peer` (Linux 5.10), and a filesystem that keeps them.
    BpfTc,
    /// eBPF programs at the sockets of a control group that use kernel types (BTF) and can read the network namespace
    /// (Linux 5.15), and maps of sockets, on a kernel with which splicing is trusted (Linux 6.12).
    BpfSockets,
    /// eBPF programs at the calls of a control group's sockets that can exchange the address, and refuse a call with an
    /// error of their own (Linux 6.1).
    BpfServices,
    /// AF_XDP: sockets that take frames before the kernel's stack (`CONFIG_XDP_SOCKETS`).
    #[serde(rename = "af_xdp")]
    AfXdp,
    /// The program pasta, and links of kind tun.
    Pasta,
    /// The program slirp4netns, and links of kind tun.
    Slirp4netns,
    /// RDMA devices of software RoCE (`rdma_rxe`), and what lets programs use them: `ib_uverbs`, and libibverbs.
    Verbs,
}

impl Feature {
    /// Every feature, in display order.
    pub const ALL: &[Feature] = &[
        Feature::Veth,
        Feature::Netkit,
        Feature::Bridge,
        Feature::Vxlan,
        Feature::VxlanExternal,
        Feature::WireGuard,
        Feature::IpSec,
        Feature::OpenVSwitch,
        Feature::OpenVSwitchGeneve,
        Feature::OpenVSwitchAfXdp,
        Feature::OpenVSwitchDpdk,
        Feature::Macvlan,
        Feature::Ipvlan,
        Feature::IpvlanL3s,
        Feature::Ipv6,
        Feature::Nftables,
        Feature::BridgeNetfilter,
        Feature::Netem,
        Feature::Fq,
        Feature::FqCodel,
        Feature::Tbf,
        Feature::BpfTc,
        Feature::BpfSockets,
        Feature::BpfServices,
        Feature::AfXdp,
        Feature::Pasta,
        Feature::Slirp4netns,
        Feature::Verbs,
    ];

    /// The feature without which there is none of this one.
    fn whole(self) -> Option<Feature> {
        match self {
            Feature::OpenVSwitchGeneve => Some(Feature::OpenVSwitch),
            Feature::IpvlanL3s => Some(Feature::Ipvlan),
            Feature::VxlanExternal => Some(Feature::Vxlan),
            _ => None,
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::Veth => "veth links",
            Feature::Netkit => "netkit links",
            Feature::Bridge => "bridge links",
            Feature::Vxlan => "vxlan links",
            Feature::VxlanExternal => "routes into vxlan tunnels",
            Feature::WireGuard => "wireguard links",
            Feature::IpSec => "IPsec (ESP with AES-GCM)",
            Feature::OpenVSwitch => "Open vSwitch",
            Feature::OpenVSwitchGeneve => "GENEVE tunnels of Open vSwitch",
            Feature::OpenVSwitchAfXdp => "Open vSwitch in user space",
            Feature::OpenVSwitchDpdk => "Open vSwitch with DPDK",
            Feature::Macvlan => "macvlan links",
            Feature::Ipvlan => "ipvlan links",
            Feature::IpvlanL3s => "ipvlan links of mode l3s",
            Feature::Ipv6 => "IPv6",
            Feature::Nftables => "nftables",
            Feature::BridgeNetfilter => "br_netfilter",
            Feature::Netem => "netem",
            Feature::Fq => "fq",
            Feature::FqCodel => "fq_codel",
            Feature::Tbf => "tbf",
            Feature::BpfTc => "eBPF programs at tc",
            Feature::BpfSockets => "eBPF programs at sockets",
            Feature::BpfServices => "eBPF programs at socket calls",
            Feature::AfXdp => "AF_XDP",
            Feature::Pasta => "pasta",
            Feature::Slirp4netns => "slirp4netns",
            Feature::Verbs => "RDMA verbs",
        })
    }
}

/// What was found on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// The missing features, each with the kernel's own error text. A feature that is not listed is available.
    pub missing: BTreeMap<Feature, String>,
}

/// Whether the kernel has IPv6: not if it was started with `ipv6.disable=1`.
pub fn has_ipv6() -> bool {
    std::path::Path::new("/proc/sys/net/ipv6").exists()
}

/// The release of the running kernel, as `uname -r` prints it.
pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// A need that is not met, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmet {
    /// The feature that this machine lacks.
    pub feature: Feature,
    /// The error that showed it.
    pub why: String,
}

/// Finds out what this machine can do by trying it, in an unnamed namespace that ends with this call. As in real use,
/// the kernel may load modules. Fails only if no namespace can be made.
pub fn probe() -> Result<Facts> {
    let world = Netns::anonymous()?;
    let netlink = Netlink::open_in(&world)?;
    let mut facts = Facts { kernel: release(), missing: BTreeMap::new() };
    // In order: the veth made first is the parent of the others. Without it they count as missing, as they would be in
    // use.
    for feature in Feature::ALL {
        if let Err(why) = attempt(*feature, &world, &netlink) {
            facts.missing.insert(*feature, why);
        }
    }
    Ok(facts)
}

/// Whether programs can be attached to a device as links of a list (tcx, Linux 6.6). No data path needs it: without it
/// the same programs are attached as a filter of the `clsact` queueing discipline. Tried, as the features are, in a
/// namespace that ends with this call; an error only if there can be none.
pub fn tcx() -> Result<bool> {
    let world = Netns::anonymous()?;
    let lo = Netlink::open_in(&world)?.index_of(&name("lo"))?;
    Ok(world.run(|| bpf::try_tcx(lo))?.is_ok())
}

/// Whether [`Feature::BpfServices`] is there, without a try of the others.
pub fn services() -> std::result::Result<(), Unmet> {
    bpf::try_services().map_err(|why| Unmet { feature: Feature::BpfServices, why })
}

/// Whether [`Feature::WireGuard`] is there, without a try of the others. As in real use, the kernel
/// may load the module.
pub fn wireguard() -> std::result::Result<(), Unmet> {
    let world = Netns::anonymous().and_then(|world| Ok((Netlink::open_in(&world)?, world)));
    let tried = world
        .map_err(|error| error.to_string())
        .and_then(|(netlink, world)| attempt(Feature::WireGuard, &world, &netlink));
    tried.map_err(|why| Unmet { feature: Feature::WireGuard, why })
}

/// Tries one feature; the reason if it does not work.
fn attempt(feature: Feature, world: &Netns, netlink: &Netlink) -> Result<(), String> {
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
        Feature::OpenVSwitchAfXdp => ovs::find_programs().and_then(|()| ovs::find_af_xdp()),
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

fn name(text: &str) -> IfName {
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

impl Facts {
    /// Those of the needs that this machine does not meet. What a whole lacks is not said of its part again.
    pub fn unmet(&self, needs: &[Feature]) -> Vec<Unmet> {
        let missing = |feature: &Feature| self.missing.get(feature);
        let is_said = |feature: &Feature| {
            let whole = feature.whole().filter(|whole| needs.contains(whole));
            whole.is_some_and(|whole| missing(&whole) == missing(feature))
        };
        let unsaid = needs.iter().filter(|feature| !is_said(feature));
        unsaid
            .filter_map(|feature| missing(feature).map(|why| Unmet { feature: *feature, why: why.clone() }))
            .collect()
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} not available: {}", self.feature, self.why)
    }
}
