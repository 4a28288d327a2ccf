//! `/proc/net/route` and `/proc/net/ipv6_route`: the routes by which packets leave.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::Procfs;
use super::net::own_net;
use crate::{IfName, Result};

/// A route: of IPv4 one of the main table, of IPv6 one of any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The link by which packets leave.
    pub link: IfName,
    /// The destinations that the route is for.
    pub dst: IpNet,
    /// By way of a router.
    pub gateway: bool,
    /// Routes of lower metric come first.
    pub metric: u32,
    /// A router announced it, or it expires; properties set on it are lost with it.
    pub announced: bool,
}

/// Flags of a route (`RTF_*` in include/uapi/linux/route.h).
const UP: u32 = 1;
const REJECT: u32 = 0x200;
const ADDRCONF: u32 = 0x4_0000;
const EXPIRES: u32 = 0x40_0000;
const LOCAL: u32 = 0x8000_0000;

impl Procfs {
    /// The usable routes of the calling thread's namespace, IPv4 first. IPv6 routes to addresses of this host lead to
    /// `lo`. Two kinds of IPv6 route are left out: those for some senders only, and those to link-local and multicast
    /// addresses, which every link has.
    pub fn routes(&self) -> Result<Vec<Route>> {
        let mut routes = self.routes_of("route", 1, ipv4)?;
        routes.extend(self.routes_of("ipv6_route", 0, ipv6)?);
        Ok(routes)
    }

    fn routes_of(
        &self,
        file: &str,
        heading: usize,
        parse: fn(&str) -> Option<Option<Route>>,
    ) -> Result<Vec<Route>> {
        let file = own_net(file);
        let text = self.read(&file)?.unwrap_or_default();
        let lines = text.lines().skip(heading).filter(|line| !line.trim().is_empty());
        let routes: Result<Vec<_>> =
            lines.map(|line| parse(line).ok_or_else(|| self.misread(&file, line))).collect();
        Ok(routes?.into_iter().flatten().collect())
    }
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT`. Addresses are in network byte order,
/// printed as a number of the machine. `Some(None)`: a route that is not up, or leads nowhere (`*`).
///
/// The column `MTU` is not the MTU but the route's advertised MSS plus 40 (`fib_route_seq_show` in
/// net/ipv4/fib_trie.c); [`Netlink::route_mtus`](crate::Netlink::route_mtus) reads the routes' real MTUs.
fn ipv4(line: &str) -> Option<Option<Route>> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [link, dst, gateway, flags, _, _, metric, mask, ..] = words[..] else { return None };
    let address = |text| Some(Ipv4Addr::from(hex(text)?.to_ne_bytes()));
    if hex(flags)? & UP == 0 || link == "*" {
        return Some(None);
    }
    let dst = Ipv4Net::with_netmask(address(dst)?, address(mask)?).ok()?.into();
    let gateway = hex(gateway)? != 0;
    let metric = metric.parse().ok()?;
    Some(Some(Route { link: IfName::new(link).ok()?, dst, gateway, metric, announced: false }))
}

/// Destination, source, gateway, each address with 32 digits and the first two with the length of their prefix; metric,
/// two counts, flags, and the link, if there is one (`ipv6_route_native_seq_show` in net/ipv6/ip6_fib.c).
fn ipv6(line: &str) -> Option<Option<Route>> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [dst, length, _, from, gateway, metric, _, _, flags, ref link @ ..] = words[..] else { return None };
    let address = |text| u128::from_str_radix(text, 16).ok().map(Ipv6Addr::from);
    let (flags, from) = (hex(flags)?, hex(from)?);
    let dst = Ipv6Net::new(address(dst)?, u8::try_from(hex(length)?).ok()?).ok()?;
    let every_links = dst.addr().is_unicast_link_local() || dst.addr().is_multicast();
    let (false, false, [link]) = (flags & UP == 0 || flags & REJECT != 0 || from != 0, every_links, link)
    else {
        return Some(None);
    };
    let link = if flags & LOCAL == 0 { link } else { "lo" };
    Some(Some(Route {
        link: IfName::new(link).ok()?,
        dst: dst.into(),
        gateway: !address(gateway)?.is_unspecified(),
        metric: hex(metric)?,
        announced: flags & (ADDRCONF | EXPIRES) != 0,
    }))
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
        let routes = procfs.routes().unwrap();
        assert_eq!(routes.len(), 2);
        assert_eq!((routes[0].dst.to_string().as_str(), routes[0].gateway), ("0.0.0.0/0", true));
        assert_eq!((routes[1].dst.to_string().as_str(), routes[1].metric), ("10.0.2.0/24", 50));
    }

    #[test]
    fn routes_of_ipv6_are_those_that_lead_somewhere() {
        const NONE: &str = "00000000000000000000000000000000";
        let prefix = "20010db8000000000000000000000000";
        let own = "20010db8000000000000000000000001";
        let router = "fe800000000000000000000000000001";
        let text = format!(
            "{prefix} 20 {NONE} 00 {NONE} 00000100 00000001 00000000 00000001     eth0\n\
             {NONE} 00 {NONE} 00 {router} 00000400 00000003 00000000 00450003     eth0\n\
             {NONE} 00 {prefix} 20 {router} 00000400 00000003 00000000 00000003     eth0\n\
             {router} 80 {NONE} 00 {NONE} 00000000 00000001 00000000 80200001     eth0\n\
             {own} 80 {NONE} 00 {NONE} 00000000 00000001 00000000 80200001     eth0\n\
             {prefix} 30 {NONE} 00 {NONE} 00000100 00000001 00000000 00000001 \n\
             {NONE} 00 {NONE} 00 {NONE} ffffffff 00000001 00000000 00200200       lo\n"
        );
        let (_directory, procfs) = proc_with(&[("thread-self/net/ipv6_route", &text)]);
        let routes = procfs.routes().unwrap();
        let found = routes.iter().map(|route| (route.dst.to_string(), route.link.as_str(), route.announced));
        let expected =
            [("2001:db8::/32", "eth0", false), ("::/0", "eth0", true), ("2001:db8::1/128", "lo", false)];
        assert_eq!(found.collect::<Vec<_>>(), expected.map(|(dst, link, is)| (dst.to_owned(), link, is)));
        assert_eq!((routes[0].metric, routes[0].gateway, routes[1].gateway), (256, false, true));
    }

    #[test]
    fn the_kernels_own_files_are_understood() {
        Procfs::kernel().routes().unwrap();
    }
}
