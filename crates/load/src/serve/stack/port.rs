//! Where a stack of our own gets its frames from, and sends them to.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use bpf::afxdp::{Carried, FrameFilter, Handing};
use linux::xdp::XdpSocket;
use linux::{IfName, Netlink};

use super::super::ServeError;

/// After which time it is looked again whether a frame has left, where none can be made before.
const LEAVES: Duration = Duration::from_micros(20);

/// Where frames come from and go to. Each has its Ethernet header.
pub(in super::super) trait Port: Send {
    /// The Ethernet address of the stack, which answers for its own addresses; `None`: a kernel does.
    fn mac(&self) -> Option<[u8; 6]>;
    /// Copies the next received frame. False: there is none.
    fn receive(&mut self, frame: &mut Vec<u8>) -> bool;
    /// Whether there is room for a frame to send.
    fn can_send(&mut self) -> bool;
    /// Lets `write` make a frame of so many bytes, which leaves with the next flush. There is room.
    fn send(&mut self, bytes: usize, write: &mut dyn FnMut(&mut [u8]));
    /// Lets what was made leave, as much as can now.
    fn flush(&mut self) -> Result<(), ServeError>;
    /// Waits for a frame, up to so many nanoseconds; with zero it only looks. Where there is no room to send, frames
    /// cannot be taken, and it waits for room.
    fn wait(&mut self, limit_ns: u64) -> Result<(), ServeError>;
}

/// Frames of a link's queue, by AF_XDP. The program at the link ends before the socket does.
#[derive(Debug)]
pub(in super::super) struct XdpPort {
    _handing: Handing,
    socket: XdpSocket,
}

impl XdpPort {
    /// Takes the frames for these addresses and this port from a link of the calling thread's namespace. The kernel
    /// hands them over on a CPU, or on the one that received them.
    pub(super) fn open(
        ifindex: u32,
        cpu: Option<u16>,
        addresses: &[IpAddr],
        (carried, port): (Carried, u16),
    ) -> Result<XdpPort, ServeError> {
        let socket = XdpSocket::bind(ifindex)?;
        let v4 = addresses.iter().find_map(|address| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        });
        let v6 = addresses.iter().find_map(|address| match address {
            IpAddr::V6(v6) => Some(*v6),
            IpAddr::V4(_) => None,
        });
        let wanted = FrameFilter { v4, v6, carried, port, cpu };
        Ok(XdpPort { _handing: Handing::attach(&wanted, ifindex, &socket)?, socket })
    }
}

impl Port for XdpPort {
    fn mac(&self) -> Option<[u8; 6]> {
        None
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        self.socket.receive(frame)
    }

    fn can_send(&mut self) -> bool {
        self.socket.can_send()
    }

    fn send(&mut self, bytes: usize, write: &mut dyn FnMut(&mut [u8])) {
        let sent = self.socket.send(bytes, write);
        assert!(sent, "the caller has asked for room");
    }

    fn flush(&mut self) -> Result<(), ServeError> {
        Ok(self.socket.flush()?)
    }

    fn wait(&mut self, limit_ns: u64) -> Result<(), ServeError> {
        let (has_frames, can_send) = (self.socket.has_frames(), self.socket.can_send());
        if has_frames && can_send {
            return Ok(());
        }
        if has_frames && limit_ns > 0 {
            // No frame is taken while none can leave. The kernel says nothing when one has left.
            thread::sleep(Duration::from_nanos(limit_ns).min(LEAVES));
            return self.flush();
        }
        if limit_ns > 0 {
            return Ok(self.socket.wait(limit_ns)?);
        }
        // The kernel's thread that hands frames over may be on this CPU.
        rustix::thread::sched_yield();
        Ok(())
    }
}

/// A link of the calling thread's namespace.
pub(super) struct ServedLink {
    pub(super) ifindex: u32,
    /// Bytes of a packet without the Ethernet header.
    pub(super) mtu: u32,
    /// Its addresses but those of the link alone.
    pub(super) addresses: Vec<IpAddr>,
}

/// What the kernel says of a link.
pub(super) fn find(link: &IfName) -> Result<ServedLink, ServeError> {
    /// The scope of addresses that are known elsewhere (`RT_SCOPE_UNIVERSE`).
    const UNIVERSE: u8 = 0;
    let netlink = Netlink::open()?;
    let index = netlink.index_of(link)?;
    let info = netlink.link(link)?.ok_or_else(|| {
        let attempted = format!("find link {link}");
        linux::Error::new(attempted, std::io::ErrorKind::NotFound)
    })?;
    let addresses = netlink.addresses_of(index)?.into_iter();
    let addresses = addresses.filter(|info| info.scope == UNIVERSE).map(|info| info.address.addr());
    Ok(ServedLink { ifindex: index, mtu: info.mtu, addresses: addresses.collect() })
}
