//! A router between the nodes that knows where each node's pods are: flannel's aws-vpc, where the router is the
//! cloud's and its table has a limit of entries (50 when flannel supported it).

use linux::features::Feature;
use plan::Plan;

use crate::draft::Draft;
use crate::trace::{PacketDirection, Traces};
use crate::{Family, NodeSpec, Peer, Router, SpecError, Talk, Trace, Transport};

pub(crate) const VPC: Vpc = Vpc;

/// One entry a node in the router's table, written on the node's behalf; one route a node to the whole cluster.
pub(crate) struct Vpc;

impl Transport for Vpc {
    fn name(&self) -> &'static str {
        "vpc"
    }

    fn needs(&self) -> &'static [Feature] {
        &[]
    }

    fn overhead_bytes(&self, _outer: Family, _underlay_mtu: u32) -> u32 {
        0
    }

    fn is_open_tunnel(&self) -> bool {
        false
    }

    fn node(&self, node: &NodeSpec) -> Result<Plan, SpecError> {
        let router = router_of(node)?;
        let families = node.families();
        let mut own = Draft::at(&node.place, families);
        own.routes_via(&node.wire, &node.network.prefixes.only(families), &router.addresses);
        let mut table = Draft::at(&router.place, families);
        table.routes_via(&router.wire, &node.pods, &node.underlay);

        let mut plan = own.into_plan();
        plan.extend(table.into_plan());
        Ok(plan)
    }

    /// Nothing: a new node costs the others no route.
    fn peer(&self, node: &NodeSpec, _peer: &Peer) -> Result<Plan, SpecError> {
        router_of(node)?;
        Ok(Plan::new())
    }

    fn traces(&self, node: &NodeSpec, talk: Talk) -> Vec<Trace> {
        let mut traces = Traces::default();
        traces.outward(&node.place, &node.wire, talk);
        if let Some(router) = &node.router {
            traces.inward(&router.place, &router.wire, talk);
            traces.forwarded(&router.place, PacketDirection::Both);
        }
        traces.into_list()
    }
}

fn router_of(node: &NodeSpec) -> Result<&Router, SpecError> {
    node.check_underlay_apart()?;
    node.check_underlay_has_families()?;
    node.router.as_ref().ok_or_else(|| SpecError {
        what: format!("node {}", node.id),
        why: "the vpc transport writes a router's table, and no router is given".to_owned(),
    })
}
