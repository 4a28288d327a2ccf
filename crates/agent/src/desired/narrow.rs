//! The MTU of routes by ways that carry less than the pods' links.

use std::net::IpAddr;

use datapath::{DataPath, Family, NodeSpec};
use linux::Route;
use plan::{Placed, Plan, Step};

use super::{Nets, part_of};

impl Nets<'_> {
    /// Gives the routes of a way to a node the MTU that it leaves, where that is less than the pods' links carry.
    ///
    /// As long as nothing is known of what the way carries, its routes keep what stands. An agent that begins knows
    /// nothing yet, and without the MTU, full packets would be lost until it does.
    pub(super) fn bound(
        &self,
        name: &str,
        path: &DataPath,
        spec: &NodeSpec,
        address: IpAddr,
        way: &mut Plan,
    ) {
        let pods_mtu = self.mtu().ok();
        let is_narrower = |mtu: &u32| pods_mtu.is_some_and(|whole| *mtu < whole);
        if let Some(carried) = self.node.path_mtus.get(&address) {
            let left = left(path, spec.outer, *carried);
            routes(way).for_each(|route| self.set_mtu(route, Some(left).filter(is_narrower)));
            return;
        }
        let Some(standing) = self.standing.get(&part_of(name)).filter(|before| has_way(before, way)) else {
            return;
        };
        for route in routes(way) {
            let before = standing.steps.iter().filter_map(|placed| route_of(&placed.step));
            let mtu = before.filter(|before| before.dst == route.dst).find_map(|before| before.mtu);
            self.set_mtu(route, mtu.filter(is_narrower));
        }
    }

    /// Where programs forward the pods' packets, the MTU is locked: they learn of no other (`ip_mtu_from_fib_result`).
    fn set_mtu(&self, route: &mut Route, mtu: Option<u32>) {
        route.mtu = mtu;
        route.mtu_locked = mtu.is_some() && self.node.programs.is_some();
    }
}

/// The bytes of a pod's packet that a way takes whole.
fn left(path: &DataPath, outer: Family, carried: u32) -> u32 {
    let left = carried.saturating_sub(path.transport.overhead_bytes(outer, carried));
    // IPv6 has no smaller one (RFC 8200 §5). What is larger than the way comes in fragments of the tunnel then.
    let least = if outer == Family::V6 { 1280 } else { 0 };
    left.max(least)
}

/// Whether a part has all of a way, whatever the MTU of its routes.
fn has_way(part: &Plan, way: &Plan) -> bool {
    let comparable = |placed: &Placed| match placed.step.clone().replacing() {
        Step::ReplaceRoute(route) => Step::ReplaceRoute(Route { mtu: None, mtu_locked: false, ..route }),
        other => other,
    };
    let before: Vec<Step> = part.steps.iter().map(comparable).collect();
    way.steps.iter().all(|placed| before.contains(&comparable(placed)))
}

fn routes(way: &mut Plan) -> impl Iterator<Item = &mut Route> {
    way.steps.iter_mut().filter_map(|placed| match &mut placed.step {
        Step::AddRoute(route) => Some(route),
        _ => None,
    })
}

fn route_of(step: &Step) -> Option<&Route> {
    match step {
        Step::ReplaceRoute(route) => Some(route),
        _ => None,
    }
}
