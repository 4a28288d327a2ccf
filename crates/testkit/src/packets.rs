//! Packet sockets: whole frames, with the metadata that the kernel keeps beside their bytes.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use linux::{IfName, Netlink, Netns};

/// Options of packet sockets that the `libc` crate does not name (include/uapi/linux/if_packet.h).
const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
/// Marks the tag in `struct tpacket_auxdata` as valid.
const VLAN_VALID: u32 = 1 << 4;
/// Room for all packets that arrive while a test does something else.
const BUFFER_BYTES: libc::c_int = 64 << 20;
/// Longer than any frame, including large ones that offloads have merged.
const LONGEST: usize = 80_000;

/// The metadata of a frame whose sender leaves work to the link: `struct virtio_net_hdr` of the virtio
/// specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Offload {
    /// 1: the link must fill in the checksum.
    pub flags: u8,
    /// The kind of segments: 0 none, 1 TCP over IPv4, 3 fragments of UDP, 4 TCP over IPv6, 5 UDP.
    pub kind: u8,
    /// Bytes of all headers before the payload (`hdr_len` of virtio).
    pub header_bytes: u16,
    /// Payload bytes of each segment.
    pub segment_bytes: u16,
    /// The offset at which the checksum begins.
    pub checksum_start: u16,
    /// The offset of the checksum field from there.
    pub checksum_offset: u16,
}

impl Offload {
    /// The kind of a datagram that the link splits into IP fragments.
    pub const FRAGMENTS: u8 = 3;
}

/// A frame that a packet socket received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The frame's bytes, from the Ethernet header on.
    pub bytes: Vec<u8>,
    /// The work that was left to the link.
    pub offload: Offload,
    /// True if a VLAN tag stands beside the bytes.
    pub tagged: bool,
    /// True if the link sent it.
    pub sent: bool,
}

/// A packet socket at one link.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    link: libc::c_int,
}

impl PacketSocket {
    /// A socket that only sends.
    ///
    /// # Panics
    /// If the namespace has no such link, or the user lacks the privilege.
    pub fn sender(netns: &Netns, link: &IfName) -> PacketSocket {
        PacketSocket::open(netns, link, 0)
    }

    /// A socket that receives packets as they arrive at a link, before any program or rule sees them.
    ///
    /// # Panics
    /// Under the conditions of [`PacketSocket::sender`].
    pub fn receiver(netns: &Netns, link: &IfName) -> PacketSocket {
        let socket = PacketSocket::open(netns, link, libc::ETH_P_ALL as u16);
        socket.set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
        socket
    }

    /// A socket that also receives the packets that the link sends.
    ///
    /// # Panics
    /// Under the conditions of [`PacketSocket::sender`].
    pub fn witness(netns: &Netns, link: &IfName) -> PacketSocket {
        PacketSocket::open(netns, link, libc::ETH_P_ALL as u16)
    }

    fn open(netns: &Netns, link: &IfName, protocol: u16) -> PacketSocket {
        let index = Netlink::open_in(netns).and_then(|netlink| netlink.index_of(link));
        let index = index.expect("the link is there").cast_signed();
        let open = || {
            // SAFETY: no pointers are passed. The protocol is set below, so no packet of another link arrives
            // before.
            unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) }
        };
        let socket = netns.run(open).expect("the namespace is there");
        assert!(socket >= 0, "a packet socket: {}", io::Error::last_os_error());
        // SAFETY: the descriptor was just made and has no other owner.
        let socket = PacketSocket { socket: unsafe { OwnedFd::from_raw_fd(socket) }, link: index };
        socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES);
        socket.set(libc::SOL_PACKET, PACKET_VNET_HDR, 1);
        socket.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1);
        let address = socket.address(protocol);
        // SAFETY: the address is a whole `sockaddr_ll`, passed with its length, and outlives the call.
        let bound = unsafe {
            libc::bind(socket.socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32)
        };
        assert_eq!(bound, 0, "bind to {link}: {}", io::Error::last_os_error());
        socket
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) {
        // SAFETY: the value is an integer, passed with its length, and outlives the call.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                size_of_val(&value) as u32,
            )
        };
        assert_eq!(result, 0, "option {option} of a packet socket: {}", io::Error::last_os_error());
    }

    fn address(&self, protocol: u16) -> libc::sockaddr_ll {
        // SAFETY: all its fields are integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = self.link;
        address
    }

    /// Sends a frame. `protocol` is the sender's claim, whatever the frame contains.
    ///
    /// # Errors
    /// The kernel refuses the frame, its offload or its protocol.
    pub fn send(&self, frame: &[u8], offload: Offload, protocol: u16) -> io::Result<()> {
        let address = self.address(protocol);
        // SAFETY: `Offload` is integers without padding between them.
        let head =
            unsafe { std::slice::from_raw_parts((&raw const offload).cast::<u8>(), size_of::<Offload>()) };
        let whole = [head, frame].concat();
        // SAFETY: buffer and address come with their lengths and outlive the call.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                whole.as_ptr().cast(),
                whole.len(),
                0,
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The next frame, or `None` if none arrives within `patience`.
    ///
    /// # Panics
    /// If the socket fails.
    pub fn receive(&self, patience: Duration) -> Option<Captured> {
        let mut ready = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let millis = i32::try_from(patience.as_millis()).expect("patience has an end");
        // SAFETY: one structure is given, and outlives the call.
        if unsafe { libc::poll(&raw mut ready, 1, millis) } == 0 {
            return None;
        }
        loop {
            match self.take() {
                Ok(captured) => return Some(captured),
                // `Offload` has no number for this kind of packet. The kernel has removed it from the queue.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) => panic!("receive: {error}"),
            }
        }
    }

    fn take(&self) -> io::Result<Captured> {
        let mut buffer = vec![0_u8; LONGEST];
        let mut control = [0_u64; 16];
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: all its fields are integers or pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { zeroed() };
        let mut from = self.address(0);
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of_val(&from) as u32;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: the message points to buffers that come with their lengths and outlive the call.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let Ok(length) = usize::try_from(length) else { return Err(io::Error::last_os_error()) };
        buffer.truncate(length);
        let bytes = buffer.split_off(size_of::<Offload>().min(length));
        // SAFETY: the buffer begins with the bytes of an `Offload`, and any bytes are a valid one. The read
        // may be unaligned.
        let offload = unsafe { buffer.as_ptr().cast::<Offload>().read_unaligned() };
        let sent = from.sll_pkttype == libc::PACKET_OUTGOING;
        Ok(Captured { bytes, offload, tagged: is_tagged(&message), sent })
    }
}

/// Whether a message shows that the kernel took a VLAN tag out of its frame.
fn is_tagged(message: &libc::msghdr) -> bool {
    // SAFETY: the kernel has filled the message's control buffer and set its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: it points to a whole header within the buffer.
        let of = unsafe { *header };
        if of.cmsg_level == libc::SOL_PACKET && of.cmsg_type == libc::PACKET_AUXDATA {
            // SAFETY: the data of this type is a `struct tpacket_auxdata`, which begins with its status.
            let status = unsafe { libc::CMSG_DATA(header).cast::<u32>().read_unaligned() };
            return status & VLAN_VALID != 0;
        }
        // SAFETY: message and header are those from above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    false
}
