//! Which prefixes a node takes, from what the store says. It decides and writes nothing.

use datapath::{Family, Prefixes};
use ipnet::IpNet;
use linux::PublicKey;

use super::view::{Entry, View, overlap, shared};
use crate::lease::Announcement;
use crate::network::Subnets;

/// From how many free prefixes one is drawn. Nodes that start at once would all race for the first one.
const DRAWN_FROM: usize = 100;

/// What this node holds in the store.
#[derive(Debug, Clone)]
pub(super) struct Own {
    pub(super) name: String,
    pub(super) pods: Prefixes,
    /// The etcd lease; 0 if an administrator reserved the prefixes for this node.
    pub(super) lease: i64,
    /// What the entry announces.
    pub(super) announcement: Announcement,
    /// The entry had another address when the node took it, and only the node's key.
    pub(super) is_claimed: bool,
}

/// What is to be done for a node to have prefixes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The entry of this name is the node's.
    Keep { name: String },
    /// These are free. An entry that was the node's may have to go for them.
    Take { pods: Prefixes, instead_of: Option<String> },
}

/// What has become of what the node holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Held,
    /// Its key has a value that makes no sense.
    Spoilt,
    /// A machine with a copy of the node's key has claimed it.
    Claimed,
    /// Its key is gone: it expired, or was deleted.
    Gone,
    /// Another node has it; this is what says so.
    Lost(String),
}

/// No prefix is free in this family: all that the network has are taken.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("no {0} prefix is free for this node's pods")]
pub(super) struct NoneFree(&'static str);

impl Own {
    /// What has become of it. An entry that was written last with this node's address is taken for this node's,
    /// even if the rest is other than was written: an agent and its successor may run at the same time, and must
    /// not write in turns.
    pub(super) fn fate(&self, view: &View, node: &Announcement) -> Fate {
        let Some(entry) = view.get(&self.name) else { return Fate::Gone };
        let is_ours = |other: &Announcement| {
            (self.lease != 0 && self.lease == entry.lease)
                || [node, &self.announcement].iter().any(|own| shared(own.public, other.public))
        };
        if let Ok(lease) = &entry.parsed
            && !is_ours(&lease.node)
        {
            // That machine cannot know that this one is alive. It gives way, since it has claimed the entry.
            if !self.is_claimed && node.key().is_some_and(|key| lease.node.key() == Some(key)) {
                return Fate::Claimed;
            }
            return Fate::Lost(format!("another node has written to {}", self.name));
        }
        match view.elder(&self.name) {
            Some(elder) => Fate::Lost(format!("{} overlaps {elder}, which was there first", self.name)),
            None if entry.parsed.is_err() => Fate::Spoilt,
            None => Fate::Held,
        }
    }
}

/// Chooses prefixes for a node that holds none: those that its address has in the store, else those that `key` has,
/// else those of an earlier run, else some of the first that are free. Each is kept by family, so that a node whose
/// network gets IPv6 keeps its IPv4.
///
/// `key` is that of the node's tunnels, where it may show which entry is the node's: its address may be another one
/// than before. `draw` gives a number below its argument.
///
/// # Errors
/// Nothing of a family is free.
pub(super) fn choose(
    view: &View,
    subnets: &[Subnets],
    node: &Announcement,
    key: Option<PublicKey>,
    previous: &Prefixes,
    draw: impl Fn(usize) -> usize,
) -> Result<Choice, NoneFree> {
    let mut own =
        view.iter().filter(|(_, entry)| is_of(entry, node) || has_key(entry, key)).collect::<Vec<_>>();
    // Of several those first that can be kept.
    own.sort_by_key(|(name, entry)| {
        let cannot_be_kept = !fits(&entry.pods, subnets) || view.elder(name).is_some();
        (cannot_be_kept, !is_of(entry, node), entry.created)
    });
    let first = own.first().map(|(name, entry)| (*name, *entry));
    if let Some((name, entry)) = first
        && fits(&entry.pods, subnets)
        && view.elder(name).is_none()
    {
        return Ok(Choice::Keep { name: name.to_owned() });
    }
    // A reservation stays: it is the administrator's.
    let instead_of = first.filter(|(_, entry)| !entry.is_reservation());
    let taken = view.taken(instead_of.map(|(name, _)| name));
    let wishes = instead_of.iter().flat_map(|(_, entry)| entry.pods.iter()).chain(previous.iter());
    let wishes: Vec<IpNet> = wishes.filter(|wish| !taken.iter().any(|net| overlap(*net, *wish))).collect();
    let of_family = |subnets: &Subnets| {
        let wish = wishes.iter().copied().find(|wish| subnets.has(*wish));
        let drawn = || {
            let free = subnets.free(&taken, DRAWN_FROM);
            free.get(draw(free.len().max(1))).copied()
        };
        wish.or_else(drawn).ok_or(NoneFree(subnets.family().name()))
    };
    let pods = subnets.iter().map(of_family).collect::<Result<Prefixes, _>>()?;
    Ok(Choice::Take { pods, instead_of: instead_of.map(|(name, _)| name.to_owned()) })
}

/// Whether an entry has the node's address.
pub(super) fn is_of(entry: &Entry, node: &Announcement) -> bool {
    entry.parsed.as_ref().is_ok_and(|lease| shared(lease.node.public, node.public))
}

fn has_key(entry: &Entry, key: Option<PublicKey>) -> bool {
    key.is_some() && entry.parsed.as_ref().is_ok_and(|lease| lease.node.key() == key)
}

/// Whether prefixes are what the network's division gives a node: one of each family, and no other.
pub(super) fn fits(pods: &Prefixes, subnets: &[Subnets]) -> bool {
    let is_one = |subnets: &Subnets| {
        let mut of_family = pods.of(subnets.family());
        of_family.next().is_some_and(|net| subnets.has(net)) && of_family.next().is_none()
    };
    let families: Vec<Family> = subnets.iter().map(Subnets::family).collect();
    subnets.iter().all(is_one) && pods.families() == families
}

#[cfg(test)]
mod tests;
