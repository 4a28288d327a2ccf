//! Memory that is shared with the kernel: the places of frames.

use std::io;

use crate::mapping::Mapping;

/// Places of frames, in one piece (UMEM). The kernel writes only into those that it was given.
#[derive(Debug)]
pub(super) struct Frames(Mapping);

impl Frames {
    pub(super) fn new(frames: u32, frame_bytes: u32) -> io::Result<Frames> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Mapping::map(frames as usize * frame_bytes as usize, flags, -1, 0).map(Frames)
    }

    pub(super) fn address(&self) -> u64 {
        self.0.address()
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
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
