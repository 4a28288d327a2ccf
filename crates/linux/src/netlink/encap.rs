//! Tunnels of routes (`RTA_ENCAP`), both ways.

use std::net::IpAddr;

use netlink_packet_route::route::{
    RouteAttribute, RouteIp6Tunnel, RouteIp6TunnelFlags, RouteIpTunnel, RouteIpTunnelFlags, RouteLwEnCapType,
    RouteLwTunnelEncap,
};
use serde::Serialize;

use crate::Encap;

/// What a route wraps its packets in, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EncapInfo {
    /// A tunnel of the form that the project makes.
    Tunnel(Encap),
    /// Another kind (MPLS, segment routing), or a tunnel with options that the project never sets. The number is the
    /// kernel's `LWTUNNEL_ENCAP_…`.
    Other(u16),
}

/// The attributes of a tunnel.
///
/// Whether the outer UDP packet has a checksum depends on these attributes, not on the device. The choice matches that
/// of a device with one fixed tunnel, for the same reasons: none over IPv4, one over IPv6.
pub(super) fn attributes(encap: &Encap) -> [RouteAttribute; 2] {
    let id = u64::from(encap.id);
    let (kind, options) = match encap.remote {
        IpAddr::V4(remote) => {
            let options = [RouteIpTunnel::Id(id), RouteIpTunnel::Destination(remote)];
            (RouteLwEnCapType::Ip, options.map(RouteLwTunnelEncap::Ip).to_vec())
        }
        IpAddr::V6(remote) => {
            let flags = RouteIp6Tunnel::Flags(RouteIp6TunnelFlags::Checksum);
            let options = [RouteIp6Tunnel::Id(id), RouteIp6Tunnel::Destination(remote), flags];
            (RouteLwEnCapType::Ip6, options.map(RouteLwTunnelEncap::Ip6).to_vec())
        }
    };
    [RouteAttribute::EncapType(kind), RouteAttribute::Encap(options)]
}

/// The tunnel of a route, or of one of its ways; `None` if it has none.
pub(super) fn read(attributes: &[RouteAttribute]) -> Option<EncapInfo> {
    let kind = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::EncapType(kind) => Some(*kind),
        _ => None,
    })?;
    let options = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Encap(options) => Some(options.as_slice()),
        _ => None,
    });
    let tunnel = Read::of(options.unwrap_or_default()).and_then(Read::plain);
    Some(tunnel.map_or(EncapInfo::Other(kind.into()), EncapInfo::Tunnel))
}

/// The options of a tunnel that ours have.
#[derive(Default)]
struct Read {
    id: u64,
    remote: Option<IpAddr>,
    checksum: bool,
}

impl Read {
    /// `None` if any other option is set. The kernel reports every option, and zero for those that were not given.
    fn of(options: &[RouteLwTunnelEncap]) -> Option<Read> {
        let mut read = Read::default();
        for option in options {
            let known = match option {
                RouteLwTunnelEncap::Ip(option) => read.take_ip(option),
                RouteLwTunnelEncap::Ip6(option) => read.take_ip6(option),
                _ => false,
            };
            if !known {
                return None;
            }
        }
        Some(read)
    }

    fn take_ip(&mut self, option: &RouteIpTunnel) -> bool {
        match option {
            RouteIpTunnel::Id(id) => self.id = *id,
            RouteIpTunnel::Destination(remote) => self.remote = Some((*remote).into()),
            RouteIpTunnel::Source(source) => return source.is_unspecified(),
            RouteIpTunnel::Ttl(value) | RouteIpTunnel::Tos(value) => return *value == 0,
            RouteIpTunnel::Flags(flags) => {
                self.checksum = flags.contains(RouteIpTunnelFlags::Checksum);
                return RouteIpTunnelFlags::Checksum.contains(*flags);
            }
            _ => return false,
        }
        true
    }

    fn take_ip6(&mut self, option: &RouteIp6Tunnel) -> bool {
        match option {
            RouteIp6Tunnel::Id(id) => self.id = *id,
            RouteIp6Tunnel::Destination(remote) => self.remote = Some((*remote).into()),
            RouteIp6Tunnel::Source(source) => return source.is_unspecified(),
            RouteIp6Tunnel::Hoplimit(value) | RouteIp6Tunnel::Tc(value) => return *value == 0,
            RouteIp6Tunnel::Flags(flags) => {
                self.checksum = flags.contains(RouteIp6TunnelFlags::Checksum);
                return RouteIp6TunnelFlags::Checksum.contains(*flags);
            }
            _ => return false,
        }
        true
    }

    /// The tunnel, if it is one as [`attributes`] asks for it.
    fn plain(self) -> Option<Encap> {
        let remote = self.remote.filter(|remote| remote.is_ipv6() == self.checksum)?;
        Some(Encap { id: u32::try_from(self.id).ok()?, remote })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encap(remote: &str) -> Encap {
        Encap { id: 7, remote: remote.parse().unwrap() }
    }

    #[track_caller]
    fn check(encap: &Encap, more: RouteLwTunnelEncap, expected: EncapInfo) {
        let [kind, RouteAttribute::Encap(mut options)] = attributes(encap) else { panic!("kind, options") };
        options.push(more);
        assert_eq!(read(&[RouteAttribute::Encap(options), kind]), Some(expected));
    }

    #[test]
    fn a_tunnel_with_other_options_is_another_tunnel() {
        let (v4, v6) = (encap("192.0.2.1"), encap("2001:db8::1"));
        let ip = RouteLwTunnelEncap::Ip;
        let ip6 = RouteLwTunnelEncap::Ip6;
        check(&v4, ip(RouteIpTunnel::Ttl(0)), EncapInfo::Tunnel(v4));
        check(&v4, ip(RouteIpTunnel::Ttl(9)), EncapInfo::Other(2));
        check(&v4, ip(RouteIpTunnel::Source([192, 0, 2, 9].into())), EncapInfo::Other(2));
        check(&v4, ip(RouteIpTunnel::Flags(RouteIpTunnelFlags::Checksum)), EncapInfo::Other(2));
        check(&v4, ip(RouteIpTunnel::Flags(RouteIpTunnelFlags::Key)), EncapInfo::Other(2));
        check(&v4, ip(RouteIpTunnel::Id(u64::MAX)), EncapInfo::Other(2));
        check(&v6, ip6(RouteIp6Tunnel::Tc(0)), EncapInfo::Tunnel(v6));
        check(&v6, ip6(RouteIp6Tunnel::Hoplimit(9)), EncapInfo::Other(4));
        check(&v6, ip6(RouteIp6Tunnel::Flags(RouteIp6TunnelFlags::empty())), EncapInfo::Other(4));
        assert_eq!(read(&[RouteAttribute::EncapType(RouteLwEnCapType::Mpls)]), Some(EncapInfo::Other(1)));
        assert_eq!(read(&[]), None);
    }
}
