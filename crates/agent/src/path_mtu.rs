//! How large a packet the way to each node carries, found by asking: echo requests that may not be fragmented.
//!
//! Routers that carry less say so, and many networks swallow what they say: TCP stalls then as soon as it sends full
//! packets. Nothing that a router says is believed here, only what comes back.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linux::icmp::EchoSocket;
use tokio::sync::watch;
use tracing::warn;

use crate::latest::send_if_new;

/// The addresses to ask, with the most that the way there could carry: the bytes of the link on which it begins.
pub(crate) type Targets = BTreeMap<IpAddr, u32>;
/// What the ways carry, in bytes of an IP packet. Addresses that do not answer are not in it.
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

/// Asks the targets: now, when there are others, and every `period`, since ways change. Where nothing has changed, that
/// is one packet to each, but for ways that carry less than their link: those are searched again. The sockets are in
/// the calling thread's network namespace.
pub(crate) fn start(targets: watch::Receiver<Targets>, period: Duration) -> watch::Receiver<PathMtus> {
    let (found, results) = watch::channel(PathMtus::new());
    let found = Arc::new(found);
    let mut sockets = Sockets::open();
    tokio::spawn(async move {
        let mut targets = targets;
        loop {
            let wanted = targets.borrow_and_update().clone();
            let known = found.borrow().clone();
            let (agent, so_far) = (targets.clone(), found.clone());
            let asking = tokio::task::spawn_blocking(move || {
                let is_unwanted = || agent.has_changed().is_err();
                let swept = sweep(&mut sockets, &wanted, &known, is_unwanted, |some| {
                    send_if_new(&so_far, some.clone());
                });
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

/// Asks the targets once, and waits until it is known what their ways carry. The sockets are in the calling thread's
/// network namespace.
pub(crate) fn search(targets: &Targets) -> PathMtus {
    sweep(&mut Sockets::open(), targets, &PathMtus::new(), || false, |_| ())
}

/// Without it the ways of that family count as carrying what their link does.
fn open(is_v6: bool) -> Option<EchoSocket> {
    let socket = EchoSocket::open(is_v6);
    socket.inspect_err(|why| warn!("path MTUs to other nodes are not measured: {why}")).ok()
}

struct Sockets {
    v4: Option<EchoSocket>,
    v6: Option<EchoSocket>,
    /// How many requests there were: by this number their answers are matched.
    requests: u32,
}

impl Sockets {
    /// Each begins with another number: all hear each other's answers.
    fn open() -> Sockets {
        let requests = RandomState::new().build_hasher().finish() as u32;
        Sockets { v4: open(false), v6: open(true), requests }
    }
}

/// Asks all targets until each answer is known, or no receiver is left. What was known of one that is silent now stays:
/// it may be busy. `tell` gets what is known each time that some more have been asked: a target that does not answer
/// takes seconds, and there may be a thousand.
fn sweep(
    sockets: &mut Sockets,
    targets: &Targets,
    known: &PathMtus,
    is_unwanted: impl Fn() -> bool,
    report: impl Fn(&PathMtus),
) -> PathMtus {
    let is_target = |(address, _): &(&IpAddr, &u32)| targets.contains_key(address);
    let mut found: PathMtus = known.iter().filter(is_target).map(|(address, mtu)| (*address, *mtu)).collect();
    let targets: Vec<(IpAddr, u32)> = targets.iter().map(|(address, most)| (*address, *most)).collect();
    for some in targets.chunks(AT_ONCE) {
        let mut searches: BTreeMap<IpAddr, Search> =
            some.iter().map(|(address, most)| (*address, Search::new(*address, *most))).collect();
        let mut sent = Sent::new();
        while !is_unwanted() && ask_once(sockets, &mut searches, &mut sent) {}
        found.extend(searches.into_iter().filter_map(|(address, search)| Some((address, search.found()?))));
        report(&found);
    }
    found
}

/// The requests of a sweep by their numbers: to whom each went, and how large it was.
type Sent = BTreeMap<u32, (IpAddr, u32)>;

/// One request to each whose search goes on, and the time for their answers; false if there is none. An answer to an
/// earlier one says as much: however late it is, so large a packet was carried.
fn ask_once(sockets: &mut Sockets, searches: &mut BTreeMap<IpAddr, Search>, sent: &mut Sent) -> bool {
    let mut open: BTreeSet<u32> = BTreeSet::new();
    let mut goes_on = false;
    for (address, search) in searches.iter_mut() {
        let Some(bytes) = search.size() else { continue };
        goes_on = true;
        let socket = if address.is_ipv6() { &sockets.v6 } else { &sockets.v4 };
        let Some(socket) = socket else {
            search.give_up();
            continue;
        };
        sockets.requests = sockets.requests.wrapping_add(1);
        let (id, sequence) = halves(sockets.requests);
        match socket.ask(*address, id, sequence, bytes) {
            Ok(true) => {
                sent.insert(sockets.requests, (*address, bytes));
                open.insert(sockets.requests);
            }
            Ok(false) => search.is_silent(),
            Err(_) => search.give_up(),
        }
    }
    let until = Instant::now() + PATIENCE;
    for socket in [&sockets.v4, &sockets.v6].into_iter().flatten() {
        while let Some(echo) = next_of(socket, &open, sent, until) {
            let number = u32::from(echo.id) << 16 | u32::from(echo.sequence);
            if let Some((address, bytes)) = sent.get(&number).copied().filter(|(to, _)| *to == echo.from) {
                open.remove(&number);
                searches.entry(address).and_modify(|search| search.is_answered(bytes));
            }
        }
    }
    for (address, bytes) in open.iter().filter_map(|number| sent.get(number)) {
        let search = searches.get_mut(address).filter(|search| search.size() == Some(*bytes));
        search.into_iter().for_each(Search::is_silent);
    }
    goes_on
}

/// The next answer, as long as one of this family is awaited.
fn next_of(
    socket: &EchoSocket,
    open: &BTreeSet<u32>,
    sent: &Sent,
    until: Instant,
) -> Option<linux::icmp::Echo> {
    let mut awaited = open.iter().filter_map(|number| sent.get(number));
    if !awaited.any(|(address, _)| address.is_ipv6() == socket.is_v6()) {
        return None;
    }
    socket.next_answer(until).ok().flatten()
}

fn halves(number: u32) -> (u16, u16) {
    ((number >> 16) as u16, number as u16)
}

/// The search for what the way to one address carries. All sizes are bytes of an IP packet.
///
/// It asks for the most that could be, since mostly that is it; then for the least, to know whether there are answers
/// at all; then for the middle between the largest size that was answered and the smallest that was not. Where no size
/// is left between them, it asks for the smallest unanswered one once more: that request was perhaps only lost, while
/// the link came up or a CPU had more packets than it takes, and the search would end a byte below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Search {
    most: u32,
    least: u32,
    /// The largest that came back.
    carries: Option<u32>,
    /// The smallest above that which did not.
    fails: Option<u32>,
    /// Requests of the present size without an answer.
    unanswered: u32,
    /// Nothing more is asked: all is known, or no target answers.
    is_over: bool,
}

impl Search {
    fn new(address: IpAddr, most: u32) -> Search {
        let least = if address.is_ipv6() { LEAST_V6 } else { LEAST_V4 };
        Search { most, least: least.min(most), carries: None, fails: None, unanswered: 0, is_over: false }
    }

    /// The size to ask for.
    fn size(&self) -> Option<u32> {
        match (self.carries, self.fails) {
            _ if self.is_over => None,
            (_, None) => Some(self.most),
            (None, Some(_)) => Some(self.least),
            (Some(carries), Some(fails)) if fails - carries > 1 => Some(carries + (fails - carries) / 2),
            (Some(_), Some(fails)) => Some(fails),
        }
    }

    /// A packet of so many bytes came back.
    fn is_answered(&mut self, bytes: u32) {
        if self.carries.is_some_and(|carries| bytes <= carries) {
            return;
        }
        self.unanswered = 0;
        self.carries = Some(bytes);
        self.fails = self.fails.filter(|fails| *fails > bytes);
        self.is_over = bytes == self.most;
    }

    fn is_silent(&mut self) {
        let Some(size) = self.size() else { return };
        self.unanswered += 1;
        if self.unanswered < ATTEMPTS {
            return;
        }
        self.unanswered = 0;
        let is_known = self.fails == Some(size) || size == self.least;
        if is_known {
            self.is_over = true;
        } else {
            self.fails = Some(size);
        }
    }

    fn give_up(&mut self) {
        (self.carries, self.is_over) = (None, true);
    }

    /// What it carries, if all is known.
    fn found(&self) -> Option<u32> {
        self.carries.filter(|_| self.is_over)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a search finds on a way that carries so much, and with how many requests.
    fn searched(address: &str, most: u32, carries: u32, is_lost: impl Fn(u32) -> bool) -> (Option<u32>, u32) {
        let mut search = Search::new(address.parse().unwrap(), most);
        let mut requests = 0;
        while let Some(size) = search.size() {
            requests += 1;
            if size <= carries && !is_lost(requests) {
                search.is_answered(size);
            } else {
                search.is_silent();
            }
            assert!(requests < 100, "{search:?}");
        }
        (search.found(), requests)
    }

    #[test]
    fn a_way_that_carries_all_takes_one_request() {
        assert_eq!(searched("192.0.2.1", 1500, 1500, |_| false), (Some(1500), 1));
        assert_eq!(
            searched("192.0.2.1", 9000, 9000, |requests| requests < 3),
            (Some(9000), 3),
            "two are lost"
        );
    }

    #[test]
    fn who_never_answers_is_unknown() {
        assert_eq!(searched("192.0.2.1", 1500, 0, |_| false), (None, 6));
        assert_eq!(searched("2001:db8::1", 1280, 0, |_| false), (None, 3), "it carries no less");
    }

    /// Nothing comes back for a while, as before a link is up: the most is lost, and all that is
    /// asked afterwards is not.
    #[test]
    fn what_was_lost_once_is_asked_again_before_it_counts() {
        assert_eq!(searched("192.0.2.1", 1500, 1500, |requests| requests <= 3).0, Some(1500));
        assert_eq!(searched("192.0.2.1", 1500, 1400, |requests| requests <= 3).0, Some(1400));
        // In the middle of the search, too.
        assert_eq!(searched("192.0.2.1", 1500, 1400, |requests| (5..8).contains(&requests)).0, Some(1400));
        assert_eq!(searched("2001:db8::1", 1500, 1500, |requests| requests <= 3).0, Some(1500));
    }

    #[test]
    fn an_answer_counts_however_late_it_is() {
        let mut search = Search::new("192.0.2.1".parse().unwrap(), 1500);
        (0..ATTEMPTS).for_each(|_| search.is_silent());
        assert_eq!(search.size(), Some(LEAST_V4));
        search.is_answered(1500);
        assert_eq!((search.size(), search.found()), (None, Some(1500)));
        search.is_answered(LEAST_V4);
        assert_eq!((search.size(), search.found()), (None, Some(1500)), "an answer that is older still");
    }

    #[test]
    fn what_is_known_is_reported_before_all_are_asked_and_what_is_silent_stays_known() {
        let address = |number: u32| IpAddr::from((0xc000_0200 + number).to_be_bytes());
        let targets: Targets = (0..2 * AT_ONCE as u32 + 1).map(|number| (address(number), 1500)).collect();
        let known = PathMtus::from([(address(7), 1400), (address(9999), 1300)]);
        let reports = std::cell::RefCell::new(Vec::new());
        let report = |some: &PathMtus| reports.borrow_mut().push(some.clone());
        let mut none = Sockets { v4: None, v6: None, requests: 0 };
        let swept = sweep(&mut none, &targets, &known, || false, report);
        assert_eq!(swept, PathMtus::from([(address(7), 1400)]), "the other one is no target any more");
        assert_eq!(*reports.borrow(), [swept.clone(), swept.clone(), swept]);
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
