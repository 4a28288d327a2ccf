//! The way to the API server, where that is one of the Services whose calls this node leads. If its endpoints become
//! others unseen, calls of it are led to where nothing answers, and only the API server could tell the new ones. So
//! they are left to the node for a while, on which kube-proxy may have learned of them in its own way. An agent that
//! begins meanwhile does not know what led them, and leaves them to the node until the API server answers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::change::Change;

/// For so long calls are led, and for so long they are left to the node, by turns: it may be that nothing but this
/// agent leads them, and that the API server was away by itself.
const TURN: Duration = Duration::from_secs(30);

/// Whether the API server answers.
#[derive(Debug, Default)]
pub(super) struct WayToServer {
    /// The kinds of objects for which it does not, with the address that was called.
    silent: BTreeMap<&'static str, SocketAddr>,
    /// Since when that is so of one or another.
    since: Option<Instant>,
}

impl WayToServer {
    /// Notes whether a call about a kind was answered, and if not, at which address.
    pub(super) fn note(
        &mut self,
        kind: &'static str,
        answered: Result<(), SocketAddr>,
        now: Instant,
    ) -> Change {
        let before = self.unled(now);
        match answered {
            Ok(()) => drop(self.silent.remove(kind)),
            Err(at) => drop(self.silent.insert(kind, at)),
        }
        // All kinds are to be read before calls are led as they were: each is read over a connection of its own.
        self.since = (!self.silent.is_empty()).then(|| self.since.unwrap_or(now));
        if self.unled(now) == before { Change::Nothing } else { Change::Snapshot }
    }

    /// The address whose calls are not to be led now.
    pub(super) fn unled(&self, now: Instant) -> Option<SocketAddr> {
        let turns = (now - self.since?).as_secs() / TURN.as_secs();
        self.silent.values().next().copied().filter(|_| turns % 2 == 1)
    }

    /// When that changes by itself.
    pub(super) fn next_turn(&self, now: Instant) -> Option<Instant> {
        let since = self.since?;
        let turns = (now - since).as_secs() / TURN.as_secs();
        Some(since + TURN * u32::try_from(turns + 1).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_a_server_that_does_not_answer_are_led_and_left_by_turns() {
        let mut way = WayToServer::default();
        let at = SocketAddr::from(([10, 96, 0, 1], 443));
        let begun = Instant::now();
        let later = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!((way.unled(begun), way.next_turn(begun)), (None, None));
        assert_eq!(way.note("node", Err(at), begun), Change::Nothing);
        assert_eq!(way.note("EndpointSlice", Err(at), later(3)), Change::Nothing);
        let unled = [0, 29, 30, 59, 60, 89, 90].map(|seconds| way.unled(later(seconds)).is_some());
        assert_eq!(unled, [false, false, true, true, false, false, true]);
        let turns = [0, 29, 30, 61].map(|seconds| way.next_turn(later(seconds)).unwrap());
        assert_eq!(turns, [30, 30, 60, 90].map(later));
        // One of the two gets through.
        assert_eq!(way.note("node", Ok(()), later(31)), Change::Nothing);
        assert_eq!(way.note("EndpointSlice", Ok(()), later(32)), Change::Snapshot);
        assert_eq!((way.unled(later(33)), way.next_turn(later(33))), (None, None));
    }
}
