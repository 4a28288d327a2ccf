//! The sockets of a namespace with what TCP knows of each (`NETLINK_SOCK_DIAG`), as `ss -tin` asks for them. Needs no
//! privilege.
//!
//! `struct tcp_info` only ever grows: its length shows which fields this kernel has; missing ones are zero.

mod message;

use std::io;

use netlink_sys::protocols::NETLINK_SOCK_DIAG;

use crate::Result;
use crate::error::{Attempt, refusal};
use message::{
    DatagramEnd, HEADER_BYTES, INET_DIAG_CONG, INET_DIAG_INFO, INET_DIAG_SKMEMINFO, SOCK_DIAG_BY_FAMILY,
    read_datagram,
};

pub use message::{SocketMemory, TcpInfo, TcpSocket};

/// States of a TCP socket, as bits of a question (`1 << TCP_LISTEN` and so on in include/net/tcp_states.h).
pub mod states {
    /// Connections in use in both directions.
    pub const ESTABLISHED: u32 = 1 << 1;
    /// Closed connections that the kernel still remembers for a time (`TCP_TIMEWAIT_LEN`).
    pub const TIME_WAIT: u32 = 1 << 6;
    /// Listeners, which wait for connections.
    pub const LISTEN: u32 = 1 << 10;
    /// Every state, from `TCP_ESTABLISHED` (1) to `TCP_CLOSING` (11) of include/net/tcp_states.h.
    pub const ALL: u32 = 0xfff;
}

const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const BUFFER_BYTES: usize = 64 * 1024;

/// The TCP sockets of the calling thread's namespace that are in one of the states, IPv4 then IPv6.
///
/// # Errors
/// The kernel has no `tcp_diag`, or refuses.
pub fn tcp_sockets(states: u32) -> Result<Vec<TcpSocket>> {
    let mut sockets = Vec::new();
    dump(states, &[INET_DIAG_INFO, INET_DIAG_CONG, INET_DIAG_SKMEMINFO], |socket| sockets.push(socket))?;
    Ok(sockets)
}

/// The same one after the other, each without what TCP knows of it, its algorithm and its memory: of a hundred thousand
/// sockets these are most of the cost.
///
/// # Errors
/// The kernel has no `tcp_diag`, or refuses.
pub fn each_tcp_socket(states: u32, each: impl FnMut(TcpSocket)) -> Result<()> {
    dump(states, &[], each)
}

fn dump(states: u32, wanted: &[u16], mut each: impl FnMut(TcpSocket)) -> Result<()> {
    for family in [libc::AF_INET, libc::AF_INET6] {
        let family = u8::try_from(family).expect("families are small");
        dump_family(&question(family, states, wanted), &mut each).attempt(|| "list TCP sockets")?;
    }
    Ok(())
}

fn dump_family(question: &[u8], each: &mut impl FnMut(TcpSocket)) -> io::Result<()> {
    let socket = netlink_sys::Socket::new(NETLINK_SOCK_DIAG)?;
    socket.send(question, 0)?;
    let mut buffer = Vec::with_capacity(BUFFER_BYTES);
    let mut sockets = Vec::new();
    loop {
        buffer.clear();
        match socket.recv(&mut buffer, 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            received => received?,
        };
        let end = read_datagram(&buffer, &mut sockets);
        sockets.drain(..).for_each(&mut *each);
        match end {
            DatagramEnd::Open => {}
            DatagramEnd::Complete => return Ok(()),
            DatagramEnd::Refused(errno) => return Err(refusal(errno, None)),
        }
    }
}

/// `struct inet_diag_req_v2` behind its header.
fn question(family: u8, states: u32, wanted: &[u16]) -> Vec<u8> {
    let protocol = u8::try_from(libc::IPPROTO_TCP).expect("protocols are small");
    let extensions = wanted.iter().fold(0_u8, |bits, attribute| bits | 1 << (attribute - 1));
    let mut body = vec![family, protocol, extensions, 0];
    body.extend(states.to_ne_bytes());
    // Any socket: the id is all zeros but the cookie, which is INET_DIAG_NOCOOKIE.
    body.extend([0; 40]);
    body.extend([0xff; 8]);
    let length = u32::try_from(HEADER_BYTES + body.len()).expect("it is short");
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.extend([1_u32.to_ne_bytes(), [0; 4]].concat());
    bytes.extend(body);
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_is_listed_with_what_it_carried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 5000]).unwrap();
        server.read_exact(&mut [0; 4000]).unwrap();
        // The acknowledgement of what was read is on its way within the machine; no time is waited for it.
        let sockets = tcp_sockets(states::ESTABLISHED | states::LISTEN).unwrap();
        let find = |local, peer| sockets.iter().find(|s| s.local == local && s.peer == peer).unwrap();
        let near = find(client.local_addr().unwrap(), address);
        let tcp = near.tcp.unwrap();
        // On a machine that stands still a moment, TCP probes whether the last segment was lost.
        assert_eq!((near.state, tcp.bytes_sent - tcp.bytes_retrans), (1, 5000));
        assert_eq!(tcp.total_retrans > 0, tcp.bytes_retrans > 0, "{tcp:?}");
        assert!(tcp.rtt > 0 && tcp.snd_cwnd > 0 && tcp.rto > 0 && tcp.snd_mss > 500, "{tcp:?}");
        assert!(!near.congestion.is_empty() && near.memory.unwrap().send_buffer > 0);
        let mut bare = Vec::new();
        each_tcp_socket(states::ESTABLISHED, |socket| bare.push(socket)).unwrap();
        let bare = bare.iter().find(|socket| socket.cookie == near.cookie).unwrap();
        assert_eq!((bare.local, bare.peer, bare.tcp, bare.memory), (near.local, near.peer, None, None));
        let far = find(address, client.local_addr().unwrap());
        assert_eq!((far.rqueue, far.tcp.unwrap().bytes_received), (1000, 5000));
        let waiting = sockets.iter().find(|s| s.local == address && s.state == 10).unwrap();
        assert_eq!((waiting.rqueue, waiting.wqueue), (0, 128));
    }
}
