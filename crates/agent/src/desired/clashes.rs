//! Nodes that claim the same.

use std::collections::{BTreeMap, BTreeSet};

use datapath::Addresses;
use ipnet::IpNet;

use crate::lease::{Lease, TunnelData};

/// The nodes that clash with another one: their prefixes overlap, or two tunnels have one Ethernet address or
/// one key.
/// Neither is followed, since nothing says which is right.
pub(super) fn find(others: &BTreeMap<String, Result<Lease, String>>) -> BTreeMap<String, String> {
    let leases = || others.iter().filter_map(|(name, lease)| Some((name, lease.as_ref().ok()?)));
    let mut clashing = BTreeMap::new();
    let mut clash = |(one, of_one): (&String, String), (two, of_two): (&String, String)| {
        clashing.entry(one.clone()).or_insert_with(|| format!("its {of_one} is also {two}'s: {of_two}"));
        clashing.entry(two.clone()).or_insert_with(|| format!("its {of_two} is also {one}'s: {of_one}"));
    };
    let mut prefixes: Vec<(IpNet, &String)> =
        leases().flat_map(|(name, lease)| lease.pods.iter().map(move |net| (net, name))).collect();
    // Of two prefixes that overlap one holds the other, and comes before it and after none that holds neither.
    prefixes.sort_by_key(|(net, name)| (net.network(), net.prefix_len(), *name));
    let mut around: Option<(IpNet, &String)> = None;
    for (net, name) in prefixes {
        match around {
            Some((outer, other)) if outer.contains(&net) => {
                if other != name {
                    clash((other, outer.to_string()), (name, net.to_string()));
                }
            }
            _ => around = Some((net, name)),
        }
    }
    let mut ends: BTreeMap<String, (&String, &Addresses)> = BTreeMap::new();
    for (name, Lease { node, .. }) in leases() {
        let own: BTreeSet<String> = [node.data, node.data_v6].into_iter().flatten().map(known_by).collect();
        for end in own {
            match ends.get(&end) {
                // A node that has taken another prefix: its old lease stands until it ends.
                Some((_, public)) if *public == &node.public => {}
                Some((other, _)) => clash((other, end.clone()), (name, end)),
                None => drop(ends.insert(end, (name, &node.public))),
            }
        }
    }
    clashing
}

/// By what a tunnel recognizes an end.
fn known_by(data: TunnelData) -> String {
    match data {
        TunnelData::Vxlan(end) => end.mac.to_string(),
        TunnelData::WireGuard(key) => format!("public key {key}"),
    }
}
