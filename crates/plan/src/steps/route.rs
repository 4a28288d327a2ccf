//! Routes.

use linux::netlink::{EncapInfo, NextHop, RouteInfo};
use linux::{Encap, IfName, Route};

use super::object::Object;
use crate::Place;
use crate::error::StepError;
use crate::kernel::OpenNetns;
use crate::lack::{Lack, LackedPart};
use crate::listing::Listing;
use crate::look::StepState;
use crate::show::{Tool, word};

impl Object for &Route {
    fn dev(&self) -> Option<&IfName> {
        Some(&self.dev)
    }

    fn look(&self, opened: &OpenNetns, listing: &Listing, index: u32) -> Result<StepState, StepError> {
        let Some(found) = listing.rival(opened, self)? else { return Ok(StepState::Absent) };
        Ok(StepState::of(found.is(self, index), || another(&found)))
    }

    fn add(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.netlink.route_add(self)?)
    }

    fn remove(&self, opened: &OpenNetns, _: u32) -> Result<(), StepError> {
        Ok(opened.netlink.route_del(self)?)
    }

    fn lack(&self) -> Option<Lack> {
        let via = self.via.map(|via| format!(" via {via}")).unwrap_or_default();
        let words = format!("{} has no route to {}{via}", self.dev, self.dst.trunc());
        let route = (*self).clone();
        Some(Lack { part: LackedPart::Route(route), address: Some(self.dst.addr()), words })
    }

    fn subject(&self) -> String {
        format!("the route to {}", self.dst)
    }

    fn command(&self, place: &Place) -> String {
        route_command(self, "add", place)
    }

    fn removal(&self, place: &Place) -> String {
        let metric = self.metric.map(|metric| format!(" metric {metric}")).unwrap_or_default();
        Tool("ip", place).run(&format!("route del {}{metric}", self.dst))
    }
}

/// What a person would type to add or replace a route.
pub(super) fn route_command(route: &Route, verb: &str, place: &Place) -> String {
    let Route { dst, via, dev, onlink, src, mtu, mtu_locked, metric, encap } = route;
    let mut text = format!("route {verb} {dst}");
    if let Some(Encap { id, remote }) = encap {
        let (tunnel, checksum) = if remote.is_ipv4() { ("ip", "") } else { ("ip6", " csum") };
        text += &format!(" encap {tunnel} id {id} dst {remote}{checksum}");
    }
    if let Some(via) = via {
        let other_family = via.is_ipv6() && dst.addr().is_ipv4();
        text += &format!(" via {}{via}", if other_family { "inet6 " } else { "" });
    }
    text += &format!(" dev {}", word(dev));
    if *onlink {
        text += " onlink";
    }
    text += &metric.map(|metric| format!(" metric {metric}")).unwrap_or_default();
    text += &src.map(|src| format!(" src {src}")).unwrap_or_default();
    let lock = if *mtu_locked { "lock " } else { "" };
    text += &mtu.map(|mtu| format!(" mtu {lock}{mtu}")).unwrap_or_default();
    Tool("ip", place).run(&text)
}

fn another(route: &RouteInfo) -> String {
    let hops = route.next_hops.iter().map(way);
    format!("another route to {}{}", route.dst, hops.collect::<String>())
}

/// One way of a route, in words.
fn way(hop: &NextHop) -> String {
    let via = hop.via.map_or_else(|| " on the link".to_owned(), |via| format!(" by {via}"));
    match hop.encap {
        None => via,
        Some(EncapInfo::Tunnel(Encap { id, remote })) => format!("{via} in tunnel {id} to {remote}"),
        Some(EncapInfo::Other(kind)) => format!("{via} in an encapsulation of kind {kind}"),
    }
}
