//! Draws what happens to a request, and knows what time it is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use linux::clock;
use stats::Random;

use super::Injected;
use super::ending::Ending;
use super::faults::{Faults, Trickle};
use crate::poller::Tag;

/// Datagrams that wait for their instant, of one thread. What comes beyond is dropped, as by a full socket.
const DATAGRAMS_MAX: usize = 65_536;

/// How often the stop flag is checked during a freeze.
const NAP: Duration = Duration::from_millis(50);

/// The faults of one thread, at work.
#[derive(Debug)]
pub(super) struct Injector {
    faults: Faults,
    random: Random,
    started_ns: u64,
    timers: BTreeMap<(u64, u64), Due>,
    /// Timers set so far; of two for the same instant the first comes first.
    set: u64,
    datagrams: usize,
    pub(super) injected: Injected,
}

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Answer,
    /// An answer with status 503.
    Error,
    /// Half an answer, and the connection ends so.
    Half(Ending),
}

/// An action at a given instant.
#[derive(Debug, Clone)]
pub(super) enum Due {
    /// Something leaves the line of the peer with this tag, if it is still there.
    Peer(Tag),
    /// A delayed datagram is sent.
    Datagram(Datagram),
}

/// The answer to a datagram.
#[derive(Debug, Clone)]
pub(super) struct Datagram {
    /// From which of the listeners.
    pub(super) listener: usize,
    pub(super) to: SocketAddr,
    /// The first bytes of the request.
    pub(super) head: [u8; 8],
    pub(super) head_bytes: usize,
    pub(super) answer_bytes: usize,
}

impl Injector {
    /// For the calling thread, which is number `index`; `None` if there are no faults.
    pub(super) fn start(faults: &Faults, index: usize, started_ns: u64) -> Option<Injector> {
        faults.any().then(|| Injector::new(faults.clone(), index, started_ns))
    }

    fn new(faults: Faults, index: usize, started_ns: u64) -> Injector {
        Injector {
            random: Random::from_seed(faults.seed.wrapping_add(index as u64)),
            faults,
            started_ns,
            timers: BTreeMap::new(),
            set: 0,
            datagrams: 0,
            injected: Injected::default(),
        }
    }

    /// What happens to the next request, and when it is answered if it came at this instant.
    pub(super) fn draw(&mut self, now_ns: u64) -> (Fate, u64) {
        let (fate, delay) = (self.random.unit(), self.random.unit());
        let Faults { errors, cuts, resets, .. } = self.faults;
        let fate = match fate {
            _ if fate < errors => Fate::Error,
            _ if fate < errors + cuts => Fate::Half(Ending::Cut),
            _ if fate < errors + cuts + resets => Fate::Half(Ending::Reset),
            _ => Fate::Answer,
        };
        let delay = self.faults.delay.as_ref().map_or(Duration::ZERO, |delays| delays.quantile(delay));
        match fate {
            // An answer of raw bytes has no status that could be another.
            Fate::Answer | Fate::Error => {}
            Fate::Half(Ending::Reset) => self.injected.resets += 1,
            Fate::Half(Ending::Cut | Ending::Close) => self.injected.cuts += 1,
        }
        self.injected.delays += u64::from(!delay.is_zero());
        (fate, now_ns.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)))
    }

    pub(super) fn trickle(&self) -> Option<Trickle> {
        self.faults.trickle
    }

    /// Waits while there is a freeze, and returns the time.
    pub(super) fn sit_out_freeze(&mut self, ends: &dyn Fn() -> bool) -> u64 {
        let now_ns = clock::now_ns();
        let Some(freeze) = &self.faults.freeze else { return now_ns };
        let Some(end_ns) = freeze.end_ns(now_ns - self.started_ns) else { return now_ns };
        self.injected.freezes += 1;
        let end_ns = self.started_ns + end_ns;
        loop {
            let rest_ns = end_ns.saturating_sub(clock::now_ns());
            if rest_ns == 0 || ends() {
                return clock::now_ns();
            }
            thread::sleep(Duration::from_nanos(rest_ns).min(NAP));
        }
    }

    /// Has the peer with this tag served at an instant.
    pub(super) fn wake_peer(&mut self, at_ns: u64, tag: Tag) {
        self.set_timer(at_ns, Due::Peer(tag));
    }

    /// Has a datagram answered at an instant. False: too many wait already.
    pub(super) fn hold_datagram(&mut self, at_ns: u64, datagram: Datagram) -> bool {
        let room = self.datagrams < DATAGRAMS_MAX;
        if room {
            self.datagrams += 1;
            self.set_timer(at_ns, Due::Datagram(datagram));
        }
        room
    }

    fn set_timer(&mut self, at_ns: u64, due: Due) {
        self.set += 1;
        self.timers.insert((at_ns, self.set), due);
    }

    /// Removes and returns the next action that is due.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<Due> {
        let first = self.timers.first_entry().filter(|timer| timer.key().0 <= now_ns)?;
        let due = first.remove();
        if let Due::Datagram(_) = &due {
            self.datagrams -= 1;
        }
        Some(due)
    }

    /// How long to wait for other things, at most.
    pub(super) fn timeout_ns(&self, longest_ns: u64) -> u64 {
        let Some(((at_ns, _), _)) = self.timers.first_key_value() else { return longest_ns };
        at_ns.saturating_sub(clock::now_ns()).min(longest_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::super::faults::Delay;
    use super::*;

    const MS: u64 = 1_000_000;

    fn injector(faults: Faults) -> Injector {
        Injector::new(faults, 0, 0)
    }

    #[test]
    fn a_seed_is_a_fate() {
        let delay = Some(Delay::Exponential { mean: Duration::from_millis(1) });
        let faults = Faults { delay, errors: 0.1, cuts: 0.1, resets: 0.1, seed: 7, ..Faults::default() };
        let drawn = |faults: &Faults, index| {
            let mut injector = Injector::new(faults.clone(), index, 0);
            (0..1000).map(|_| injector.draw(0)).collect::<Vec<_>>()
        };
        let first = drawn(&faults, 0);
        assert_eq!(drawn(&faults, 0), first);
        assert_ne!(drawn(&faults, 1), first);
        // Other shares leave the delays as they were.
        let without = drawn(&Faults { errors: 0.0, ..faults }, 0);
        let delays = |drawn: &[(Fate, u64)]| drawn.iter().map(|(_, due_ns)| *due_ns).collect::<Vec<_>>();
        assert_eq!(delays(&without), delays(&first));
        assert!(without.iter().all(|(fate, _)| *fate != Fate::Error));
    }

    #[test]
    fn shares_and_delays_are_those_asked_for() {
        let delay = Some(Delay::Exponential { mean: Duration::from_millis(1) });
        let mut injector =
            injector(Faults { delay, errors: 0.2, cuts: 0.1, resets: 0.05, ..Faults::default() });
        let drawn: Vec<_> = (0..100_000).map(|_| injector.draw(5 * MS)).collect();
        let sum_ns: u64 = drawn.iter().map(|(_, due_ns)| due_ns - 5 * MS).sum();
        // Six standard deviations.
        assert!((sum_ns / 100_000).abs_diff(MS) < MS / 50, "{sum_ns}");
        let errors = drawn.iter().filter(|(fate, _)| *fate == Fate::Error).count();
        let Injected { cuts, resets, delays, .. } = injector.injected;
        assert!(errors.abs_diff(20_000) < 760, "{errors}");
        assert!(cuts.abs_diff(10_000) < 570, "{cuts}");
        assert!(resets.abs_diff(5_000) < 414, "{resets}");
        assert_eq!(delays, 100_000);
    }

    #[test]
    fn timers_come_in_order_and_not_before_their_time() {
        let mut injector = injector(Faults::default());
        for (at_ns, index) in [(30, 0), (10, 1), (30, 2), (20, 3)] {
            injector.wake_peer(at_ns, Tag { index, generation: 0 });
        }
        let mut due = |now_ns| match injector.take_due(now_ns) {
            Some(Due::Peer(tag)) => Some(tag.index),
            Some(Due::Datagram(_)) => panic!("none was set"),
            None => None,
        };
        assert_eq!(
            [9, 10, 19, 100, 100, 100, 100].map(&mut due),
            [None, Some(1), None, Some(3), Some(0), Some(2), None]
        );
    }

    #[test]
    fn datagrams_that_wait_have_a_limit() {
        let mut injector = injector(Faults::default());
        let to = SocketAddr::from(([127, 0, 0, 1], 1));
        let datagram = || Datagram { listener: 0, to, head: [0; 8], head_bytes: 8, answer_bytes: 64 };
        assert!((0..DATAGRAMS_MAX).all(|_| injector.hold_datagram(1, datagram())));
        assert!(!injector.hold_datagram(1, datagram()));
        assert!(injector.take_due(1).is_some());
        assert!(injector.hold_datagram(1, datagram()));
    }
}
