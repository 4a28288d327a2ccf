//! A witness of the machine's stalls: the times at which it did not run a CPU.
//!
//! Timers tick on each CPU, the kernel's own and, if asked for, one of the witness; a program runs in their interrupts.
//! See `witness.bpf.c` for what it sees and why nothing that the CPU itself does, however long, delays it. Three signs
//! mark a stall, and each stall says which it had:
//!
//! - a tick came late: sees a stall that a tick falls into, whatever its reason; in a virtual machine also, a thread
//!   that was woken on an idle CPU had its turn late;
//! - the hypervisor's own clock of stolen time, whenever the scheduler reads it: sees also what lies between two ticks,
//!   but not what a hypervisor below that one took;
//! - a real-time thread waited although the CPU ran: for a system call of a program of normal priority, or a round of
//!   the kernel's memory management, which a kernel without full preemption lets end first.
//!
//! Nothing is pinned: it ends with its owner, also with one that is killed.

use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, RingBufferBuilder};
use linux::perf::Ticker;
use linux::procfs::Procfs;
use linux::{CpuSet, Error, Result, clock};

use crate::ffi;
use crate::layout::lies_as;

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
    include!(concat!(env!("OUT_DIR"), "/witness.skel.rs"));
}

use skeleton::types::{sighting, stall};

/// Where the kernel runs an expired timer. The other programs are bound to their tracepoints by the kernel's types.
const TIMER: &CStr = c"hrtimer_expire_entry";

/// Bytes of a stall in the ring and of a sighting in its map.
const STALL_BYTES: usize = 48;
const SIGHTING_BYTES: usize = 112;

lies_as!(
    stall: from_ns 8, to_ns 8, late_ns 8, stolen_ns 8, blocked_ns 8, cpu 4, pad 4
);
lies_as!(
    sighting: ticks 8, seen_ns 8, lost 8, watched 8, clock_ns 8, stolen_ns 8, woken_ns 8, kept_ns 8,
    softirq_since_ns 8, softirq_ns 8, waiter 4, is_behind 4, is_idle 4, pad 4, softirqs 8, softirqs_before 8
);
const _: () =
    assert!(size_of::<stall>() == STALL_BYTES && size_of::<sighting>() == SIGHTING_BYTES, "as they are read");

/// What a witness takes for a stall. All in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Senses {
    /// Between two ticks of its own on a CPU; at least 10 000, as perf asks. `None`: it has only the kernel's, which
    /// cost nothing, but are rarer, and do not come while a CPU is idle.
    pub period_ns: Option<u64>,
    /// A tick that comes this much later than it was due shows a stall; so does a real-time thread's
    /// wait of this length.
    pub late_ns: u64,
    /// So does this much stolen time between two looks of the scheduler at the hypervisor's clock.
    pub stolen_ns: u64,
    /// So does a real-time thread's turn that comes this much later than its waking on an idle CPU, in a virtual
    /// machine. A CPU of a bare machine may itself take as long to leave a deep idle state.
    pub woken_late_ns: u64,
}

/// [`Senses::woken_late_ns`], if this is a virtual machine.
pub fn woken_late_ns(senses: Senses) -> Option<u64> {
    Procfs::kernel().is_virtual_machine().unwrap_or(false).then_some(senses.woken_late_ns)
}

/// A CPU stood still for a time between two instants of `CLOCK_MONOTONIC`, or ran what has nothing to do with the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// The number of the CPU.
    pub cpu: u16,
    /// The last instant before it at which the CPU is known to have run, in nanoseconds: a tick, the setting of the
    /// timer that was late, or a look at the hypervisor's clock; or when a thread was woken that had to wait. Never
    /// before the watch began.
    pub from_ns: u64,
    /// The first such instant after it, in nanoseconds; or when that thread ran.
    pub to_ns: u64,
    /// How long after it was due the tick came, or a thread that was woken on an idle CPU had its turn, in nanoseconds;
    /// 0: it was seen by another sign. The stall was at least as long, and less than a period longer.
    pub late_ns: u64,
    /// What the hypervisor says it took between the two, in nanoseconds; 0: it was seen by another sign.
    pub stolen_ns: u64,
    /// For how long others than the race kept a real-time thread waiting, in nanoseconds, without softirq work
    /// meanwhile; 0: it is none of these.
    pub blocked_ns: u64,
}

impl Stall {
    /// How long it was at least, in nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.late_ns.max(self.stolen_ns).max(self.blocked_ns)
    }

    /// The time in which the CPU stood still, as far as it is known, in nanoseconds: it ended before the
    /// instant that shows it.
    pub fn stood_still_ns(&self) -> (u64, u64) {
        (self.to_ns - self.length_ns().min(self.to_ns - self.from_ns), self.to_ns)
    }

    fn of(bytes: &[u8]) -> Option<Stall> {
        let words = bytes.get(..STALL_BYTES)?;
        let word = |at: usize| words[at..].first_chunk().map(|word| u64::from_ne_bytes(*word));
        Some(Stall {
            from_ns: word(0)?,
            to_ns: word(8)?,
            late_ns: word(16)?,
            stolen_ns: word(24)?,
            blocked_ns: word(32)?,
            cpu: u16::from_ne_bytes(*words[40..].first_chunk()?),
        })
    }
}

/// What was seen since a start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StallReport {
    /// In the order of their ends on each CPU.
    pub stalls: Vec<Stall>,
    /// Up to this instant of `CLOCK_MONOTONIC` nothing is unknown of any CPU: the earliest of their last ticks, or the
    /// start.
    pub until_ns: u64,
    /// How many ticks came, on all CPUs together.
    pub ticks: u64,
    /// Stalls that found no room: more than six thousand since the last look.
    pub lost: u64,
}

/// Between two ticks that are waited for, in nanoseconds.
const CATCH_UP_NS: u64 = 500_000;

/// Programs and perf events that notice when some CPUs stand still.
#[derive(Debug)]
pub struct Witness {
    cpus: CpuSet,
    senses: Senses,
    tickers: Vec<Ticker>,
    /// Tick only where the kernel's ticks are waited for.
    catching_up: Vec<Ticker>,
    programs: Vec<(Option<&'static CStr>, OwnedFd)>,
    /// The attached programs; empty unless it watches.
    links: Mutex<Vec<OwnedFd>>,
    stalls: MapHandle,
    sightings: MapHandle,
}

impl Witness {
    /// Prepares to watch these CPUs. Nothing ticks yet.
    ///
    /// # Errors
    /// The caller lacks `CAP_BPF` and `CAP_PERFMON` (or `CAP_SYS_ADMIN`), or `kernel.kptr_restrict` is 2; the kernel
    /// was built or locked down without perf events, or has no ring buffers for programs (Linux 5.8).
    pub fn new(cpus: &CpuSet, senses: Senses) -> Result<Witness> {
        ffi::listen();
        let tickers = |period_ns| cpus.iter().map(|cpu| Ticker::open(cpu, period_ns)).collect::<Result<_>>();
        let (own, catching_up) = match senses.period_ns {
            Some(period_ns) => (tickers(period_ns)?, Vec::new()),
            None => (Vec::new(), tickers(CATCH_UP_NS)?),
        };
        let (programs, stalls, sightings) = load(cpus, senses)
            .map_err(|error| ffi::failed(format!("watch CPUs {cpus} for stalls"), &error))?;
        Ok(Witness {
            cpus: cpus.clone(),
            senses,
            tickers: own,
            catching_up,
            programs,
            links: Mutex::default(),
            stalls,
            sightings,
        })
    }

    /// The CPUs that it watches.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// What it takes for a stall.
    pub fn senses(&self) -> Senses {
        self.senses
    }

    /// Begins to watch; what was seen before is forgotten.
    ///
    /// # Errors
    /// A CPU went off line, or the kernel has no tracepoint of timers.
    pub fn start(&self) -> Result<()> {
        self.forget()?;
        let attach = |(tracepoint, program): &(Option<&CStr>, OwnedFd)| {
            let missing = || {
                let source =
                    io::Error::new(io::ErrorKind::Unsupported, "this kernel lacks one of the tracepoints");
                Error::new(format!("watch CPUs {} for stalls", self.cpus), source)
            };
            ffi::attach_raw(*tracepoint, program)?.ok_or_else(missing)
        };
        let links = self.programs.iter().map(attach).collect::<Result<_>>()?;
        *self.links.lock().unwrap_or_else(PoisonError::into_inner) = links;
        // Nothing watches on after an error, at a cost for whoever runs next.
        self.tickers.iter().try_for_each(Ticker::start).inspect_err(|_| drop(self.stop()))
    }

    /// What was seen is no more.
    fn forget(&self) -> Result<()> {
        self.drain(&mut Vec::new())?;
        let mut fresh = [0; SIGHTING_BYTES];
        fresh[offset_of!(sighting, watched)] = 1;
        fresh[offset_of!(sighting, seen_ns)..][..size_of::<u64>()]
            .copy_from_slice(&clock::now_ns().to_ne_bytes());
        for cpu in self.cpus.iter() {
            self.sightings
                .update(&u32::from(cpu).to_ne_bytes(), &fresh, MapFlags::ANY)
                .map_err(|error| ffi::failed(format!("watch CPU {cpu} for stalls"), &error))?;
        }
        Ok(())
    }

    /// Adds what was seen since the last look, while it goes on watching.
    ///
    /// # Errors
    /// The kernel does not let the maps be read.
    pub fn look(&self, seen: &mut StallReport) -> Result<()> {
        let (mut until_ns, mut ticks, mut lost) = (u64::MAX, 0, 0);
        for cpu in self.cpus.iter() {
            let [its_ticks, seen_ns, its_lost] = self.sighting(cpu)?;
            (until_ns, ticks, lost) = (until_ns.min(seen_ns), ticks + its_ticks, lost + its_lost);
        }
        // After the instants: a stall that ended before one of them is in the ring by now.
        self.drain(&mut seen.stalls)?;
        (seen.until_ns, seen.ticks, seen.lost) = (until_ns, ticks, lost);
        Ok(())
    }

    /// Waits until every CPU has ticked after an instant of `CLOCK_MONOTONIC`, as an idle one may not do for long if
    /// only the kernel ticks, and adds what was seen. False: one has not, after `patience`.
    ///
    /// # Errors
    /// Those of [`Witness::look`]; a CPU went off line.
    pub fn catch_up(&self, at_ns: u64, patience: Duration, seen: &mut StallReport) -> Result<bool> {
        self.look(seen)?;
        if seen.until_ns >= at_ns {
            return Ok(true);
        }
        let started = self.catching_up.iter().try_for_each(Ticker::start);
        let waited = started.and_then(|()| self.look_until(at_ns, patience, seen));
        let stopped: Vec<Result<()>> = self.catching_up.iter().map(Ticker::stop).collect();
        waited?;
        stopped.into_iter().collect::<Result<()>>()?;
        Ok(seen.until_ns >= at_ns)
    }

    fn look_until(&self, at_ns: u64, patience: Duration, seen: &mut StallReport) -> Result<()> {
        let begun = Instant::now();
        loop {
            self.look(seen)?;
            if seen.until_ns >= at_ns || begun.elapsed() > patience {
                return Ok(());
            }
            thread::sleep(Duration::from_nanos(self.senses.period_ns.unwrap_or(CATCH_UP_NS)));
        }
    }

    /// Stops watching.
    ///
    /// # Errors
    /// A CPU went off line.
    pub fn stop(&self) -> Result<()> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let stopped: Vec<Result<()>> = self.tickers.iter().map(Ticker::stop).collect();
        stopped.into_iter().collect()
    }

    fn sighting(&self, cpu: u16) -> Result<[u64; 3]> {
        let attempted = || format!("read what the witness saw of CPU {cpu}");
        let value = self
            .sightings
            .lookup(&u32::from(cpu).to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| ffi::failed(attempted(), &error))?;
        let word = |at: usize| {
            let bytes = value.as_deref().and_then(|bytes| bytes.get(at..)?.first_chunk());
            bytes.map_or(0, |word| u64::from_ne_bytes(*word))
        };
        Ok([word(0), word(8), word(16)])
    }

    fn drain(&self, stalls: &mut Vec<Stall>) -> Result<()> {
        let mut drained = || -> libbpf_rs::Result<()> {
            let mut builder = RingBufferBuilder::new();
            builder.add(&self.stalls, |bytes| {
                stalls.extend(Stall::of(bytes));
                0
            })?;
            builder.build()?.consume()
        };
        drained().map_err(|error| ffi::failed("read the stalls that the witness saw".to_owned(), &error))
    }
}

/// Programs with the tracepoints that they are not bound to, and their maps.
type Loaded = (Vec<(Option<&'static CStr>, OwnedFd)>, MapHandle, MapHandle);

fn load(cpus: &CpuSet, senses: Senses) -> libbpf_rs::Result<Loaded> {
    let mut object = MaybeUninit::uninit();
    let mut open = skeleton::WitnessSkelBuilder::default().open(&mut object)?;
    let constants = open.maps.rodata_data.as_deref_mut().expect("the program has constants");
    constants.period_ns = senses.period_ns.unwrap_or(CATCH_UP_NS);
    constants.kernel_period_ns = clock::kernel_tick_ns();
    constants.late_min_ns = senses.late_ns;
    constants.stolen_min_ns = senses.stolen_ns;
    constants.woken_late_min_ns = woken_late_ns(senses).unwrap_or(u64::MAX);
    let last = cpus.iter().max().unwrap_or(0);
    open.maps.sightings.set_max_entries(u32::from(last) + 1)?;
    let skeleton = open.load()?;
    let programs = &skeleton.progs;
    let programs = [
        (Some(TIMER), programs.witness_tick.as_fd()),
        (None, programs.witness_softirq_begins.as_fd()),
        (None, programs.witness_softirq_ends.as_fd()),
        (None, programs.witness_waking.as_fd()),
        (None, programs.witness_switch.as_fd()),
        (None, programs.witness_ran.as_fd()),
    ];
    let kept =
        programs.into_iter().map(|(tracepoint, program)| Ok((tracepoint, program.try_clone_to_owned()?)));
    let programs = kept.collect::<libbpf_rs::Result<_>>()?;
    let stalls = MapHandle::try_from(&skeleton.maps.stalls)?;
    let sightings = MapHandle::try_from(&skeleton.maps.sightings)?;
    Ok((programs, stalls, sightings))
}
