//! Replaces a node's programs while traffic of every kind passes them.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Scope, sleep};
use std::time::{Duration, Instant};

use bpf::forward::{FORMAT, counters};
use datapath::Family;
use linux::Netns;
use plan::forwarding::Programs;
use plan::{Fault, Kernel, Plan, Step, Undone};
use testkit::bound;

use crate::pair::Pair;
use crate::paths::runnable;
use crate::probe;

/// How often each node's programs are replaced.
const TIMES: u32 = 4;
/// Datagrams, and blocks of a stream, in flight at a time. They fill no queue.
const AHEAD: usize = 8;
/// How long a datagram may be in flight before it counts as lost. Other tests use the same CPUs.
const LOST: Duration = Duration::from_secs(20);
const PORT: u16 = 4001;
const BLOCK_BYTES: usize = 8 << 10;

#[test]
fn at_veth_pairs_and_the_wire() {
    under_traffic("ebpf+direct");
}

#[test]
fn at_the_end_of_a_tunnel() {
    under_traffic("ebpf+vxlan");
}

#[test]
fn at_netkit_pairs() {
    under_traffic("netkit+direct");
}

/// Pods of one node and of two exchange datagrams and a stream over both families, while the programs of both
/// nodes are replaced many times. Nothing may be lost, dropped or forwarded by the kernel's routes meanwhile.
fn under_traffic(name: &str) {
    let Some(path) = runnable(name) else { return };
    let mut pair = Pair::new(path, Family::V4);
    let (plan, mut journal) = (pair.path_plan(), pair.journal());
    pair.apply(&plan, &mut journal, Fault::None).unwrap_or_else(|error| panic!("{error}"));
    let flows: Vec<Flow> = [0, 2]
        .iter()
        .flat_map(|client| Family::BOTH.map(|family| Flow::new(&pair, *client, family)))
        .collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        flows.iter().for_each(|flow| flow.start(scope, &stop));
        let replaced =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| replace(&pair, &plan, &flows)));
        stop.store(true, Ordering::Relaxed);
        replaced.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    for (placed, outcome) in pair.undo(&mut journal) {
        let well = matches!(outcome, Undone::Restored | Undone::AlreadySo);
        assert!(well, "{:?} of {}: {outcome:?}", placed.step, placed.place);
    }
}

fn replace(pair: &Pair, plan: &Plan, flows: &[Flow]) {
    let loaded = |at: usize| {
        plan.steps.iter().find_map(|placed| match &placed.step {
            Step::LoadPrograms(programs) if placed.place == pair.nodes[at].place => Some(programs),
            _ => None,
        })
    };
    let programs: [&Programs; 2] = [0, 1].map(|at| loaded(at).expect("both nodes have programs"));
    let mut kernel = Kernel::new().expect("the test's own namespace can be opened");
    // The first packets make the kernel resolve neighbours.
    go_on(flows);
    let seen = || {
        let dropped = programs.map(|programs| {
            let counters = counters(&programs.folder()).expect("the counters are readable");
            counters.iter().filter(|(counter, _)| counter.is_drop()).map(|(_, packets)| packets).sum::<u64>()
        });
        (dropped, [0, 1].map(|node| probe::forwarded(&pair.node(node))))
    };
    let before = seen();
    for _ in 0..TIMES {
        for (node, programs) in pair.nodes.iter().zip(programs) {
            let replaced = plan::replace_programs(&mut kernel, &node.place, programs);
            assert_eq!(replaced.unwrap_or_else(|error| panic!("{error}")).from, FORMAT);
            go_on(flows);
        }
    }
    assert_eq!(seen(), before, "no packet was dropped or took the kernel's path");
}

/// Waits until every flow has made progress.
fn go_on(flows: &[Flow]) {
    let counts = || flows.iter().flat_map(|flow| [&flow.datagrams, &flow.blocks]);
    let before: Vec<u64> = counts().map(|count| count.load(Ordering::Relaxed)).collect();
    let since = Instant::now();
    for (count, before) in counts().zip(before) {
        while count.load(Ordering::Relaxed) <= before + AHEAD as u64 {
            assert!(since.elapsed() < LOST * 2, "a flow stands still");
            sleep(Duration::from_millis(1));
        }
    }
}

/// Datagrams and a stream from a pod to pod 1 of node 2, which echoes both.
struct Flow {
    datagram_ends: [UdpSocket; 2],
    stream_ends: [TcpStream; 2],
    to: SocketAddr,
    /// How many came back.
    datagrams: AtomicU64,
    blocks: AtomicU64,
    /// The sender of datagrams has ended.
    all_returned: AtomicBool,
}

/// Sets the flag when its owner ends, in whatever way.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Flow {
    fn new(pair: &Pair, client: usize, family: Family) -> Flow {
        let (near, far) = (pair.inside(client), pair.inside(1));
        let address = pair.pods[1].addresses.of(family).expect("pods have both");
        // The clients call the server at one port each, because they would otherwise differ only by address.
        let to = SocketAddr::new(address, PORT + u16::try_from(client).expect("few pods"));
        let here = SocketAddr::new(pair.pods[client].addresses.of(family).expect("pods have both"), 0);
        let socket = |netns: &Netns, at| inside(netns, || bound(|| UdpSocket::bind(at)));
        let datagram_ends = [socket(&near, here), socket(&far, to)];
        let listener = inside(&far, || bound(|| TcpListener::bind(to)));
        let stream = inside(&near, || TcpStream::connect_timeout(&to, LOST));
        let (accepted, _) = listener.accept().expect("it has connected");
        for socket in &datagram_ends {
            socket.set_read_timeout(Some(LOST)).expect("a socket takes a time");
        }
        let stream_ends = [stream, accepted];
        for stream in &stream_ends {
            stream.set_read_timeout(Some(LOST)).expect("a socket takes a time");
        }
        Flow {
            datagram_ends,
            stream_ends,
            to,
            datagrams: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            all_returned: AtomicBool::new(false),
        }
    }

    fn start<'s>(&'s self, scope: &'s Scope<'s, '_>, stop: &'s AtomicBool) {
        let [_, far] = &self.datagram_ends;
        far.set_read_timeout(Some(Duration::from_millis(100))).expect("a socket takes a time");
        scope.spawn(|| self.return_datagrams());
        scope.spawn(|| self.send_datagrams(stop));
        scope.spawn(|| {
            // Returns at the end of the stream, or of the test.
            let [_, far] = &self.stream_ends;
            io::copy(&mut &*far, &mut &*far)
        });
        scope.spawn(|| self.send_blocks(stop));
    }

    /// Numbered datagrams. Each must come back once, including the last ones.
    fn send_datagrams(&self, stop: &AtomicBool) {
        let _ended = Ended(&self.all_returned);
        let [near, _] = &self.datagram_ends;
        let (mut sent, mut away) = (0_u64, BTreeSet::new());
        loop {
            while away.len() < AHEAD && !stop.load(Ordering::Relaxed) {
                near.send_to(&sent.to_ne_bytes(), self.to).expect("a datagram can be sent");
                away.insert(sent);
                sent += 1;
            }
            if away.is_empty() {
                break;
            }
            let mut number = [0; 8];
            near.recv(&mut number)
                .unwrap_or_else(|error| panic!("{}: of {sent} these are lost: {away:?}: {error}", self.to));
            assert!(away.remove(&u64::from_ne_bytes(number)), "{}: one came twice", self.to);
            self.datagrams.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn return_datagrams(&self) {
        let [_, far] = &self.datagram_ends;
        let mut bytes = [0; 8];
        while !self.all_returned.load(Ordering::Relaxed) {
            if let Ok((_, from)) = far.recv_from(&mut bytes) {
                far.send_to(&bytes, from).expect("a datagram can be sent");
            }
        }
    }

    /// Numbered blocks of a stream. Each must come back unchanged.
    fn send_blocks(&self, stop: &AtomicBool) {
        let [mut near, _] = self.stream_ends.each_ref();
        let block = |number: u64| number.to_ne_bytes().repeat(BLOCK_BYTES / 8);
        let write = |mut near: &TcpStream, number| near.write_all(&block(number)).expect("the stream stands");
        (0..AHEAD as u64).for_each(|number| write(near, number));
        for number in 0.. {
            let mut returned = vec![0; BLOCK_BYTES];
            near.read_exact(&mut returned)
                .unwrap_or_else(|error| panic!("{}: the stream broke: {error}", self.to));
            assert!(returned == block(number), "{}: block {number} came back with other bytes", self.to);
            self.blocks.fetch_add(1, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                break;
            }
            write(near, number + AHEAD as u64);
        }
        let _ = near.shutdown(std::net::Shutdown::Both);
    }
}

#[track_caller]
fn inside<T>(netns: &Netns, open: impl FnOnce() -> io::Result<T>) -> T {
    let opened = netns.run(open).expect("the namespace can be entered");
    opened.unwrap_or_else(|error| panic!("{}: {error}", netns.describe()))
}
