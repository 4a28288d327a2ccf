//! Memory that is shared with the kernel: the places of frames, and the pages of rings.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// A mapping that is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value alone and is not bound to a thread; whoever writes needs `&mut`.
unsafe impl Send for Mapping {}

impl Mapping {
    /// A ring of a socket; `offset` says which.
    pub(super) fn of(socket: &OwnedFd, bytes: usize, offset: u64) -> io::Result<Mapping> {
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        Mapping::map(bytes, libc::MAP_SHARED | libc::MAP_POPULATE, socket.as_raw_fd(), offset)
    }

    fn map(bytes: usize, flags: i32, descriptor: i32, offset: libc::off_t) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, descriptor, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { base: base.cast(), bytes })
    }

    /// Where a part of it begins.
    ///
    /// # Panics
    /// If the part is not within it.
    pub(super) fn part(&self, at: usize, bytes: usize) -> *mut u8 {
        let end = at.checked_add(bytes).expect("parts are far below the end of memory");
        assert!(end <= self.bytes, "bytes {at} to {end} are not within the {} of a mapping", self.bytes);
        // SAFETY: the offset is within the mapping.
        unsafe { self.base.add(at) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference into it outlives a method.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// Places of frames, in one piece (UMEM). The kernel writes only into those that it was given.
#[derive(Debug)]
pub(super) struct Frames(Mapping);

impl Frames {
    pub(super) fn new(frames: u32, frame_bytes: u32) -> io::Result<Frames> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Mapping::map(frames as usize * frame_bytes as usize, flags, -1, 0).map(Frames)
    }

    pub(super) fn address(&self) -> u64 {
        self.0.base as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// A frame that the kernel has handed over.
    pub(super) fn get(&self, at: u64, bytes: usize) -> &[u8] {
        let start = self.0.part(at as usize, bytes);
        // SAFETY: the part lies in the mapping, whose bytes were all made by the kernel, as zeros at first. The kernel
        // does not write into a place between handing it over and getting it back, which takes `&mut` of the socket.
        unsafe { std::slice::from_raw_parts(start, bytes) }
    }

    /// The place of a frame to send, before the kernel is given it.
    pub(super) fn get_mut(&mut self, at: u64, bytes: usize) -> &mut [u8] {
        let start = self.0.part(at as usize, bytes);
        // SAFETY: as above; `&mut self` sees to it that this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(start, bytes) }
    }
}
