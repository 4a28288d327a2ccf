//! What the kernel reports by system calls instead of files: sockets, queueing disciplines, cards.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use linux::netlink::{PathMtu, QdiscCounters, RouteMtu};
use linux::nic::{self, Nic};
use linux::sock_diag::{TcpSocket, each_tcp_socket, states, tcp_sockets};
use linux::{IfName, Netlink};
use serde::{Deserialize, Serialize};

/// Answers of one moment. `None`: it could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KernelAnswers {
    /// TCP sockets, listeners and ended ones among them; listeners alone if there are very many.
    pub sockets: Option<Vec<TcpSocket>>,
    /// If there are very many sockets: to where they took how many local ports.
    #[serde(default)]
    pub ports: Option<Vec<PortsTaken>>,
    /// Queueing disciplines with their counts.
    pub qdiscs: Option<Vec<QdiscCounters>>,
    /// Cards by the name of their link.
    pub nics: BTreeMap<IfName, Nic>,
    /// The kinds of virtual links (`veth`, `bond`, …), by name.
    #[serde(default)]
    pub kinds: BTreeMap<IfName, String>,
    /// Path MTUs that the kernel learnt, IPv4 and IPv6.
    #[serde(default)]
    pub path_mtus: Option<Vec<PathMtu>>,
    /// Routes with an MTU of their own, IPv4 and IPv6.
    #[serde(default)]
    pub route_mtus: Option<Vec<RouteMtu>>,
}

/// Local ports that connections from one address to one destination have taken, ended connections among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct PortsTaken {
    pub local: IpAddr,
    pub peer: SocketAddr,
    /// How many ports of `ip_local_port_range`.
    pub ports: u64,
}

/// With more sockets than these a list costs more than doctor may: about 1 µs each in the kernel and as much here.
pub(crate) const SOCKETS_MAX: u64 = 30_000;
/// The same where only both ends of each socket are listed, which costs a fraction.
const ENDS_MAX: u64 = 200_000;
/// A destination with fewer ports than these cannot have half of any usual range.
const PORTS_MIN: u64 = 1000;
/// The same of routes, of which a router of the Internet has a million.
const ROUTES_MAX: u64 = 30_000;

/// How much there is to list, according to files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct There {
    /// TCP sockets, IPv4 and IPv6.
    pub(crate) sockets: u64,
    /// Routes, as far as files list them.
    pub(crate) routes: u64,
    /// The first and the last port that connections from here take (`ip_local_port_range`).
    pub(crate) local_ports: Option<(u64, u64)>,
}

impl KernelAnswers {
    /// Queries the kernel in the calling thread's namespace. Unavailable parts are listed in `unseen`.
    pub(crate) fn ask(links: &[IfName], there: There, unseen: &mut Vec<String>) -> KernelAnswers {
        let mut answers = KernelAnswers::default();
        if there.sockets > SOCKETS_MAX {
            unseen.push(format!(
                "connections: {} are too many to list within the cost that is allowed; listeners were",
                there.sockets
            ));
            answers.sockets = kept(tcp_sockets(states::LISTEN), unseen);
            if let Some(range) = there.local_ports.filter(|_| there.sockets <= ENDS_MAX) {
                answers.ports = kept(ports_taken(range), unseen);
            }
        } else {
            answers.sockets = kept(tcp_sockets(states::ALL), unseen);
        }
        answers.qdiscs = kept(Netlink::open().and_then(|netlink| netlink.qdisc_counters()), unseen);
        answers.path_mtus = kept(Netlink::open().and_then(|netlink| netlink.path_mtus()), unseen);
        if there.routes > ROUTES_MAX {
            unseen.push(format!(
                "MTUs of routes: {} routes are too many to list within the cost that is allowed",
                there.routes
            ));
        } else {
            answers.route_mtus = kept(Netlink::open().and_then(|netlink| netlink.route_mtus()), unseen);
        }
        let all = kept(Netlink::open().and_then(|netlink| netlink.links()), unseen).unwrap_or_default();
        answers.kinds = all.into_iter().filter_map(|link| Some((link.name, link.kind?))).collect();
        for link in links {
            answers.nics.extend(kept(nic::ask(link), unseen).map(|nic| (link.clone(), nic)));
        }
        answers
    }
}

fn ports_taken((first, last): (u64, u64)) -> linux::Result<Vec<PortsTaken>> {
    let mut taken: BTreeMap<(IpAddr, SocketAddr), u64> = BTreeMap::new();
    each_tcp_socket(states::ALL & !states::LISTEN, |socket| {
        if (first..=last).contains(&socket.local.port().into()) && socket.peer.port() != 0 {
            *taken.entry((socket.local.ip(), socket.peer)).or_default() += 1;
        }
    })?;
    let many = taken.into_iter().filter(|(_, ports)| *ports >= PORTS_MIN);
    Ok(many.map(|((local, peer), ports)| PortsTaken { local, peer, ports }).collect())
}

/// The value, or a line in `unseen`.
pub(crate) fn kept<T>(result: linux::Result<T>, unseen: &mut Vec<String>) -> Option<T> {
    result.map_err(|error| unseen.push(format!("could not {error}"))).ok()
}
