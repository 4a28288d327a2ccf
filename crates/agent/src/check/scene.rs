//! What the kernel of this node has, read once for all reasons.

use std::net::IpAddr;

use datapath::Family;
use ipnet::IpNet;
use linux::netlink::{LinkInfo, Netlink, RouteInfo, WireGuard};
use linux::sysctl::{self, Key};
use linux::{IfName, Netns, WireGuardPeer};
use plan::{Keeper, Kernel, Plan, Step, StepState};

use super::{CheckError, Network};
use crate::desired::{NODE_PART, part_of};
use crate::status::Status;

/// The node at the time of a check.
pub(super) struct Scene {
    pub(super) netlink: Netlink,
    kernel: Kernel,
    network: Network,
    /// The name of the link to other nodes.
    pub(super) wire_name: Option<String>,
    pub(super) wire: Option<LinkInfo>,
    /// The prefixes of the node's addresses on it.
    wire_prefixes: Vec<IpNet>,
    /// The node's addresses in its pods' network.
    own_addresses: Vec<IpAddr>,
    /// What the agent has made once on the node, the tunnel devices.
    pub(super) node_part: Option<Plan>,
}

/// A step of the agent's that is no longer so.
pub(super) struct Lost {
    pub(super) step: Step,
    /// What stands in its place; `None`: nothing.
    pub(super) found: Option<String>,
}

impl Scene {
    pub(super) fn open(network: &Network, status: &Status) -> Result<Scene, CheckError> {
        let netlink = Netlink::open()?;
        let wire = status.wire.as_ref().and_then(|name| IfName::new(name.clone()).ok());
        let wire = wire.map(|name| netlink.link(&name)).transpose()?.flatten();
        let own: Vec<IpNet> = status.pods.iter().filter_map(|net| net.parse().ok()).collect();
        let mut addresses = netlink.addresses()?;
        addresses.retain(|info| !info.tentative);
        let index = wire.as_ref().map(|wire| wire.index);
        let on_wire = addresses.iter().filter(|info| Some(info.index) == index);
        let wire_prefixes = on_wire.map(|info| info.address.trunc()).collect();
        let addresses = addresses.iter().map(|info| info.address.addr());
        let own_addresses = addresses.filter(|address| own.iter().any(|net| net.contains(address))).collect();
        let kernel = Kernel::new()?;
        let mut scene = Scene {
            netlink,
            kernel,
            network: network.clone(),
            wire_name: status.wire.clone(),
            wire,
            wire_prefixes,
            own_addresses,
            node_part: None,
        };
        scene.node_part = scene.part(NODE_PART)?;
        Ok(scene)
    }

    /// The node's own address in its pods' network.
    pub(super) fn own_address(&self, family: Family) -> Option<IpAddr> {
        self.own_addresses.iter().copied().find(|address| Family::of(*address) == family)
    }

    /// Whether an address is on the link to other nodes, with no router between.
    pub(super) fn is_on_wire(&self, address: IpAddr) -> bool {
        self.wire_prefixes.iter().any(|prefix| prefix.contains(&address))
    }

    /// What the agent has made for a peer; `None`: nothing.
    pub(super) fn part_of(&self, peer: &str) -> Result<Option<Plan>, CheckError> {
        self.part(&part_of(peer))
    }

    fn part(&self, name: &str) -> Result<Option<Plan>, CheckError> {
        Keeper::part(&self.network.home.node_networks(), &self.network.name, name)
            .map_err(|error| CheckError::Status(error.to_string()))
    }

    /// The steps that are not so any more.
    pub(super) fn lost(&mut self, plan: &Plan) -> Vec<Lost> {
        let mut look = |placed| match plan::look(placed, &mut self.kernel) {
            Ok(StepState::So) => None,
            Ok(StepState::Absent) => Some(None),
            Ok(StepState::Otherwise { found }) => Some(Some(found)),
            // A step on a link that is not there cannot be asked for.
            Err(error) => Some(Some(error.to_string())),
        };
        let steps = plan.steps.iter();
        steps.filter_map(|placed| Some(Lost { found: look(placed)?, step: placed.step.clone() })).collect()
    }

    pub(super) fn link(&self, name: &IfName) -> Result<Option<LinkInfo>, linux::Error> {
        self.netlink.link(name)
    }

    /// When a tunnel last agreed on a session with a peer, in seconds since 1970.
    pub(super) fn last_handshake(&self, peer: &WireGuardPeer) -> Result<Option<u64>, linux::Error> {
        let devices = WireGuard::open_in(&Netns::current()?)?;
        let device = devices.device(&peer.dev)?;
        Ok(device.peers.get(&peer.key).and_then(|found| found.handshake_s))
    }

    /// A route in the words of `ip route`.
    pub(super) fn words(&self, route: &RouteInfo) -> String {
        let mut words = route.dst.to_string();
        for hop in &route.next_hops {
            let name = hop.index.and_then(|index| self.netlink.link_at(index).ok().flatten());
            words += &hop.via.map(|via| format!(" via {via}")).unwrap_or_default();
            words += &name.map(|link| format!(" dev {}", link.name)).unwrap_or_default();
        }
        words += match route.kind {
            6 => " blackhole",
            7 => " unreachable",
            8 => " prohibit",
            _ => "",
        };
        let table =
            if route.table == RouteInfo::MAIN { String::new() } else { format!(" table {}", route.table) };
        format!("{words} proto {}{table}", protocol(route.protocol))
    }

    /// The value of a kernel parameter, where the kernel has it.
    pub(super) fn parameter(key: &str) -> Result<Option<String>, linux::Error> {
        Key::new(key).map_or(Ok(None), |key| sysctl::read(&key))
    }
}

/// What has made a route: `kernel`, `boot`, `dhcp`, as `ip route` names it (`rt_protos`).
fn protocol(number: u8) -> String {
    let name = match number {
        2 => "kernel",
        3 => "boot",
        4 => "static",
        9 => "ra",
        11 => "zebra",
        12 => "bird",
        16 => "dhcp",
        186 => "bgp",
        188 => "ospf",
        _ => return number.to_string(),
    };
    name.to_owned()
}
