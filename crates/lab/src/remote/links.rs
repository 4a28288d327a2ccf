//! The links by which two machines reach each other, found by routes and addresses.

use std::net::IpAddr;

use linux::netlink::AddressInfo;
use linux::sysfs::NetSysfs;
use linux::{IfName, Netlink, Netns};

use crate::card_description::describe;
use crate::shape::MachineLink;
use crate::{ByRole, LabError, cards};

/// An address that is valid everywhere (`RT_SCOPE_UNIVERSE`).
const UNIVERSE: u8 = 0;

/// The way from this machine to another.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub(crate) ends: ByRole<MachineLink>,
    /// The router in between; `None`: they are neighbours on one Ethernet.
    pub(crate) router: Option<IpAddr>,
}

/// This machine's links that are up and have addresses for the world.
pub(crate) fn links() -> Result<Vec<MachineLink>, LabError> {
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
        let card = describe(&link);
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
pub(crate) fn way(
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
