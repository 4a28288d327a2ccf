//! A server behind the port of a switch, by vhost-user, with a switch that the test is: what Open vSwitch does not do.

use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use load::serve::{Listen, ResponderConfig, Server, StackConfig};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::stack::{PATIENCE, while_serving};

/// The server's address, and the Ethernet address that its port makes of it.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const MAC: [u8; 6] = [0x0a, 0x58, 192, 0, 2, 2];
const PORT: u16 = 80;
/// Entries of a ring of the server.
const ENTRIES: u16 = 512;
/// The header of virtio before each frame.
const HEADER: usize = 12;

/// Requests of the protocol.
const GET_FEATURES: u32 = 1;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
/// `VIRTIO_F_VERSION_1`.
const VERSION_1: u64 = 1 << 32;

/// A switch that has the server's rings. Its connection ends with it.
struct Switch {
    _stream: UnixStream,
    memory: File,
    /// Where the server has it.
    base: u64,
    /// Of received frames, as the server sees it, and of frames that it sends.
    receives: Ring,
    sends: Ring,
    _kicks: Vec<File>,
}

/// The parts of a ring, at their places in the memory, and what calls the server.
struct Ring {
    table: u64,
    offered: u64,
    used: u64,
    call: File,
}

impl Switch {
    /// Connects, and agrees with the server on all that it says.
    fn connect(socket: &Path) -> Switch {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (mut memory, mut base) = (None, 0);
        let (mut places, mut calls, mut kicks) = (Vec::new(), Vec::new(), Vec::new());
        while calls.len() < 2 {
            let (request, body, file) = message(&mut stream);
            let number = |at: usize| u64::from_ne_bytes(body[at..at + 8].try_into().unwrap());
            match request {
                GET_FEATURES => {
                    let answer = [GET_FEATURES, 0x5, 8].map(u32::to_ne_bytes).concat();
                    stream.write_all(&[answer, VERSION_1.to_ne_bytes().to_vec()].concat()).unwrap();
                }
                // The number of regions; of the one its address twice, and its size between.
                SET_MEM_TABLE => (memory, base) = (file, number(24)),
                // The ring's number, flags, the table, what was used, what is offered.
                SET_VRING_ADDR => places.push([8, 16, 24].map(|at| number(at) - base)),
                SET_VRING_KICK => kicks.extend(file),
                SET_VRING_CALL => calls.extend(file),
                _ => {}
            }
        }
        let mut rings = places.into_iter().zip(calls).map(|([table, used, offered], call)| Ring {
            table,
            offered,
            used,
            call,
        });
        let (receives, sends) = (rings.next().unwrap(), rings.next().unwrap());
        Switch { _stream: stream, memory: memory.unwrap(), base, receives, sends, _kicks: kicks }
    }

    fn word(&self, at: u64) -> u16 {
        let mut bytes = [0; 2];
        self.memory.read_exact_at(&mut bytes, at).unwrap();
        u16::from_ne_bytes(bytes)
    }

    /// How many buffers of a ring the server has offered since it began, and how many were used.
    fn indexes(&self, ring: &Ring) -> (u16, u16) {
        (self.word(ring.offered + 2), self.word(ring.used + 2))
    }

    /// The buffer that was offered as the so-manieth: where it is, how long, and its number.
    fn buffer(&self, ring: &Ring, index: u16) -> (u64, u32, u16) {
        let number = self.word(ring.offered + 4 + 2 * u64::from(index % ENTRIES));
        let mut entry = [0; 12];
        self.memory.read_exact_at(&mut entry, ring.table + 16 * u64::from(number)).unwrap();
        let (address, bytes) = entry.split_first_chunk().unwrap();
        let bytes = u32::from_ne_bytes(bytes.try_into().unwrap());
        (u64::from_ne_bytes(*address) - self.base, bytes, number)
    }

    /// Says that the next buffer was used, and calls the server if it wants that.
    fn used(&self, ring: &Ring, (number, bytes): (u16, u32)) {
        let (_, used) = self.indexes(ring);
        let entry = [u32::from(number), bytes].map(u32::to_ne_bytes).concat();
        self.memory.write_all_at(&entry, ring.used + 4 + 8 * u64::from(used % ENTRIES)).unwrap();
        self.memory.write_all_at(&used.wrapping_add(1).to_ne_bytes(), ring.used + 2).unwrap();
        if self.word(ring.offered) & 1 == 0 {
            (&ring.call).write_all(&1_u64.to_ne_bytes()).unwrap();
        }
    }

    /// Hands a datagram to the server.
    fn put(&self, content: &[u8]) {
        let (offered, used) = self.indexes(&self.receives);
        assert_ne!(offered, used, "the server has no room");
        let (at, _, number) = self.buffer(&self.receives, used);
        let frame = [&[0; HEADER][..], &datagram(content)].concat();
        self.memory.write_all_at(&frame, at).unwrap();
        self.used(&self.receives, (number, frame.len() as u32));
    }

    /// The content of the next datagram that the server sends, whose buffer it gets back.
    fn take(&self) -> Vec<u8> {
        let of = || self.indexes(&self.sends);
        until("an answer", || of().0 != of().1);
        let (at, bytes, number) = self.buffer(&self.sends, of().1);
        let mut frame = vec![0; bytes as usize];
        self.memory.read_exact_at(&mut frame, at).unwrap();
        self.used(&self.sends, (number, 0));
        frame.split_off(HEADER + 14 + 20 + 8)
    }
}

/// The next message of a server, with the file in it.
fn message(stream: &mut UnixStream) -> (u32, Vec<u8>, Option<File>) {
    let mut header = [0; 12];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut files = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut header)];
    let received = rustix::net::recvmsg(&*stream, &mut parts, &mut files, RecvFlags::WAITALL).unwrap();
    assert_eq!(received.bytes, 12, "the server has ended the connection");
    let file = files.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let number = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
    let mut body = vec![0; number(8) as usize];
    stream.read_exact(&mut body).unwrap();
    (number(0), body, file.map(|file: OwnedFd| File::from(file)))
}

/// A frame for the server with a datagram.
fn datagram(content: &[u8]) -> Vec<u8> {
    let udp = 8 + content.len() as u16;
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1];
    ip.extend(SERVER.octets());
    ip[2..4].copy_from_slice(&(20 + udp).to_be_bytes());
    let sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    ip[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    let header = [1000, PORT, udp, 0].map(u16::to_be_bytes).concat();
    [&MAC[..], &[2, 0, 0, 0, 0, 1, 8, 0], &ip, &header, content].concat()
}

/// Waits for what the server does.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Lets a server that answers each datagram with as many bytes have a socket, and does something meanwhile.
fn with_server(work: impl FnOnce(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("port");
    let config = ResponderConfig {
        listen: vec![Listen::Udp(SocketAddr::from((SERVER, PORT)))],
        echo: true,
        stack: Some(StackConfig::VhostUser { socket: socket.clone(), mtu: 1500 }),
        ..ResponderConfig::default()
    };
    let server = Server::bind(&config).unwrap();
    while_serving(&server, || work(&socket));
}

/// Asks until no buffer is left for one more answer.
fn fill(switch: &Switch) {
    for number in 0..ENTRIES {
        switch.put(&number.to_ne_bytes());
    }
    until("as many answers", || switch.indexes(&switch.sends).0 == ENTRIES);
}

#[test]
fn a_switch_that_died_with_all_buffers_is_followed_by_another() {
    with_server(|socket| {
        let dying = Switch::connect(socket);
        fill(&dying);
        // No answer to this one can leave, so it stays where it is. The server has seen it when it has taken the call.
        dying.put(b"one more");
        until("a server that wakes", || {
            let mut call = [PollFd::new(&dying.receives.call, PollFlags::IN)];
            rustix::event::poll(&mut call, Some(&rustix::time::Timespec::default())).unwrap() == 0
        });
        drop(dying);
        let next = Switch::connect(socket);
        next.put(b"anew");
        assert_eq!(next.take(), b"anew");
    });
}

#[test]
fn a_server_without_room_goes_on_when_frames_have_left() {
    with_server(|socket| {
        let switch = Switch::connect(socket);
        fill(&switch);
        switch.put(b"one more");
        for number in 0..ENTRIES {
            assert_eq!(switch.take(), number.to_ne_bytes());
        }
        assert_eq!(switch.take(), b"one more");
    });
}

/// Whatever it is, the switch waits behind it.
#[test]
fn who_connects_and_says_nothing_is_sent_away() {
    with_server(|socket| {
        let mut silent = UnixStream::connect(socket).unwrap();
        silent.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut asked = Vec::new();
        silent.read_to_end(&mut asked).unwrap();
        assert!(!asked.is_empty(), "it was asked nothing");
        let switch = Switch::connect(socket);
        switch.put(b"at last");
        assert_eq!(switch.take(), b"at last");
    });
}

/// It may have kept the memory, and is not to see what the next one carries.
#[test]
fn the_next_switch_has_memory_of_its_own() {
    with_server(|socket| {
        let first = Switch::connect(socket);
        let kept = first.memory.try_clone().unwrap();
        drop(first);
        let next = Switch::connect(socket);
        next.put(b"a secret");
        assert_eq!(next.take(), b"a secret");
        let mut bytes = Vec::new();
        (&kept).read_to_end(&mut bytes).unwrap();
        assert!(!bytes.windows(8).any(|part| part == b"a secret"));
    });
}
