//! The forwarding programs of a node: what they must know, and their counters.
//!
//! [`load`] pins programs and maps in the node's bpffs ([`crate::pins`]); everything after that finds them there.

mod counter;
mod entries;
mod layout;
mod prefixes;
mod replace;
mod uplinks;

use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ipnet::IpNet;
use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use linux::{Mac, Result};
use serde::{Deserialize, Serialize};

pub use counter::{Counter, counters};
pub use entries::{ENDPOINTS_MAX, Endpoint, Tunnel, add_endpoint, add_tunnel, has_endpoint, has_tunnel};
pub use entries::{remove_endpoint, remove_tunnel};
pub use prefixes::set_prefixes;
pub use replace::FORMAT;
pub(crate) use replace::{are_of_this_build, replace};
pub use uplinks::{add_uplink, has_uplink, remove_uplink};

pub use crate::generation::Replaced;
pub use crate::program::Program;
use crate::{ffi, generation};

#[expect(
    unreachable_pub,
    unused_qualifications,
    clippy::allow_attributes,
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "it is generated"
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/forward.skel.rs"));
}

/// How long a node's programs go by a route without a look at the kernel's tables: so long a change may go unnoticed.
pub const ROUTE_SECONDS: u32 = 1;
/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

/// A node, as its programs know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfig {
    /// The index of the link to the other nodes.
    pub wire: u32,
    /// The pods' MTU in bytes.
    pub mtu: u32,
    /// The IPv4 address of the pods' gateway, which is on no link: the programs answer ARP for it.
    pub gateway: Ipv4Addr,
    /// The Ethernet address of the node's end of every pod's link.
    pub gateway_mac: Mac,
    /// The prefixes of this node's pods, of either family. They can change later: [`set_prefixes`].
    pub pods: Vec<IpNet>,
    /// The prefixes of all nodes' pods.
    pub cluster: Vec<IpNet>,
    /// Present: packets to other nodes go through a tunnel.
    pub tunnel: Option<TunnelEnd>,
    /// How long a route is good for, [`ROUTE_SECONDS`] but for tests.
    pub route_seconds: u32,
}

/// A node's end of a VXLAN tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelEnd {
    /// The address of this end in the underlay.
    pub local: IpAddr,
    /// The network's identifier, 24 bits.
    pub vni: u32,
    /// The UDP port, of both ends.
    pub port: u16,
}

/// What the verifier said of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The program that was loaded.
    pub program: Program,
    /// Instructions that it looked at, over all ways through the program; 0 before Linux 5.16.
    pub instructions: u32,
}

/// Loads the programs and pins them and their maps in a node's folder.
///
/// # Errors
/// The kernel refuses a program (the text has the verifier's words) or a map.
pub fn load(folder: &Path, config: &NodeConfig) -> Result<Vec<Verified>> {
    ffi::listen();
    load_and_pin(folder, config)
        .map_err(|error| ffi::failed(format!("load the programs of {}", folder.display()), &error))
}

fn load_and_pin(folder: &Path, config: &NodeConfig) -> libbpf_rs::Result<Vec<Verified>> {
    let mut object = MaybeUninit::uninit();
    let mut skeleton = open(&mut object, config)?.load()?;
    prefixes::fill(&skeleton.maps.prefixes, &config.pods, &config.cluster)?;
    replace::MAPS.write_format(&skeleton.maps.format)?;
    generation::pin_maps(skeleton.object_mut(), folder)?;
    let mut verified = Vec::new();
    for mut pinned in skeleton.object_mut().progs_mut() {
        let name = pinned.name().to_string_lossy().into_owned();
        pinned.pin(folder.join(&name))?;
        let program = Program::FORWARD.iter().find(|program| program.name() == name);
        let instructions = ffi::program_info(&pinned).map_or(0, |info| info.verified_insns);
        verified.push(Verified { program: *program.expect("the list has every function"), instructions });
    }
    Ok(verified)
}

/// The programs with their configuration, not loaded yet.
fn open<'o>(
    object: &'o mut MaybeUninit<OpenObject>,
    config: &NodeConfig,
) -> libbpf_rs::Result<skeleton::OpenForwardSkel<'o>> {
    let mut open = skeleton::ForwardSkelBuilder::default().open(object)?;
    let constants = open.maps.rodata_data.as_mut().expect("the programs have read-only data");
    constants.config = in_words(config);
    constants.build = skeleton::BUILD;
    Ok(open)
}

/// The configuration as the programs read it: addresses in network order.
fn in_words(config: &NodeConfig) -> skeleton::types::config {
    let NodeConfig { wire, mtu, gateway, gateway_mac, tunnel, route_seconds, .. } = *config;
    let v4 = |address: Ipv4Addr| u32::from_ne_bytes(address.octets());
    let tunnel4 = match tunnel.map(|tunnel| tunnel.local) {
        Some(IpAddr::V4(local)) => v4(local),
        Some(IpAddr::V6(_)) | None => 0,
    };
    skeleton::types::config {
        wire,
        frame_max: mtu + ETHERNET,
        tunnel4,
        vni: tunnel.map_or(0, |tunnel| tunnel.vni),
        route_ticks: ticks_per_second() * route_seconds,
        tunnel_port: tunnel.map_or(0, |tunnel| tunnel.port).to_be(),
        gateway_mac: gateway_mac.0,
        gateway4: v4(gateway),
    }
}

/// The frequency of the kernel's clock (`CONFIG_HZ`): its coarse clocks advance with each tick, by one period.
fn ticks_per_second() -> u32 {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    u32::try_from(1_000_000_000 / tick.tv_nsec.max(1)).unwrap_or(1)
}

/// An IPv6 address as four words in network order.
fn words(address: Ipv6Addr) -> [u32; 4] {
    let octets = address.octets();
    std::array::from_fn(|word| {
        u32::from_ne_bytes(octets[word * 4..][..4].try_into().expect("four of sixteen octets"))
    })
}
