//! What late answers coincide with, as events of the kernel: retransmissions, dropped packets, threads without a CPU,
//! long softirq work, and how far an exchange was when.
//!
//! Nothing is pinned. The programs are attached by descriptors that [`Watching`] holds: when it is dropped, or the
//! process dies of whatever, they are detached.

mod event;

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Enum;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, RingBufferBuilder};
use linux::{Result, clock};

use crate::ffi;
pub use event::{LateEvent, LateEventKind, Retransmission, ThreadOwner};

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
    include!(concat!(env!("OUT_DIR"), "/late.skel.rs"));
}

use skeleton::types::{late_namespace, late_size};

/// What is reported: everything that takes at least so long, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateConfig {
    /// The port of the server's own sockets, by which their end of a connection is known.
    pub server_port: u16,
    /// A thread that is ready to run and has no CPU.
    pub wait: Duration,
    /// Softirq work of a CPU in one piece.
    pub softirq: Duration,
    /// How long such a piece may pause.
    pub gap: Duration,
    /// An exchange, from the call that sends the request to the one that reads the answer.
    pub exchange: Duration,
}

/// A tracepoint that is asked. Where a kernel has it not, others are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tracepoint {
    /// `tcp_retransmit_skb` (Linux 4.16): TCP sends a segment again.
    Retransmit,
    /// `kfree_skb`, with reasons since Linux 5.17.
    Drop,
    /// `sched_waking`: a thread is to run again, so its wait for a CPU begins.
    Waking,
    /// `sched_switch`: a CPU goes from one thread to another, so a wait for a CPU ends.
    Switch,
    /// `softirq_entry`: a CPU begins the work of a softirq vector.
    SoftirqEntry,
    /// `softirq_exit`: it has done that work.
    SoftirqExit,
    /// `sk_data_ready` (Linux 6.3): a socket has got data, which its reader does not have yet.
    DataReady,
    /// `sock_send_length` (Linux 6.3): a call has sent on a socket.
    Send,
    /// `sock_recv_length` (Linux 6.3): a call has read from a socket.
    Receive,
}

impl Tracepoint {
    /// All of them, in the order of their variants.
    pub const ALL: &[Tracepoint] = &[
        Tracepoint::Retransmit,
        Tracepoint::Drop,
        Tracepoint::Waking,
        Tracepoint::Switch,
        Tracepoint::SoftirqEntry,
        Tracepoint::SoftirqExit,
        Tracepoint::DataReady,
        Tracepoint::Send,
        Tracepoint::Receive,
    ];

    /// The name that the kernel has for it (`/sys/kernel/tracing/available_events`, after the colon).
    pub fn name(self) -> &'static str {
        let name = self.c_name().to_str();
        name.expect("a name of ASCII")
    }

    fn c_name(self) -> &'static CStr {
        match self {
            Tracepoint::Retransmit => c"tcp_retransmit_skb",
            Tracepoint::Drop => c"kfree_skb",
            Tracepoint::Waking => c"sched_waking",
            Tracepoint::Switch => c"sched_switch",
            Tracepoint::SoftirqEntry => c"softirq_entry",
            Tracepoint::SoftirqExit => c"softirq_exit",
            Tracepoint::DataReady => c"sk_data_ready",
            Tracepoint::Send => c"sock_send_length",
            Tracepoint::Receive => c"sock_recv_length",
        }
    }
}

/// What a network namespace is to the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// Packets pass through it; the client's is one of those.
    OnTheWay,
    /// The server's threads and sockets are in it. If the client's are in it too, they are
    /// distinguished by their process.
    Server,
}

/// The loaded programs. They see nothing until they are attached.
#[derive(Debug)]
pub struct LatePrograms {
    programs: Vec<(Tracepoint, OwnedFd)>,
    missing: Vec<Tracepoint>,
    namespaces: MapHandle,
    events: MapHandle,
    lost: MapHandle,
}

/// Attached programs; dropping it detaches them.
#[derive(Debug)]
pub struct Watching<'p> {
    programs: &'p LatePrograms,
    links: Vec<OwnedFd>,
    started_ns: u64,
    lost_before: u64,
}

/// The events of one watch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LateEvents {
    /// In the order of their report.
    pub events: Vec<LateEvent>,
    /// Events for which there was no room.
    pub lost: u64,
}

impl LatePrograms {
    /// Loads the programs, and finds out by attaching each for a moment which tracepoints this kernel has.
    ///
    /// # Errors
    /// The kernel has no type information, or refuses a program (the text has the verifier's words) or a map; or this
    /// user may not load programs.
    pub fn load(config: &LateConfig) -> Result<LatePrograms> {
        ffi::listen();
        let mut programs = open_and_load(config)
            .map_err(|error| ffi::failed("load the programs behind late answers".to_owned(), &error))?;
        for (tracepoint, program) in &programs.programs {
            if ffi::attach_raw(Some(tracepoint.c_name()), program)?.is_none() {
                programs.missing.push(*tracepoint);
            }
        }
        let missing = &programs.missing;
        programs.programs.retain(|(tracepoint, _)| !missing.contains(tracepoint));
        Ok(programs)
    }

    /// Tracepoints that this kernel does not have.
    pub fn missing(&self) -> &[Tracepoint] {
        &self.missing
    }

    /// Attaches the programs, for sockets and packets in these network namespaces, by inode.
    ///
    /// # Errors
    /// There are more than sixteen namespaces, or the kernel refuses.
    pub fn watch(&self, namespaces: &[(u64, Namespace)]) -> Result<Watching<'_>> {
        ffi::listen();
        self.set_namespaces(namespaces)
            .and_then(|()| self.take(&mut Vec::new()))
            .map_err(|error| ffi::failed("prepare the watch for late answers".to_owned(), &error))?;
        let lost_before = self.lost()?;
        let started_ns = clock::now_ns();
        let mut links = Vec::new();
        for (tracepoint, program) in &self.programs {
            links.extend(ffi::attach_raw(Some(tracepoint.c_name()), program)?);
        }
        Ok(Watching { programs: self, links, started_ns, lost_before })
    }

    fn set_namespaces(&self, namespaces: &[(u64, Namespace)]) -> libbpf_rs::Result<()> {
        for key in self.namespaces.keys().collect::<Vec<_>>() {
            self.namespaces.delete(&key)?;
        }
        for (inode, what) in namespaces {
            // The kernel's own number of a namespace has 32 bits.
            let key = (*inode as u32).to_ne_bytes();
            let flag = match what {
                Namespace::OnTheWay => late_namespace::LATE_ON_THE_WAY,
                Namespace::Server => late_namespace::LATE_SERVER,
            };
            let before = self.namespaces.lookup(&key, MapFlags::ANY)?.unwrap_or(vec![0; 4]);
            let before = u32::from_ne_bytes(before.try_into().expect("four bytes"));
            self.namespaces.update(&key, &(before | flag.0).to_ne_bytes(), MapFlags::ANY)?;
        }
        Ok(())
    }

    /// Takes out of the ring buffer all that is in it.
    fn take(&self, into: &mut Vec<LateEvent>) -> libbpf_rs::Result<()> {
        let mut builder = RingBufferBuilder::new();
        builder.add(&self.events, |bytes| {
            into.extend(event::read(bytes));
            0
        })?;
        builder.build()?.consume()
    }

    fn lost(&self) -> Result<u64> {
        let value = self.lost.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let value = value.map_err(|error| ffi::failed("count lost events".to_owned(), &error))?;
        let bytes = value.expect("an array has all its entries").try_into().expect("eight bytes");
        Ok(u64::from_ne_bytes(bytes))
    }
}

impl Watching<'_> {
    /// Detaches the programs and gives what they saw.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn end(self) -> Result<LateEvents> {
        let Watching { programs, links, started_ns, lost_before } = self;
        drop(links);
        let mut events = Vec::new();
        let taken = programs.take(&mut events);
        taken.map_err(|error| ffi::failed("read the events behind late answers".to_owned(), &error))?;
        // What began before has a beginning of an earlier watch, or none.
        events.retain(|event| event.from_ns >= started_ns);
        Ok(LateEvents { events, lost: programs.lost()? - lost_before })
    }
}

/// The kernel's names for the reasons of a drop, with their numbers, which differ from kernel to kernel. Empty: it
/// knows none.
///
/// # Errors
/// The kernel has no type information.
pub fn drop_reasons() -> Result<Vec<(u32, String)>> {
    ffi::listen();
    let btf = Btf::from_vmlinux()
        .map_err(|error| ffi::failed("read the kernel's type information".to_owned(), &error))?;
    let Some(reasons) = btf.type_by_name::<Enum<'_>>("skb_drop_reason") else { return Ok(Vec::new()) };
    let named = reasons.iter().filter_map(|member| {
        let name = member.name?.to_str()?;
        let name = name.trim_start_matches("SKB_DROP_REASON_").trim_start_matches("SKB_");
        // A member of an enum is signed or not as the whole is, and its bits are the same.
        Some((member.value as u32, name.to_owned()))
    });
    Ok(named.collect())
}

fn open_and_load(config: &LateConfig) -> libbpf_rs::Result<LatePrograms> {
    let mut object = MaybeUninit::uninit();
    let mut open = skeleton::LateSkelBuilder::default().open(&mut object)?;
    open.maps.rodata_data.as_mut().expect("the programs have read-only data").late_config = in_words(config);
    let skeleton = open.load()?;
    let mut programs = Vec::new();
    for tracepoint in Tracepoint::ALL {
        let section = format!("raw_tp/{}", tracepoint.name());
        let program = skeleton.object().progs().find(|program| program.section().to_str() == Some(&section));
        let program = program.expect("each tracepoint has a program");
        programs.push((*tracepoint, program.as_fd().try_clone_to_owned()?));
    }
    Ok(LatePrograms {
        programs,
        missing: Vec::new(),
        namespaces: MapHandle::try_from(&skeleton.maps.late_namespaces)?,
        events: MapHandle::try_from(&skeleton.maps.late_events)?,
        lost: MapHandle::try_from(&skeleton.maps.late_lost)?,
    })
}

fn in_words(config: &LateConfig) -> skeleton::types::late_config {
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    skeleton::types::late_config {
        wait_ns: ns(config.wait),
        softirq_ns: ns(config.softirq),
        gap_ns: ns(config.gap),
        exchange_ns: ns(config.exchange),
        server_port: config.server_port.into(),
        unused: 0,
    }
}

const _: () = {
    // As many as a topology has, with the router of a cloud: two nodes, two pods, a router.
    assert!(late_size::LATE_NAMESPACES.0 >= 5, "a topology's namespaces find room");
};
