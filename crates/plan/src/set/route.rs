//! Metrics of routes, which connections take over.

use ipnet::IpNet;
use linux::IfName;
use linux::netlink::{MetricState, MetricValue, RouteMetric};
use serde::{Deserialize, Serialize};

use super::register::{At, Register};
use crate::Place;
use crate::error::StepError;
use crate::show::Tool;

/// Set a metric of a route of the main table, which new connections take over; the rest of the route stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetRouteMetric {
    /// Where the route leads.
    pub dst: IpNet,
    /// The outgoing link of the route.
    pub link: IfName,
    /// The metric to set.
    pub metric: RouteMetric,
    /// A number in the metric's unit, or the name of an algorithm.
    pub value: MetricValue,
}

impl Register for SetRouteMetric {
    type Value = MetricState;
    type Along = ();

    fn read(&self, at: &At<'_>) -> Result<Option<MetricState>, StepError> {
        Ok(at.opened.netlink.route_metric(&self.dst, at.link().index, self.metric)?)
    }

    fn write(&self, at: &At<'_>, state: &MetricState) -> Result<(), StepError> {
        Ok(at.opened.netlink.route_set_metric(&self.dst, at.link().index, self.metric, state)?)
    }

    fn wanted(&self, _: &MetricState) -> MetricState {
        self.metric.set_to(&self.value)
    }

    fn subject(&self) -> String {
        format!("{} of the route to {}", self.metric.word(), self.dst)
    }

    fn words(&self, state: &MetricState) -> String {
        state.value.as_ref().map_or_else(|| "unset".to_owned(), ToString::to_string)
    }

    /// `change` puts a route in the place of another, so what it is has to be said again. `ip` does not read all that
    /// it prints: that a timeout is locked goes without saying, that the link is down is no property of the route, and
    /// a route by a nexthop object has its way by that alone.
    fn command(&self, place: &Place) -> String {
        let SetRouteMetric { dst, metric, value, .. } = self;
        let family = if dst.addr().is_ipv6() { "-6 " } else { "" };
        let ip =
            |arguments: &str| Tool("ip", place).run(arguments).replacen("ip ", &format!("ip {family}"), 1);
        let now = ip(&format!("route show exact {dst}"));
        let readable = r"sed 's/rto_min lock/rto_min/; s/ linkdown//; s/ dead//; /nhid/s/ onlink//; s/\(nhid [0-9]*\) .*dev [^ ]*/\1/'";
        ip(&format!("route change $({now} | {readable}) {} {value}", metric.word()))
    }

    fn missing(&self) -> StepError {
        let SetRouteMetric { dst, link, .. } = self;
        let why = format!("the main table has no route to {dst} that leads by link {link} alone");
        StepError::Refused { why }
    }
}
