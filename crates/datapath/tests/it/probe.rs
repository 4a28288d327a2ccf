//! Real packets between namespaces: echo requests, TCP and UDP, each with a time limit.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use linux::Netns;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use testkit::bound;

/// How long a packet may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that a TCP exchange sends each way.
const TRANSFER_BYTES: usize = 1 << 20;
/// Bytes of an ICMP echo header.
const ECHO_HEADER: usize = 8;

/// Sends an echo request in an IP packet of exactly `packet` bytes that must not be fragmented, and waits for
/// the whole answer.
pub(crate) fn ping(from: &Netns, to: IpAddr, packet: u32) -> io::Result<()> {
    static IDS: AtomicU16 = AtomicU16::new(1);
    let id = IDS.fetch_add(1, Ordering::Relaxed);
    let socket = inside(from, || echo_socket(to))?;
    let header = if to.is_ipv4() { 20 } else { 40 };
    let bytes = usize::try_from(packet).expect("an MTU fits") - header - ECHO_HEADER;
    let request = echo_request(to, id, pattern(bytes));
    socket.send_to(&request, SocketAddr::new(to, 0))?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (length, source) = socket.recv_from(&mut buffer)?;
        let answer = &buffer[..length];
        // IPv4 raw sockets receive the IP header too. The low half of its first byte is its length in words.
        let icmp = if to.is_ipv4() { &answer[usize::from(answer[0] & 15) * 4..] } else { answer };
        let kind = if to.is_ipv4() { 0 } else { 129 };
        if source.ip() == to && icmp[0] == kind && icmp[4..6] == id.to_be_bytes() {
            let same = icmp[ECHO_HEADER..] == request[ECHO_HEADER..];
            return if same { Ok(()) } else { Err(io::Error::other("the answer has other bytes")) };
        }
    }
}

/// Sends a megabyte each way over a connection and compares every byte. Returns the client's address as the
/// server sees it.
pub(crate) fn tcp(server: &Netns, port: u16, client: &Netns, to: SocketAddr) -> io::Result<IpAddr> {
    let listener = inside(server, || bound(|| TcpListener::bind(any(to, port))))?;
    let mut near = inside(client, || TcpStream::connect_timeout(&to, PATIENCE))?;
    limit(&near)?;
    let sent = pattern(TRANSFER_BYTES);
    let (answer, received, seen) = std::thread::scope(|scope| {
        // The client speaks first: between some clients and servers a connection stands only then (pasta).
        let echo = scope.spawn(move || {
            let (mut far, seen) = accept(&listener)?;
            limit(&far)?;
            let mut received = vec![0; TRANSFER_BYTES];
            far.read_exact(&mut received)?;
            far.write_all(&received)?;
            io::Result::Ok((received, seen))
        });
        let mut answer = vec![0; TRANSFER_BYTES];
        let exchanged = near.write_all(sent).and_then(|()| near.read_exact(&mut answer));
        let (received, seen) = echo.join().expect("the echo does not panic")?;
        exchanged.map(|()| (answer, received, seen))
    })?;
    if [answer, received].iter().any(|bytes| *bytes != sent) {
        return Err(io::Error::other("other bytes arrived than were sent"));
    }
    Ok(seen.ip())
}

fn limit(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let patience = PATIENCE.try_into().expect("seconds fit");
    match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&patience))? {
        0 => Err(io::Error::new(io::ErrorKind::TimedOut, "no connection reached the server")),
        _ => listener.accept(),
    }
}

/// Sends datagrams of many lengths up to a full packet of `mtu` bytes and compares what comes back.
pub(crate) fn udp(server: &Netns, port: u16, client: &Netns, to: SocketAddr, mtu: u32) -> io::Result<()> {
    let far = inside(server, || bound(|| UdpSocket::bind(any(to, port))))?;
    let near = inside(client, || UdpSocket::bind(any(to, 0)))?;
    for socket in [&far, &near] {
        socket.set_read_timeout(Some(PATIENCE))?;
    }
    let headers = if to.is_ipv4() { 28 } else { 48 };
    let longest = usize::try_from(mtu).expect("an MTU fits") - headers;
    let mut buffer = vec![0; 1 << 16];
    for length in (1..longest).step_by(97).chain([longest]) {
        let datagram = pattern(length);
        near.send_to(datagram, to)?;
        let (received, source) = far.recv_from(&mut buffer)?;
        let intact = buffer[..received] == *datagram;
        far.send_to(&buffer[..received], source)?;
        let (received, _) = near.recv_from(&mut buffer)?;
        if !intact || buffer[..received] != *datagram {
            return Err(io::Error::other(format!("a datagram of {length} bytes arrived with others")));
        }
    }
    Ok(())
}

/// How many packets a namespace has fragmented, in both families.
pub(crate) fn fragments_made(netns: &Netns) -> u64 {
    counted(netns, "FragCreates", "Ip6FragCreates")
}

/// How many packets a namespace has forwarded by its routes, in both families.
pub(crate) fn forwarded(netns: &Netns) -> u64 {
    counted(netns, "ForwDatagrams", "Ip6OutForwDatagrams")
}

/// The sum of one counter of a namespace's `/proc/net/snmp` and one of its `/proc/net/snmp6`.
fn counted(netns: &Netns, name4: &str, name6: &str) -> u64 {
    let (v4, v6) = netns
        .run(|| {
            ["snmp", "snmp6"].map(|file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")))
        })
        // A kernel without IPv6 has no IPv6 counters.
        .map(|[v4, v6]| (v4.expect("snmp is readable"), v6.unwrap_or_else(|_| format!("{name6} 0"))))
        .expect("the namespace can be entered");
    let mut lines = v4.lines().filter(|line| line.starts_with("Ip: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let at = names.split(' ').position(|name| name == name4).expect("it is counted");
    let v4 = values.split(' ').nth(at).expect("a value for each name");
    let v6 = v6.lines().find_map(|line| line.strip_prefix(name6)).expect("it is counted");
    [v4, v6].map(|text| text.trim().parse::<u64>().expect("a number")).into_iter().sum()
}

/// Opens a socket in a namespace. The socket stays there.
fn inside<T>(netns: &Netns, open: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    netns.run(open).expect("a test's own namespaces can be entered")
}

fn any(like: SocketAddr, port: u16) -> SocketAddr {
    match like {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, port).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, port).into(),
    }
}

/// Bytes in which a shift, a cut or a swap shows.
pub(crate) fn pattern(length: usize) -> &'static [u8] {
    // Made once: without optimization, and in an emulated machine, it takes longer than to send it.
    static BYTES: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..TRANSFER_BYTES).map(|at| (at * 31 + at / 251) as u8).collect());
    &BYTES[..length]
}

/// A raw ICMP socket that refuses to send what would be fragmented. It is a [`UdpSocket`] for its methods,
/// which do not check the protocol.
fn echo_socket(to: IpAddr) -> io::Result<UdpSocket> {
    let (family, protocol) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let socket = rustix::net::socket(family, SocketType::RAW, Some(protocol))?;
    match to {
        IpAddr::V4(_) => sockopt::set_ip_mtu_discover(&socket, sockopt::Ipv4PathMtuDiscovery::DO)?,
        IpAddr::V6(_) => sockopt::set_ipv6_mtu_discover(&socket, sockopt::Ipv6PathMtuDiscovery::DO)?,
    }
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn echo_request(to: IpAddr, id: u16, data: &[u8]) -> Vec<u8> {
    let kind = if to.is_ipv4() { 8 } else { 128 };
    let mut packet = vec![kind, 0, 0, 0];
    packet.extend(id.to_be_bytes());
    packet.extend([0, 1]);
    packet.extend(data);
    // The kernel writes the checksum of ICMPv6, because only it knows the source address.
    if to.is_ipv4() {
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded to 16 bits")
}

#[test]
fn checksum_is_rfc_1071s() {
    // The example in section 3 of the RFC.
    assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    assert_eq!(checksum(&[0xff]), !0xff00);
}
