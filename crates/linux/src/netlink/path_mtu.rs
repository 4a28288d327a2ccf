//! Path MTUs of both families: those that the kernel learnt (`ip route show cache`), and those set on routes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage, RouteMetric};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use serde::{Deserialize, Serialize};

use super::route::ip;
use super::{Netlink, RouteInfo};
use crate::Result;

/// A destination whose path MTU is below the link's MTU, as a router reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathMtu {
    /// The index of the link that leads there.
    pub index: u32,
    /// The destination: one host.
    pub dst: IpAddr,
    /// Bytes of a packet that pass.
    pub mtu: u32,
}

/// A route with its own MTU (`mtu` in `ip route`), set by hand or advertised by a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RouteMtu {
    /// The index of the route's link.
    pub index: u32,
    /// The destination prefix of the route.
    pub dst: IpNet,
    /// Bytes of a packet that the route takes.
    pub mtu: u32,
}

impl Netlink {
    /// The path MTUs that the kernel learnt in this namespace and has not yet forgotten, by link and destination; those
    /// of routes, which were set by hand, are not among them.
    pub fn path_mtus(&self) -> Result<Vec<PathMtu>> {
        let mut found = BTreeSet::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut question = RouteMessage::default();
            question.header.address_family = family;
            // Exceptions alone, if the kernel takes the question strictly; else they come among all routes (Linux 5.3,
            // `ip_valid_fib_dump_req` in net/ipv4/fib_frontend.c).
            question.header.flags = RouteFlags::Cloned;
            let answers = self.dump_strictly(&Message::GetRoute(question), "list learnt path MTUs")?;
            found.extend(answers.iter().filter_map(read));
        }
        Ok(found.into_iter().collect())
    }

    /// The routes of all tables that have an MTU of their own, by link and destination.
    pub fn route_mtus(&self) -> Result<Vec<RouteMtu>> {
        Ok(mtus_of(&self.routes()?))
    }
}

/// One for each way of a route.
fn mtus_of(routes: &[RouteInfo]) -> Vec<RouteMtu> {
    let mut found = BTreeSet::new();
    for (route, mtu) in routes.iter().filter_map(|route| Some((route, route.mtu?))) {
        let links = route.next_hops.iter().filter_map(|hop| hop.index);
        found.extend(links.map(|index| RouteMtu { index, dst: route.dst, mtu }));
    }
    found.into_iter().collect()
}

fn read(answer: &Message) -> Option<PathMtu> {
    let Message::NewRoute(message) = answer else { return None };
    if !message.header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let (mut index, mut dst, mut mtu) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(oif) => index = Some(*oif),
            RouteAttribute::Destination(address) => dst = ip(address),
            // An exception may be a redirect only, and then has none.
            RouteAttribute::Metrics(metrics) => {
                mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    Some(PathMtu { index: index?, dst: dst?, mtu: mtu? })
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::route::RouteAddress;

    use super::super::NextHop;
    use super::*;

    #[test]
    fn exceptions_with_an_mtu_are_read() {
        let dst: std::net::Ipv6Addr = "fd00::9".parse().unwrap();
        let mut message = RouteMessage::default();
        message.header.flags = RouteFlags::Cloned;
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::Inet6(dst)),
            RouteAttribute::Oif(7),
            RouteAttribute::Metrics(vec![RouteMetric::Hoplimit(64), RouteMetric::Mtu(1400)]),
        ];
        let path_mtu = |message: &RouteMessage| read(&Message::NewRoute(message.clone()));
        assert_eq!(path_mtu(&message), Some(PathMtu { index: 7, dst: dst.into(), mtu: 1400 }));
        let set_by_somebody = {
            let mut message = message.clone();
            message.header.flags = RouteFlags::empty();
            message
        };
        assert_eq!(path_mtu(&set_by_somebody), None);
        message.attributes.pop();
        assert_eq!(path_mtu(&message), None);
    }

    #[test]
    fn routes_with_an_mtu_of_their_own_are_listed_for_each_way() {
        let hop = |index| NextHop { index: Some(index), via: None, onlink: false, encap: None };
        let route = |mtu, next_hops| RouteInfo {
            table: 254,
            dst: "10.0.2.0/24".parse().unwrap(),
            next_hops,
            src: None,
            mtu,
            mtu_locked: false,
            metric: None,
            protocol: 3,
            expires: false,
            scope: 0,
            kind: 1,
        };
        let routes = [route(Some(1400), vec![hop(2), hop(3)]), route(None, vec![hop(4)])];
        let mtus: Vec<_> = mtus_of(&routes).iter().map(|route| (route.index, route.mtu)).collect();
        assert_eq!(mtus, [(2, 1400), (3, 1400)]);
    }

    #[test]
    fn the_kernel_answers_for_both_families() {
        let netlink = Netlink::open().unwrap();
        netlink.path_mtus().unwrap();
        netlink.route_mtus().unwrap();
    }
}
