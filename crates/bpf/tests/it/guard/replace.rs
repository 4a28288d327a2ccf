//! Replaces the guard while pods send, from their own addresses and from others'.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bpf::Attached;
use bpf::forward::{Counter, Program};
use bpf::guard::{self, FORMAT, Replaced};
use libbpf_rs::MapType;
use linux::IfName;
use testkit::run;

use super::{OTHER, Scene};
use crate::datagrams::{AHEAD, LOST, echo, exchange, socket};
use crate::node::{ONE, TWO, far};
use crate::pinned::{self, State, pin, pin_instead};
use crate::run::Verdict;

const TIMES: u32 = 20;
const PORT: u16 = 4001;
/// Where forged datagrams are sent.
const VICTIM: u16 = 4009;
/// An address that no pod was given.
const FORGED: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 99);

impl Scene {
    /// Lets the kernel forward between the two pods, whatever address a packet is from, and attaches the guard to both
    /// links.
    fn forwarding(by_filter: bool) -> Option<(Scene, [Attached; 2])> {
        let scene = Scene::new()?;
        guard::add(&scene.folder, &scene.interface(&TWO, OTHER)).expect("the maps have room");
        let node = &scene.node;
        node.address_pods();
        run(&node.world.open(ONE.link), "ip", &["address", "add", &format!("{FORGED}/32"), "dev", "eth0"]);
        for pod in [ONE, TWO] {
            node.ip(&format!("route add {} dev {}", pod.v4, pod.link));
            node.ip(&format!("neighbour add {} lladdr {} dev {}", pod.v4, pod.mac, pod.link));
        }
        // Else the kernel itself might drop what is forged.
        for link in ["all", ONE.link] {
            run(&node.netns, "sysctl", &["-qw", &format!("net.ipv4.conf.{link}.rp_filter=0")]);
        }
        let attached = [ONE.link, TWO.link].map(|link| scene.attach(link, by_filter));
        Some((scene, attached))
    }

    fn attach(&self, link: &str, by_filter: bool) -> Attached {
        let (program, index) = (Program::Guard.pin(&self.folder), self.node.index(link));
        let place = Program::Guard.link_pin(&self.folder, &IfName::new(link).expect("a sound name"));
        let attached = self.node.netns.run(|| match by_filter {
            true => bpf::attach_filter(&program, index).map(|()| Attached::Filter),
            false => bpf::attach(&program, bpf::Hook::Ingress, index, &place),
        });
        attached.expect("root can enter it").expect("the kernel takes it")
    }

    fn replace(&self) -> linux::Result<Replaced> {
        self.node.netns.run(|| guard::replace(&self.folder)).expect("root can enter it")
    }

    fn state(&self) -> State {
        State::of(&self.folder, &self.node)
    }

    fn dropped(&self) -> Vec<(Counter, u64)> {
        guard::counters(&self.folder).expect("the counters are readable")
    }

    /// Sends forged datagrams from the first pod until it has to stop; how many. Each is dropped,
    /// and counted as forged.
    fn forge(&self, socket: &UdpSocket, stop: &AtomicBool, count: &AtomicU64) {
        let dropped = || {
            let found =
                self.dropped().into_iter().find(|(counter, _)| *counter == Counter::DropSpoofedAddress);
            found.expect("it is counted").1
        };
        let (before, mut sent) = (dropped(), 0);
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..AHEAD {
                socket.send_to(b"forged", (TWO.v4, VICTIM)).expect("a datagram can be sent");
                sent += 1;
            }
            let since = Instant::now();
            while dropped() - before < sent {
                assert!(since.elapsed() < LOST, "{} of {sent} forged ones were dropped", dropped() - before);
                std::thread::yield_now();
            }
            count.store(sent, Ordering::Relaxed);
        }
    }
}

/// Replaces the guard many times. Between any two, datagrams of either kind are judged.
fn replace_under(scene: &Scene, counts: &[AtomicU64; 2]) {
    for _ in 0..TIMES {
        let replaced = scene.replace().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((replaced.from, replaced.links + replaced.filters), (FORMAT, 2));
        assert_eq!(replaced.made, [] as [String; 0]);
        let before = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let since = Instant::now();
        while counts.iter().zip(before).any(|(count, before)| count.load(Ordering::Relaxed) == before) {
            assert!(since.elapsed() < LOST * 2, "{counts:?}: one stands still");
            sleep(Duration::from_millis(1));
        }
    }
}

fn under_traffic(by_filter: bool) {
    let Some((scene, [attached, _])) = Scene::forwarding(by_filter) else { return };
    let node = &scene.node;
    let (far_end, near_end) = (socket(node, "pod2", TWO.v4, PORT), socket(node, "pod1", ONE.v4, PORT));
    let (victim, forger) = (socket(node, "pod2", TWO.v4, VICTIM), socket(node, "pod1", FORGED, PORT));
    far_end.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket takes a time");
    let (stop, stop_echo) = (AtomicBool::new(false), AtomicBool::new(false));
    let counts = [AtomicU64::new(0), AtomicU64::new(0)];
    let before = scene.dropped();
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&far_end, &stop_echo));
        let honest = scope.spawn(|| exchange(&near_end, (TWO.v4, PORT).into(), &stop, &counts[0]));
        let forged = scope.spawn(|| scene.forge(&forger, &stop, &counts[1]));
        let replaced = catch_unwind(AssertUnwindSafe(|| replace_under(&scene, &counts)));
        stop.store(true, Ordering::Relaxed);
        let ended = [honest.join(), forged.join()];
        stop_echo.store(true, Ordering::Relaxed);
        ended.into_iter().chain([replaced]).for_each(|end| end.unwrap_or_else(|panic| resume_unwind(panic)));
    });
    let forged = counts[1].load(Ordering::Relaxed);
    let expected = before.into_iter().map(|(counter, packets)| match counter {
        Counter::DropSpoofedAddress => (counter, packets + forged),
        _ => (counter, packets),
    });
    assert_eq!(
        scene.dropped(),
        expected.collect::<Vec<_>>(),
        "what was forged was dropped, and nothing else"
    );
    victim.set_nonblocking(true).expect("a socket can be so");
    assert!(victim.recv(&mut [0; 8]).is_err(), "a forged datagram was let through");
    // Without the guard it arrives: nothing else has dropped the others.
    let place = Program::Guard.link_pin(&scene.folder, &IfName::new(ONE.link).expect("a sound name"));
    let index = node.index(ONE.link);
    let detach = || bpf::detach(attached, index, &place, attached == Attached::Filter).map(drop);
    node.netns.run(detach).expect("root can enter it").expect("it is attached");
    victim.set_nonblocking(false).expect("a socket can be so");
    forger.send_to(b"forged", (TWO.v4, VICTIM)).expect("a datagram can be sent");
    assert_eq!(victim.recv(&mut [0; 8]).expect("no guard is there"), 6);
}

#[test]
fn no_datagram_is_lost_and_no_forged_one_passes() {
    under_traffic(false);
}

#[test]
fn no_datagram_is_lost_and_no_forged_one_passes_where_there_are_filters() {
    under_traffic(true);
}

/// What the guard knew, and the packets that are judged by it.
#[track_caller]
fn assert_guards(scene: &Scene) {
    for (pod, other) in [(ONE, TWO), (TWO, ONE)] {
        scene.passes(pod.link, "its own address", &pod.to(far::OUTSIDE, b"x"));
        let (kind, packet) = crate::frame::datagram(other.v4.into(), far::OUTSIDE.into(), b"x");
        scene.drops(pod.link, "another's", &pod.frame(kind, &packet), Counter::DropSpoofedAddress);
    }
    let (program, index) = (Program::Guard.pin(&scene.folder), scene.node.index(ONE.link));
    let met = scene.node.netns.run(|| bpf::met(&program, bpf::Hook::Ingress, index));
    assert_eq!(met.expect("root can enter it").expect("root can ask"), Some(0));
}

#[test]
fn what_the_guard_knows_stays() {
    let Some((scene, _)) = Scene::forwarding(false) else { return };
    let forged = crate::frame::datagram(FORGED.into(), far::OUTSIDE.into(), b"x");
    assert_eq!(scene.send_at(ONE.link, None, &ONE.frame(forged.0, &forged.1)).0, Verdict::Drop);
    let (before, dropped) = (scene.state(), scene.dropped());
    let replaced = scene.replace().unwrap();
    assert_eq!((replaced.from, replaced.links + replaced.filters, replaced.made.len()), (FORMAT, 2, 0));
    let after = scene.state();
    assert_eq!(
        (after.names, after.maps),
        (before.names, before.maps),
        "the same pins, and the very same maps"
    );
    assert_eq!(scene.dropped(), dropped);
    assert_guards(&scene);
}

/// As it was before the format was written down.
#[test]
fn a_folder_without_a_format_is_of_the_first() {
    let Some((scene, _)) = Scene::forwarding(false) else { return };
    let before = scene.state();
    fs::remove_file(scene.folder.join("guard_format")).unwrap();
    assert!(guard::is_of_this_format(&scene.folder).unwrap());
    let replaced = scene.replace().unwrap();
    assert_eq!((replaced.from, replaced.links + replaced.filters), (1, 2));
    assert_eq!(replaced.made, ["guard_format"]);
    let after = scene.state();
    assert_eq!(after.names, before.names);
    assert!(after.maps.iter().all(|(name, id)| name == "guard_format" || before.maps[name] == *id));
    assert_guards(&scene);
    assert_eq!(scene.replace().unwrap().made.len(), 0);
}

#[test]
fn what_cannot_be_kept_is_refused_and_nothing_is_changed() {
    let Some((scene, _)) = Scene::forwarding(false) else { return };
    let folder = &scene.folder;
    let refused = |words: &str| {
        let before = scene.state();
        let error = scene.replace().unwrap_err().to_string();
        assert!(error.contains("replace the programs of") && error.contains(words), "{error}");
        assert_eq!(scene.state(), before, "{words}");
        assert_eq!(scene.send_at(ONE.link, None, &ONE.to(far::OUTSIDE, b"x")), (Verdict::Pass, vec![]));
    };
    let two = scene.interface(&TWO, OTHER);
    guard::remove(folder, &two).unwrap();
    for number in [FORMAT + 1, u32::MAX, 0] {
        pinned::write_format(folder, "guard_format", number);
        refused(&format!("the maps of its guard are of format {number}, which another version"));
        assert!(!guard::is_of_this_format(folder).unwrap());
        let error = guard::add(folder, &two).unwrap_err().to_string();
        assert!(error.starts_with(&format!("add link {} to the guard of ", two.link)), "{error}");
        assert!(error.contains(&format!("are of format {number}, ")), "{error}");
        assert_eq!(guard::has(folder, &two).unwrap(), None);
    }
    pinned::write_format(folder, "guard_format", FORMAT);
    guard::add(folder, &two).unwrap();
    pin_instead(folder, "sources", MapType::Hash, 4, 4);
    refused("its map sources is a Hash of 1 entries");
    fs::remove_file(folder.join("sources")).unwrap();
    refused("there is no map sources");
    // The forwarding programs are no guard's.
    let error = scene.node.netns.run(|| guard::replace(&scene.node.folder)).unwrap().unwrap_err().to_string();
    assert!(error.contains("there is no map guarded"), "{error}");
}

/// A process that was killed has left a pin that nothing uses, and a program at the links that is not the pinned one.
#[test]
fn what_was_begun_is_completed() {
    let Some((scene, _)) = Scene::forwarding(false) else { return };
    let (names, place) = (scene.state().names, Program::Guard.pin(&scene.folder));
    let old = libbpf_rs::Program::fd_from_pinned_path(&place).unwrap();
    scene.replace().unwrap();
    fs::rename(&place, scene.folder.join("new_guard")).unwrap();
    pin(&old, &place);
    assert_guards(&scene);
    let replaced = scene.replace().unwrap();
    assert_eq!((replaced.from, replaced.links + replaced.filters), (FORMAT, 2));
    assert_eq!(scene.state().names, names);
    assert_guards(&scene);
}
