//! What is either there or not: addresses, routes, neighbours, forwarding entries, nftables tables.

use ipnet::IpNet;
use linux::netlink::{AddressInfo, EncapInfo, FdbInfo, NeighbourInfo, NextHop, RouteInfo};
use linux::{Encap, FdbEntry, IfName, Mac, Neighbour, Route, nft};

use super::{absent, existing};
use crate::entry::{After, Before, Undone};
use crate::error::StepError;
use crate::kernel::Opened;
use crate::listing::Listing;
use crate::look::Look;
use crate::{Kernel, Place, Placed, Step};

/// How what a step would make is called where it is there already.
const THE_SAME: &str = "the same";

pub(super) fn before(kernel: &mut Kernel, place: &Place, step: &Step) -> Result<Before, StepError> {
    if let Some(dev) = dev(step) {
        existing(kernel, place, dev)?;
    }
    let what = match look(kernel.at(place)?, &Listing::default(), step)? {
        Look::Absent => return Ok(Before::Absent),
        Look::So => THE_SAME.to_owned(),
        Look::Otherwise { found } => found,
    };
    Err(StepError::Exists { what, remedy: format!("remove it if nobody needs it: {}", removal(place, step)) })
}

pub(super) fn act(kernel: &mut Kernel, place: &Place, step: &Step) -> Result<(), StepError> {
    match step {
        Step::AddAddress { link, address } => {
            let index = existing(kernel, place, link)?.index;
            kernel.at(place)?.netlink.address_add(index, address)?;
        }
        Step::AddRoute(route) => kernel.at(place)?.netlink.route_add(route)?,
        Step::AddNeighbour(neighbour) => kernel.at(place)?.netlink.neighbour_add(neighbour)?,
        Step::AddFdb(entry) => kernel.at(place)?.netlink.fdb_add(entry)?,
        Step::AddNftTable(table) => nft::add(&kernel.at(place)?.netns, table)?,
        other => unreachable!("{other:?} is no object"),
    }
    Ok(())
}

pub(super) fn after(kernel: &mut Kernel, place: &Place, step: &Step) -> Result<After, StepError> {
    let found = match look(kernel.at(place)?, &Listing::default(), step)? {
        Look::So => return Ok(After::AsPlanned),
        Look::Otherwise { found } => found,
        Look::Absent => "nothing".to_owned(),
    };
    let wanted = Placed { place: place.clone(), step: step.clone() }.commands().join("; ");
    Err(StepError::NotTaken { wanted, found })
}

pub(super) fn undo(
    kernel: &mut Kernel,
    place: &Place,
    step: &Step,
    after: Option<&After>,
) -> Result<Undone, StepError> {
    // With the link all that hung on it is gone.
    if let Some(dev) = dev(step)
        && kernel.at(place)?.netlink.link(dev)?.is_none()
    {
        return Ok(absent(after));
    }
    if matches!(step, Step::AddNftTable(_)) && after.is_none() {
        // Whoever was killed over this step has left an `nft` behind that may yet add the table.
        nft::settle(&kernel.at(place)?.netns)?;
    }
    match look(kernel.at(place)?, &Listing::default(), step)? {
        Look::So => remove(kernel, place, step).map(|()| Undone::Restored),
        Look::Otherwise { found } => Ok(Undone::ChangedByOther { found }),
        Look::Absent => Ok(absent(after)),
    }
}

/// Whether the object is there. Without the link that it would hang on it is not.
pub(super) fn look(opened: &Opened, listing: &Listing, step: &Step) -> Result<Look, StepError> {
    let index = match dev(step) {
        None => 0,
        Some(dev) => match listing.link(opened, dev)? {
            Some(link) => link.index,
            None => return Ok(Look::Absent),
        },
    };
    match step {
        Step::AddAddress { link, address } => {
            Ok(look_for_address(listing.addresses(opened)?, (link, index), address))
        }
        Step::AddRoute(route) => Ok(look_for_route(listing.routes(opened)?, route, index)),
        Step::AddNeighbour(neighbour) => {
            Ok(look_for_neighbour(listing.neighbours(opened)?, neighbour, index))
        }
        Step::AddFdb(entry) => Ok(look_for_fdb(listing.fdb(opened)?, entry, index)),
        Step::AddNftTable(table) => {
            let exists = nft::exists(&opened.netns, table.family, &table.name)?;
            Ok(if exists { Look::So } else { Look::Absent })
        }
        other => unreachable!("{other:?} is no object"),
    }
}

fn look_for_address(addresses: &[AddressInfo], (link, index): (&IfName, u32), address: &IpNet) -> Look {
    let of_link: Vec<_> =
        addresses.iter().filter(|info| info.index == index).map(|info| info.address).collect();
    if of_link.contains(address) {
        return Look::So;
    }
    // IPv6 has an address once on a link, whatever the prefix length; IPv4 allows several.
    let other = of_link.iter().find(|other| other.addr() == address.addr() && address.addr().is_ipv6());
    other.map_or(Look::Absent, |other| Look::otherwise(format!("address {other} on link {link}")))
}

fn look_for_route(routes: &[RouteInfo], route: &Route, index: u32) -> Look {
    const MAIN: u32 = 254;
    if routes.iter().any(|info| info.is(route, index)) {
        return Look::So;
    }
    // The kernel tells routes apart by destination and metric. Ours have none in IPv4 and the kernel's default of
    // 1024 in IPv6, where connected routes have 256 and are no rivals.
    let metric = if route.dst.addr().is_ipv4() { None } else { Some(1024) };
    let other = routes.iter().find(|other| {
        other.table == MAIN
            && other.dst == route.dst.trunc()
            && other.metric.filter(|metric| *metric != 0) == metric
    });
    match other {
        Some(other) => {
            let hops = other.next_hops.iter().map(way);
            Look::otherwise(format!("another route to {}{}", other.dst, hops.collect::<String>()))
        }
        None => Look::Absent,
    }
}

/// One way of a route, in words.
fn way(hop: &NextHop) -> String {
    let via = hop.via.map_or_else(|| " on the link".to_owned(), |via| format!(" by {via}"));
    match hop.encap {
        None => via,
        Some(EncapInfo::Tunnel(Encap { id, remote })) => format!("{via} in tunnel {id} to {remote}"),
        Some(EncapInfo::Other(kind)) => format!("{via} in an encapsulation of kind {kind}"),
    }
}

fn look_for_neighbour(neighbours: &[NeighbourInfo], wanted: &Neighbour, index: u32) -> Look {
    // A proxy entry and an entry of the table proper live side by side; what the kernel has learnt by itself is a
    // cache and gives way.
    let found = neighbours.iter().find(|entry| {
        entry.index == index
            && entry.ip == wanted.ip
            && entry.proxy == wanted.mac.is_none()
            && (entry.proxy || entry.permanent)
    });
    match found {
        None => Look::Absent,
        Some(entry) if entry.proxy || entry.mac == wanted.mac => Look::So,
        Some(entry) => {
            let mac = entry.mac.map_or_else(|| "no address".to_owned(), |mac| mac.to_string());
            Look::otherwise(format!("neighbour {} with {mac}", entry.ip))
        }
    }
}

fn look_for_fdb(fdb: &[FdbInfo], wanted: &FdbEntry, index: u32) -> Look {
    let of_mac: Vec<_> = fdb.iter().filter(|entry| entry.index == index && entry.mac == wanted.mac).collect();
    if of_mac.iter().any(|entry| entry.dst == Some(wanted.dst)) {
        return Look::So;
    }
    // The all-zero address has an entry for each remote.
    let other =
        of_mac.iter().find(|entry| entry.permanent && entry.dst.is_some() && wanted.mac != Mac([0; 6]));
    other.map_or(Look::Absent, |other| {
        let dst = other.dst.map_or_else(|| "nowhere".to_owned(), |dst| dst.to_string());
        Look::otherwise(format!("an entry for {} to {dst}", other.mac))
    })
}

fn remove(kernel: &mut Kernel, place: &Place, step: &Step) -> Result<(), StepError> {
    match step {
        Step::AddAddress { link, address } => remove_address(kernel, place, link, address)?,
        Step::AddRoute(route) => kernel.at(place)?.netlink.route_del(route)?,
        Step::AddNeighbour(neighbour) => kernel.at(place)?.netlink.neighbour_del(neighbour)?,
        Step::AddFdb(entry) => kernel.at(place)?.netlink.fdb_del(entry)?,
        Step::AddNftTable(table) => nft::delete(&kernel.at(place)?.netns, table.family, &table.name)?,
        other => unreachable!("{other:?} is no object"),
    }
    Ok(())
}

/// With the first IPv4 address of a subnet the kernel drops the later ones of the same subnet (unless
/// `promote_secondaries` is on); those of others are put back.
fn remove_address(
    kernel: &mut Kernel,
    place: &Place,
    link: &IfName,
    address: &IpNet,
) -> Result<(), StepError> {
    let index = existing(kernel, place, link)?.index;
    let netlink = &kernel.at(place)?.netlink;
    let before = netlink.addresses()?;
    netlink.address_del(index, address)?;
    let left = netlink.addresses()?;
    let lost = before.iter().filter(|info| {
        info.index == index
            && info.address != *address
            && info.address.addr().is_ipv4()
            && !left.iter().any(|other| other.index == index && other.address == info.address)
    });
    for info in lost {
        netlink.address_add(index, &info.address)?;
    }
    Ok(())
}

/// The link that the object hangs on.
fn dev(step: &Step) -> Option<&IfName> {
    match step {
        Step::AddAddress { link, .. } => Some(link),
        Step::AddRoute(route) => Some(&route.dev),
        Step::AddNeighbour(neighbour) => Some(&neighbour.dev),
        Step::AddFdb(entry) => Some(&entry.dev),
        _ => None,
    }
}

/// The command with which a person would remove what is in the way.
fn removal(place: &Place, step: &Step) -> String {
    let enter = match place {
        Place::Host => String::new(),
        Place::Netns(name) => format!("-n {name} "),
    };
    match step {
        Step::AddAddress { link, address } => format!("ip {enter}address del {address} dev {link}"),
        Step::AddRoute(route) => format!("ip {enter}route del {}", route.dst),
        Step::AddNeighbour(Neighbour { dev, ip, mac: Some(_) }) => {
            format!("ip {enter}neighbour del {ip} dev {dev}")
        }
        Step::AddNeighbour(Neighbour { dev, ip, mac: None }) => {
            format!("ip {enter}neighbour del proxy {ip} dev {dev}")
        }
        Step::AddFdb(entry) => format!("bridge {enter}fdb del {} dev {}", entry.mac, entry.dev),
        Step::AddNftTable(table) => {
            let exec = match place {
                Place::Host => String::new(),
                Place::Netns(name) => format!("ip netns exec {name} "),
            };
            format!("{exec}nft delete table {} {}", table.family.name(), table.name)
        }
        other => unreachable!("{other:?} is no object"),
    }
}
