//! Which addresses are pods', of this node and of others: the prefixes that the programs ask for.

use std::collections::BTreeMap;
use std::path::Path;

use ipnet::{IpNet, Ipv6Net};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use linux::Result;

use super::skeleton::types::home as Home;
use crate::{ffi, pins};

/// The map's name, and its pin's.
const MAP: &str = "prefixes";
/// Where IPv4 stands among addresses of IPv6: ::ffff:0:0/96.
const IPV4: Ipv6Net = Ipv6Net::new_assert(std::net::Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(), 96);

/// Lets these be the prefixes of the node's pods and of all nodes' pods, instead of those that were. Packets may flow
/// meanwhile: what is in both lists is so at every moment, and what is new is added before what is old goes. A program
/// may go by the old ones for one more second ([`super::ROUTE_SECONDS`]).
///
/// A prefix of the node's pods need not be in one of the cluster's.
///
/// # Errors
/// There are more prefixes than the map has room for; nothing is loaded in the folder.
pub fn set_prefixes(folder: &Path, pods: &[IpNet], cluster: &[IpNet]) -> Result<()> {
    let _alone = pins::alone(folder)?;
    ffi::listen();
    let path = folder.join(MAP);
    MapHandle::from_pinned_path(&path)
        .and_then(|map| fill(&map, pods, cluster))
        .map_err(|error| ffi::failed(format!("write the prefixes of pods to {}", path.display()), &error))
}

/// The same for the map itself.
pub(super) fn fill(map: &impl MapCore, pods: &[IpNet], cluster: &[IpNet]) -> libbpf_rs::Result<()> {
    let wanted = homes(pods, cluster);
    let old: Vec<Vec<u8>> = map.keys().filter(|key| !wanted.contains_key(key)).collect();
    for (key, home) in wanted {
        map.update(&key, &home.0.to_ne_bytes(), MapFlags::ANY)?;
    }
    old.iter().try_for_each(|key| map.delete(key))
}

/// The map's entries. The programs go by the longest match.
fn homes(pods: &[IpNet], cluster: &[IpNet]) -> BTreeMap<Vec<u8>, Home> {
    let is_here = |net: &&IpNet| pods.iter().any(|own| own.contains(*net));
    let there = cluster.iter().filter(|net| !is_here(net)).map(|net| (*net, Home::HOME_THERE));
    let here = pods.iter().map(|net| (*net, Home::HOME_HERE));
    let mut homes: BTreeMap<Vec<u8>, Home> =
        there.chain(here).map(|(net, home)| (bytes_of_prefix(net), home)).collect();
    // A prefix of IPv6 says nothing of IPv4, and may be so wide that it has the place of IPv4 in it.
    let ipv4 = IpNet::V6(IPV4);
    if pods.iter().chain(cluster).any(|net| net.contains(&ipv4)) {
        homes.entry(bytes_of_prefix(ipv4)).or_insert(Home::HOME_OUTSIDE);
    }
    homes
}

/// As `struct prefix` lies in memory.
pub(super) fn bytes_of_prefix(prefix: IpNet) -> Vec<u8> {
    let (bits, address) = match prefix {
        IpNet::V4(v4) => (96 + u32::from(v4.prefix_len()), v4.network().to_ipv6_mapped()),
        IpNet::V6(v6) => (v6.prefix_len().into(), v6.network()),
    };
    [&bits.to_ne_bytes()[..], &address.octets()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn what_is_of_this_node_is_not_of_another() {
        let homes = homes(
            &nets(&["10.244.1.0/24", "fd00:1::/64"]),
            &nets(&["10.244.0.0/16", "10.244.1.128/25", "fd00:1::/64", "fd00::/16"]),
        );
        let expected = [
            ("10.244.1.0/24", Home::HOME_HERE),
            ("fd00:1::/64", Home::HOME_HERE),
            ("10.244.0.0/16", Home::HOME_THERE),
            ("fd00::/16", Home::HOME_THERE),
        ];
        assert_eq!(homes, expected.map(|(net, home)| (bytes_of_prefix(net.parse().unwrap()), home)).into());
    }

    #[test]
    fn all_of_ipv6_is_nothing_of_ipv4() {
        let homes = homes(&[], &nets(&["::/0"]));
        assert_eq!(homes[&bytes_of_prefix(IPV4.into())], Home::HOME_OUTSIDE);
        assert_eq!(homes.len(), 2);
        // All of IPv4 is what it says.
        let all = super::homes(&[], &nets(&["::/0", "0.0.0.0/0"]));
        assert_eq!(all[&bytes_of_prefix(IPV4.into())], Home::HOME_THERE);
    }
}
