//! rtnetlink: links, addresses, routes, neighbours, forwarding entries, policy rules and queueing disciplines, one
//! file for each noun.
//!
//! Verbs that add fail if the object exists (`EEXIST`). Verbs that delete fail if it does not (`ESRCH`, `ENOENT` or
//! `EADDRNOTAVAIL`, as the kernel reports it). Dumps are complete or an error.

mod address;
mod answer;
mod conntrack;
mod displaced_route;
mod encap;
mod fdb;
mod function;
mod generic;
mod ingress;
mod link;
mod link_info;
mod link_message;
mod neighbour;
mod nftables;
mod openvswitch;
mod path_mtu;
mod qdisc;
mod qdisc_message;
mod qdisc_stats;
mod rdma;
mod route;
mod route_metric;
mod rule;
mod socket;
mod standing;
mod watch;
mod wireguard;
mod xfrm;

pub use address::AddressInfo;
pub use conntrack::{Conntrack, TrackedUdp};
pub use displaced_route::DisplacedRoute;
pub use encap::EncapInfo;
pub use fdb::FdbInfo;
pub use function::FunctionRules;
pub(crate) use generic::{Attributes, Generic, MessageBody};
pub use ingress::{IngressFilter, IngressQdisc};
pub use link_info::{LinkInfo, PortFlag, VxlanInfo};
pub use neighbour::NeighbourInfo;
pub use nftables::Nftables;
pub use openvswitch::OvsDatapaths;
pub use path_mtu::{PathMtu, RouteMtu};
pub use qdisc::{ChosenQdisc, FilterInfo, QdiscInfo, RootQdisc};
pub use qdisc_stats::QdiscCounters;
pub use rdma::{RdmaDeviceInfo, RdmaDevices, RdmaNetnsMode};
pub use route::{NextHop, RouteInfo};
pub use route_metric::{MetricState, MetricValue, RouteMetric};
pub use rule::RuleInfo;
pub use watch::{Change, Watch};
pub use wireguard::{WireGuard, WireGuardDevice, WireGuardPeerInfo};
pub use xfrm::{Xfrm, XfrmPolicyInfo, XfrmStateInfo};

use std::net::IpAddr;
use std::sync::Mutex;

use netlink_packet_route::AddressFamily;

use crate::{Error, Netns, Result};
use socket::Socket;

/// A route socket of the namespace in which it was opened, whichever thread uses it afterwards.
#[derive(Debug)]
pub struct Netlink {
    /// One exchange at a time: answers of two would mix.
    socket: Mutex<Socket>,
    /// For error texts: " in namespace x", or empty for the caller's own namespace.
    place: String,
}

impl Netlink {
    /// A socket of the calling thread's namespace.
    pub fn open() -> Result<Netlink> {
        let socket = Socket::open(netlink_sys::protocols::NETLINK_ROUTE)
            .map_err(|error| Error::new("open a netlink socket", error))?;
        Ok(Netlink { socket: Mutex::new(socket), place: String::new() })
    }

    /// A socket of the given namespace.
    pub fn open_in(netns: &Netns) -> Result<Netlink> {
        let mut netlink = netns.run(Netlink::open)??;
        netlink.place = format!(" in {}", netns.describe());
        Ok(netlink)
    }

    /// The [cookie](Netns::cookie) of the socket's namespace.
    pub fn netns_cookie(&self) -> Result<u64> {
        let socket = self.socket.lock().expect("no exchange panics");
        socket.netns_cookie().map_err(|error| self.error("read the cookie of the namespace", error))
    }

    fn error(&self, attempted: impl AsRef<str>, source: std::io::Error) -> Error {
        Error::new(format!("{}{}", attempted.as_ref(), self.place), source)
    }

    fn invalid(&self, attempted: impl AsRef<str>, why: impl Into<String>) -> Error {
        Error::invalid(format!("{}{}", attempted.as_ref(), self.place), why)
    }
}

/// The kernel's number of an address's family.
fn family_of(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
