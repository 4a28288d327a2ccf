//! How many connections a client has, and what can be had on them.

use std::time::Duration;

use crate::{Address, Ask, HttpVersion, LoadError, Target};

/// How many connections a client has, and how much each takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Connections that are made before the first request, at least one.
    pub connections: usize,
    /// Connections that there may be when a run opens more ([`crate::WhenBusy::Grow`]).
    pub connections_max: usize,
    /// Requests that may be open on one connection at a time, at least one. More than one is HTTP pipelining.
    pub depth: usize,
    /// How long the connections may take to come about.
    pub timeout: Duration,
    /// The kernel time-stamps packets, to separate the time on the wire from the client's own. For plain TCP and
    /// UDP with a depth of one; costs two system calls a request.
    pub stamps: bool,
    /// Each request opens a new connection, and its time includes that. The server is asked to close it, as by a
    /// client without persistent connections, so ports become free at once. Needs a depth of one.
    pub fresh: bool,
}

impl Pool {
    /// A number of connections, one request on each at a time, no more than those.
    pub fn of(connections: usize, timeout: Duration) -> Pool {
        Pool { connections, connections_max: connections, depth: 1, timeout, stamps: false, fresh: false }
    }

    /// Whether a target permits such connections, and requests on them.
    pub(crate) fn check(&self, target: &Target) -> Result<(), LoadError> {
        let refused = |why| Err(LoadError::Shape(why));
        let connections_max = self.connections_max.max(self.connections);
        if self.connections == 0 || self.depth == 0 || u32::try_from(connections_max).is_err() {
            return refused("a client needs at least one connection");
        }
        if self.fresh && (self.depth > 1 || matches!(target.address, Address::Udp(_))) {
            return refused("a connection for each request carries one, and UDP has none");
        }
        // A stamp is of the last packet in its direction, and a handshake has packets in both.
        if self.stamps
            && (self.depth > 1
                || self.fresh
                || target.tls.is_some()
                || matches!(target.address, Address::Unix(_) | Address::Verbs(_)))
        {
            return refused(
                "packets are stamped for plain TCP and UDP, one request at a time on a connection that stays",
            );
        }
        if matches!(target.ask, Ask::Grpc { .. }) && (self.depth > 1 || self.fresh || self.stamps) {
            return refused("a call of gRPC is the only one on a connection that stays, and is not stamped");
        }
        if matches!(target.address, Address::Verbs(_)) && (self.depth > 1 || self.fresh) {
            return refused("a message by RDMA verbs is the only one on a connection that stays");
        }
        let is_old = |ask: &Ask| match ask {
            Ask::Http(requests) => requests.iter().any(|request| request.version == HttpVersion::Http10),
            Ask::Raw(_) | Ask::Grpc { .. } => false,
        };
        if !self.fresh && is_old(&target.ask) {
            return refused("HTTP/1.0 ends the connection with the answer: it takes one for each request");
        }
        Ok(())
    }
}
