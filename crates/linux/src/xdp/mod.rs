//! AF_XDP: frames between a queue of a link and this process, past the kernel's stack (Linux 5.4).
//!
//! A program at the link's XDP hook decides which frames these are; it finds the socket in a
//! map of kind XSKMAP. Frames are copied: a link that hands its own buffers over (zero-copy) is
//! not asked for. Documentation/networking/af_xdp.rst.

mod memory;
mod ring;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, XdpStatistics, XdpUmemReg, XdpUmemRegFlags};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};

use crate::Result;
use crate::error::Attempt;
use memory::Frames;
use ring::{Consumer, Descriptor, Producer};

/// Frames for each direction. With [`FRAME_BYTES`] they are 2 MiB of locked memory, which counts for the user: several
/// sockets fit into the usual limit of 8 MiB (`RLIMIT_MEMLOCK`).
const FRAMES: u32 = 512;
/// Entries of a ring. The kernel says that it has taken an entry only after it has handed the frame over, so that for a
/// moment a frame can be in a ring twice.
const ENTRIES: u32 = 2 * FRAMES;
/// Bytes of a frame's place, a size that every kernel takes. The kernel keeps 256 of them before a received frame.
const FRAME_BYTES: u32 = 2048;
/// The longest frame with its Ethernet header, in bytes.
pub const FRAME_BYTES_MAX: usize = FRAME_BYTES as usize - 256;
/// The queue of a link that a socket gets frames of. A veth link has this one.
pub const QUEUE: u32 = 0;
/// How long a queue may stay taken by a socket that was closed: the kernel lets go of it after a grace period.
const TAKEN_MAX: Duration = Duration::from_secs(3);
/// A socket with its memory, bound to queue [`QUEUE`] of a link. It is unbound when it is dropped, or the process dies.
#[derive(Debug)]
pub struct XdpSocket {
    // Before the memory, which the kernel may write until the socket is closed.
    socket: OwnedFd,
    received: Consumer<Descriptor>,
    filled: Producer<u64>,
    sending: Producer<Descriptor>,
    sent: Consumer<u64>,
    frames: Frames,
    /// Places of frames to send that are free.
    free: Vec<u64>,
}

impl XdpSocket {
    /// Binds a socket to a link of the calling thread's namespace, in copy mode. If the queue is taken, by a socket
    /// that was just closed perhaps, it is tried again for three seconds.
    ///
    /// # Errors
    /// There is no such link, the queue is another socket's, memory may not be locked (`RLIMIT_MEMLOCK`), or the
    /// kernel has no AF_XDP.
    pub fn bind(ifindex: u32) -> Result<XdpSocket> {
        let attempted = || format!("open a socket for the frames of link {ifindex} (AF_XDP)");
        let unbound = XdpSocket::unbound().attempt(attempted)?;
        let flags = SocketAddrXdpFlags::XDP_COPY | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        let address = SocketAddrXdp::new(flags, ifindex, QUEUE);
        let deadline = Instant::now() + TAKEN_MAX;
        loop {
            match rustix::net::bind(&unbound.socket, &address) {
                Err(Errno::BUSY) if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
                bound => {
                    bound.attempt(|| format!("bind a socket to queue {QUEUE} of link {ifindex} (AF_XDP)"))?;
                    return Ok(unbound);
                }
            }
        }
    }

    fn unbound() -> io::Result<XdpSocket> {
        let socket = open()?;
        let frames = Frames::new(2 * FRAMES, FRAME_BYTES)?;
        let registered = XdpUmemReg {
            addr: frames.address(),
            len: frames.bytes() as u64,
            chunk_size: FRAME_BYTES,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&socket, registered)?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, ENTRIES)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, ENTRIES)?;
        sockopt::set_xdp_rx_ring_size(&socket, ENTRIES)?;
        sockopt::set_xdp_tx_ring_size(&socket, ENTRIES)?;
        let at = sockopt::xdp_mmap_offsets(&socket)?;
        let mut filled = Producer::map(&socket, ENTRIES, &at.fr, ring::FILL_RING)?;
        let place = |index: u32| u64::from(index) * u64::from(FRAME_BYTES);
        (0..FRAMES).for_each(|index| filled.push(place(index)));
        filled.publish();
        Ok(XdpSocket {
            received: Consumer::map(&socket, ENTRIES, &at.rx, ring::RECEIVE_RING)?,
            sending: Producer::map(&socket, ENTRIES, &at.tx, ring::SEND_RING)?,
            sent: Consumer::map(&socket, ENTRIES, &at.cr, ring::COMPLETION_RING)?,
            filled,
            frames,
            free: (FRAMES..2 * FRAMES).map(place).collect(),
            socket,
        })
    }

    /// Copies the next received frame, Ethernet header first. False: there is none.
    pub fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        let Some(Descriptor { address, bytes, .. }) = self.received.pop() else { return false };
        frame.clear();
        frame.extend_from_slice(self.frames.get(address, bytes as usize));
        // The place goes back: the kernel may have moved the frame's beginning within it.
        self.filled.push(address - address % u64::from(FRAME_BYTES));
        self.received.release();
        self.filled.publish();
        true
    }

    /// Whether there is room for a frame to send.
    pub fn can_send(&mut self) -> bool {
        if self.free.is_empty() {
            self.reclaim();
        }
        !self.free.is_empty()
    }

    /// Lets `write` make a frame of so many bytes, which leaves with the next [`XdpSocket::flush`]. False: there is no
    /// room.
    ///
    /// # Panics
    /// If it is longer than a frame can be.
    pub fn send(&mut self, bytes: usize, write: impl FnOnce(&mut [u8])) -> bool {
        assert!(bytes <= FRAME_BYTES as usize, "a frame of {bytes} bytes has no place");
        if !self.can_send() {
            return false;
        }
        let address = self.free.pop().expect("there is room");
        write(self.frames.get_mut(address, bytes));
        self.sending.push(Descriptor { address, bytes: bytes as u32, options: 0 });
        true
    }

    /// Hands the frames to the driver, as many as it takes now.
    ///
    /// # Errors
    /// The link is down or gone.
    pub fn flush(&mut self) -> Result<()> {
        self.sending.publish();
        // One call sends 32 frames (`TX_BATCH_SIZE`).
        let mut calls = FRAMES / 32 + 1;
        while !self.sending.is_empty() && calls > 0 {
            calls -= 1;
            match rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN) => {}
                // The driver or the memory for packets is full; the frames stay in the ring.
                Err(Errno::BUSY | Errno::NOBUFS) => break,
                Err(error) => return Err(error).attempt(|| "send frames (AF_XDP)".to_owned()),
            }
        }
        self.reclaim();
        Ok(())
    }

    /// Whether frames are there.
    pub fn has_frames(&self) -> bool {
        !self.received.is_empty()
    }

    /// Sleeps until frames are there, or so many nanoseconds have passed, or a signal came.
    ///
    /// # Errors
    /// The kernel refuses, which it has no reason to.
    pub fn wait(&self, limit_ns: u64) -> Result<()> {
        let mut wanted = [PollFd::new(&self.socket, PollFlags::IN)];
        let limit = Timespec {
            tv_sec: (limit_ns / 1_000_000_000).cast_signed(),
            tv_nsec: (limit_ns % 1_000_000_000).cast_signed(),
        };
        match rustix::event::poll(&mut wanted, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).attempt(|| "wait for frames (AF_XDP)".to_owned()),
        }
    }

    /// What the kernel counted of frames that it could not hand over or send.
    ///
    /// # Errors
    /// The kernel refuses, which it has no reason to.
    pub fn statistics(&self) -> Result<XdpStatistics> {
        sockopt::xdp_statistics(&self.socket).attempt(|| "ask what a socket lost (AF_XDP)".to_owned())
    }

    fn reclaim(&mut self) {
        while let Some(address) = self.sent.pop() {
            self.free.push(address);
        }
        self.sent.release();
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn open() -> io::Result<OwnedFd> {
    Ok(rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?)
}
