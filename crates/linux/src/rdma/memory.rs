//! Memory that a device reads and writes by itself.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::VerbsDevice;
use super::device::made;
use super::library::{MemoryRegion, Piece};

/// Pages of its own, so that nothing else of the process is on one that is locked.
const PAGE_BYTES: usize = 4096;

/// `IBV_ACCESS_LOCAL_WRITE`.
const LOCAL_WRITE: i32 = 1;

/// Memory that is registered with a device: locked, and known to it by a key. It is reached through its methods alone,
/// since the device may write to any of it that was posted.
pub(super) struct Registered {
    memory: NonNull<u8>,
    layout: Layout,
    region: NonNull<MemoryRegion>,
    device: Arc<VerbsDevice>,
}

impl Registered {
    pub(super) fn new(device: &Arc<VerbsDevice>, bytes: usize) -> io::Result<Registered> {
        let layout = Layout::from_size_align(bytes.max(1), PAGE_BYTES).map_err(io::Error::other)?;
        // SAFETY: the layout has at least one byte.
        let memory =
            NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        let (domain, address) = (device.domain.as_ptr(), memory.as_ptr().cast());
        // SAFETY: the memory is this value's own and stays until it is registered no more.
        let region = made(unsafe { (device.library.reg_mr)(domain, address, layout.size(), LOCAL_WRITE) });
        match region {
            Ok(region) => Ok(Registered { memory, layout, region, device: Arc::clone(device) }),
            Err(why) => {
                // SAFETY: it was allocated with this layout, and no other reference to it exists.
                unsafe { dealloc(memory.as_ptr(), layout) };
                Err(why)
            }
        }
    }

    /// A part of it, for a request.
    pub(super) fn piece(&self, at: usize, bytes: usize) -> Piece {
        let address = self.part(at, bytes) as u64;
        // SAFETY: the region is registered.
        let local_key = unsafe { (*self.region.as_ptr()).local_key };
        Piece { address, bytes: u32::try_from(bytes).expect("messages are short"), local_key }
    }

    /// Writes what no request has that is under way.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let place = self.part(at, bytes.len());
        // SAFETY: the part is within the memory, which is no part of the slice.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    /// Reads what the device has written, and said that it is done.
    pub(super) fn read(&self, at: usize, bytes: &mut [u8]) {
        let place = self.part(at, bytes.len());
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), bytes.len()) };
    }

    fn part(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at + bytes <= self.layout.size(), "bytes {at} to {} of {}", at + bytes, self.layout.size());
        // SAFETY: the offset is within the memory.
        unsafe { self.memory.as_ptr().add(at) }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: no queue pair uses it any more, and it was allocated with this layout.
        unsafe {
            (self.device.library.dereg_mr)(self.region.as_ptr());
            dealloc(self.memory.as_ptr(), self.layout);
        }
    }
}
