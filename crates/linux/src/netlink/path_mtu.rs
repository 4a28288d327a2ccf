//! What the kernel learnt of the sizes that paths take (`ip route show cache`), of both families.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage, RouteMetric};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use serde::{Deserialize, Serialize};

use super::Netlink;
use super::route::ip;
use crate::Result;

/// A destination to which smaller packets pass than the link takes: a router said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathMtu {
    /// The link's index.
    pub index: u32,
    /// The destination.
    pub dst: IpAddr,
    /// Bytes of a packet that pass.
    pub mtu: u32,
}

impl Netlink {
    /// The path MTUs that the kernel learnt in this namespace and has not yet forgotten, by link and destination; those
    /// of routes, which somebody set, are not among them.
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

    use super::*;

    #[test]
    fn exceptions_with_an_mtu_are_told() {
        let dst: std::net::Ipv6Addr = "fd00::9".parse().unwrap();
        let mut message = RouteMessage::default();
        message.header.flags = RouteFlags::Cloned;
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::Inet6(dst)),
            RouteAttribute::Oif(7),
            RouteAttribute::Metrics(vec![RouteMetric::Hoplimit(64), RouteMetric::Mtu(1400)]),
        ];
        let told = |message: &RouteMessage| read(&Message::NewRoute(message.clone()));
        assert_eq!(told(&message), Some(PathMtu { index: 7, dst: dst.into(), mtu: 1400 }));
        let set_by_somebody = {
            let mut message = message.clone();
            message.header.flags = RouteFlags::empty();
            message
        };
        assert_eq!(told(&set_by_somebody), None);
        message.attributes.pop();
        assert_eq!(told(&message), None);
    }

    #[test]
    fn the_kernel_answers_for_both_families() {
        Netlink::open().unwrap().path_mtus().unwrap();
    }
}
