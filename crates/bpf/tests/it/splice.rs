//! Other programs in the place of a splice's, while streams between two pods pass it.

mod stream;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bpf::splice::{self, FORMAT, Replaced, SpliceCounter};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapInfo, MapType};
use linux::Cgroup;
use linux::features::{Feature, probe};
use testkit::{defer, noise, run};

use self::stream::{LOST, PERIOD, assert_passes, patient, read_all, read_some, write_until};
use crate::node::{MTU, Node, ONE, TWO, can_run};
use crate::pinned::{pin, pin_instead};
use crate::replace::{furnish, replace_all};

const TIMES: usize = 5;
const STREAMS: usize = 3;
const PORT: u16 = 4001;
/// The maps of a splice.
const MAPS: [&str; 5] =
    ["splice_counters", "splice_format", "splice_members", "splice_sockets", "splice_streams"];

/// A node with its splice, and the control group of it.
struct Spliced {
    node: Node,
    cgroup: Cgroup,
}

/// All that a replacement may change.
#[derive(Debug, PartialEq)]
struct State {
    pins: Vec<String>,
    maps: BTreeMap<&'static str, u32>,
    /// Of the splice, and of a pod's link.
    programs: ([u32; 3], Vec<(&'static str, u32)>),
}

impl Spliced {
    /// `None`, and noted, where it cannot be tried.
    fn new() -> Option<Spliced> {
        if !can_run() {
            return None;
        }
        if let Some(why) = probe().expect("a namespace can be made").missing.remove(&Feature::BpfSockets) {
            testkit::skip(&format!("no programs at sockets: {why}"));
            return None;
        }
        let node = Node::direct_in_earnest();
        furnish(&node, false);
        for pod in [ONE, TWO] {
            let arguments = format!("link set eth0 mtu {MTU}");
            run(&node.world.open(pod.link), "ip", &arguments.split(' ').collect::<Vec<_>>());
        }
        let cgroup = Cgroup::named(node.world.name("node").as_str()).expect("there are control groups");
        cgroup.create().expect("root can make a control group");
        let spliced = Spliced { node, cgroup };
        let Spliced { node, cgroup } = &spliced;
        splice::load(&node.folder).expect("the kernel takes the programs");
        splice::attach(&node.folder, cgroup.path()).expect("the kernel attaches it");
        for pod in [ONE, TWO] {
            let cookie = node.world.open(pod.link).cookie().expect("a namespace has a cookie");
            splice::add_member(&node.folder, cookie, &[pod.v4.into()]).expect("the map has room");
        }
        Some(spliced)
    }

    fn replace(&self) -> linux::Result<Replaced> {
        let replaced = replace_all(&self.node, &self.node.config)?;
        // Without tcx they are filters.
        let at = replaced.forward.links + replaced.forward.filters;
        assert_eq!(at, 3, "the links of two pods and the wire");
        Ok(replaced.splice.expect("the node has a splice"))
    }

    fn count(&self, wanted: SpliceCounter) -> u64 {
        let counters = splice::counters(&self.node.folder).expect("the counters are readable");
        counters.iter().find(|(counter, _)| *counter == wanted).expect("the list has every counter").1
    }

    /// What a program of the group opens in a pod.
    fn open<T>(&self, pod: &str, open: impl FnOnce() -> io::Result<T>) -> T {
        let netns = self.node.world.open(pod);
        let opened = self.cgroup.run(|| netns.run(open)).expect("root can enter the group");
        opened.expect("root can enter the namespace").unwrap_or_else(|error| panic!("{pod}: {error}"))
    }

    fn listen(&self) -> TcpListener {
        self.open("pod2", || TcpListener::bind((TWO.v4, PORT)))
    }

    fn call(&self) -> TcpStream {
        let to = SocketAddr::new(TWO.v4.into(), PORT);
        patient(self.open("pod1", || TcpStream::connect_timeout(&to, LOST)))
    }

    fn connect(&self, listener: &TcpListener) -> [TcpStream; 2] {
        let near = self.call();
        [near, patient(listener.accept().expect("a call has come").0)]
    }

    /// The numbers of the programs that a socket gets when it joins, and of the one that lets it join.
    fn programs(&self) -> [u32; 3] {
        let sockets =
            MapHandle::from_pinned_path(self.node.folder.join("splice_sockets")).expect("it is pinned");
        let group = fs::File::open(self.cgroup.path()).expect("the group is there");
        [
            program_at(&sockets, libbpf_sys::BPF_SK_MSG_VERDICT),
            program_at(&sockets, libbpf_sys::BPF_SK_SKB_VERDICT),
            program_at(&group, libbpf_sys::BPF_CGROUP_SOCK_OPS),
        ]
    }

    fn pins(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.node.folder).expect("the folder is there");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("root can list it").file_name();
        let mut names: Vec<String> =
            entries.map(|entry| name(entry).into_string().expect("pins have plain names")).collect();
        names.sort();
        names
    }

    fn state(&self) -> State {
        let maps = MAPS.into_iter().filter_map(|name| {
            let map = MapHandle::from_pinned_path(self.node.folder.join(name)).ok()?;
            Some((name, MapInfo::new(map.as_fd()).expect("root can ask").info.id))
        });
        let index = self.node.index(ONE.link);
        let at_link = self.node.netns.run(|| bpf::program_ids_at(index)).expect("root can enter it");
        let programs = (self.programs(), at_link.expect("root can ask"));
        State { pins: self.pins(), maps: maps.collect(), programs }
    }

    fn is_met(&self) -> bool {
        splice::is_met(&self.node.folder, self.cgroup.path()).expect("root can ask")
    }
}

impl Drop for Spliced {
    /// A control group does not end with the namespaces of a test.
    fn drop(&mut self) {
        let _ = self.cgroup.remove();
    }
}

/// The one program at a hook; 0: there is none.
fn program_at(target: &impl AsFd, kind: libbpf_sys::bpf_attach_type) -> u32 {
    let (mut id, mut flags, mut count) = (0_u32, 0_u32, 1_u32);
    let target = target.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, there is room for one number as is said, and all three outlive the call.
    let result =
        unsafe { libbpf_sys::bpf_prog_query(target, kind, 0, &raw mut flags, &raw mut id, &raw mut count) };
    assert_eq!(result, 0, "ask for the programs");
    id
}

/// Whether a program of this number is loaded.
fn is_loaded(id: u32) -> bool {
    let found = libbpf_rs::Program::fd_from_id(id);
    found.is_ok()
}

#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < LOST, "it was never so that {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Replaces the programs while streams pass, and opens a connection after each time.
fn replace_under(spliced: &Spliced, listener: &TcpListener, counts: &[AtomicU64]) -> Vec<[u32; 3]> {
    let mut generations = vec![spliced.programs()];
    let mut later = Vec::new();
    for round in 0..TIMES {
        let expected =
            Replaced { from: FORMAT, is_attached: true, connections: STREAMS + round, made: vec![] };
        assert_eq!(spliced.replace().unwrap_or_else(|error| panic!("{error}")), expected);
        let (old, new) = (generations[round], spliced.programs());
        assert!(old.iter().zip(new).all(|(old, new)| *old != new && new != 0), "{old:?} became {new:?}");
        generations.push(new);
        let before: Vec<u64> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let messages = spliced.count(SpliceCounter::Messages);
        later.push(spliced.connect(listener));
        for [near, far] in &later {
            assert_passes(near, far, b"of each generation");
        }
        wait_until("every stream goes on, and past TCP", || {
            let mut pairs = counts.iter().zip(&before);
            pairs.all(|(count, before)| count.load(Ordering::Relaxed) > *before)
                && spliced.count(SpliceCounter::Messages) > messages
        });
    }
    generations
}

#[test]
fn no_byte_of_a_stream_is_lost() {
    let Some(spliced) = Spliced::new() else { return };
    let listener = spliced.listen();
    let streams: Vec<_> = (0..STREAMS).map(|_| spliced.connect(&listener)).collect();
    let counts: Vec<AtomicU64> = (0..STREAMS * 2).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let generations = std::thread::scope(|scope| {
        let mut ends = Vec::new();
        for (at, count) in counts.iter().enumerate() {
            let [near, far] = &streams[at / 2];
            let (from, to) = if at % 2 == 0 { (near, far) } else { (far, near) };
            let (bytes, stop) = (std::sync::Arc::new(noise(at as u64, PERIOD)), &stop);
            let same = bytes.clone();
            let writer = scope.spawn(move || write_until(stop, from, &bytes));
            ends.push((writer, scope.spawn(move || read_all(to, &same, count))));
        }
        let replaced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            replace_under(&spliced, &listener, &counts)
        }));
        stop.store(true, Ordering::Relaxed);
        for (at, (writer, reader)) in ends.into_iter().enumerate() {
            let (written, read) = (writer.join().expect("it wrote"), reader.join().expect("it read"));
            assert_eq!(written, read, "bytes of stream {at}");
        }
        replaced.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    assert_eq!(spliced.count(SpliceCounter::Joined), 2 * (STREAMS + TIMES) as u64);
    assert_eq!(spliced.count(SpliceCounter::Unjoined), 0);
    drop(streams);
    // Nothing holds the old ones but the sockets that had joined.
    let (_, old) = generations.split_last().expect("there are several");
    wait_until("the old programs are gone", || !old.iter().flatten().any(|id| is_loaded(*id)));
}

/// One end of a stream joins before the replacement and the other one after.
#[test]
fn the_ends_of_a_stream_may_have_programs_of_two_generations() {
    let Some(spliced) = Spliced::new() else { return };
    let listener = spliced.listen();
    defer(&listener, LOST);
    let near = spliced.call();
    assert_eq!(spliced.count(SpliceCounter::Joined), 1, "the caller's end");
    assert_eq!(spliced.replace().unwrap().connections, 1);
    assert_eq!(spliced.count(SpliceCounter::Joined), 1);
    (&near).write_all(b"first").unwrap();
    let far = patient(listener.accept().unwrap().0);
    assert_eq!(spliced.count(SpliceCounter::Joined), 2, "the other end, which came with the first bytes");
    let mut first = [0; 5];
    let mut at = 0;
    while at < first.len() {
        at += read_some(&far, &mut first[at..]);
    }
    assert_eq!(&first, b"first");
    for _ in 0..100 {
        assert_passes(&near, &far, b"then a word each way");
    }
    assert!(spliced.count(SpliceCounter::Messages) >= 198, "{:?}", splice::counters(&spliced.node.folder));
}

#[test]
fn what_cannot_be_kept_is_refused_and_nothing_is_changed() {
    let Some(spliced) = Spliced::new() else { return };
    let node = &spliced.node;
    let listener = spliced.listen();
    let [near, far] = spliced.connect(&listener);
    let refused = |words: &[&str]| {
        let before = spliced.state();
        let error = spliced.replace().unwrap_err().to_string();
        let folder = node.folder.to_str().unwrap();
        for words in words.iter().chain(&["replace the programs of", folder]) {
            assert!(error.contains(words), "{words}: {error}");
        }
        assert_eq!(spliced.state(), before, "{error}");
        assert_passes(&near, &far, b"as before");
    };
    let format = MapHandle::from_pinned_path(node.folder.join("splice_format")).unwrap();
    let write = |number: u32| format.update(&[0; 4], &number.to_ne_bytes(), MapFlags::ANY).unwrap();
    for number in [FORMAT + 1, u32::MAX, 0] {
        write(number);
        let theirs = format!("the maps of its splice are of format {number},");
        refused(&[&theirs, &format!("this one knows format {FORMAT}"), "unload the node and load it again"]);
    }
    write(FORMAT);
    // What is refused of the forwarding programs leaves the splice as it was, too.
    let of_forward = MapHandle::from_pinned_path(node.folder.join("format")).unwrap();
    let known = of_forward.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
    of_forward.update(&[0; 4], &u32::MAX.to_ne_bytes(), MapFlags::ANY).unwrap();
    refused(&["its maps are of format 4294967295", "unload the node and load it again"]);
    of_forward.update(&[0; 4], &known, MapFlags::ANY).unwrap();
    pin_instead(&node.folder, "splice_streams", MapType::Hash, 4, 16);
    refused(&["its map splice_streams is a Hash of 1 entries", "unload the node and load it again"]);
    fs::remove_file(node.folder.join("splice_streams")).unwrap();
    refused(&["there is no map splice_streams"]);
}

/// As it was before the format was written down.
#[test]
fn a_folder_without_a_format_is_of_the_first() {
    let Some(spliced) = Spliced::new() else { return };
    let before = spliced.state();
    fs::remove_file(spliced.node.folder.join("splice_format")).unwrap();
    let replaced = spliced.replace().unwrap();
    assert_eq!((replaced.from, replaced.made.as_slice()), (1, &["splice_format".to_owned()][..]));
    let after = spliced.state();
    assert_eq!(after.pins, before.pins);
    assert!(after.maps.iter().all(|(name, id)| *name == "splice_format" || before.maps[name] == *id));
    let replaced = spliced.replace().unwrap();
    assert_eq!((replaced.from, replaced.made.len()), (FORMAT, 0));
}

/// A killed replacement has left a pin that no program uses, and programs at the cgroup that are not the pinned ones.
#[test]
fn what_was_begun_is_completed() {
    let Some(spliced) = Spliced::new() else { return };
    let (pins, folder) = (spliced.pins(), &spliced.node.folder);
    let place = folder.join("splice_ends");
    let old = libbpf_rs::Program::fd_from_pinned_path(&place).unwrap();
    spliced.replace().unwrap();
    let new = folder.join("new_splice_ends");
    fs::rename(&place, &new).unwrap();
    pin(&old, &place);
    assert!(spliced.is_met(), "another generation of a program is the node's too");
    assert!(spliced.replace().unwrap().is_attached);
    assert_eq!(spliced.pins(), pins);
    assert!(spliced.is_met());
    fs::rename(&place, &new).unwrap();
    splice::remove(folder).unwrap();
    assert!(!spliced.pins().iter().any(|name| name.contains("splice")), "{:?}", spliced.pins());
}

#[test]
fn a_splice_that_is_not_attached_is_replaced_too() {
    let Some(spliced) = Spliced::new() else { return };
    splice::detach(&spliced.node.folder).unwrap();
    let [message, from_wire, _] = spliced.programs();
    assert!(!spliced.replace().unwrap().is_attached);
    let after = spliced.programs();
    assert!(after[0] != message && after[1] != from_wire && after[2] == 0, "{after:?}");
    splice::attach(&spliced.node.folder, spliced.cgroup.path()).unwrap();
    assert!(spliced.is_met());
    let listener = spliced.listen();
    let [near, far] = spliced.connect(&listener);
    assert_passes(&near, &far, b"past TCP");
    assert_eq!(spliced.count(SpliceCounter::Joined), 2);
}
