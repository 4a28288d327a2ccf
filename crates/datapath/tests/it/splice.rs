//! Real bytes through the short cut between two pods of one node: all of them, once, in order, with a limit
//! on how many are in flight; and no bytes of other connections.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bpf::splice::{self, SpliceCounter};
use datapath::Family;
use linux::{Cgroup, Netns};
use plan::forwarding::Splice;
use plan::{Fault, Journal, Kernel, Step, Undone};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::sockopt;
use testkit::{bound, noise};

use crate::pair::Pair;
use crate::specs::POD_PORT;

/// How long a byte may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// How far a sender may be ahead, as in the program.
const AHEAD: u64 = 1 << 20;

/// Node 2 with its two pods, and its control group.
struct Node {
    pair: Pair,
    journal: Journal,
    cgroup: Cgroup,
    folder: PathBuf,
}

impl Node {
    /// `None`, with the skip recorded, if the data path cannot run.
    fn new() -> Option<Node> {
        let path = crate::paths::runnable("ebpf+sockmap")?;
        let mut pair = Pair::new(path, Family::V4);
        let (plan, mut journal) = (pair.path_plan(), pair.journal());
        pair.apply(&plan, &mut journal, Fault::None).unwrap_or_else(|error| panic!("{error}"));
        let node = pair.nodes[1].programs();
        let folder = bpf::pins::folder(&node);
        let cgroup = Splice { node }.cgroup().expect("root can do it");
        Some(Node { cgroup, folder, pair, journal })
    }

    fn count(&self, wanted: SpliceCounter) -> u64 {
        let counters = splice::counters(&self.folder).expect("root can do it");
        counters.iter().find(|(counter, _)| *counter == wanted).expect("root can do it").1
    }

    /// Opens a socket as a program in the group would.
    fn member<T>(&self, netns: &Netns, open: impl FnOnce() -> io::Result<T>) -> T {
        self.cgroup
            .run(|| netns.run(open))
            .expect("root can do it")
            .expect("root can do it")
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn listen(&self, any: &str) -> TcpListener {
        let address = SocketAddr::new(any.parse().expect("root can do it"), POD_PORT);
        self.member(&self.pair.inside(1), || bound(|| TcpListener::bind(address)))
    }

    fn address(&self, family: Family) -> SocketAddr {
        SocketAddr::new(self.pair.pods[1].addresses.of(family).expect("pods have both"), POD_PORT)
    }

    /// Connects pod 2 to pod 1. Returns the client's end and the server's.
    fn connect(&self, listener: &TcpListener, family: Family) -> (TcpStream, TcpStream) {
        let to = self.address(family);
        let near = self.member(&self.pair.inside(2), || TcpStream::connect_timeout(&to, PATIENCE));
        let (far, _) = listener.accept().expect("root can do it");
        patient([near, far]).into()
    }

    /// Undoes everything, and checks that every step was undone.
    fn end(mut self) {
        for (placed, outcome) in self.pair.undo(&mut self.journal) {
            assert!(matches!(outcome, Undone::Restored | Undone::AlreadySo), "{placed:?}: {outcome:?}");
        }
        assert!(!self.cgroup.exists());
        assert!(!self.folder.exists());
    }
}

impl Drop for Node {
    /// A control group and a mount do not end with the namespaces of a failed test.
    fn drop(&mut self) {
        self.pair.undo(&mut self.journal);
    }
}

fn patient<const N: usize>(streams: [TcpStream; N]) -> [TcpStream; N] {
    for stream in &streams {
        stream.set_read_timeout(Some(PATIENCE)).expect("root can do it");
        stream.set_write_timeout(Some(PATIENCE)).expect("root can do it");
        stream.set_nodelay(true).expect("root can do it");
    }
    streams
}

/// Writes in pieces of many lengths.
fn write_in_pieces(mut stream: &TcpStream, bytes: &[u8], seed: usize) -> io::Result<()> {
    let (mut at, mut step) = (0, seed);
    while at < bytes.len() {
        step = (step * 31 + 17) % 70_001;
        let end = (at + 1 + step).min(bytes.len());
        stream.write_all(&bytes[at..end])?;
        at = end;
    }
    Ok(())
}

/// Reads what is there, or waits for it.
///
/// The kernel ends a read from a socket in a map whenever the reader wakes and finds no bytes, even if it
/// woke for another reason, such as room to write (tcp_bpf_recvmsg_parser).
fn read(mut stream: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    let started = Instant::now();
    loop {
        match stream.read(into) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && started.elapsed() < PATIENCE => {}
            done => return done,
        }
    }
}

fn read_to_the_end(stream: &TcpStream) -> Vec<u8> {
    let (mut got, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match read(stream, &mut buffer) {
            Ok(0) => return got,
            Ok(more) => got.extend_from_slice(&buffer[..more]),
            Err(error) => panic!("{error} after {} bytes", got.len()),
        }
    }
}

#[track_caller]
fn assert_reads(stream: &TcpStream, expected: &[u8], when: &str) {
    let mut got = vec![0; expected.len()];
    let mut at = 0;
    while at < got.len() {
        match read(stream, &mut got[at..]) {
            Ok(0) => panic!("{when}: it ended after {at} of {} bytes", got.len()),
            Ok(more) => at += more,
            Err(error) => panic!("{when}: {error} after {at} of {} bytes", got.len()),
        }
    }
    let first = got.iter().zip(expected).position(|(got, expected)| got != expected);
    assert_eq!(first, None, "{when}: the first wrong byte of {}", expected.len());
}

/// Both ends write at the same time and read what the other writes.
fn exchange(near: &TcpStream, far: &TcpStream, bytes: usize, seed: usize) {
    let (there, back) = (noise(seed as u64 * 2, bytes), noise(seed as u64 * 2 + 1, bytes));
    std::thread::scope(|scope| {
        scope.spawn(|| write_in_pieces(near, &there, seed).expect("root can do it"));
        scope.spawn(|| write_in_pieces(far, &back, seed + 7).expect("root can do it"));
        scope.spawn(|| assert_reads(far, &there, "client to server"));
        assert_reads(near, &back, "server to client");
    });
}

/// Open streams keep the old programs of the splice and go on. Later ones have the new programs, and are
/// spliced alike.
#[test]
fn the_programs_of_a_node_with_a_splice_are_replaced() {
    let Some(node) = Node::new() else { return };
    let plan = node.pair.path_plan();
    let loaded = plan.steps.iter().find_map(|placed| match &placed.step {
        Step::LoadPrograms(programs) if placed.place == node.pair.nodes[1].place => Some(programs),
        _ => None,
    });
    let listener = node.listen("::");
    let open = Family::BOTH.map(|family| node.connect(&listener, family));
    let mut kernel = Kernel::new().expect("the test's own namespace can be opened");
    let place = &node.pair.nodes[1].place;
    let replaced = plan::replace_programs(&mut kernel, place, loaded.expect("the node has programs"))
        .unwrap_or_else(|error| panic!("{error}"));
    let expected = splice::Replaced { from: splice::FORMAT, is_attached: true, connections: 2, made: vec![] };
    assert_eq!(replaced.splice, Some(expected));
    assert!(splice::is_met(&node.folder, node.cgroup.path()).unwrap());
    let next = Family::BOTH.map(|family| node.connect(&listener, family));
    let messages = node.count(SpliceCounter::Messages);
    for (seed, (near, far)) in open.iter().chain(&next).enumerate() {
        exchange(near, far, 1 << 20, seed);
    }
    assert_eq!((node.count(SpliceCounter::Joined), node.count(SpliceCounter::Unjoined)), (8, 0));
    assert!(node.count(SpliceCounter::Messages) > messages + 8);
    drop((open, next, listener));
    node.end();
}

#[test]
fn megabytes_each_way_over_many_connections() {
    let Some(node) = Node::new() else { return };
    for (family, any) in [(Family::V4, "0.0.0.0"), (Family::V6, "::"), (Family::V4, "::")] {
        let (joined, messages) = (node.count(SpliceCounter::Joined), node.count(SpliceCounter::Messages));
        let listener = node.listen(any);
        let pairs: Vec<_> = (0..12).map(|_| node.connect(&listener, family)).collect();
        std::thread::scope(|scope| {
            for (seed, (near, far)) in pairs.iter().enumerate() {
                scope.spawn(move || exchange(near, far, 1 << 20, seed));
            }
        });
        assert_eq!(node.count(SpliceCounter::Joined) - joined, 24, "{family:?} at {any}");
        assert!(node.count(SpliceCounter::Messages) > messages + 24, "{family:?} at {any}");
        assert_eq!(splice::connections(&node.folder).unwrap(), 12);
    }
    assert_eq!(node.count(SpliceCounter::Unjoined), 0);
    node.end();
}

/// A request and its answer, many times. All of them bypass TCP, except perhaps the first.
#[test]
fn requests_and_answers_go_past_tcp() {
    let Some(node) = Node::new() else { return };
    let listener = node.listen("0.0.0.0");
    let (near, far) = node.connect(&listener, Family::V4);
    for round in 0..2000 {
        let (request, answer) = (noise(round, 100), noise(round + 5, 350));
        (&near).write_all(&request).unwrap();
        assert_reads(&far, &request, "the request");
        (&far).write_all(&answer).unwrap();
        assert_reads(&near, &answer, "the answer");
    }
    assert!(node.count(SpliceCounter::Messages) >= 3998, "{:?}", splice::counters(&node.folder).unwrap());
    node.end();
}

/// The client writes before the server's end can be in the map, and the server writes before the client
/// reads.
#[test]
fn early_bytes_are_not_overtaken() {
    let Some(node) = Node::new() else { return };
    let listener = node.listen("0.0.0.0");
    let (to, inside) = (node.address(Family::V4), node.pair.inside(2));
    for seed in 0..200 {
        let early = noise(seed, 1 + seed as usize * 97);
        let near = node.member(&inside, || {
            let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
            (&stream).write_all(&early)?;
            Ok(stream)
        });
        let (far, _) = listener.accept().unwrap();
        let [near, far] = patient([near, far]);
        (&far).write_all(&early).unwrap();
        for piece in noise(seed + 1, 5000).chunks(50) {
            (&near).write_all(piece).unwrap();
            (&far).write_all(piece).unwrap();
        }
        for (reader, from) in [(&far, "the client"), (&near, "the server")] {
            assert_reads(reader, &early, from);
            assert_reads(reader, &noise(seed + 1, 5000), from);
        }
    }
    node.end();
}

/// One side closes its direction, and the other goes on.
#[test]
fn a_half_closed_connection_ends_behind_its_last_byte() {
    let Some(node) = Node::new() else { return };
    let listener = node.listen("::");
    for (seed, bytes) in [0, 1, 100, 65_536, 700_000, 3 << 20].into_iter().enumerate() {
        let (near, far) = node.connect(&listener, Family::V6);
        let (there, back) = (noise(seed as u64, bytes), noise(seed as u64 + 9, bytes));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                write_in_pieces(&near, &there, seed).unwrap();
                near.shutdown(Shutdown::Write).unwrap();
            });
            let got = read_to_the_end(&far);
            assert!(got == there, "{} of {bytes} bytes to the server", got.len());
        });
        std::thread::scope(|scope| {
            let far = &far;
            scope.spawn(|| write_in_pieces(far, &back, seed).and_then(|()| far.shutdown(Shutdown::Both)));
            let got = read_to_the_end(&near);
            assert!(got == back, "{} of {bytes} bytes to the client", got.len());
        });
    }
    drop(listener);
    // A closed end belongs to no connection: its entry in the map must go, even while the other end waits for
    // its last packet.
    let started = Instant::now();
    while splice::connections(&node.folder).unwrap() > 0 {
        assert!(started.elapsed() < PATIENCE, "entries of closed connections are still in the map");
        std::thread::sleep(Duration::from_millis(5));
    }
    node.end();
}

/// Writes as much as the kernel takes.
fn fill(mut stream: &TcpStream, bytes: &[u8]) -> usize {
    stream.set_nonblocking(true).expect("root can do it");
    let mut written = 0;
    // Bytes in flight when the buffer is full make room a moment later. It is full when that happens no more, which
    // only time can show.
    for _ in 0..20 {
        loop {
            match stream.write(&bytes[written..]) {
                Ok(0) => panic!("more was taken than any buffer holds: {written} bytes"),
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("after {written} bytes: {error}"),
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    stream.set_nonblocking(false).expect("root can do it");
    written
}

#[test]
fn a_receiver_that_does_not_read_makes_the_sender_wait() {
    let Some(node) = Node::new() else { return };
    let listener = node.listen("0.0.0.0");
    let (near, far) = node.connect(&listener, Family::V4);
    sockopt::set_socket_recv_buffer_size(&far, 64 << 10).unwrap();
    let bytes = noise(3, 64 << 20);
    for round in 0..4 {
        let spliced = node.count(SpliceCounter::Messages);
        let written = fill(&near, &bytes);
        assert!(written as u64 > AHEAD / 2, "round {round}: only {written} bytes were taken");
        assert!(node.count(SpliceCounter::Messages) > spliced, "round {round}: nothing was spliced");
        assert!(node.count(SpliceCounter::Full) > 0);
        assert_reads(&far, &bytes[..written], "what was written");
        // The sender learns that there is room from what comes back. Its first word still goes by TCP: after
        // a message that did not fit, the kernel keeps the verdict for the next one (tcp_bpf_send_verdict).
        for word in [b"one", b"two"] {
            (&near).write_all(word).unwrap();
            assert_reads(&far, word, "the word");
            (&far).write_all(word).unwrap();
            assert_reads(&near, word, "the answer");
        }
    }
    node.end();
}

/// A reader that uses edge-triggered events and takes a short read for the end of the data, as nginx and
/// tokio do.
#[test]
fn a_reader_by_edges_misses_nothing() {
    let Some(node) = Node::new() else { return };
    let listener = node.listen("0.0.0.0");
    let (near, far) = node.connect(&listener, Family::V4);
    let (bytes, mut buffer) = (noise(4, 8 << 20), vec![0; 300_000]);
    far.set_nonblocking(true).unwrap();
    let edges = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&edges, &far, EventData::new_u64(0), EventFlags::IN | EventFlags::ET).unwrap();
    for round in 0..12 {
        let length = bytes.len() - round * 654_321;
        let sent = &bytes[..length];
        std::thread::scope(|scope| {
            scope.spawn(|| write_in_pieces(&near, sent, round).unwrap());
            // Late, so that the sender is far ahead and both ways are used.
            std::thread::sleep(Duration::from_millis(30));
            let mut got = Vec::with_capacity(length);
            let mut events = Vec::with_capacity(1);
            while got.len() < length {
                let limit = rustix::time::Timespec { tv_sec: 5, tv_nsec: 0 };
                events.clear();
                epoll::wait(&edges, rustix::buffer::spare_capacity(&mut events), Some(&limit)).unwrap();
                assert_eq!(events.len(), 1, "round {round}: no edge after {} of {length} bytes", got.len());
                loop {
                    let read = match (&far).read(&mut buffer) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        read => read.unwrap(),
                    };
                    got.extend_from_slice(&buffer[..read]);
                    if read < buffer.len() {
                        break;
                    }
                }
            }
            assert!(got == sent, "round {round}: other bytes");
        });
    }
    assert!(node.count(SpliceCounter::Full) > 0, "the receiver was never behind");
    node.end();
}

#[test]
fn a_peer_that_goes_is_an_error_and_no_silence() {
    let Some(node) = Node::new() else { return };
    let listener = node.listen("0.0.0.0");
    let (near, far) = node.connect(&listener, Family::V4);
    (&near).write_all(b"unread").unwrap();
    drop(far);
    let refused = (0..1000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(1));
        (&near).write_all(b"more").err()
    });
    let kind = refused.expect("a closed peer refuses").kind();
    assert!(matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{kind:?}");
    node.end();
}

/// Bytes pass, and no socket joins.
#[track_caller]
fn check_left_alone(node: &Node, near: &TcpStream, far: &TcpStream) {
    let spliced = node.count(SpliceCounter::Messages);
    exchange(near, far, 100_000, 1);
    assert_eq!(node.count(SpliceCounter::Messages), spliced);
}

#[test]
fn what_is_no_pods_is_left_alone() {
    let Some(node) = Node::new() else { return };
    let to = node.address(Family::V4);
    let [one, first, second] = [0, 1, 2].map(|pod| node.pair.inside(pod));
    let listener = node.listen("0.0.0.0");
    let accept =
        |near: TcpStream| <(TcpStream, TcpStream)>::from(patient([near, listener.accept().unwrap().0]));
    // The client is outside the group. The server's end alone does not join.
    let (near, far) = accept(second.run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap());
    check_left_alone(&node, &near, &far);
    // A pod of the other node, and the node itself, each in the group.
    for elsewhere in [&one, &node.pair.node(1)] {
        let (near, far) = accept(node.member(elsewhere, || TcpStream::connect_timeout(&to, PATIENCE)));
        check_left_alone(&node, &near, &far);
    }
    // Within a pod, over its loopback: every pod has the same address there.
    let own = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), POD_PORT);
    let (near, far) = accept(node.member(&first, || TcpStream::connect_timeout(&own, PATIENCE)));
    check_left_alone(&node, &near, &far);
    assert_eq!(node.count(SpliceCounter::Joined), 0);
    // A foreign namespace that has the address of a pod.
    let foreign = Netns::anonymous().unwrap();
    let netlink = linux::Netlink::open_in(&foreign).unwrap();
    let lo = netlink.index_of(&linux::IfName::new("lo").unwrap()).unwrap();
    for pod in &node.pair.pods[1..] {
        netlink.address_add(lo, &pod.addresses.of(Family::V4).unwrap().into()).unwrap();
    }
    let theirs = node.member(&foreign, || TcpListener::bind(to));
    let near = node.member(&foreign, || TcpStream::connect_timeout(&to, PATIENCE));
    let [near, far] = patient([near, theirs.accept().unwrap().0]);
    check_left_alone(&node, &near, &far);
    assert_eq!(node.count(SpliceCounter::Joined), 0);
    node.end();
}
