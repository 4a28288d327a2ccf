//! Frames that are handed to an AF_XDP socket, and frames that are left to the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use bpf::afxdp::{Carried, FrameFilter, Handing};
use linux::xdp::XdpSocket;
use linux::{IfName, Netlink};
use testkit::{Wire, require_root};

const V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
const PORT: u16 = 4000;
/// Longer than a frame takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the headers of Ethernet, IPv4 and UDP, and what IPv6 has more.
const HEADERS: usize = 14 + 20 + 8;
const MORE: usize = 20;

/// Hands over what comes at the far end for these addresses.
fn handing(wire: &Wire, cpu: Option<u16>) -> (XdpSocket, Handing) {
    let attach = || {
        let index = Netlink::open().unwrap().index_of(&IfName::new("b0").unwrap()).unwrap();
        let socket = XdpSocket::bind(index).unwrap();
        let v6 = linux::features::has_ipv6().then_some(V6);
        let wanted = FrameFilter { v4: Some(V4), v6, carried: Carried::Udp, port: PORT, cpu };
        let handing = Handing::attach(&wanted, index, &socket).unwrap();
        (socket, handing)
    };
    wire.far.run(attach).unwrap()
}

/// Sends a datagram from the near end.
fn send(wire: &Wire, bytes: &[u8], to: (IpAddr, u16)) {
    let any: IpAddr =
        if to.0.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = wire.near.run(|| UdpSocket::bind((any, 0)).unwrap()).unwrap();
    assert_eq!(socket.send_to(bytes, SocketAddr::from(to)).unwrap(), bytes.len());
}

/// A socket of the far end's kernel.
fn listen(wire: &Wire, at: (IpAddr, u16)) -> UdpSocket {
    let socket = wire.far.run(|| UdpSocket::bind(at).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// The next frame of a socket.
fn next(socket: &mut XdpSocket) -> Vec<u8> {
    let (deadline, mut frame) = (Instant::now() + PATIENCE, Vec::new());
    while !socket.receive(&mut frame) {
        socket.wait(100_000_000).unwrap();
        assert!(Instant::now() < deadline, "no frame came");
    }
    frame
}

/// All that is one address's and one port's comes to the socket, and nothing else.
#[test]
fn frames_of_one_port_are_handed_over() {
    if !require_root() {
        return;
    }
    let wire = Wire::up();
    for cpu in [None, Some(0)] {
        let (mut socket, handing) = handing(&wire, cpu);
        let (elsewhere, kernel) = (listen(&wire, (V4.into(), PORT + 1)), listen(&wire, (V4.into(), PORT)));
        let before = handing.handed().unwrap();
        // More than there are places for, one after the other, so that each is used again.
        for number in 0..1500_u32 {
            send(&wire, &number.to_be_bytes(), (V4.into(), PORT));
            let frame = next(&mut socket);
            assert_eq!(frame[HEADERS..HEADERS + 4], number.to_be_bytes(), "on CPU {cpu:?}");
        }
        if linux::features::has_ipv6() {
            send(&wire, b"six", (V6.into(), PORT));
            assert_eq!(next(&mut socket)[HEADERS + MORE..][..3], *b"six");
        }
        // Another port, and a datagram in fragments, of which only the first has a port.
        send(&wire, b"other", (V4.into(), PORT + 1));
        assert_eq!(elsewhere.recv(&mut [0; 10]).unwrap(), 5);
        send(&wire, &[7; 3000], (V4.into(), PORT));
        assert_eq!(kernel.recv(&mut [0; 4000]).unwrap(), 3000);
        assert!(!socket.has_frames());
        let handed = handing.handed().unwrap();
        let taken = 1500 + u64::from(linux::features::has_ipv6());
        assert_eq!(handed.taken - before.taken, taken);
        assert!(handed.left >= before.left + 4, "{handed:?}");
        let lost = socket.statistics().unwrap();
        assert_eq!((lost.rx_dropped, lost.rx_invalid_descs, lost.tx_invalid_descs), (0, 0, 0));
        // Afterwards all is the kernel's again, and the queue is another socket's.
        drop(handing);
        send(&wire, b"back", (V4.into(), PORT));
        assert_eq!(kernel.recv(&mut [0; 10]).unwrap(), 4);
    }
}

/// A socket sends as many frames as it is given, and every place is free again.
#[test]
fn frames_are_sent() {
    if !require_root() {
        return;
    }
    let wire = Wire::up();
    let (mut socket, _handing) = handing(&wire, None);
    send(&wire, b"x", (V4.into(), PORT));
    let template = next(&mut socket);
    let receiver = wire.near.run(|| UdpSocket::bind((Ipv4Addr::new(192, 0, 2, 1), PORT)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    for number in 0..1500_u16 {
        let answer = turned(&template, number);
        let sent = socket.send(answer.len(), |frame| frame.copy_from_slice(&answer));
        assert!(sent, "there was no room for frame {number}");
        socket.flush().unwrap();
        let mut bytes = [0; 2];
        assert_eq!(receiver.recv(&mut bytes).unwrap(), 2);
        assert_eq!(u16::from_be_bytes(bytes), number);
    }
}

/// The answer to a datagram of one byte: a number, to the port at the other end.
fn turned(frame: &[u8], number: u16) -> Vec<u8> {
    let mut answer = frame[..HEADERS].to_vec();
    answer[..6].copy_from_slice(&frame[6..12]);
    answer[6..12].copy_from_slice(&frame[..6]);
    answer[16..18].copy_from_slice(&30_u16.to_be_bytes());
    answer[24..26].fill(0);
    answer[26..30].copy_from_slice(&frame[30..34]);
    answer[30..34].copy_from_slice(&frame[26..30]);
    let sum: u32 = answer[14..34].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
    answer[24..26].copy_from_slice(&checksum.to_be_bytes());
    for at in [34, 36] {
        answer[at..at + 2].copy_from_slice(&PORT.to_be_bytes());
    }
    answer[38..40].copy_from_slice(&10_u16.to_be_bytes());
    // Zero: there is no checksum.
    answer[40..42].fill(0);
    answer.extend(number.to_be_bytes());
    answer
}
