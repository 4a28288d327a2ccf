//! Rings between one producer and one consumer, of which one is the kernel (include/uapi/linux/if_xdp.h).
//!
//! Either side writes its own index, with release, and reads the other's, with acquire. Indexes run on and wrap at 2³².

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::xdp::XdpRingOffset;

use crate::mapping::Mapping;

/// Which ring of a socket is mapped (`XDP_PGOFF_RX_RING` and so on).
pub(super) const RECEIVE_RING: u64 = 0;
pub(super) const SEND_RING: u64 = 0x8000_0000;
pub(super) const FILL_RING: u64 = 0x1_0000_0000;
pub(super) const COMPLETION_RING: u64 = 0x1_8000_0000;

/// `struct xdp_desc`: a frame, by its place in the memory of the socket.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) bytes: u32,
    pub(super) options: u32,
}

/// A ring of entries `T`, which are plain numbers.
#[derive(Debug)]
struct Ring<T> {
    memory: Mapping,
    at: XdpRingOffset,
    mask: u32,
    _entries: std::marker::PhantomData<T>,
}

/// The side of a ring that fills it.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// The next entry to write; those before it that the kernel does not know of yet are published together.
    next: u32,
}

/// The side of a ring that empties it.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// The next entry to read; those before it are given back together.
    next: u32,
}

impl<T: Copy> Ring<T> {
    fn map(socket: &OwnedFd, entries: u32, at: &XdpRingOffset, which: u64) -> io::Result<Ring<T>> {
        assert!(entries.is_power_of_two(), "the kernel takes a power of two of entries");
        let bytes = at.desc as usize + entries as usize * size_of::<T>();
        let memory = Mapping::of(socket, bytes, which)?;
        Ok(Ring { memory, at: *at, mask: entries - 1, _entries: std::marker::PhantomData })
    }

    fn index(&self, at: u64) -> &AtomicU32 {
        let place = self.memory.part(at as usize, size_of::<u32>());
        // SAFETY: the kernel says where its 32-bit words are, in a mapping that begins at a page and lives as long as
        // the value; both sides access them as whole words only.
        unsafe { AtomicU32::from_ptr(place.cast()) }
    }

    fn produced(&self) -> &AtomicU32 {
        self.index(self.at.producer)
    }

    fn consumed(&self) -> &AtomicU32 {
        self.index(self.at.consumer)
    }

    fn entry(&self, index: u32) -> *mut T {
        let at = self.at.desc as usize + (index & self.mask) as usize * size_of::<T>();
        self.memory.part(at, size_of::<T>()).cast()
    }
}

impl<T: Copy> Producer<T> {
    pub(super) fn map(
        socket: &OwnedFd,
        entries: u32,
        at: &XdpRingOffset,
        which: u64,
    ) -> io::Result<Producer<T>> {
        Ok(Producer { ring: Ring::map(socket, entries, at, which)?, next: 0 })
    }

    /// Writes an entry.
    ///
    /// # Panics
    /// If the ring is full. Each has twice as many entries as there are frames that could be in it.
    pub(super) fn push(&mut self, entry: T) {
        let used = self.next.wrapping_sub(self.ring.consumed().load(Ordering::Acquire));
        assert!(used <= self.ring.mask, "a ring has room for every frame");
        // SAFETY: the entry lies within the ring's mapping and is aligned; the kernel reads it only after `publish`.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Lets the kernel see what was written.
    pub(super) fn publish(&self) {
        self.ring.produced().store(self.next, Ordering::Release);
    }

    /// Whether the kernel has taken all.
    pub(super) fn is_empty(&self) -> bool {
        self.ring.consumed().load(Ordering::Acquire) == self.next
    }
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(
        socket: &OwnedFd,
        entries: u32,
        at: &XdpRingOffset,
        which: u64,
    ) -> io::Result<Consumer<T>> {
        Ok(Consumer { ring: Ring::map(socket, entries, at, which)?, next: 0 })
    }

    /// Takes the next entry, if there is one.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the entry lies within the ring's mapping and is aligned. The kernel wrote it before its index, and
        // writes there again only after `release`.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Whether there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.ring.produced().load(Ordering::Acquire) == self.next
    }

    /// Gives the places of what was taken back to the kernel.
    pub(super) fn release(&self) {
        self.ring.consumed().store(self.next, Ordering::Release);
    }
}
