//! What stands in a namespace, as lines of text that can be compared.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::{AddressInfo, FdbInfo, LinkInfo, NeighbourInfo, Netlink, NextHop, RouteInfo};
use crate::{Mac, Result};

/// Routes with this protocol are the kernel's own (`RTPROT_KERNEL`), those of this table too (`RT_TABLE_LOCAL`).
const OF_KERNEL: u8 = 2;
const LOCAL: u32 = 255;

impl Netlink {
    /// Links, addresses, routes, policy rules, permanent neighbours and forwarding entries, queueing disciplines and
    /// filters: a line for each, without what is volatile. If two lists have the same lines, however ordered, no change
    /// is left between them.
    pub fn standing(&self) -> Result<Vec<String>> {
        let links = self.links()?;
        // The kernel assigns link indexes in sequence, so a link is called by its name.
        let names: BTreeMap<u32, String> =
            links.iter().map(|link| (link.index, link.name.to_string())).collect();
        let name = |index: u32| names.get(&index).map_or("elsewhere", String::as_str);
        let mut lines = Vec::new();
        for link in links {
            let master = link.master.map(name);
            let parent = link.parent.filter(|_| link.parent_netns.is_none()).map(name);
            let (qdisc, filters) = (self.root_qdisc(link.index)?, self.filters(link.index)?);
            lines.push(format!("qdisc {} {qdisc:?} {filters:?}", link.name));
            let steady =
                LinkInfo { index: 0, carrier: false, master: None, parent: None, parent_netns: None, ..link };
            lines.push(format!("link {steady:?} of {master:?} on {parent:?}"));
        }
        for address in self.addresses()?.into_iter().filter(is_given) {
            let link = name(address.index);
            lines.push(format!("address {link} {:?}", AddressInfo { index: 0, ..address }.steady()));
        }
        for route in self.routes()?.into_iter().filter(is_lasting) {
            let ways = route.next_hops.iter();
            let ways: Vec<_> =
                ways.map(|hop| (hop.index.map(name), NextHop { index: None, ..hop.clone() })).collect();
            let steady = RouteInfo { next_hops: Vec::new(), ..route };
            lines.push(format!("route {steady:?} {ways:?}"));
        }
        for rule in self.rules()? {
            lines.push(format!("rule {rule:?}"));
        }
        for entry in self.neighbours()?.into_iter().filter(|entry| entry.permanent || entry.proxy) {
            let link = name(entry.index);
            lines.push(format!("neighbour {link} {:?}", NeighbourInfo { index: 0, ..entry }));
        }
        for entry in self.fdb()?.into_iter().filter(|entry| entry.permanent && !is_multicast(entry.mac)) {
            let (link, master) = (name(entry.index), entry.master.map(name));
            lines.push(format!("fdb {link} {:?} {master:?}", FdbInfo { index: 0, master: None, ..entry }));
        }
        Ok(lines)
    }
}

/// False for the address that the kernel adds when a link gets its carrier.
fn is_given(info: &AddressInfo) -> bool {
    !matches!(info.address.addr(), IpAddr::V6(address) if address.is_unicast_link_local())
}

/// False for what the kernel adds with an IPv6 address of its own.
fn is_lasting(route: &RouteInfo) -> bool {
    let IpNet::V6(net) = route.dst else { return true };
    route.protocol != OF_KERNEL || (route.table != LOCAL && !net.addr().is_unicast_link_local())
}

/// Whether this is a multicast address. Groups come and go with addresses (RFC 1112 and RFC 2464).
fn is_multicast(mac: Mac) -> bool {
    mac.0.starts_with(&[0x33, 0x33]) || mac.0.starts_with(&[0x01, 0x00, 0x5e])
}
