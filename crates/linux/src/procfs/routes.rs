//! `/proc/net/route`: the IPv4 routes of the main table.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::Procfs;
use super::net::own_net;
use crate::{IfName, Result};

/// An IPv4 route of the main table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipv4Route {
    /// The link by which packets leave.
    pub link: IfName,
    /// Where to.
    pub dst: Ipv4Net,
    /// By way of a router.
    pub gateway: bool,
    /// Routes of lower metric come first.
    pub metric: u32,
}

impl Procfs {
    /// The IPv4 routes of the main table of the calling thread's namespace, those that are up.
    pub fn ipv4_routes(&self) -> Result<Vec<Ipv4Route>> {
        let file = own_net("route");
        let text = self.read(&file)?.unwrap_or_default();
        let lines = text.lines().skip(1).filter(|line| !line.trim().is_empty());
        let routes: Result<Vec<_>> =
            lines.map(|line| parse(line).ok_or_else(|| self.misread(&file, line))).collect();
        Ok(routes?.into_iter().flatten().collect())
    }
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT`; addresses as the kernel keeps them, in the
/// network's order, printed as a number of the machine's. `Some(None)`: a route that is not up, or leads nowhere (`*`).
///
/// What stands below `MTU` is no MTU but the route's advertised MSS and 40 (`fib_route_seq_show` in net/ipv4/fib_trie.c);
/// [`Netlink::route_mtus`](crate::Netlink::route_mtus) has what the routes say.
fn parse(line: &str) -> Option<Option<Ipv4Route>> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [link, dst, gateway, flags, _, _, metric, mask, ..] = words[..] else { return None };
    let number = |text| u32::from_str_radix(text, 16).ok();
    let address = |text| Some(Ipv4Addr::from(number(text)?.to_ne_bytes()));
    const UP: u32 = 1;
    if number(flags)? & UP == 0 || link == "*" {
        return Some(None);
    }
    let dst = Ipv4Net::with_netmask(address(dst)?, address(mask)?).ok()?;
    let gateway = number(gateway)? != 0;
    let metric = metric.parse().ok()?;
    Some(Some(Ipv4Route { link: IfName::new(link).ok()?, dst, gateway, metric }))
}

#[cfg(test)]
mod tests {
    use super::super::fake::proc_with;
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn addresses_are_in_the_networks_order() {
        let text = "Iface\tDestination\tGateway\n\
                    eth0\t00000000\t0102000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                    eth0\t0002000A\t00000000\t0001\t0\t0\t50\t00FFFFFF\t1400\t0\t0\n\
                    *\t0000FEA9\t00000000\t0200\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
        let (_directory, procfs) = proc_with(&[("thread-self/net/route", text)]);
        let routes = procfs.ipv4_routes().unwrap();
        assert_eq!(routes.len(), 2);
        assert_eq!((routes[0].dst.to_string().as_str(), routes[0].gateway), ("0.0.0.0/0", true));
        assert_eq!((routes[1].dst.to_string().as_str(), routes[1].metric), ("10.0.2.0/24", 50));
    }

    #[test]
    fn the_kernels_own_file_is_understood() {
        Procfs::kernel().ipv4_routes().unwrap();
    }
}
