//! What the kernel reports by system calls instead of files: sockets, queueing disciplines, cards.

use std::collections::BTreeMap;

use linux::netlink::{PathMtu, QdiscCounters, RouteMtu};
use linux::nic::{self, Nic};
use linux::sock_diag::{TcpSocket, states, tcp_sockets};
use linux::{IfName, Netlink};
use serde::{Deserialize, Serialize};

/// Answers of one moment. `None`: it could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KernelAnswers {
    /// TCP sockets, listeners and ended ones among them.
    pub sockets: Option<Vec<TcpSocket>>,
    /// Queueing disciplines with their counts.
    pub qdiscs: Option<Vec<QdiscCounters>>,
    /// Cards by the name of their link.
    pub nics: BTreeMap<IfName, Nic>,
    /// Path MTUs that the kernel learnt, IPv4 and IPv6.
    #[serde(default)]
    pub path_mtus: Option<Vec<PathMtu>>,
    /// Routes with an MTU of their own, IPv4 and IPv6.
    #[serde(default)]
    pub route_mtus: Option<Vec<RouteMtu>>,
}

/// With more sockets than these a list costs more than doctor may: about 1 µs each in the kernel and as much here.
pub(crate) const SOCKETS_MAX: u64 = 30_000;
/// The same of routes, of which a router of the Internet has a million.
const ROUTES_MAX: u64 = 30_000;

/// How much there is to list, according to files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct There {
    /// TCP sockets, IPv4 and IPv6.
    pub(crate) sockets: u64,
    /// Routes, as far as files list them.
    pub(crate) routes: u64,
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
        for link in links {
            answers.nics.extend(kept(nic::ask(link), unseen).map(|nic| (link.clone(), nic)));
        }
        answers
    }
}

/// The value, or a line in `unseen`.
pub(crate) fn kept<T>(result: linux::Result<T>, unseen: &mut Vec<String>) -> Option<T> {
    result.map_err(|error| unseen.push(format!("could not {error}"))).ok()
}
