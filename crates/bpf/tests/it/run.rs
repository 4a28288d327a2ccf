//! `BPF_PROG_TEST_RUN`: one packet through one program, without a link.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The verdict of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// `TC_ACT_UNSPEC`: left to the kernel.
    Pass,
    /// `TC_ACT_SHOT`: dropped.
    Drop,
    /// `TC_ACT_REDIRECT`: to the link that the program chose.
    Redirect,
}

impl Verdict {
    /// # Panics
    /// If it is none of those three.
    pub(crate) fn of(returned: u32) -> Verdict {
        match returned.cast_signed() {
            -1 => Verdict::Pass,
            2 => Verdict::Drop,
            7 => Verdict::Redirect,
            other => panic!("a program returned {other}"),
        }
    }
}

/// What accompanies a packet besides its bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Context {
    /// The link at which it arrives, in the calling thread's namespace.
    pub(crate) ifindex: u32,
    /// Bytes of each segment of a packet that stands for several, or 0 if it stands for itself.
    pub(crate) gso_bytes: u32,
}

/// Offsets of fields in `struct __sk_buff` (include/uapi/linux/bpf.h), and the length up to the last of them.
const IFINDEX: usize = 40;
const GSO_SEGS: usize = 164;
const GSO_SIZE: usize = 176;
const CONTEXT_BYTES: usize = 184;
/// More than a packet within a page can grow to.
const LONGEST: usize = 8192;

/// Runs a program over a frame. Returns the program's return value and the frame as the program left it.
///
/// # Errors
/// The kernel makes no packet of these bytes: a test run takes a page at most, and newer kernels reject
/// truncated headers.
pub(crate) fn once(program: BorrowedFd<'_>, context: Context, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
    let mut skb = [0; CONTEXT_BYTES];
    let segments = u32::from(context.gso_bytes > 0) * 2;
    for (at, value) in [(IFINDEX, context.ifindex), (GSO_SEGS, segments), (GSO_SIZE, context.gso_bytes)] {
        skb[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    let mut after = vec![0; LONGEST];
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a few thousand bytes");
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
        data_in: frame.as_ptr().cast(),
        data_size_in: length(frame),
        data_out: after.as_mut_ptr().cast(),
        data_size_out: length(&after),
        ctx_in: skb.as_ptr().cast(),
        ctx_size_in: length(&skb),
        ..Default::default()
    };
    // SAFETY: each pointer comes with the length of its buffer. The buffers and the descriptor outlive the
    // call.
    let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    after.truncate(options.data_size_out as usize);
    Ok((options.retval, after))
}
