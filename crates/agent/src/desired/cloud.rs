//! The backend `aws-vpc`: the cloud's route tables lead to the nodes, so a node has no ways of its own. What has to be
//! in the tables is another matter ([`wish`]).

use std::collections::BTreeMap;

use datapath::{Family, Peer};
use ipnet::IpNet;
use plan::Plan;

use super::{Nets, Node};
use crate::backend::BackendKind;
use crate::cloud::{WantedRoutes, Wish};
use crate::lease::{Lease, Snapshot};
use crate::network::NetworkConfig;

/// What the cloud is to have for this node; `None`: that is not known yet, or what it has is to stay for now.
pub(crate) fn wish(node: &Node, network: &NetworkConfig, snapshot: &Snapshot) -> Option<Wish> {
    let leases = || snapshot.others.values().filter_map(|lease| lease.as_ref().ok());
    if !network.backend.is(BackendKind::AwsVpc) {
        // Nodes that have not followed the network's change yet send by the tables.
        let is_used = leases().any(|lease| lease.node.backend == BackendKind::AwsVpc.name());
        return (!is_used).then_some(Wish::Nothing);
    }
    if snapshot.own.families().is_empty() {
        return None;
    }
    Some(Wish::Routes(WantedRoutes {
        tables: network.backend.tables.clone(),
        addresses: node.underlay,
        own: snapshot.own.iter().collect(),
        others: leases().flat_map(|lease| lease.pods.iter()).collect(),
    }))
}

impl Nets<'_> {
    /// The way to a peer's pods, of which nothing is on this node. What could not be routed by nodes is not routed
    /// by a cloud, either.
    pub(super) fn way_by_tables(
        &self,
        lease: &Lease,
    ) -> Result<(Plan, BTreeMap<Family, &'static str>), String> {
        let mut by = BTreeMap::new();
        for (family, spec) in &self.specs {
            let pods = lease.pods.only(&[*family]);
            if pods.families().is_empty() {
                continue;
            }
            let prefixes: Vec<IpNet> = pods.iter().collect();
            let peer = Peer {
                id: 2,
                underlay: lease.node.public,
                pods,
                tunnel_mac: None,
                tunnel_key: None,
                associations: None,
            };
            self.kind.path().peer_plan(spec, &peer).map_err(|error| error.why)?;
            for prefix in prefixes {
                self.node.cloud.check_way(prefix)?;
            }
            by.insert(*family, self.kind.name());
        }
        if by.is_empty() {
            return Err(format!("it has the prefixes {}, of no family that this node has", lease.pods));
        }
        Ok((Plan::new(), by))
    }
}
