//! Memory that is shared with the kernel or another process, in pages.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// A mapping that is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value alone and is not bound to a thread; whoever writes needs `&mut`.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Part of what a descriptor stands for, which others see too; for a ring of a socket `offset` says which.
    pub(crate) fn of(descriptor: &OwnedFd, bytes: usize, offset: u64) -> io::Result<Mapping> {
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        Mapping::map(bytes, libc::MAP_SHARED | libc::MAP_POPULATE, descriptor.as_raw_fd(), offset)
    }

    pub(crate) fn map(bytes: usize, flags: i32, descriptor: i32, offset: libc::off_t) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, descriptor, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { base: base.cast(), bytes })
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> u64 {
        self.base as u64
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where a part of it begins.
    ///
    /// # Panics
    /// If the part is not within it.
    pub(crate) fn part(&self, at: usize, bytes: usize) -> *mut u8 {
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
