//! The driver's side of a virtio network device whose other side is another process (vhost-user): two rings, one for
//! each direction, with buffers, in memory that both have.
//!
//! The memory is a file without a name. The other process gets the descriptor and the addresses, and copies frames into
//! and out of the buffers. What it writes is not trusted: a number out of range is passed over, a length is cut to that
//! of a buffer, no reference into the memory is made, and the file has its size for good.
//!
//! Source: *Virtual I/O Device (VIRTIO) Version 1.2*, sections 2.7 (split virtqueues) and 5.1 (network device).

mod queue;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::Result;
use crate::error::Attempt;
use crate::mapping::Mapping;
use queue::Queue;
pub use queue::{ENTRIES, QueueAddresses};

/// Bytes of a buffer: a frame on an MTU of 1500 bytes with what is before it.
const BUFFER_BYTES: usize = 2048;
/// Bytes of the header before each frame (`struct virtio_net_hdr_v1`). All are zero: no checksum is left to the other
/// side, and no frame is larger than the MTU.
const HEADER_BYTES: usize = 12;
/// The longest frame with its Ethernet header, in bytes.
pub const FRAME_BYTES_MAX: usize = BUFFER_BYTES - HEADER_BYTES;
/// The feature that the header has this size and all numbers are little-endian (`VIRTIO_F_VERSION_1`).
pub const VERSION_1: u64 = 1 << 32;

/// The rings and their buffers.
#[derive(Debug)]
pub struct SharedRings {
    memory: Mapping,
    file: OwnedFd,
    received: Queue,
    sending: Queue,
    /// Numbers of buffers to send that are free.
    free: Vec<u16>,
    /// Which of them the other side has.
    lent: Vec<bool>,
    /// A frame before it is copied into a buffer.
    frame: Vec<u8>,
}

impl SharedRings {
    /// Makes the memory, with every buffer for received frames in its ring. It is for one process at the other side:
    /// one that is gone may have kept it.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new() -> Result<SharedRings> {
        let bytes = 2 * (Queue::BYTES + usize::from(ENTRIES) * BUFFER_BYTES);
        let make = || {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = rustix::fs::memfd_create("hostgap-vring", flags)?;
            rustix::fs::ftruncate(&file, bytes as u64)?;
            // Whoever looks at a page that the other side has cut off is killed by SIGBUS.
            let for_good = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
            rustix::fs::fcntl_add_seals(&file, for_good)?;
            io::Result::Ok((Mapping::of(&file, bytes, 0)?, file))
        };
        let (memory, file) = make().attempt(|| "make memory for virtio rings".to_owned())?;
        let buffers = 2 * Queue::BYTES;
        let mut rings = SharedRings {
            memory,
            file,
            received: Queue::at(0, buffers, BUFFER_BYTES),
            sending: Queue::at(Queue::BYTES, buffers + usize::from(ENTRIES) * BUFFER_BYTES, BUFFER_BYTES),
            free: (0..ENTRIES).collect(),
            lent: vec![false; ENTRIES.into()],
            frame: Vec::with_capacity(BUFFER_BYTES),
        };
        for buffer in 0..ENTRIES {
            rings.received.offer_room(&rings.memory, buffer);
        }
        rings.received.publish(&rings.memory);
        rings.want_room(false);
        rings.want_calls(false);
        Ok(rings)
    }

    /// Where the memory begins, in the addresses that the rings have.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Bytes of the memory.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes() as u64
    }

    /// Where the rings are: of received frames, and of frames to send.
    pub fn queues(&self) -> [QueueAddresses; 2] {
        [&self.received, &self.sending].map(|queue| queue.addresses(&self.memory))
    }

    /// Copies the next received frame, Ethernet header first. False: there is none, or nothing but buffers without
    /// frames up to now.
    pub fn receive(&mut self, frame: &mut Vec<u8>) -> bool {
        for _ in 0..ENTRIES {
            let Some((buffer, bytes)) = self.received.take(&self.memory) else { return false };
            let bytes = (bytes as usize).min(BUFFER_BYTES);
            let is_frame = bytes > HEADER_BYTES;
            if is_frame {
                self.received.read(&self.memory, (buffer, HEADER_BYTES..bytes), frame);
            }
            self.received.offer_room(&self.memory, buffer);
            self.received.publish(&self.memory);
            if is_frame {
                return true;
            }
        }
        false
    }

    /// Whether frames are there.
    pub fn has_received(&self) -> bool {
        self.received.has_used(&self.memory)
    }

    /// Whether there is room for a frame to send.
    pub fn can_send(&mut self) -> bool {
        if self.free.is_empty() {
            for _ in 0..ENTRIES {
                let Some((buffer, _)) = self.sending.take(&self.memory) else { break };
                // The other side may say twice that a frame has left. A buffer is never in two places.
                if std::mem::take(&mut self.lent[usize::from(buffer)]) {
                    self.free.push(buffer);
                }
            }
        }
        !self.free.is_empty()
    }

    /// Lets `write` make a frame of so many bytes, which leaves with the next [`SharedRings::publish`]. False: there is
    /// no room.
    ///
    /// # Panics
    /// If it is longer than a frame can be.
    pub fn send(&mut self, bytes: usize, write: impl FnOnce(&mut [u8])) -> bool {
        assert!(bytes <= FRAME_BYTES_MAX, "a frame of {bytes} bytes has no place");
        if !self.can_send() {
            return false;
        }
        let buffer = self.free.pop().expect("there is room");
        self.lent[usize::from(buffer)] = true;
        self.frame.clear();
        self.frame.resize(HEADER_BYTES + bytes, 0);
        write(&mut self.frame[HEADER_BYTES..]);
        self.sending.offer_frame(&self.memory, buffer, &self.frame);
        true
    }

    /// Lets the other side see what is to be sent. True: it sleeps, and is to be woken.
    pub fn publish(&self) -> bool {
        self.sending.publish(&self.memory);
        self.sending.wants_kicks(&self.memory)
    }

    /// Whether the other side is to call when it has written frames. It may have written some before it sees that, so
    /// whoever then sleeps looks first ([`SharedRings::has_received`]).
    pub fn want_calls(&self, wanted: bool) {
        self.received.want_calls(&self.memory, wanted);
    }

    /// Whether the other side is to call when frames have left. Else it is looked for that when there is no room, so
    /// only who waits for room needs it, and looks first too ([`SharedRings::can_send`]).
    pub fn want_room(&self, wanted: bool) {
        self.sending.want_calls(&self.memory, wanted);
    }
}

impl AsFd for SharedRings {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other side: copies what is sent back into the ring of received frames, `times` as long as there is any.
    fn reflect(rings: &SharedRings) -> usize {
        let (from, to) = (&rings.sending, &rings.received);
        let mut frames = 0;
        while let Some(frame) = queue::device::next(from, &rings.memory) {
            assert!(queue::device::put(to, &rings.memory, &frame), "there is room");
            frames += 1;
        }
        frames
    }

    #[test]
    fn frames_go_and_come_in_order_over_the_ends_of_rings() {
        let mut rings = SharedRings::new().unwrap();
        let mut frame = Vec::new();
        assert!(!rings.receive(&mut frame) && rings.can_send());
        for round in 0..5_u8 {
            for index in 0..200_u8 {
                assert!(rings.send(60, |frame| frame.fill(round.wrapping_add(index))));
            }
            rings.publish();
            assert_eq!(reflect(&rings), 200);
            for index in 0..200_u8 {
                assert!(rings.receive(&mut frame));
                assert_eq!(frame, [round.wrapping_add(index); 60]);
            }
            assert!(!rings.has_received());
        }
    }

    #[test]
    fn a_full_ring_takes_no_more_until_frames_have_left() {
        let mut rings = SharedRings::new().unwrap();
        for _ in 0..ENTRIES {
            assert!(rings.send(14, |_| {}));
        }
        assert!(!rings.can_send() && !rings.send(14, |_| {}));
        rings.publish();
        assert_eq!(reflect(&rings), usize::from(ENTRIES));
        assert!(rings.can_send());
    }

    #[test]
    fn what_the_other_side_invents_is_passed_over_and_what_is_too_long_is_cut() {
        let mut rings = SharedRings::new().unwrap();
        queue::device::claim(&rings.received, &rings.memory, u32::from(ENTRIES), 100);
        queue::device::claim(&rings.received, &rings.memory, 1, 5);
        queue::device::claim(&rings.received, &rings.memory, 2, u32::MAX);
        let mut frame = Vec::new();
        assert!(rings.receive(&mut frame));
        assert_eq!(frame.len(), FRAME_BYTES_MAX);
        assert!(!rings.receive(&mut frame));
    }

    #[test]
    fn who_only_invents_does_not_keep_the_thread() {
        let mut rings = SharedRings::new().unwrap();
        for _ in 0..ENTRIES + 1 {
            queue::device::claim(&rings.received, &rings.memory, u32::MAX, 100);
        }
        let mut frame = Vec::new();
        assert!(!rings.receive(&mut frame) && rings.has_received());
        assert!(!rings.receive(&mut frame) && !rings.has_received());
    }

    #[test]
    fn nobody_cuts_the_memory_off() {
        let rings = SharedRings::new().unwrap();
        let cut = rustix::fs::ftruncate(rings.as_fd(), 0);
        assert_eq!(cut, Err(rustix::io::Errno::PERM));
    }

    #[test]
    fn calls_are_asked_for_where_the_other_side_looks() {
        let rings = SharedRings::new().unwrap();
        assert!(!queue::device::calls(&rings.received, &rings.memory));
        rings.want_calls(true);
        assert!(queue::device::calls(&rings.received, &rings.memory));
    }
}
