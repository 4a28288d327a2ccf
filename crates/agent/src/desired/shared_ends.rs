//! What several leases of one node have in common: neighbours and forwarding entries. A node that has taken another
//! prefix, or has come back under another name, has its old lease for a while, and both lead to one end of its tunnel.

use std::collections::BTreeMap;
use std::net::IpAddr;

use linux::{IfName, Mac};
use plan::{Plan, Step};

/// An entry for the end of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum EndEntry {
    Neighbour(IfName, Option<Mac>, IpAddr),
    Forwarding(IfName, Mac, IpAddr),
}

/// Leaves each entry in one part: what went with one lease would be missing for the other one until the next look. The
/// part that has it already keeps it, since an entry that moves to another part is away for a moment.
pub(super) fn hold_once(parts: &mut BTreeMap<String, Plan>, standing: &BTreeMap<String, Plan>) {
    let mut holders: BTreeMap<EndEntry, String> = BTreeMap::new();
    for (name, plan) in standing.iter().chain(parts.iter()) {
        let wanted = parts.get(name).map(|plan| entries(plan).collect::<Vec<_>>()).unwrap_or_default();
        for entry in entries(plan).filter(|entry| wanted.contains(entry)) {
            holders.entry(entry).or_insert_with(|| name.clone());
        }
    }
    for (name, plan) in parts {
        plan.steps.retain(|placed| entry(&placed.step).is_none_or(|entry| holders.get(&entry) == Some(name)));
    }
}

fn entries(plan: &Plan) -> impl Iterator<Item = EndEntry> {
    plan.steps.iter().filter_map(|placed| entry(&placed.step))
}

fn entry(step: &Step) -> Option<EndEntry> {
    match step {
        Step::ReplaceNeighbour(entry) => Some(EndEntry::Neighbour(entry.dev.clone(), entry.mac, entry.ip)),
        Step::ReplaceFdb(entry) => Some(EndEntry::Forwarding(entry.dev.clone(), entry.mac, entry.dst)),
        _ => None,
    }
}
