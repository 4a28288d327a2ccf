//! One ring: a table of buffers, what the driver offers, and what the other side has used.
//!
//! Either side writes its own index, with release, and reads the other's, with acquire. Indexes wrap at 2¹⁶.

use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering, fence};

use crate::mapping::Mapping;

/// Entries of a ring.
pub const ENTRIES: u16 = 512;

/// The parts of a ring, from its beginning: the table, what is offered, and, aligned as a page, what was used.
const OFFERED: usize = size_of::<Descriptor>() * ENTRIES as usize;
const USED: usize = OFFERED + 4096;
/// Before the entries of either are the flags and the index.
const INDEX: usize = 2;
const FIRST: usize = 4;

/// The buffer is for the other side to write into (`VIRTQ_DESC_F_WRITE`).
const IS_ROOM: u16 = 2;
/// In either part: its owner wants to hear nothing (`VIRTQ_AVAIL_F_NO_INTERRUPT`, `VIRTQ_USED_F_NO_NOTIFY`).
const SILENT: u16 = 1;

/// Where the parts of a ring are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct QueueAddresses {
    pub table: u64,
    pub offered: u64,
    pub used: u64,
}

/// `struct virtq_desc`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Descriptor {
    address: u64,
    bytes: u32,
    flags: u16,
    next: u16,
}

/// `struct virtq_used_elem`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct UsedEntry {
    buffer: u32,
    bytes: u32,
}

/// A ring, whose parts are in memory that the other side has too.
#[derive(Debug)]
pub(super) struct Queue {
    /// Where it begins in the memory, and where its buffers do.
    at: usize,
    buffers: usize,
    buffer_bytes: usize,
    /// The next entry to offer; those before it that are not published yet are published together.
    next: u16,
    /// The next entry to read of those that were used.
    next_used: u16,
}

impl Queue {
    /// Bytes of a ring without its buffers.
    pub(super) const BYTES: usize = USED + 2 * 4096;

    pub(super) fn at(at: usize, buffers: usize, buffer_bytes: usize) -> Queue {
        Queue { at, buffers, buffer_bytes, next: 0, next_used: 0 }
    }

    pub(super) fn addresses(&self, memory: &Mapping) -> QueueAddresses {
        let table = memory.address() + self.at as u64;
        QueueAddresses { table, offered: table + OFFERED as u64, used: table + USED as u64 }
    }

    /// Offers a buffer to be written into.
    pub(super) fn offer_room(&mut self, memory: &Mapping, buffer: u16) {
        self.offer(memory, buffer, self.buffer_bytes, IS_ROOM);
    }

    /// Offers a buffer with these bytes.
    pub(super) fn offer_frame(&mut self, memory: &Mapping, buffer: u16, frame: &[u8]) {
        let start = memory.part(self.buffer(buffer), frame.len());
        // SAFETY: the part lies within the mapping, and the frame in memory of ours alone. No reference into the
        // mapping exists, so that the other side may do there what it likes.
        unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), start, frame.len()) };
        self.offer(memory, buffer, frame.len(), 0);
    }

    fn offer(&mut self, memory: &Mapping, buffer: u16, bytes: usize, flags: u16) {
        let address = memory.address() + self.buffer(buffer) as u64;
        let descriptor =
            Descriptor { address, bytes: bytes.try_into().expect("a buffer is small"), flags, next: 0 };
        let at = self.at + usize::from(buffer) * size_of::<Descriptor>();
        let entry = memory.part(at, size_of::<Descriptor>()).cast();
        // SAFETY: the entry lies within the mapping and is aligned, since the ring begins at a page. The other side
        // reads it once it is published.
        unsafe { std::ptr::write_volatile(entry, descriptor) };
        let slot = OFFERED + FIRST + usize::from(self.next % ENTRIES) * size_of::<u16>();
        self.word(memory, slot).store(buffer, Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
    }

    /// Lets the other side see what is offered.
    pub(super) fn publish(&self, memory: &Mapping) {
        self.word(memory, OFFERED + INDEX).store(self.next, Ordering::Release);
    }

    /// Whether the other side wants to hear of what is offered.
    pub(super) fn wants_kicks(&self, memory: &Mapping) -> bool {
        // What was published is to be seen by one that goes to sleep before it is asked whether it does.
        fence(Ordering::SeqCst);
        self.word(memory, USED).load(Ordering::Relaxed) & SILENT == 0
    }

    /// Says whether the other side is to call when it has used something.
    pub(super) fn want_calls(&self, memory: &Mapping, wanted: bool) {
        self.word(memory, OFFERED).store(if wanted { 0 } else { SILENT }, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the other side has used something.
    pub(super) fn has_used(&self, memory: &Mapping) -> bool {
        self.word(memory, USED + INDEX).load(Ordering::Acquire) != self.next_used
    }

    /// Takes the next buffer back that the other side has used, and how many bytes it says that it wrote. One that does
    /// not exist is passed over, up to as many as there are entries: the other side may invent them without end.
    pub(super) fn take(&mut self, memory: &Mapping) -> Option<(u16, u32)> {
        for _ in 0..ENTRIES {
            if !self.has_used(memory) {
                break;
            }
            let at = self.at + USED + FIRST + usize::from(self.next_used % ENTRIES) * size_of::<UsedEntry>();
            let entry = memory.part(at, size_of::<UsedEntry>()).cast::<UsedEntry>();
            // SAFETY: the entry lies within the mapping and is aligned; any value of it is one of plain numbers.
            let UsedEntry { buffer, bytes } = unsafe { std::ptr::read_volatile(entry) };
            self.next_used = self.next_used.wrapping_add(1);
            if let Some(buffer) = u16::try_from(buffer).ok().filter(|buffer| *buffer < ENTRIES) {
                return Some((buffer, bytes));
            }
        }
        None
    }

    /// Copies a part of a buffer.
    pub(super) fn read(&self, memory: &Mapping, (buffer, part): (u16, Range<usize>), into: &mut Vec<u8>) {
        let start = memory.part(self.buffer(buffer) + part.start, part.len());
        into.clear();
        into.resize(part.len(), 0);
        // SAFETY: the part lies within the mapping, and the bytes in memory of ours alone, which has room for them.
        unsafe { std::ptr::copy_nonoverlapping(start, into.as_mut_ptr(), part.len()) };
    }

    fn buffer(&self, buffer: u16) -> usize {
        self.buffers + usize::from(buffer) * self.buffer_bytes
    }

    fn word(&self, memory: &Mapping, at: usize) -> &AtomicU16 {
        let place = memory.part(self.at + at, size_of::<u16>());
        // SAFETY: the word lies within the mapping, which outlives the reference, and is aligned, since the ring begins
        // at a page and all offsets are even. Both sides access it as a whole word.
        unsafe { AtomicU16::from_ptr(place.cast()) }
    }
}

/// What the other side does, for tests.
#[cfg(test)]
pub(super) mod device {
    use super::*;

    /// The next frame that is offered, with its header; it is marked as used.
    pub(in super::super) fn next(queue: &Queue, memory: &Mapping) -> Option<Vec<u8>> {
        let (offered, used) = indexes(queue, memory);
        if offered == used {
            return None;
        }
        let descriptor = descriptor(queue, memory, used);
        let at = (descriptor.address - memory.address()) as usize;
        let mut frame = Vec::new();
        let buffer = (at - queue.buffers) / queue.buffer_bytes;
        queue.read(memory, (buffer as u16, 0..descriptor.bytes as usize), &mut frame);
        claim(queue, memory, buffer as u32, descriptor.bytes);
        Some(frame)
    }

    /// Puts a frame with its header into the next buffer that is offered.
    pub(in super::super) fn put(queue: &Queue, memory: &Mapping, frame: &[u8]) -> bool {
        let (offered, used) = indexes(queue, memory);
        if offered == used {
            return false;
        }
        let descriptor = descriptor(queue, memory, used);
        assert_eq!(descriptor.flags, IS_ROOM);
        let at = (descriptor.address - memory.address()) as usize;
        let start = memory.part(at, frame.len());
        // SAFETY: the part lies within the mapping.
        unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), start, frame.len()) };
        let buffer = (at - queue.buffers) / queue.buffer_bytes;
        claim(queue, memory, buffer as u32, frame.len() as u32);
        true
    }

    /// Says that a buffer was used.
    pub(in super::super) fn claim(queue: &Queue, memory: &Mapping, buffer: u32, bytes: u32) {
        let index = queue.word(memory, USED + INDEX);
        let used = index.load(Ordering::Relaxed);
        let at = queue.at + USED + FIRST + usize::from(used % ENTRIES) * size_of::<UsedEntry>();
        // SAFETY: the entry lies within the mapping and is aligned.
        unsafe { memory.part(at, 8).cast::<UsedEntry>().write_volatile(UsedEntry { buffer, bytes }) };
        index.store(used.wrapping_add(1), Ordering::Release);
    }

    /// Whether the driver wants to hear of what was used.
    pub(in super::super) fn calls(queue: &Queue, memory: &Mapping) -> bool {
        queue.word(memory, OFFERED).load(Ordering::Relaxed) & SILENT == 0
    }

    fn indexes(queue: &Queue, memory: &Mapping) -> (u16, u16) {
        let of = |part| queue.word(memory, part + INDEX).load(Ordering::Acquire);
        (of(OFFERED), of(USED))
    }

    fn descriptor(queue: &Queue, memory: &Mapping, slot: u16) -> Descriptor {
        let slot = OFFERED + FIRST + usize::from(slot % ENTRIES) * size_of::<u16>();
        let buffer = queue.word(memory, slot).load(Ordering::Relaxed);
        let at = queue.at + usize::from(buffer) * size_of::<Descriptor>();
        // SAFETY: the entry lies within the mapping and is aligned.
        unsafe { memory.part(at, size_of::<Descriptor>()).cast::<Descriptor>().read_volatile() }
    }
}
