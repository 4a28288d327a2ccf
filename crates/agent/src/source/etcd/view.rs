//! What the store said last: the leases under their names, as they are read.

use std::collections::BTreeMap;

use datapath::{Addresses, Family, Prefixes};
use ipnet::IpNet;

use super::wire::{Event, KeyValue};
use crate::flannel;
use crate::lease::Lease;

/// The leases by name.
#[derive(Debug, Default)]
pub(super) struct View {
    entries: BTreeMap<String, Entry>,
}

/// One key below `subnets/`.
#[derive(Debug)]
pub(super) struct Entry {
    /// The revision at which it was written for the first time since it was last deleted, and for the last time.
    pub(super) created: i64,
    pub(super) changed: i64,
    /// The etcd lease that keeps it; 0 if it is a reservation.
    pub(super) lease: i64,
    /// What the name says. It is taken, whatever the value is.
    pub(super) pods: Prefixes,
    /// The lease that key and value make together, or why they make none.
    pub(super) parsed: Result<Lease, String>,
}

impl Entry {
    /// Whether it stays without its node. An entry without sense is none: no node knows whose it would be.
    pub(super) fn is_reservation(&self) -> bool {
        self.lease == 0 && self.parsed.is_ok()
    }
}

impl View {
    /// A view of a whole list. `below` is what the keys have before their names.
    pub(super) fn of(kvs: &[KeyValue], below: &[u8]) -> View {
        let entries = kvs.iter().map(|kv| (name(&kv.key, below), entry(kv, below)));
        View { entries: entries.collect() }
    }

    /// What a change makes of it. A change that is older than what is known of the key is one of which we have heard
    /// already, from our own write.
    pub(super) fn apply(&mut self, event: &Event, below: &[u8]) {
        let Some(kv) = &event.kv else { return };
        let name = name(&kv.key, below);
        if self.entries.get(&name).is_some_and(|known| known.changed >= kv.mod_revision) {
            return;
        }
        match event.kind {
            0 => self.entries.insert(name, entry(kv, below)),
            _ => self.entries.remove(&name),
        };
    }

    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// The names of entries by which a store is known again: the node's own, and that which changed last.
    pub(super) fn witnesses(&self, own: Option<&str>) -> Vec<String> {
        let last = self.iter().max_by_key(|(_, entry)| entry.changed).map(|(name, _)| name);
        let own = own.filter(|own| last != Some(own));
        own.into_iter().chain(last).map(str::to_owned).collect()
    }

    /// Whether a key may be what is known of it, or a later value of it. A store that was emptied and filled again has
    /// made it at another revision, or with another etcd lease, whose numbers the store draws.
    pub(super) fn is_so(&self, name: &str, kv: &KeyValue) -> bool {
        self.get(name).is_some_and(|known| {
            let is_later = kv.mod_revision > known.changed;
            let is_same = kv.mod_revision == known.changed && kv.lease == known.lease;
            kv.create_revision == known.created && (is_later || is_same)
        })
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.entries.remove(name);
    }

    pub(super) fn insert(&mut self, name: String, entry: Entry) {
        self.entries.insert(name, entry);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    /// All prefixes that are taken, except for those of one name.
    pub(super) fn taken(&self, except: Option<&str>) -> Vec<IpNet> {
        let others = self.iter().filter(|(name, _)| Some(*name) != except);
        others.flat_map(|(_, entry)| entry.pods.iter()).collect()
    }

    /// The other nodes. A reservation that no node has filled yet is not among them. Of two that overlap the one that
    /// was there first counts, and the other is an error: traffic to its pods would reach the first one's.
    pub(super) fn others(
        &self,
        own: Option<&str>,
        public: Addresses,
    ) -> BTreeMap<String, Result<Lease, String>> {
        let yielding = self.yielding();
        let read = |(name, entry): (&str, &Entry)| match &entry.parsed {
            Ok(lease) if lease.node.backend.is_empty() => None,
            Ok(lease) if shared(lease.node.public, public) => {
                let why = "its public address is this node's".to_owned();
                Some((name.to_owned(), Err(why)))
            }
            Ok(lease) => Some((name.to_owned(), yielding.get(name).map_or(Ok(lease.clone()), overlaps))),
            Err(why) => Some((name.to_owned(), Err(why.clone()))),
        };
        self.iter().filter(|(name, _)| Some(*name) != own).filter_map(read).collect()
    }

    /// The entry that was there before one of ours and overlaps it.
    pub(super) fn elder(&self, name: &str) -> Option<&str> {
        let own = self.get(name)?;
        let is_elder = |(other, entry): &(&str, &Entry)| {
            let overlaps = |net: IpNet| own.pods.iter().any(|own| overlap(own, net));
            *other != name && entry.created < own.created && entry.pods.iter().any(overlaps)
        };
        self.iter().find(is_elder).map(|(other, _)| other)
    }

    /// Those that overlap one that was there before them, and which that is.
    fn yielding(&self) -> BTreeMap<&str, &str> {
        let all = self.iter().flat_map(|(name, entry)| entry.pods.iter().map(move |net| (net, name, entry)));
        let mut all: Vec<_> = all.collect();
        // In this order each prefix comes right behind those that contain it.
        all.sort_by_key(|(net, _, _)| (net.network(), net.prefix_len()));
        let mut yielding = BTreeMap::new();
        let mut standing: Option<(IpNet, &str, &Entry)> = None;
        for (net, name, entry) in all {
            match standing {
                Some((wide, first, held)) if wide.contains(&net) && first != name => {
                    if held.created <= entry.created {
                        yielding.insert(name, first);
                    } else {
                        yielding.insert(first, name);
                        standing = Some((net, name, entry));
                    }
                }
                _ => standing = Some((net, name, entry)),
            }
        }
        yielding
    }
}

fn overlaps(first: &&str) -> Result<Lease, String> {
    Err(format!("it overlaps {first}, which was there first"))
}

/// Whether two prefixes have an address in common.
pub(super) fn overlap(one: IpNet, other: IpNet) -> bool {
    one.contains(&other) || other.contains(&one)
}

/// Whether an address of both is the same. As for flannel, IPv4 counts where both have it.
pub(super) fn shared(one: Addresses, other: Addresses) -> bool {
    let families = Family::BOTH.into_iter().map(|family| (one.of(family), other.of(family)));
    let compared = families.filter(|(one, other)| one.is_some() && other.is_some());
    compared.take(1).any(|(one, other)| one == other)
}

fn name(key: &[u8], below: &[u8]) -> String {
    String::from_utf8_lossy(key.strip_prefix(below).unwrap_or(key)).into_owned()
}

fn entry(kv: &KeyValue, below: &[u8]) -> Entry {
    let pods = flannel::parse_subnet_key(&name(&kv.key, below));
    let parsed = match (&pods, flannel::parse_announcement(&kv.value)) {
        (Err(error), _) => Err(error.to_string()),
        (Ok(_), Err(error)) => Err(error.to_string()),
        (Ok(pods), Ok(node)) => Ok(Lease { pods: pods.clone(), node }),
    };
    Entry {
        created: kv.create_revision,
        changed: kv.mod_revision,
        lease: kv.lease,
        pods: pods.unwrap_or_default(),
        parsed,
    }
}

#[cfg(test)]
mod tests;
