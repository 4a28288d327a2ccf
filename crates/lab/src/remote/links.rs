//! The links by which two machines reach each other, found by routes and addresses.

use std::net::IpAddr;

use datapath::SocketRole;
use linux::netlink::AddressInfo;
use linux::sysfs::NetSysfs;
use linux::{IfName, Netlink, Netns};
use serde::{Deserialize, Serialize};

use super::card;
use crate::{ByRole, LabError, cards};

/// An address that is valid everywhere (`RT_SCOPE_UNIVERSE`).
const UNIVERSE: u8 = 0;

/// A link of a machine with addresses for the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineLink {
    /// The name of the link on its machine.
    pub name: IfName,
    /// The MTU of the link in bytes.
    pub mtu: u32,
    /// Those of a family in the order in which they are used.
    pub addresses: Vec<IpAddr>,
    /// The number of its receive queues.
    pub rx_queues: u16,
    /// The number of its send queues.
    pub tx_queues: u16,
    /// What it is and does, for a reader.
    pub card: String,
}

/// Machines as the nodes of a topology, and which of their networks it is: one serves, one or more load it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineNodes {
    /// The links by which the clients' machines reach the server's; that of the machine that leads comes first.
    pub clients: Vec<MachineLink>,
    /// Which of them the topology is planned for.
    pub client: usize,
    /// The link by which the server's machine reaches the clients'.
    pub server: MachineLink,
    /// The candidate's, from 0, at most [`MachineNodes::NUMBER_MAX`]: names, addresses and ports come from it.
    pub number: u16,
}

impl MachineNodes {
    /// 198.18.0.0/15 has 512 networks of 256 addresses.
    pub const NUMBER_MAX: u16 = 511;
    /// The clients share half of such a network: with so many each has four addresses, the fewest that have room for a
    /// pod and its gateway.
    pub const CLIENTS_MAX: usize = 32;

    /// The same as one of the clients' machines plans it.
    #[must_use]
    pub(crate) fn for_client(&self, client: usize) -> MachineNodes {
        MachineNodes { client, ..self.clone() }
    }

    /// The link of a side's machine, of the client for which the topology is planned.
    pub(crate) fn end(&self, part: SocketRole) -> &MachineLink {
        match part {
            SocketRole::Client => &self.clients[self.client],
            SocketRole::Server => &self.server,
        }
    }

    /// By how many bits the prefix of a client's pods is longer than the half that all clients share.
    pub(crate) fn client_bits(&self) -> u8 {
        let bits = self.clients.len().next_power_of_two().trailing_zeros();
        u8::try_from(bits).expect("there are few clients")
    }

    /// The number of its network on both machines, which may have networks of others: those have low numbers.
    pub(crate) fn network(&self) -> u16 {
        60_000 + self.number
    }

    /// The port of the server's machine by which a server is called there.
    pub(crate) fn port(&self) -> u16 {
        18_000 + self.number
    }

    /// The UDP port of its tunnel on both machines.
    pub(crate) fn tunnel_port(&self) -> u16 {
        19_000 + self.number
    }

    /// The MTU of the ways, as far as their ends know it, in bytes: the same for all clients.
    pub(crate) fn mtu_bytes(&self) -> u32 {
        self.clients.iter().map(|client| client.mtu).fold(self.server.mtu, u32::min)
    }
}

/// The way from this machine to another.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) ends: ByRole<MachineLink>,
    /// The router in between; `None`: they are neighbours on one Ethernet.
    pub(super) router: Option<IpAddr>,
}

/// This machine's links that are up and have addresses for the world.
pub(super) fn links() -> Result<Vec<MachineLink>, LabError> {
    let netlink = Netlink::open()?;
    let addresses = netlink.addresses()?;
    let of = |index: u32| {
        let usable = |info: &&AddressInfo| info.index == index && info.scope == UNIVERSE && !info.tentative;
        addresses.iter().filter(usable).map(|info| info.address.addr()).collect::<Vec<IpAddr>>()
    };
    let sysfs = NetSysfs::open(&Netns::current()?)?;
    let links = netlink.links()?.into_iter().filter(|link| link.up && link.name.as_str() != "lo");
    let usable = links.map(|link| (of(link.index), link)).filter(|(addresses, _)| !addresses.is_empty());
    let made = usable.map(|(addresses, link)| {
        let queues = cards::queues_of(&link.name, &sysfs)?;
        let card = card::describe(&link);
        let (rx_queues, tx_queues) = (queues.rx, queues.tx);
        Ok(MachineLink { name: link.name, mtu: link.mtu, addresses, rx_queues, tx_queues, card })
    });
    made.collect()
}

/// How this machine sends to an address of another.
struct Route {
    to: IpAddr,
    by: IfName,
    router: Option<IpAddr>,
}

/// The way to a machine that has these links, by IPv4 or IPv6: to the link by which ssh came in there, or, with a link
/// of this machine that is named, to an address that is reached by that.
///
/// # Errors
/// In words, with what to try.
pub(super) fn way(
    theirs: &[MachineLink],
    reached_by: Option<IpAddr>,
    nic: Option<&IfName>,
    ipv6: bool,
) -> Result<Way, String> {
    let mut routes = routes(theirs, ipv6).map_err(|error| error.to_string())?;
    // Of several by one link a neighbour's, then the one that is known to lead there.
    routes.sort_by_key(|route| (route.router.is_some(), Some(route.to) != reached_by));
    let found = match nic {
        Some(nic) => routes.into_iter().find(|route| route.by == *nic),
        None => {
            let link = theirs.iter().find(|link| reached_by.is_some_and(|by| link.addresses.contains(&by)));
            let of_link = |to: &IpAddr| link.is_some_and(|link| link.addresses.contains(to));
            routes.into_iter().find(|route| of_link(&route.to))
        }
    };
    let all = theirs.iter().flat_map(|link| &link.addresses).filter(|address| address.is_ipv6() == ipv6);
    let all = all.map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
    let Some(Route { to, by, router }) = found else {
        return Err(match nic {
            Some(nic) => format!("none of its addresses ({all}) is reached by {nic} from here"),
            None => {
                format!("which of its addresses ({all}) leads to it? --nic names the link of this machine")
            }
        });
    };
    let ours = links().map_err(|error| error.to_string())?;
    let client = ours.into_iter().find(|link| link.name == by);
    let client =
        client.ok_or_else(|| format!("{to}, by which it is reached, is an address of this machine"))?;
    let server = theirs.iter().find(|link| link.addresses.contains(&to)).cloned();
    let server = server.expect("the address is one of theirs");
    Ok(Way { ends: ByRole { client, server: first(server, to) }, router })
}

/// The routes to the addresses of a family on those links.
fn routes(theirs: &[MachineLink], ipv6: bool) -> Result<Vec<Route>, LabError> {
    let netlink = Netlink::open()?;
    let links = netlink.links()?;
    let mut routes = Vec::new();
    let addresses = theirs.iter().flat_map(|link| link.addresses.iter().copied());
    for to in addresses.filter(|address| address.is_ipv6() == ipv6) {
        let hops = netlink.route_to(to)?.map(|route| route.next_hops).unwrap_or_default();
        let Some(hop) = hops.first() else { continue };
        let by = links.iter().find(|link| Some(link.index) == hop.index).map(|link| link.name.clone());
        routes.extend(by.map(|by| Route { to, by, router: hop.via }));
    }
    Ok(routes)
}

/// With that address before the others.
fn first(mut link: MachineLink, address: IpAddr) -> MachineLink {
    link.addresses.sort_by_key(|other| *other != address);
    link
}
