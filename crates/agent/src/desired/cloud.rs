//! The backend `aws-vpc`: the cloud's route tables lead to the nodes, so a node has no ways of its own. What has to be in the
//! tables is another matter ([`wish`]).

use std::collections::BTreeMap;

use datapath::Family;
use plan::Plan;

use super::{Desired, NODE_PART, Nets, Node};
use crate::backend::BackendKind;
use crate::cloud::{Wanted, Wish};
use crate::lease::{Lease, Snapshot};
use crate::network::NetworkConfig;

/// What the cloud is to have for this node; `None`: that is not known yet.
pub(crate) fn wish(node: &Node, network: &NetworkConfig, snapshot: &Snapshot) -> Option<Wish> {
    if !network.backend.is(BackendKind::AwsVpc) {
        return Some(Wish::Nothing);
    }
    wanted(node, network, snapshot).map(Wish::Routes)
}

/// The routes to this node; `None`: its prefixes are not known yet.
fn wanted(node: &Node, network: &NetworkConfig, snapshot: &Snapshot) -> Option<Wanted> {
    if snapshot.own.families().is_empty() {
        return None;
    }
    let leases = || snapshot.others.values().filter_map(|lease| lease.as_ref().ok());
    Some(Wanted {
        tables: network.backend.tables.clone(),
        addresses: node.underlay,
        own: snapshot.own.iter().collect(),
        others: leases().flat_map(|lease| lease.pods.iter()).collect(),
    })
}

impl Nets<'_> {
    /// The way to a peer's pods, of which nothing is on this node.
    pub(super) fn way_by_tables(
        &self,
        lease: &Lease,
    ) -> Result<(Plan, BTreeMap<Family, &'static str>), String> {
        let families: Vec<Family> = self.specs.iter().map(|(family, _)| *family).collect();
        let pods = lease.pods.only(&families);
        for prefix in pods.iter() {
            self.node.cloud.check_way(prefix)?;
        }
        if pods.families().is_empty() {
            return Err(format!("it has the prefixes {}, of no family that this node has", lease.pods));
        }
        Ok((Plan::new(), pods.families().iter().map(|family| (*family, self.kind.name())).collect()))
    }

    /// Routes that stand until the tables lead to their nodes may be by tunnels, which the node has no other use for.
    pub(super) fn keep_tunnels_of(
        &self,
        stays: &BTreeMap<String, Plan>,
        desired: &mut Desired,
        standing: &BTreeMap<String, Plan>,
    ) {
        if let (true, false, Some(tunnels)) =
            (self.kind == BackendKind::AwsVpc, stays.is_empty(), standing.get(NODE_PART))
        {
            desired.parts.insert(NODE_PART.to_owned(), tunnels.clone());
        }
    }
}
