//! How large a packet the way to each node carries, found by asking: echo requests that may not be fragmented.
//!
//! Routers that carry less say so, and many networks swallow what they say: TCP stalls then as soon as it sends full
//! packets. Nothing that a router says is believed here, only what comes back.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use linux::icmp::EchoSocket;
use tokio::sync::watch;
use tracing::warn;

use crate::latest::send_if_new;

/// The addresses to ask, with the most that the way there could carry: the bytes of the link on which it begins.
pub(crate) type Targets = BTreeMap<IpAddr, u32>;
/// What the ways carry, in bytes of an IP packet. Who does not answer is not in it.
pub(crate) type PathMtus = BTreeMap<IpAddr, u32>;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(300);
/// A size that has had no answer so often is not carried.
const ATTEMPTS: u32 = 3;
/// So many are asked at the same time, that their answers find room.
const AT_ONCE: usize = 128;
/// What every link carries: RFC 791 §3.1, RFC 8200 §5.
const LEAST_V4: u32 = 576;
const LEAST_V6: u32 = 1280;

/// Asks the targets: now, when there are others, and every `period`, since ways change. Where nothing has changed, that is
/// one packet to each. The sockets are in the calling thread's network namespace.
pub(crate) fn start(targets: watch::Receiver<Targets>, period: Duration) -> watch::Receiver<PathMtus> {
    let (found, results) = watch::channel(PathMtus::new());
    let mut sockets = Sockets::open();
    tokio::spawn(async move {
        let mut targets = targets;
        loop {
            let wanted = targets.borrow_and_update().clone();
            let known = found.borrow().clone();
            let agent = targets.clone();
            let asking = tokio::task::spawn_blocking(move || {
                let swept = sweep(&mut sockets, &wanted, &known, || agent.has_changed().is_err());
                (sockets, swept)
            });
            let Ok((back, swept)) = asking.await else { return };
            sockets = back;
            send_if_new(&found, swept);
            tokio::select! {
                changed = targets.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(period) => {}
            }
        }
    });
    results
}

/// Asks the targets once, for who waits for what their ways carry. The sockets are in the calling thread's network namespace.
pub(crate) fn search(targets: &Targets) -> PathMtus {
    sweep(&mut Sockets::open(), targets, &PathMtus::new(), || false)
}

/// Without it the ways of that family count as carrying what their link does.
fn open(is_v6: bool) -> Option<EchoSocket> {
    let socket = EchoSocket::open(is_v6);
    socket.inspect_err(|why| warn!("what the ways to other nodes carry is not asked: {why}")).ok()
}

struct Sockets {
    v4: Option<EchoSocket>,
    v6: Option<EchoSocket>,
    /// How many requests there were: by this number their answers are matched.
    asked: u32,
}

impl Sockets {
    /// Each begins with another number: all hear each other's answers.
    fn open() -> Sockets {
        let asked = RandomState::new().build_hasher().finish() as u32;
        Sockets { v4: open(false), v6: open(true), asked }
    }
}

/// Asks all targets until each answer is known, or no receiver is left. What was known of one that is silent now
/// stays: it may be busy.
fn sweep(
    sockets: &mut Sockets,
    targets: &Targets,
    known: &PathMtus,
    is_unwanted: impl Fn() -> bool,
) -> PathMtus {
    let mut found = PathMtus::new();
    let targets: Vec<(IpAddr, u32)> = targets.iter().map(|(address, most)| (*address, *most)).collect();
    for some in targets.chunks(AT_ONCE) {
        let mut searches: BTreeMap<IpAddr, Search> =
            some.iter().map(|(address, most)| (*address, Search::new(*address, *most))).collect();
        while !is_unwanted() && ask_once(sockets, &mut searches) {}
        for (address, search) in searches {
            let before = known.get(&address).copied();
            found.extend(search.found().or(before).map(|mtu| (address, mtu)));
        }
    }
    found
}

/// One request to each whose search goes on, and the time for their answers; false if there is none.
fn ask_once(sockets: &mut Sockets, searches: &mut BTreeMap<IpAddr, Search>) -> bool {
    let mut open: BTreeMap<u32, IpAddr> = BTreeMap::new();
    let mut goes_on = false;
    for (address, search) in searches.iter_mut() {
        let Some(bytes) = search.size() else { continue };
        goes_on = true;
        let socket = if address.is_ipv6() { &sockets.v6 } else { &sockets.v4 };
        let Some(socket) = socket else {
            search.give_up();
            continue;
        };
        sockets.asked = sockets.asked.wrapping_add(1);
        let (id, sequence) = halves(sockets.asked);
        match socket.ask(*address, id, sequence, bytes) {
            Ok(true) => drop(open.insert(sockets.asked, *address)),
            Ok(false) => search.is_silent(),
            Err(_) => search.give_up(),
        }
    }
    let until = Instant::now() + PATIENCE;
    for socket in [&sockets.v4, &sockets.v6].into_iter().flatten() {
        while let Some(echo) = next_of(socket, &open, until) {
            let number = u32::from(echo.id) << 16 | u32::from(echo.sequence);
            if open.get(&number) == Some(&echo.from) {
                open.remove(&number);
                searches.entry(echo.from).and_modify(Search::is_answered);
            }
        }
    }
    for address in open.into_values() {
        searches.entry(address).and_modify(Search::is_silent);
    }
    goes_on
}

/// The next answer, as long as one of this family is awaited.
fn next_of(socket: &EchoSocket, open: &BTreeMap<u32, IpAddr>, until: Instant) -> Option<linux::icmp::Echo> {
    if !open.values().any(|address| address.is_ipv6() == socket.is_v6()) {
        return None;
    }
    socket.next_answer(until).ok().flatten()
}

fn halves(number: u32) -> (u16, u16) {
    ((number >> 16) as u16, number as u16)
}

/// The search for what the way to one address carries. All sizes are bytes of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Search {
    most: u32,
    least: u32,
    stage: Stage,
    /// Requests of the present size without an answer.
    unanswered: u32,
}

/// The size that is tried next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The most that could be, since mostly that is it.
    Most,
    /// The least, to know whether the node answers at all.
    Least,
    /// Half of what is left between the largest that came back and the smallest that did not.
    Between { carries: u32, fails: u32 },
    /// Nothing: all is known, or no target answers.
    Over(Option<u32>),
}

impl Search {
    fn new(address: IpAddr, most: u32) -> Search {
        let least = if address.is_ipv6() { LEAST_V6 } else { LEAST_V4 };
        Search { most, least: least.min(most), stage: Stage::Most, unanswered: 0 }
    }

    /// The size to ask for.
    fn size(&self) -> Option<u32> {
        match self.stage {
            Stage::Most => Some(self.most),
            Stage::Least => Some(self.least),
            Stage::Between { carries, fails } => Some(carries + (fails - carries) / 2),
            Stage::Over(_) => None,
        }
    }

    fn is_answered(&mut self) {
        let Some(size) = self.size() else { return };
        self.unanswered = 0;
        self.stage = match self.stage {
            Stage::Least => between(size, self.most),
            Stage::Between { fails, .. } => between(size, fails),
            Stage::Most | Stage::Over(_) => Stage::Over(Some(size)),
        };
    }

    fn is_silent(&mut self) {
        let Some(size) = self.size() else { return };
        self.unanswered += 1;
        if self.unanswered < ATTEMPTS {
            return;
        }
        self.unanswered = 0;
        self.stage = match self.stage {
            Stage::Most if self.least < self.most => Stage::Least,
            Stage::Between { carries, .. } => between(carries, size),
            Stage::Most | Stage::Least | Stage::Over(_) => Stage::Over(None),
        };
    }

    fn give_up(&mut self) {
        self.stage = Stage::Over(None);
    }

    fn found(&self) -> Option<u32> {
        if let Stage::Over(found) = self.stage { found } else { None }
    }
}

fn between(carries: u32, fails: u32) -> Stage {
    if fails - carries > 1 { Stage::Between { carries, fails } } else { Stage::Over(Some(carries)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a search finds on a way that carries so much, and with how many requests.
    fn searched(address: &str, most: u32, carries: u32, is_lost: impl Fn(u32) -> bool) -> (Option<u32>, u32) {
        let mut search = Search::new(address.parse().unwrap(), most);
        let mut asked = 0;
        while let Some(size) = search.size() {
            asked += 1;
            if size <= carries && !is_lost(asked) {
                search.is_answered();
            } else {
                search.is_silent();
            }
            assert!(asked < 100, "{search:?}");
        }
        (search.found(), asked)
    }

    #[test]
    fn a_way_that_carries_all_takes_one_request() {
        assert_eq!(searched("192.0.2.1", 1500, 1500, |_| false), (Some(1500), 1));
        assert_eq!(searched("192.0.2.1", 9000, 9000, |asked| asked < 3), (Some(9000), 3), "two are lost");
    }

    #[test]
    fn who_never_answers_is_unknown() {
        assert_eq!(searched("192.0.2.1", 1500, 0, |_| false), (None, 6));
        assert_eq!(searched("2001:db8::1", 1280, 0, |_| false), (None, 3), "it carries no less");
    }

    proptest! {
        #[test]
        fn what_a_way_carries_is_found_to_the_byte(most in 1280..=9216_u32, less in 0..8000_u32, v6 in any::<bool>()) {
            let (address, least) = if v6 { ("2001:db8::1", LEAST_V6) } else { ("192.0.2.1", LEAST_V4) };
            let carries = (most.saturating_sub(less)).max(least);
            // One in three is lost, and never three in a row.
            prop_assert_eq!(searched(address, most, carries, |asked| asked % 3 == 1).0, Some(carries));
        }
    }
}
