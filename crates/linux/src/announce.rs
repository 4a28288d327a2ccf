//! A machine says by itself which Ethernet address its addresses have, so that neighbours which know another one
//! forget that at once.
//!
//! Sources: RFC 5227 §3 for IPv4: an announcement is an ARP request of the address for itself. RFC 4861 §7.2.6 for
//! IPv6: an unsolicited neighbour advertisement to all nodes, with the override flag.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use rustix::net::sockopt::{set_ipv6_multicast_hops, set_ipv6_multicast_if};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto};

use crate::error::Attempt;
use crate::{Mac, Netlink, Result};

/// The group of all nodes on a link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Others are not believed: a packet from behind a router has fewer.
const HOPS: u32 = 255;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const OVERRIDE: u8 = 0x20;
/// The option with the Ethernet address of the target, and its length in units of eight bytes.
const TARGET_LINK_ADDRESS: [u8; 2] = [2, 1];

/// Announces addresses of a link, which is up and has them and this Ethernet address, in the calling thread's
/// namespace.
///
/// No packet socket does it: to close one waits for a grace period of RCU, which takes longer than to make a
/// container's whole link. For IPv4 the kernel is told to use a neighbour, which is the address itself, and it
/// announces that three times within two seconds.
///
/// # Errors
/// One of them cannot be announced.
pub fn announce(index: u32, mac: Mac, addresses: &[IpAddr]) -> Result<()> {
    let netlink = Netlink::open()?;
    for address in addresses {
        match address {
            IpAddr::V4(_) => netlink.neighbour_use(index, *address)?,
            IpAddr::V6(v6) => advertise(index, mac, *v6).attempt(|| format!("announce {v6}"))?,
        }
    }
    Ok(())
}

fn advertise(index: u32, mac: Mac, address: Ipv6Addr) -> rustix::io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = Some(ipproto::ICMPV6);
    let socket = rustix::net::socket_with(AddressFamily::INET6, SocketType::RAW, flags, protocol)?;
    set_ipv6_multicast_hops(&socket, HOPS)?;
    set_ipv6_multicast_if(&socket, index)?;
    rustix::net::bind(&socket, &SocketAddr::new(address.into(), 0))?;
    let to = SocketAddrV6::new(ALL_NODES, 0, 0, index);
    rustix::net::sendto(&socket, &advertisement(mac, address), SendFlags::empty(), &to).map(drop)
}

/// The kernel fills in the checksum, of which the addresses are part.
fn advertisement(mac: Mac, address: Ipv6Addr) -> Vec<u8> {
    let head = [NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
    [&head[..], &address.octets(), &TARGET_LINK_ADDRESS, &mac.0].concat()
}
