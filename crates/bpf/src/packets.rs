//! What it costs to see and judge a packet: a generator of frames in the kernel, and programs that judge each frame
//! and do nothing else.
//!
//! The generator is a test run with live frames (Linux 5.18). It needs no card: a veth pair takes 4 million frames a
//! second from one CPU. What receives them runs on that CPU too, in softirqs that are booked on the generator's thread.
//! So the thread's CPU time of a run, less that of a run of [`Source::Alone`], is what the verdict costs.
//!
//! Nothing is pinned. A program is attached until what [`PacketPrograms::attach`] gave is dropped, or the
//! process dies of whatever.

use std::mem::MaybeUninit;
use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, ProgramMut};
use linux::{Error, Netns, Result, clock};

use crate::attach::hold;
use crate::{Hook, Unpinned, XdpMode, ffi};

#[expect(
    unreachable_pub,
    unused_qualifications,
    clippy::allow_attributes,
    clippy::needless_pass_by_value,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    reason = "it is generated"
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/packets.skel.rs"));
}

use skeleton::types::{packets_counter, packets_link};

/// Frames of a batch: the kernel's default. A veth link has room for four batches.
const BATCH: u32 = 64;
const NATIVE: Hook = Hook::Xdp(XdpMode::Native);
const GENERIC: Hook = Hook::Xdp(XdpMode::Generic);

/// Where generated frames go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Over the wire, to the verdict.
    Wire,
    /// Nowhere: what the generator itself costs.
    Alone,
}

/// What is done with a frame, and where on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// XDP in the driver drops it.
    XdpDrop,
    /// XDP in the driver leaves it to the kernel.
    XdpPass,
    /// XDP in the driver sends it back.
    XdpTx,
    /// XDP in the driver sends it to another link.
    XdpRedirect,
    /// XDP drops it after the kernel has made an `sk_buff` of it.
    XdpGeneric,
    /// A program at tcx drops it (Linux 6.6).
    TcDrop,
    /// The end of frames that were sent back or onward; it counts as no verdict.
    Sink,
}

/// The loaded programs. They see nothing until they are attached.
#[derive(Debug)]
pub struct PacketPrograms {
    generate: OwnedFd,
    generate_alone: OwnedFd,
    xdp_drop: OwnedFd,
    xdp_pass: OwnedFd,
    xdp_tx: OwnedFd,
    xdp_redirect: OwnedFd,
    sink: OwnedFd,
    tc_drop: OwnedFd,
    links: MapHandle,
    counts: MapHandle,
    _ready: [InDispatcher; 2],
}

/// A program at the loopback link of a namespace of its own, which is down and receives nothing. The kernel puts a
/// program that it runs into XDP's dispatcher and takes it out again, each time with a grace period of RCU (28 ms were
/// seen); one that is attached somewhere is there already, and a run takes no longer than its frames.
#[derive(Debug)]
struct InDispatcher {
    _attached: Unpinned,
    _ground: Netns,
}

/// How many frames were seen since the programs were loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Frames that the generator made.
    pub generated: u64,
    /// Frames on which a filter gave its verdict.
    pub judged: u64,
    /// Frames that arrived at a [`Filter::Sink`].
    pub sunk: u64,
}

impl PacketPrograms {
    /// Loads the programs. Every frame is judged.
    ///
    /// # Errors
    /// The kernel refuses a program (the text has the verifier's words) or a map.
    pub fn load() -> Result<PacketPrograms> {
        PacketPrograms::load_with(0)
    }

    /// Loads the programs. Those that drop frames judge only UDP over IPv4 to this port, and leave all
    /// others to the kernel.
    ///
    /// # Errors
    /// As for [`PacketPrograms::load`].
    pub fn load_for(port: NonZero<u16>) -> Result<PacketPrograms> {
        PacketPrograms::load_with(port.get())
    }

    fn load_with(only_port: u16) -> Result<PacketPrograms> {
        ffi::listen();
        let failed = |error| ffi::failed("load the programs that judge packets".to_owned(), &error);
        let mut object = MaybeUninit::uninit();
        let mut open = skeleton::PacketsSkelBuilder::default().open(&mut object).map_err(failed)?;
        open.maps.rodata_data.as_mut().expect("the programs have read-only data").only_port = only_port;
        let skeleton = open.load().map_err(failed)?;
        let programs = &skeleton.progs;
        let own = |program: &ProgramMut<'_>| {
            program.as_fd().try_clone_to_owned().map_err(|error| failed(error.into()))
        };
        let (generate, generate_alone) = (own(&programs.generate)?, own(&programs.generate_alone)?);
        Ok(PacketPrograms {
            _ready: [InDispatcher::new(&generate)?, InDispatcher::new(&generate_alone)?],
            generate,
            generate_alone,
            xdp_drop: own(&programs.xdp_drop)?,
            xdp_pass: own(&programs.xdp_pass)?,
            xdp_tx: own(&programs.xdp_tx)?,
            xdp_redirect: own(&programs.xdp_redirect)?,
            sink: own(&programs.sink)?,
            tc_drop: own(&programs.tc_drop)?,
            links: MapHandle::try_from(&skeleton.maps.packets_links).map_err(failed)?,
            counts: MapHandle::try_from(&skeleton.maps.packets_counts).map_err(failed)?,
        })
    }

    /// Says which link is the generator's end of the wire. Its other end needs NAPI, or frames are lost without a
    /// trace: XDP in the driver there, or `gro on`.
    ///
    /// # Errors
    /// The calling thread's namespace has no link of this index.
    pub fn send_over(&self, ifindex: u32) -> Result<()> {
        self.set_link(packets_link::PACKETS_WIRE, ifindex)
    }

    /// Says where [`Filter::XdpRedirect`] sends frames. The other end of that link needs NAPI as the wire's does.
    ///
    /// # Errors
    /// As for [`PacketPrograms::send_over`].
    pub fn redirect_to(&self, ifindex: u32) -> Result<()> {
        self.set_link(packets_link::PACKETS_ONWARD, ifindex)
    }

    fn set_link(&self, place: packets_link, ifindex: u32) -> Result<()> {
        ffi::listen();
        self.links
            .update(&place.0.to_ne_bytes(), &ifindex.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| ffi::failed(format!("send frames to link {ifindex}"), &error))
    }

    /// Lets frames that arrive at a link of the calling thread's namespace meet a filter.
    ///
    /// # Errors
    /// There is no such link, it has XDP already, or its driver or this kernel has no such hook.
    pub fn attach(&self, filter: Filter, ifindex: u32) -> Result<Unpinned> {
        let (program, hook) = match filter {
            Filter::XdpDrop => (&self.xdp_drop, NATIVE),
            Filter::XdpPass => (&self.xdp_pass, NATIVE),
            Filter::XdpTx => (&self.xdp_tx, NATIVE),
            Filter::XdpRedirect => (&self.xdp_redirect, NATIVE),
            Filter::Sink => (&self.sink, NATIVE),
            Filter::XdpGeneric => (&self.xdp_drop, GENERIC),
            Filter::TcDrop => (&self.tc_drop, Hook::Ingress),
        };
        let attempted = || format!("attach a filter of packets to link {ifindex}");
        hold(program, hook, ifindex).map_err(|error| Error::new(attempted(), error.source))
    }

    /// Makes copies of a frame, as many as asked for, in the calling thread and namespace. None if none are asked for,
    /// of which the kernel would make one (`bpf_test_run_xdp_live` in net/bpf/test_run.c). Returns the CPU time of the
    /// thread in nanoseconds; the receivers' softirqs are part of it.
    ///
    /// # Errors
    /// The kernel has no live test runs (Linux 5.18), the frame is shorter than an Ethernet header or longer than a
    /// page has room for, or a signal came.
    pub fn generate(&self, source: Source, frame: &[u8], frames: u32) -> Result<u64> {
        if frames == 0 {
            return Ok(0);
        }
        let program = match source {
            Source::Wire => &self.generate,
            Source::Alone => &self.generate_alone,
        };
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let context = libbpf_sys::xdp_md { data_end: length, ..Default::default() };
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            data_in: frame.as_ptr().cast(),
            data_size_in: length,
            ctx_in: (&raw const context).cast(),
            ctx_size_in: u32::try_from(size_of_val(&context)).expect("a structure of 24 bytes"),
            repeat: frames.cast_signed(),
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: BATCH.min(frames),
            ..Default::default()
        };
        ffi::listen();
        let before = clock::thread_cpu_ns();
        // SAFETY: the frame and the context are as long as is said; they and the descriptor outlive the call.
        let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
        ffi::check(result, || format!("generate {frames} frames of {length} bytes"))?;
        Ok(clock::thread_cpu_ns() - before)
    }

    /// How many frames were seen, summed over the CPUs.
    ///
    /// # Errors
    /// The kernel does not let the counters be read.
    pub fn seen(&self) -> Result<Seen> {
        Ok(Seen {
            generated: self.count(packets_counter::PACKETS_GENERATED)?,
            judged: self.count(packets_counter::PACKETS_JUDGED)?,
            sunk: self.count(packets_counter::PACKETS_SUNK)?,
        })
    }

    fn count(&self, counter: packets_counter) -> Result<u64> {
        let cpus = self
            .counts
            .lookup_percpu(&counter.0.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| ffi::failed("count the packets that were judged".to_owned(), &error))?;
        let each = cpus.into_iter().flatten();
        Ok(each.map(|value| u64::from_ne_bytes(value.try_into().expect("eight bytes"))).sum())
    }
}

impl InDispatcher {
    fn new(program: &OwnedFd) -> Result<InDispatcher> {
        /// The index of the loopback link, the first of every namespace (`LOOPBACK_IFINDEX`).
        const LOOPBACK: u32 = 1;
        let ground = Netns::anonymous()?;
        let attached = ground.run(|| hold(program, GENERIC, LOOPBACK))??;
        Ok(InDispatcher { _attached: attached, _ground: ground })
    }
}
