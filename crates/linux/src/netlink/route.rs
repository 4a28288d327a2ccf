//! Routes of the main table are made and deleted; those of all tables are listed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHopFlags,
    RouteProtocol, RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use serde::Serialize;

use super::{EncapInfo, LinkInfo, Netlink, RuleInfo, encap, family_of};
use crate::{Result, Route};

/// Among the metrics that a route locks, its path MTU: bit `RTAX_MTU`.
const MTU_LOCK: u32 = 1 << 2;

/// A route as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RouteInfo {
    /// The table (254 main, 255 local).
    pub table: u32,
    /// The destination prefix; of length 0: the default route.
    pub dst: IpNet,
    /// The ways: one, or several of equal cost; none for a route that refuses.
    pub next_hops: Vec<NextHop>,
    /// The preferred source address.
    pub src: Option<IpAddr>,
    /// The route's own path MTU in bytes; `None` if it has none.
    pub mtu: Option<u32>,
    /// That MTU is locked: [`Route::mtu_locked`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub mtu_locked: bool,
    /// Order among routes to the same destination, lowest first (`metric`).
    pub metric: Option<u32>,
    /// The number of its origin, `rtm_protocol` (2 kernel, 3 boot, 4 static, 9 a router's announcement).
    pub protocol: u8,
    /// It expires after a time, as routes announced by a router do. So does the kernel's own route to the prefix of an
    /// address that was announced.
    pub expires: bool,
    /// The number of the scope (0 universe, 253 link, 254 host).
    pub scope: u8,
    /// The number of the kind (1 unicast, 2 local, 3 broadcast, 6 blackhole).
    pub kind: u8,
}

/// One way of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextHop {
    /// The index of the outgoing link.
    pub index: Option<u32>,
    /// The next hop; `None` if the destination is on the link itself.
    pub via: Option<IpAddr>,
    /// The next hop counts as reachable on the link even if no route leads to it.
    pub onlink: bool,
    /// The tunnel in which packets are encapsulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encap: Option<EncapInfo>,
}

impl Netlink {
    /// Makes a route in the main table. `EEXIST` if there is one of that metric to that destination,
    /// `ENODEV` without the link.
    pub fn route_add(&self, route: &Route) -> Result<()> {
        let attempted = format!("add route {}", describe(route));
        self.change(self.new_route(route)?, NLM_F_CREATE | NLM_F_EXCL, attempted)
    }

    /// Makes a route in the main table, in the place of its [rival](Netlink::rival) if there is one: no packet finds
    /// neither. `ENODEV` without the link.
    pub fn route_replace(&self, route: &Route) -> Result<()> {
        let attempted = format!("replace route {}", describe(route));
        self.change(self.new_route(route)?, NLM_F_CREATE | NLM_F_REPLACE, attempted)
    }

    fn new_route(&self, route: &Route) -> Result<Message> {
        let mut message = message(route, self.index_of(&route.dev)?);
        message.header.protocol = RouteProtocol::Boot;
        if let Some(mtu) = route.mtu {
            let lock = route.mtu_locked.then_some(RouteMetric::Lock(MTU_LOCK));
            let metrics = lock.into_iter().chain([RouteMetric::Mtu(mtu)]).collect();
            message.attributes.push(RouteAttribute::Metrics(metrics));
        }
        Ok(Message::NewRoute(message))
    }

    /// Deletes a route of the main table. `ESRCH` if there is none. To the kernel one of IPv4 without a metric stands
    /// for the first that is the same but for its metric; that is the one without, where there is one.
    pub fn route_del(&self, route: &Route) -> Result<()> {
        let metric = match route.dst {
            IpNet::V4(_) => route.metric,
            // None stands for any here too, and there may be lower ones than the one that a route without gets.
            IpNet::V6(_) => Some(order(route)),
        };
        let message = message(&Route { metric, ..route.clone() }, self.index_of(&route.dev)?);
        self.change(Message::DelRoute(message), 0, format!("delete route {}", describe(route)))
    }

    /// Every route of the namespace, of all tables, by table and destination.
    pub fn routes(&self) -> Result<Vec<RouteInfo>> {
        // One dump of all families: a request for a family that the kernel lacks would return the families that it
        // has.
        let answers = self.dump(&Message::GetRoute(RouteMessage::default()), "list routes")?;
        let mut routes: Vec<RouteInfo> = answers.iter().filter_map(read).collect();
        routes.sort_by_key(|route| (route.table, route.dst, route.metric, route.kind));
        Ok(routes)
    }

    /// The prefixes of one family whose packets are the namespace's own: its addresses, its loopback, and what it was
    /// told to take besides (`ip route add local`). It is what rules of nftables ask by `fib daddr type local`.
    pub fn own_prefixes(&self, ipv6: bool) -> Result<Vec<IpNet>> {
        let mut question = RouteMessage::default();
        question.header.address_family = if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
        // That table and kind alone, if the kernel takes the question strictly (Linux 5.0); else they
        // come among all routes.
        question.header.table = libc::RT_TABLE_LOCAL;
        question.header.kind = RouteType::Local;
        let answers = match self.dump_strictly(&Message::GetRoute(question), "list the node's own addresses")
        {
            // There is no such table before the first address.
            Err(error) if error.is(libc::ENOENT) => Vec::new(),
            answers => answers?,
        };
        let is_own = |route: &RouteInfo| route.kind == u8::from(RouteType::Local);
        Ok(answers.iter().filter_map(read).filter(is_own).map(|route| route.dst).collect())
    }

    /// The link of the default route, IPv4 before IPv6 and the lowest metric first; `None` if there is no such route.
    pub fn link_of_default_route(&self) -> Result<Option<LinkInfo>> {
        /// `RT_TABLE_MAIN`, `RTN_UNICAST`.
        const MAIN: u32 = 254;
        const UNICAST: u8 = 1;
        let mut routes = self.routes()?;
        routes.retain(|route| route.table == MAIN && route.kind == UNICAST && route.dst.prefix_len() == 0);
        routes.sort_by_key(|route| (route.dst.addr().is_ipv6(), route.metric));
        let index = routes.first().and_then(|route| route.next_hops.first()?.index);
        index.map_or(Ok(None), |index| self.link_at(index))
    }

    /// True if the main table has the route: same destination, next hop, link, metric, tunnel, source and path
    /// MTU, locked or not.
    pub fn has_route(&self, route: &Route) -> Result<bool> {
        let Some(link) = self.link(&route.dev)? else { return Ok(false) };
        Ok(self.rival(route)?.is_some_and(|info| info.is(route, link.index)))
    }

    /// The route of the main table that competes with another one: it has the same destination and the same metric,
    /// whatever its next hops. All routes are listed only where the kernel's choice of a route does not answer the
    /// question.
    pub fn rival(&self, route: &Route) -> Result<Option<RouteInfo>> {
        Ok(self.rival_message(route)?.map(|(info, _)| info))
    }

    /// The same, with all that the kernel says of it.
    pub(super) fn rival_message(&self, route: &Route) -> Result<Option<(RouteInfo, RouteMessage)>> {
        let dst = route.dst.trunc();
        let is_absent = match self.choice(dst)? {
            Choice::Route(message) => match read_message(&message) {
                Some(chosen) if chosen.is_rival(route) => return Ok(Some((chosen, message))),
                // The kernel chooses the longest prefix, and of one prefix the lowest metric.
                Some(chosen) if chosen.table == RouteInfo::MAIN => {
                    let length = chosen.dst.prefix_len();
                    length < dst.prefix_len() || (chosen.dst == dst && chosen.order() > order(route))
                }
                Some(_) | None => false,
            },
            Choice::Nowhere => true,
            Choice::Unknown => false,
        };
        if is_absent && self.has_own_rules(dst.addr().is_ipv6())? && self.has_carrier(route)? {
            return Ok(None);
        }
        let answers = self.dump(&Message::GetRoute(RouteMessage::default()), "list routes")?;
        let rival = |answer| {
            let Message::NewRoute(message) = answer else { return None };
            read_message(&message).filter(|info| info.is_rival(route)).map(|info| (info, message))
        };
        Ok(answers.into_iter().find_map(rival))
    }

    /// The route by which the kernel would send to an address, of whichever table; `None`: there is none,
    /// or one that refuses.
    pub fn route_to(&self, address: IpAddr) -> Result<Option<RouteInfo>> {
        match self.choice(address.into())? {
            Choice::Route(message) => Ok(read_message(&message)),
            Choice::Nowhere | Choice::Unknown => Ok(None),
        }
    }

    /// The route that the kernel chooses for the first address of a prefix, as its tables have it.
    pub(super) fn choice(&self, dst: IpNet) -> Result<Choice> {
        let mut question = RouteMessage::default();
        question.header.address_family = family_of(dst.addr());
        question.header.destination_prefix_length = dst.max_prefix_len();
        // Without this flag the kernel reports the main table for every IPv4 route.
        question.header.flags = RouteFlags::FibMatch | RouteFlags::LookupTable;
        question.attributes.push(RouteAttribute::Destination(dst.network().into()));
        match self.get(Message::GetRoute(question)) {
            Ok(Message::NewRoute(route)) => Ok(Choice::Route(route)),
            Ok(_) => Ok(Choice::Unknown),
            Err(error) => {
                let error = self.error(format!("look for a route to {dst}"), error);
                match error.errno() {
                    Some(libc::ENETUNREACH) => Ok(Choice::Nowhere),
                    // A route may refuse with an error of its own, and not every address is a valid query.
                    Some(_) => Ok(Choice::Unknown),
                    None => Err(error),
                }
            }
        }
    }

    /// Whether the kernel looks into the main table for every packet, and into others only by its default rules.
    fn has_own_rules(&self, ipv6: bool) -> Result<bool> {
        const OWN: [(u32, u32); 3] = [(0, 255), (32766, RouteInfo::MAIN), (32767, 253)];
        let rules: Vec<_> = self.rules()?.into_iter().filter(|rule| rule.ipv6 == ipv6).collect();
        let is_own = |rule: &RuleInfo| rule.is_for_all() && OWN.contains(&(rule.priority, rule.table));
        Ok(rules.iter().all(is_own) && rules.iter().any(|rule| rule.table == RouteInfo::MAIN))
    }

    /// Without carrier, `ignore_routes_with_linkdown` can make the kernel skip the link's routes.
    fn has_carrier(&self, route: &Route) -> Result<bool> {
        Ok(self.link(&route.dev)?.is_some_and(|link| link.carrier))
    }
}

/// Which route the kernel chooses for an address.
pub(super) enum Choice {
    Route(RouteMessage),
    Nowhere,
    /// The kernel's answer does not settle it.
    Unknown,
}

impl RouteInfo {
    /// The number of the main table.
    pub const MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;

    /// True if both compete for one place: within a table the kernel distinguishes routes by destination and metric.
    pub fn is_rival(&self, route: &Route) -> bool {
        self.table == RouteInfo::MAIN && self.dst == route.dst.trunc() && self.order() == order(route)
    }

    /// Its metric; no metric is one of 0.
    fn order(&self) -> u32 {
        self.metric.unwrap_or(0)
    }

    /// True if it is the route, by the link of that index, in the main table: same destination, next hop, metric,
    /// tunnel, source and path MTU, locked or not.
    pub fn is(&self, route: &Route, link: u32) -> bool {
        let encap = route.encap.map(EncapInfo::Tunnel);
        let wanted = NextHop { index: Some(link), via: route.via, onlink: route.onlink, encap };
        self.table == RouteInfo::MAIN
            && self.kind == u8::from(RouteType::Unicast)
            && self.dst == route.dst.trunc()
            && self.next_hops == [wanted]
            && (route.src.is_none() || self.src == route.src)
            && self.mtu == route.mtu
            && self.mtu_locked == route.mtu_locked
            && self.order() == order(route)
    }
}

/// The metric that a route of ours gets: its own, else none in IPv4 and the kernel's default in IPv6, where 0 stands
/// for that too (`IP6_RT_PRIO_USER`).
fn order(route: &Route) -> u32 {
    match (route.dst, route.metric) {
        (IpNet::V4(_), metric) => metric.unwrap_or(0),
        (IpNet::V6(_), None | Some(0)) => 1024,
        (IpNet::V6(_), Some(metric)) => metric,
    }
}

/// What adding and deleting have in common.
fn message(route: &Route, index: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = family_of(route.dst.addr());
    header.destination_prefix_length = route.dst.prefix_len();
    header.table = RouteHeader::RT_TABLE_MAIN;
    header.kind = RouteType::Unicast;
    // IPv4 requires the scope to show that the destination is on the link; IPv6 ignores it.
    header.scope = if route.via.is_none() { RouteScope::Link } else { RouteScope::Universe };
    header.flags = if route.onlink { RouteFlags::Onlink } else { RouteFlags::empty() };
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(route.dst.network().into()));
    attributes.push(RouteAttribute::Oif(index));
    attributes.extend(route.via.map(|via| gateway(route.dst, via)));
    attributes.extend(route.metric.map(RouteAttribute::Priority));
    attributes.extend(route.src.map(|src| RouteAttribute::PrefSource(src.into())));
    attributes.extend(route.encap.iter().flat_map(encap::attributes));
    message
}

/// A next hop of the other family needs another attribute (IPv4 via IPv6, Linux 5.2).
fn gateway(dst: IpNet, via: IpAddr) -> RouteAttribute {
    match (dst, via) {
        (IpNet::V4(_), IpAddr::V6(via)) => RouteAttribute::Via(RouteVia::Inet6(via)),
        (IpNet::V4(_) | IpNet::V6(_), via) => RouteAttribute::Gateway(via.into()),
    }
}

fn describe(route: &Route) -> String {
    let encap = route.encap.map(|encap| format!(" in tunnel {} to {}", encap.id, encap.remote));
    let via = route.via.map(|via| format!(" via {via}")).unwrap_or_default();
    let metric = route.metric.map(|metric| format!(" metric {metric}")).unwrap_or_default();
    format!("{}{}{via} dev {}{metric}", route.dst, encap.unwrap_or_default(), route.dev)
}

/// `None` for an entry that is not an IP route, and for the kernel's own notes (exceptions, path MTUs).
pub(super) fn read(answer: &Message) -> Option<RouteInfo> {
    if let Message::NewRoute(message) = answer { read_message(message) } else { None }
}

fn read_message(message: &RouteMessage) -> Option<RouteInfo> {
    let header = &message.header;
    if header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let any: IpAddr = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let mut route = RouteInfo {
        table: header.table.into(),
        dst: IpNet::new(any, header.destination_prefix_length).ok()?,
        next_hops: Vec::new(),
        src: None,
        mtu: None,
        mtu_locked: false,
        metric: None,
        protocol: header.protocol.into(),
        expires: expires(message),
        scope: header.scope.into(),
        kind: header.kind.into(),
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Destination(address) => {
                route.dst = IpNet::new(ip(address)?, header.destination_prefix_length).ok()?;
            }
            RouteAttribute::PrefSource(address) => route.src = ip(address),
            RouteAttribute::Priority(metric) => route.metric = Some(*metric),
            RouteAttribute::Metrics(metrics) => {
                route.mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu),
                    _ => None,
                });
                let locks = |metric: &RouteMetric| matches!(metric, RouteMetric::Lock(locked) if locked & MTU_LOCK != 0);
                route.mtu_locked = route.mtu.is_some() && metrics.iter().any(locks);
            }
            _ => {}
        }
    }
    route.next_hops = next_hops(message);
    Some(route)
}

/// The kernel reports 0 for an IPv6 route that does not expire (`rt6_fill_node` in net/ipv6/route.c), and no value for
/// IPv4.
pub(super) fn expires(message: &RouteMessage) -> bool {
    let ends = |attribute: &RouteAttribute| matches!(attribute, RouteAttribute::CacheInfo(info) if info.expires != 0);
    message.attributes.iter().any(ends)
}

fn next_hops(message: &RouteMessage) -> Vec<NextHop> {
    let several = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops),
        _ => None,
    });
    if let Some(hops) = several {
        let hop = |hop: &netlink_packet_route::route::RouteNextHop| NextHop {
            index: Some(hop.interface_index),
            via: hop.attributes.iter().find_map(via),
            onlink: hop.flags.contains(RouteNextHopFlags::Onlink),
            encap: encap::read(&hop.attributes),
        };
        return hops.iter().map(hop).collect();
    }
    let index = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    });
    let via = message.attributes.iter().find_map(via);
    let onlink = message.header.flags.contains(RouteFlags::Onlink);
    let encap = encap::read(&message.attributes);
    if index.is_none() && via.is_none() { Vec::new() } else { vec![NextHop { index, via, onlink, encap }] }
}

fn via(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        _ => None,
    }
}

pub(super) fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}
