//! What a node's maps hold of its pods and of other nodes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ipnet::IpNet;
use libbpf_rs::{MapCore as _, MapFlags};
use linux::{Error, Mac, Result};

use super::prefixes::bytes_of_prefix;
use super::skeleton::types::size;
use super::{replace, words};
use crate::entry::{self, Entry};
use crate::pins;

/// Places in each of the arrays in which the programs look for a pod first.
const SLOTS: u32 = size::SLOTS.0;
/// The most addresses of pods of a family, and the most links to pods.
pub const ENDPOINTS_MAX: u32 = size::ENDPOINTS_MAX.0;

/// A pod of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The index of the node's end of its link.
    pub link: u32,
    /// The pod's Ethernet address.
    pub mac: Mac,
    /// The addresses from which it may send, and at which it gets packets.
    pub addresses: Vec<IpAddr>,
    /// Whether all that it receives passes the queue of the node's end of its link.
    pub queued: bool,
}

/// The way to another node's pods, where there is a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// The prefix of the other node's pods.
    pub prefix: IpNet,
    /// The index of the tunnel's device.
    pub device: u32,
    /// The tunnel's other end.
    pub remote: IpAddr,
}

/// Lets a pod send and receive.
///
/// # Errors
/// One of the addresses, or the link, is a pod's already; a map is full; nothing is loaded in the folder; the pod is
/// `queued`, and the programs are of a version that does not know of it. What was written until then is taken back.
pub fn add_endpoint(folder: &Path, endpoint: &Endpoint) -> Result<()> {
    if endpoint.queued {
        replace::check_that_pods_queue(folder)?;
    }
    entry::add_all(folder, &endpoint.entries())?;
    for slot in endpoint.slots() {
        slot.take(folder)?;
    }
    Ok(())
}

/// Whether any part of a pod's entries is there: `Some(true)`, all of it.
pub fn has_endpoint(folder: &Path, endpoint: &Endpoint) -> Result<Option<bool>> {
    entry::find_all(folder, &endpoint.entries())
}

/// Takes away those of a pod's entries that are as [`add_endpoint`] writes them.
pub fn remove_endpoint(folder: &Path, endpoint: &Endpoint) -> Result<()> {
    for slot in endpoint.slots() {
        slot.free(folder)?;
    }
    entry::remove_all(folder, &endpoint.entries())
}

/// Lets packets to a prefix go through a tunnel, and packets come from its other end.
///
/// # Errors
/// There is a tunnel to that prefix already; the map is full; nothing is loaded in the folder.
pub fn add_tunnel(folder: &Path, tunnel: &Tunnel) -> Result<()> {
    let _alone = pins::alone(folder)?;
    // Before Linux 6.13 a trie overwrites an entry whatever the flags say (`trie_update_elem`).
    if tunnel.entry().find_in_trie(folder)?.is_some() {
        let attempted = format!("add a tunnel to {} in {}", tunnel.prefix, folder.display());
        return Err(Error::new(attempted, std::io::Error::from(rustix::io::Errno::EXIST)));
    }
    // Counted first: a process that dies between the two leaves no entry, and `remove_tunnel` counts anew then.
    count_prefixes(folder, tunnel.remote, |prefixes| prefixes + 1)?;
    tunnel.entry().add(folder).map_err(|error| error.and_left(tunnel.count_anew(folder)))
}

/// Whether packets to the prefix go by this tunnel.
pub fn has_tunnel(folder: &Path, tunnel: &Tunnel) -> Result<bool> {
    Ok(tunnel.entry().find_in_trie(folder)? == Some(true))
}

/// Takes the tunnel to a prefix away. Packets to it may take it for one more second. From its other end packets come as
/// long as another prefix is reached through it: where there is no such tunnel, a process may have died when it added
/// or removed it, and those prefixes are counted anew.
pub fn remove_tunnel(folder: &Path, tunnel: &Tunnel) -> Result<()> {
    let _alone = pins::alone(folder)?;
    if tunnel.entry().find_in_trie(folder)? != Some(true) {
        return tunnel.count_anew(folder);
    }
    tunnel.entry().remove(folder)?;
    count_prefixes(folder, tunnel.remote, |prefixes| prefixes.saturating_sub(1))
}

/// Changes how many prefixes are reached through a tunnel's end; one without a prefix is no peer.
fn count_prefixes(folder: &Path, end: IpAddr, change: impl FnOnce(u32) -> u32) -> Result<()> {
    let key = match end {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let peer = Entry { map: "peers", key: key.octets().to_vec(), value: Vec::new() };
    peer.with(folder, "count a prefix in", |map| {
        let found = map.lookup(&peer.key, MapFlags::ANY)?;
        let prefixes = found.as_deref().and_then(|value| value.try_into().ok()).map_or(0, u32::from_ne_bytes);
        match change(prefixes) {
            0 if found.is_none() => Ok(()),
            0 => map.delete(&peer.key),
            prefixes => map.update(&peer.key, &prefixes.to_ne_bytes(), MapFlags::ANY),
        }
    })
}

impl Endpoint {
    fn entries(&self) -> Vec<Entry> {
        let value = self.bytes();
        let by_link = Entry { map: "links", key: self.link.to_ne_bytes().to_vec(), value: value.clone() };
        let by_address = self.addresses.iter().map(|address| {
            let (map, key) = match address {
                IpAddr::V4(v4) => ("endpoints4", v4.octets().to_vec()),
                IpAddr::V6(v6) => ("endpoints6", v6.octets().to_vec()),
            };
            Entry { map, key, value: value.clone() }
        });
        std::iter::once(by_link).chain(by_address).collect()
    }

    /// Where the programs look first.
    fn slots(&self) -> Vec<Entry> {
        let pod = self.bytes();
        let slot = |address: &IpAddr| {
            let (map, bits, value) = match address {
                IpAddr::V4(v4) => ("slots4", v4.to_bits(), [&pod[..], &v4.octets()].concat()),
                // Truncated: it is the lowest bits that count.
                IpAddr::V6(v6) => ("slots6", v6.to_bits() as u32, [&pod[..], &[0; 4], &v6.octets()].concat()),
            };
            Entry { map, key: (bits % SLOTS).to_ne_bytes().to_vec(), value }
        };
        self.addresses.iter().map(slot).collect()
    }

    /// As `struct endpoint` lies in memory.
    fn bytes(&self) -> Vec<u8> {
        [&self.link.to_ne_bytes()[..], &self.mac.0, &u16::from(self.queued).to_ne_bytes()].concat()
    }
}

impl Tunnel {
    fn entry(&self) -> Entry {
        Entry { map: "tunnels", key: bytes_of_prefix(self.prefix), value: bytes_of_tunnel(self) }
    }

    /// Counts the prefixes that are reached through its other end. To do it each time would look at all other nodes for
    /// each that comes or goes.
    fn count_anew(&self, folder: &Path) -> Result<()> {
        let entry = self.entry();
        let prefixes = entry.with(folder, "list", |map| {
            let mut prefixes = 0;
            for key in map.keys() {
                let found = map.lookup(&key, MapFlags::ANY)?;
                prefixes += u32::from(found.is_some_and(|found| is_by_same_end(&found, &entry.value)));
            }
            Ok(prefixes)
        })?;
        count_prefixes(folder, self.remote, |_| prefixes)
    }
}

impl Entry {
    /// As [`Entry::find`], of a trie: a look-up there answers with the longest match, which may be a wider prefix.
    fn find_in_trie(&self, folder: &Path) -> Result<Option<bool>> {
        let matched = self.find(folder)?;
        if matched.is_none() {
            return Ok(None);
        }
        let is_exact = self.with(folder, "list", |map| Ok(map.keys().any(|key| key == self.key)))?;
        Ok(matched.filter(|_| is_exact))
    }

    /// Takes a slot of an array if it is free: what has no slot is found in the map.
    fn take(&self, folder: &Path) -> Result<()> {
        self.with(folder, "write a slot of", |map| match map.lookup(&self.key, MapFlags::ANY)? {
            Some(found) if found.iter().all(|byte| *byte == 0) => {
                map.update(&self.key, &self.value, MapFlags::ANY)
            }
            _ => Ok(()),
        })
    }

    /// Empties a slot of an array, if it is this one's.
    fn free(&self, folder: &Path) -> Result<()> {
        self.with(folder, "empty a slot of", |map| match map.lookup(&self.key, MapFlags::ANY)? {
            Some(found) if found == self.value => {
                map.update(&self.key, &vec![0; self.value.len()], MapFlags::ANY)
            }
            _ => Ok(()),
        })
    }
}

/// As `struct tunnel` lies in memory.
fn bytes_of_tunnel(tunnel: &Tunnel) -> Vec<u8> {
    let (family, remote) = match tunnel.remote {
        IpAddr::V4(v4) => (rustix::net::AddressFamily::INET, first_word(v4)),
        IpAddr::V6(v6) => (rustix::net::AddressFamily::INET6, v6),
    };
    let family = u32::from(family.as_raw());
    let head = [tunnel.device, family].map(u32::to_ne_bytes).concat();
    [head, words(remote).map(u32::to_ne_bytes).concat()].concat()
}

/// Whether two values of `struct tunnel` have one other end, by whichever device.
fn is_by_same_end(one: &[u8], other: &[u8]) -> bool {
    one.get(size_of::<u32>()..) == other.get(size_of::<u32>()..)
}

/// An IPv4 address in the first of four words.
fn first_word(address: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(u128::from(address.to_bits()) << 96)
}
