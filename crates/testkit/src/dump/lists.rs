//! The objects of a namespace, read by the project's own readers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use linux::netlink::{AddressInfo, FdbInfo, LinkInfo, NeighbourInfo, NextHop, RouteInfo};
use linux::{Mac, Netlink, Netns};

use super::Dump;

/// `RTPROT_KERNEL` and `RT_TABLE_LOCAL`.
const OF_KERNEL: u8 = 2;
const LOCAL: u32 = 255;

impl Dump {
    pub(super) fn add_lists(&mut self, netns: &Netns) -> linux::Result<()> {
        let netlink = Netlink::open_in(netns)?;
        let links = netlink.links()?;
        // The kernel assigns link indexes in sequence, so a link is called by its name.
        let names: BTreeMap<u32, String> =
            links.iter().map(|link| (link.index, link.name.to_string())).collect();
        let name = |index: u32| names.get(&index).map_or("elsewhere", String::as_str);
        for link in links {
            let master = link.master.map(name);
            let parent = link.parent.filter(|_| link.parent_netns.is_none()).map(name);
            let (qdisc, filters) = (netlink.root_qdisc(link.index)?, netlink.filters(link.index)?);
            self.add(format!("qdisc {} {qdisc:?} {filters:?}", link.name));
            let steady =
                LinkInfo { index: 0, carrier: false, master: None, parent: None, parent_netns: None, ..link };
            self.add(format!("link {steady:?} of {master:?} on {parent:?}"));
        }
        for address in netlink.addresses()?.into_iter().filter(is_given) {
            let steady = AddressInfo { index: 0, tentative: false, ..address };
            self.add(format!("address {} {steady:?}", name(address.index)));
        }
        for route in netlink.routes()?.into_iter().filter(is_lasting) {
            let ways = route.next_hops.iter();
            let ways: Vec<_> =
                ways.map(|hop| (hop.index.map(name), NextHop { index: None, ..hop.clone() })).collect();
            let steady = RouteInfo { next_hops: Vec::new(), ..route };
            self.add(format!("route {steady:?} {ways:?}"));
        }
        for rule in netlink.rules()? {
            self.add(format!("rule {rule:?}"));
        }
        for entry in netlink.neighbours()?.into_iter().filter(|entry| entry.permanent || entry.proxy) {
            let link = name(entry.index);
            self.add(format!("neighbour {link} {:?}", NeighbourInfo { index: 0, ..entry }));
        }
        for entry in netlink.fdb()?.into_iter().filter(|entry| entry.permanent && !is_multicast(entry.mac)) {
            let (link, master) = (name(entry.index), entry.master.map(name));
            self.add(format!("fdb {link} {:?} {master:?}", FdbInfo { index: 0, master: None, ..entry }));
        }
        Ok(())
    }
}

/// False for the address that the kernel adds when a link gets its carrier.
fn is_given(info: &AddressInfo) -> bool {
    !matches!(info.address.addr(), IpAddr::V6(address) if address.is_unicast_link_local())
}

/// The rule of [`super::is_lasting`] for IPv6 routes.
fn is_lasting(route: &RouteInfo) -> bool {
    let IpNet::V6(net) = route.dst else { return true };
    route.protocol != OF_KERNEL || (route.table != LOCAL && !net.addr().is_unicast_link_local())
}

/// Whether this is a multicast address. Groups come and go with addresses (RFC 1112 and RFC 2464).
fn is_multicast(mac: Mac) -> bool {
    mac.0.starts_with(&[0x33, 0x33]) || mac.0.starts_with(&[0x01, 0x00, 0x5e])
}
