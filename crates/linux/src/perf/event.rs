//! One event of perf_event_open(2) with the memory that it shares with the kernel.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_ulong, c_void};

use super::Samples;
use super::records::{self, unwrapped};
use crate::error::Attempt;
use crate::{Error, Result};

/// `struct perf_event_attr` in its first published size, which every kernel takes: include/uapi/linux/perf_event.h.
#[repr(C)]
#[derive(Debug, Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const PERF_SAMPLE_TID: u64 = 1 << 1;
const PERF_SAMPLE_CALLCHAIN: u64 = 1 << 5;
const FLAG_DISABLED: u64 = 1;
const FLAG_EXCLUDE_USER: u64 = 1 << 4;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
/// Programs seldom keep frame pointers, so that their stacks would be wrong; that they ran is enough.
const FLAG_EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
const PERF_FLAG_FD_CLOEXEC: c_ulong = 8;
/// `_IO('$', 0)` and `_IO('$', 1)`.
const IOC_ENABLE: c_ulong = 0x2400;
const IOC_DISABLE: c_ulong = 0x2401;

/// The offset of the buffer's fields in `struct perf_event_mmap_page`; part of the interface since 2.6.31.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// An open event of a CPU. It is closed, and its memory given back, when it is dropped.
#[derive(Debug)]
pub(super) struct PerfEvent {
    cpu: u16,
    file: File,
    memory: Memory,
}

/// A page for the positions, and the buffer behind it.
#[derive(Debug)]
struct Memory {
    base: *mut u8,
    page_bytes: usize,
    buffer_bytes: usize,
}

// SAFETY: the mapping belongs to the value alone and is not bound to a thread; all access goes through `&mut self`.
unsafe impl Send for Memory {}

impl PerfEvent {
    /// Opens the clock of a CPU for all tasks, with a buffer of a power of two bytes.
    pub(super) fn open(cpu: u16, period_ns: u64, buffer_bytes: usize) -> Result<PerfEvent> {
        let sampled = PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN;
        let file = clock_of(cpu, period_ns, sampled, FLAG_EXCLUDE_CALLCHAIN_USER)?;
        let attempted = || format!("sample what CPU {cpu} does (perf_event_open)");
        let memory = Memory::of(&file, buffer_bytes).attempt(attempted)?;
        Ok(PerfEvent { cpu, file, memory })
    }

    pub(super) fn enable(&mut self) -> Result<()> {
        control(&self.file, IOC_ENABLE).attempt(|| format!("start sampling CPU {}", self.cpu))
    }

    /// After this the kernel writes no more into the buffer: it stops the event on its CPU before it returns.
    pub(super) fn disable(&mut self) -> Result<()> {
        control(&self.file, IOC_DISABLE).attempt(|| format!("stop sampling CPU {}", self.cpu))
    }

    /// Moves what the buffer holds to the samples. The event is disabled.
    pub(super) fn take(&mut self, taken: &mut Samples) -> Result<()> {
        let bytes = self.memory.take();
        records::read(&bytes, taken)
            .map_err(|why| Error::invalid(format!("read the samples of CPU {}", self.cpu), why))
    }
}

/// The clock of a CPU whose timer expires each period, idle or not, and of which nothing is sampled: for programs at
/// the tracepoint of timers. It is closed when it is dropped.
///
/// A sampled clock stops after `kernel.perf_event_max_sample_rate` / HZ ticks without one of the scheduler's (which an
/// idle CPU has not) until the next of those; one that excludes all that could be sampled does not.
#[derive(Debug)]
pub struct Ticker {
    cpu: u16,
    file: File,
}

impl Ticker {
    /// Opens the clock of a CPU for all tasks; it does not tick yet. `period_ns` is at least 10 000: the kernel raises
    /// lower values to that.
    ///
    /// # Errors
    ///
    /// Those of [`super::Profiler::new`].
    pub fn open(cpu: u16, period_ns: u64) -> Result<Ticker> {
        let nothing = FLAG_EXCLUDE_USER | FLAG_EXCLUDE_KERNEL;
        Ok(Ticker { cpu, file: clock_of(cpu, period_ns, 0, nothing)? })
    }

    /// Ticks from now on; the first tick is a period away.
    ///
    /// # Errors
    ///
    /// The CPU went off line.
    pub fn start(&self) -> Result<()> {
        control(&self.file, IOC_ENABLE).attempt(|| format!("start the clock of CPU {}", self.cpu))
    }

    /// Ticks no more.
    ///
    /// # Errors
    ///
    /// The CPU went off line.
    pub fn stop(&self) -> Result<()> {
        control(&self.file, IOC_DISABLE).attempt(|| format!("stop the clock of CPU {}", self.cpu))
    }
}

/// Opens the clock of a CPU for all tasks, disabled.
fn clock_of(cpu: u16, period_ns: u64, sample_type: u64, flags: u64) -> Result<File> {
    let attempted = || format!("sample what CPU {cpu} does (perf_event_open)");
    let attr = Attr {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<Attr>() as u32,
        config: PERF_COUNT_SW_CPU_CLOCK,
        sample_period: period_ns,
        sample_type,
        flags: FLAG_DISABLED | flags,
        ..Attr::default()
    };
    let (every_task, no_group): (c_int, c_int) = (-1, -1);
    // SAFETY: the kernel reads `size` bytes at the first argument, all of which exist, and keeps no pointer to them.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            every_task,
            c_int::from(cpu.cast_signed()),
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if descriptor < 0 {
        return Err(refused(std::io::Error::last_os_error())).attempt(attempted);
    }
    // SAFETY: a descriptor that the kernel has just made for us and that no other code has.
    Ok(unsafe { File::from_raw_fd(descriptor as c_int) })
}

fn control(event: &File, request: c_ulong) -> std::io::Result<()> {
    // SAFETY: the descriptor is an open event, and these two requests take no argument.
    match unsafe { libc::ioctl(event.as_raw_fd(), request as _, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Explains the kernel's refusal where the errno alone is not clear.
fn refused(error: std::io::Error) -> std::io::Error {
    let why = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "not permitted: CAP_PERFMON is needed, and kernel lockdown forbids it to all"
        }
        Some(libc::ENOSYS) => "this kernel has no perf events (CONFIG_PERF_EVENTS)",
        _ => return error,
    };
    std::io::Error::new(error.kind(), why)
}

impl Memory {
    fn of(file: &File, buffer_bytes: usize) -> std::io::Result<Memory> {
        assert!(buffer_bytes.is_power_of_two(), "the kernel takes a power of two of pages");
        let page_bytes = rustix::param::page_size();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let length = page_bytes + buffer_bytes;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Memory { base: base.cast(), page_bytes, buffer_bytes })
    }

    /// One of the two positions.
    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both offsets are multiples of eight within the first page of the mapping, which lives as long as the
        // value; the kernel and this process access them as whole words only.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) }
    }

    /// What was written since the last time, in order, and room for more.
    fn take(&mut self) -> Vec<u8> {
        // Acquire and release as the interface asks: what lies before the head is read after it, and the tail is given
        // back after that.
        let head = self.position(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.position(DATA_TAIL).load(Ordering::Relaxed);
        // SAFETY: the buffer is the rest of the mapping behind its first page, and every byte of it was initialised by
        // the kernel. The event is disabled, so that nothing writes while the slice is borrowed.
        let buffer = unsafe { std::slice::from_raw_parts(self.base.add(self.page_bytes), self.buffer_bytes) };
        let bytes = unwrapped(buffer, tail, head);
        self.position(DATA_TAIL).store(head, Ordering::Release);
        bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference into it outlives a method.
        unsafe { libc::munmap(self.base.cast::<c_void>(), self.page_bytes + self.buffer_bytes) };
    }
}
