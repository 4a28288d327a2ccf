//! Translations of UDP that came or went in a run, and the connections that go on as it was before.
//!
//! Rules of address translation see the first packet of a connection only. A client that sends from one port for ever,
//! as resolvers and senders of statistics do, stays with its first answer: what led to a pod leads to its address when
//! the pod is gone, and what came while nothing was published goes to the node itself for good. So netfilter is made to
//! forget such connections, and the rules see their next packet. Connections of TCP are left. They end by themselves:
//! nobody at the address knows them, and the client makes a new one.
//!
//! It is done once, behind the last step: netfilter's table has no order by port, and all of it is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use linux::netlink::{Conntrack, TrackedUdp};
use linux::nft::{Datum, Element};

use crate::kernel::OpenNetns;
use crate::{Fault, Kernel, Place, Placed, Step};

/// How many ports netfilter is asked for one by one, at most; for more, all of UDP comes in one answer. With 200,000
/// connections the first takes 53 ms of a CPU for a port, the second 340 ms (Linux 6.18).
const QUESTIONS_MAX: usize = 6;

/// What a step has done to the way of UDP packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed {
    translation: Translation,
    is_made: bool,
}

/// What an element of a map says of UDP packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Translation {
    /// The destination's address; `None`: any that is the namespace's own.
    at: Option<IpAddr>,
    port: u16,
    target: SocketAddr,
}

impl Changed {
    /// What a step that was done has changed; `None` if it is about something else than UDP.
    pub(crate) fn made(placed: &Placed) -> Option<Changed> {
        Some(Changed { translation: Translation::of(placed)?, is_made: true })
    }

    /// Likewise one that was undone.
    pub(crate) fn gone(placed: &Placed) -> Option<Changed> {
        Some(Changed { translation: Translation::of(placed)?, is_made: false })
    }

    /// Whether a connection goes on as it was before, if its destination is the namespace's own where that counts.
    fn outdates(&self, connection: &TrackedUdp) -> bool {
        let TrackedUdp { to, answered_from, .. } = *connection;
        let Translation { at, port, target } = self.translation;
        let is_meant = to.port() == port && at.is_none_or(|at| at == to.ip());
        // One to the target itself never went by a translation.
        is_meant
            && if self.is_made { answered_from != target } else { answered_from == target && to != target }
    }

    fn outdates_among(&self, connection: &TrackedUdp, own: &[IpNet]) -> bool {
        let is_own = || own.iter().any(|prefix| prefix.contains(&connection.to.ip()));
        self.outdates(connection) && (!self.is_made || is_own())
    }
}

impl Translation {
    fn of(placed: &Placed) -> Option<Translation> {
        let Step::AddNftElement(Element { key, value, .. }) = &placed.step else { return None };
        let (at, port) = match *key.as_slice() {
            [Datum::Udp, Datum::Port(port)] => (None, port),
            [Datum::Address(at), Datum::Udp, Datum::Port(port)] => (Some(at), port),
            _ => return None,
        };
        let [Datum::Address(address), Datum::Port(to)] = *value.as_slice() else { return None };
        Some(Translation { at, port, target: SocketAddr::new(address, to) })
    }
}

/// Forgets the connections that go on as it was before. Nothing is opened or asked where nothing has changed.
///
/// Where a translation was removed, they are those that it had led; where one was made, those to an address of the
/// namespace that do not go to its target. Others of the same port, which are forwarded, are left.
///
/// # Errors
/// The kernel does not answer, or refuses.
pub(crate) fn forget_outdated(
    changed: BTreeMap<Place, Vec<Changed>>,
    kernel: &mut Kernel,
) -> linux::Result<()> {
    for (place, changed) in changed {
        if kernel.fault == Fault::InTracking {
            return Err(linux::Error::new("list connections", io::Error::other("a fault was injected")));
        }
        let opened = kernel.at(&place)?;
        let conntrack = Conntrack::open_in(&opened.netns)?;
        for ipv6 in [false, true] {
            let is_meant = |one: &Changed| one.translation.target.is_ipv6() == ipv6;
            let changed: Vec<Changed> = changed.iter().copied().filter(is_meant).collect();
            forget_of_family(ipv6, &changed, &conntrack, opened)?;
        }
    }
    Ok(())
}

fn forget_of_family(
    ipv6: bool,
    changed: &[Changed],
    conntrack: &Conntrack,
    opened: &OpenNetns,
) -> linux::Result<()> {
    let ports: BTreeSet<u16> = changed.iter().map(|one| one.translation.port).collect();
    let mut old = Vec::new();
    if ports.len() > QUESTIONS_MAX {
        old = conntrack.udp(ipv6, None)?;
    } else {
        for port in ports {
            old.extend(conntrack.udp(ipv6, Some(port))?);
        }
    }
    old.retain(|connection| changed.iter().any(|one| one.outdates(connection)));
    if !old.is_empty() && changed.iter().any(|one| one.is_made) {
        let own = opened.netlink.own_prefixes(ipv6)?;
        old.retain(|connection| changed.iter().any(|one| one.outdates_among(connection, &own)));
    }
    old.iter().try_for_each(|connection| conntrack.untrack(connection).map(drop))
}
