//! What this kernel can do, probed and never guessed from its version.

mod attempts;
mod bpf;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use self::attempts::{attempt, name};
use crate::{Netlink, Netns, Result};

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
    probe_some(Feature::ALL)
}

/// The same of some features. All others count as missing, untried: a module that the kernel loads for a try stays
/// loaded, and a program that runs on many machines is not to load what it has no use for.
pub fn probe_some(features: &[Feature]) -> Result<Facts> {
    let world = Netns::anonymous()?;
    let netlink = Netlink::open_in(&world)?;
    let mut facts = Facts { kernel: release(), missing: BTreeMap::new() };
    // In order: the veth made first is the parent of the others. Without it they count as missing, as they would be in
    // use.
    for feature in Feature::ALL {
        let is_part_of_it = |other: &Feature| other == feature || other.whole() == Some(*feature);
        let is_tried = *feature == Feature::Veth || features.iter().any(is_part_of_it);
        let tried =
            if is_tried { attempt(*feature, &world, &netlink) } else { Err("it was not tried".to_owned()) };
        if let Err(why) = tried {
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
