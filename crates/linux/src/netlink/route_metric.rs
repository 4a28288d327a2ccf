//! Properties of a route that TCP uses. Those of an existing route are read and set; the rest of the route stays.

use std::fmt;

use ipnet::IpNet;
use netlink_packet_core::NLM_F_REPLACE;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteMessage, RouteMetric as Metric, RouteProtocol, RouteType,
};
use serde::{Deserialize, Serialize};

use super::Netlink;
use super::route::{Choice, RouteInfo, expires, read};
use crate::Result;

/// A property of a route that a connection takes over when it begins (`RTAX_…` in linux/rtnetlink.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteMetric {
    /// The congestion control algorithm, by name.
    CongestionControl,
    /// Segments that may be sent before the first acknowledgement.
    InitCwnd,
    /// Segments that the first window has room for.
    InitRwnd,
    /// 1: every segment is acknowledged at once.
    QuickAck,
    /// The minimum retransmission timeout in milliseconds. The kernel applies it only if it is locked, so this sets
    /// the lock.
    RtoMin,
    /// The most bytes of a packet to there. What the kernel learns to be less counts all the same: it is not locked.
    Mtu,
}

/// What a property is set to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MetricValue {
    /// A number, in the property's unit.
    Number(u32),
    /// The name of an algorithm.
    Name(String),
}

/// A property as a route has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MetricState {
    /// `None` if the route does not set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<MetricValue>,
    /// The kernel does not replace it by what it learns (`RTAX_LOCK`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub locked: bool,
}

impl RouteMetric {
    /// Every property, in display order.
    pub const ALL: &[RouteMetric] = &[
        RouteMetric::CongestionControl,
        RouteMetric::InitCwnd,
        RouteMetric::InitRwnd,
        RouteMetric::QuickAck,
        RouteMetric::RtoMin,
        RouteMetric::Mtu,
    ];

    /// The word that `ip route` has for it.
    pub fn word(self) -> &'static str {
        match self {
            RouteMetric::CongestionControl => "congctl",
            RouteMetric::InitCwnd => "initcwnd",
            RouteMetric::InitRwnd => "initrwnd",
            RouteMetric::QuickAck => "quickack",
            RouteMetric::RtoMin => "rto_min",
            RouteMetric::Mtu => "mtu",
        }
    }

    /// The state that setting it to a value makes.
    pub fn set_to(self, value: &MetricValue) -> MetricState {
        MetricState { value: Some(value.clone()), locked: self == RouteMetric::RtoMin }
    }

    /// Its number among the `RTAX_…`, whose bit locks it.
    fn number(self) -> u32 {
        match self {
            RouteMetric::Mtu => 2,
            RouteMetric::InitCwnd => 11,
            RouteMetric::RtoMin => 13,
            RouteMetric::InitRwnd => 14,
            RouteMetric::QuickAck => 15,
            RouteMetric::CongestionControl => 16,
        }
    }

    fn of(self, metric: &Metric) -> Option<MetricValue> {
        match (self, metric) {
            (RouteMetric::CongestionControl, Metric::CcAlgo(name)) => Some(MetricValue::Name(name.clone())),
            (RouteMetric::InitCwnd, Metric::InitCwnd(number))
            | (RouteMetric::InitRwnd, Metric::InitRwnd(number))
            | (RouteMetric::QuickAck, Metric::QuickAck(number))
            | (RouteMetric::RtoMin, Metric::RtoMin(number))
            | (RouteMetric::Mtu, Metric::Mtu(number)) => Some(MetricValue::Number(*number)),
            _ => None,
        }
    }

    /// `None` for a name where a number belongs, and the other way round.
    fn attribute(self, value: &MetricValue) -> Option<Metric> {
        match (self, value) {
            (RouteMetric::CongestionControl, MetricValue::Name(name)) => Some(Metric::CcAlgo(name.clone())),
            (RouteMetric::InitCwnd, MetricValue::Number(number)) => Some(Metric::InitCwnd(*number)),
            (RouteMetric::InitRwnd, MetricValue::Number(number)) => Some(Metric::InitRwnd(*number)),
            (RouteMetric::QuickAck, MetricValue::Number(number)) => Some(Metric::QuickAck(*number)),
            (RouteMetric::RtoMin, MetricValue::Number(number)) => Some(Metric::RtoMin(*number)),
            (RouteMetric::Mtu, MetricValue::Number(number)) => Some(Metric::Mtu(*number)),
            (RouteMetric::CongestionControl, MetricValue::Number(_)) | (_, MetricValue::Name(_)) => None,
        }
    }

    fn read(self, metrics: &[Metric]) -> MetricState {
        MetricState {
            value: metrics.iter().find_map(|metric| self.of(metric)),
            locked: locks(metrics) & (1 << self.number()) != 0,
        }
    }
}

impl Netlink {
    /// A property of the unicast route of the main table to that destination over that link; `None` without such a
    /// route. Of several routes it reads the one that the kernel prefers. Routes with several next hops are skipped.
    pub fn route_metric(&self, dst: &IpNet, index: u32, metric: RouteMetric) -> Result<Option<MetricState>> {
        let route = self.find_route(dst, index)?;
        Ok(route.map(|route| metric.read(&metrics_of(&route))))
    }

    /// Sets or removes a property of such a route; the rest of the route stays. `ESRCH` without such a route, `EINVAL`
    /// for an algorithm that the kernel lacks.
    pub fn route_set_metric(
        &self,
        dst: &IpNet,
        index: u32,
        metric: RouteMetric,
        state: &MetricState,
    ) -> Result<()> {
        let attempted = format!("set {} of the route to {dst} by link {index}: {state}", metric.word());
        let Some(mut route) = self.find_route(dst, index)? else {
            return Err(self.error(attempted, std::io::Error::from_raw_os_error(libc::ESRCH)));
        };
        if route.header.protocol == RouteProtocol::Ra || expires(&route) {
            return Err(
                self.invalid(attempted, "a router announced it, and it would lose its time of expiry")
            );
        }
        let mut metrics = metrics_of(&route);
        let bit = 1 << metric.number();
        let locks = if state.locked { locks(&metrics) | bit } else { locks(&metrics) & !bit };
        metrics.retain(|other| metric.of(other).is_none() && !matches!(other, Metric::Lock(_)));
        if locks != 0 {
            metrics.insert(0, Metric::Lock(locks));
        }
        if let Some(value) = &state.value {
            let attribute = metric.attribute(value);
            metrics.push(attribute.ok_or_else(|| self.invalid(&attempted, "it has another type"))?);
        }
        leave_only_what_is_accepted(&mut route);
        // Without any metrics, even an empty list of them, a route by a nexthop object would keep those that it has
        // (`fib_find_info_nh` in net/ipv4/fib_semantics.c).
        if is_by_object(&route) || !metrics.is_empty() {
            route.attributes.push(RouteAttribute::Metrics(metrics));
        }
        self.change(Message::NewRoute(route), NLM_F_REPLACE, attempted)
    }

    fn find_route(&self, dst: &IpNet, index: u32) -> Result<Option<RouteMessage>> {
        let is_it = |info: &RouteInfo| {
            info.table == RouteInfo::MAIN
                && info.kind == u8::from(RouteType::Unicast)
                && info.dst == dst.trunc()
                && matches!(info.next_hops.as_slice(), [hop] if hop.index == Some(index))
        };
        // The kernel's choice for a packet is its preferred route, unless a longer prefix or a rule comes first.
        if let Choice::Route(route) = self.choice(dst.trunc())?
            && read(&Message::NewRoute(route.clone())).is_some_and(|info| is_it(&info))
        {
            return Ok(Some(route));
        }
        let answers = self.dump(&Message::GetRoute(RouteMessage::default()), "list routes")?;
        let mut found: Vec<(Option<u32>, RouteMessage)> = Vec::new();
        for answer in answers {
            let Some(info) = read(&answer) else { continue };
            if let (true, Message::NewRoute(route)) = (is_it(&info), answer) {
                found.push((info.metric, route));
            }
        }
        found.sort_by_key(|(metric, _)| *metric);
        Ok(found.into_iter().next().map(|(_, route)| route))
    }
}

/// Takes away what the kernel reports for a route but does not accept, and its metrics.
///
/// Of a route by a nexthop object it reports the way that this leads as well, and refuses a request with both
/// (`rtm_to_fib_config` in net/ipv4/fib_frontend.c, `rtm_to_fib6_config` in net/ipv6/route.c).
fn leave_only_what_is_accepted(route: &mut RouteMessage) {
    let by_object = is_by_object(route);
    route.header.flags &= if by_object { RouteFlags::empty() } else { RouteFlags::Onlink };
    route.attributes.retain(|attribute| match attribute {
        RouteAttribute::CacheInfo(_) | RouteAttribute::Metrics(_) => false,
        RouteAttribute::Oif(_)
        | RouteAttribute::Gateway(_)
        | RouteAttribute::Via(_)
        | RouteAttribute::Encap(_)
        | RouteAttribute::EncapType(_) => !by_object,
        _ => true,
    });
}

fn is_by_object(route: &RouteMessage) -> bool {
    route.attributes.iter().any(|attribute| matches!(attribute, RouteAttribute::NhId(_)))
}

fn metrics_of(route: &RouteMessage) -> Vec<Metric> {
    let metrics = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Metrics(metrics) => Some(metrics.clone()),
        _ => None,
    });
    metrics.unwrap_or_default()
}

fn locks(metrics: &[Metric]) -> u32 {
    let bits = metrics.iter().find_map(|metric| match metric {
        Metric::Lock(bits) => Some(*bits),
        _ => None,
    });
    bits.unwrap_or(0)
}

impl fmt::Display for MetricValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetricValue::Number(number) => number.fmt(f),
            MetricValue::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for MetricState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MetricState { value, locked } = self;
        match value {
            None => f.write_str("not set")?,
            Some(value) => value.fmt(f)?,
        }
        if *locked { f.write_str(", locked") } else { Ok(()) }
    }
}
