//! `packets`: frames that the kernel makes meet a filter, and what is compared is the CPU time of one.
//!
//! All of it is done on one thread: the kernel makes the frames there, judges them in softirqs that are booked
//! on it, and what no filter takes is read there from a socket. So the thread's CPU time is the cost, also on a
//! busy machine, where the time by the clock is others' too. What it takes to make frames is measured in turn
//! with the rest, and subtracted.

use std::thread;

use linux::{CpuSet, cpu};
use record::{Frames, Load, TrialRecord, Void};

use super::WorkloadDriver;
use crate::packets::{Judge, is_whole, sends_on};
use crate::trial::Method;
use crate::trial_key::TrialKey;
use crate::usage::CounterSnapshot;
use crate::void::kept_from_cpus;
use crate::{BuiltTopology, LabError};

/// Frames that the kernel makes and judges; none is answered.
pub(super) struct Packets;

impl WorkloadDriver for Packets {
    fn open(&self, built: &mut BuiltTopology, _: u32, _: u32) -> Result<(), LabError> {
        if built.judge.is_none() {
            let filter = built.topology.shape.filter.unwrap_or_default();
            built.judge = Some(Judge::new(filter, None, &built.topology.nodes)?);
        }
        Ok(())
    }

    fn trial(
        &self,
        built: &mut BuiltTopology,
        method: &Method,
        load: &Load,
        key: TrialKey,
    ) -> Result<TrialRecord, LabError> {
        let filter = built.topology.shape.filter.unwrap_or_default();
        let judge = built.judge.as_ref().expect("a topology is opened before its trials");
        let first = method.cpus.client.iter().next().expect("a node has a CPU");
        on(first, || judge.warm_up(load.body_bytes, method.warmup))?;
        let before = CounterSnapshot::take(&built.topology)?;
        let frames = on(first, || judge.flood(load.body_bytes, method.slice))?;
        let usage = CounterSnapshot::take(&built.topology)?.since(&before, &method.cpus);
        let changed = built.changed()?.map(|what| Void::PathChanged { what });
        let void = changed.or_else(|| kept_from_cpus(&usage)).or_else(|| {
            let sunk = sends_on(filter).then_some(frames.sunk);
            (!is_whole(filter, &frames)).then_some(Void::FramesLost {
                made: frames.made,
                judged: frames.judged,
                sunk,
            })
        });
        Ok(TrialRecord { counters: usage.counters, void, ..record(frames, key) })
    }
}

/// Works on one CPU, on a thread of its own, whose CPU time is its own.
fn on<T: Send>(cpu: u16, work: impl FnOnce() -> Result<T, LabError> + Send) -> Result<T, LabError> {
    let pinned = || {
        cpu::pin_current_thread(&CpuSet::from_iter([cpu]))?;
        work()
    };
    thread::scope(|scope| scope.spawn(pinned).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

fn record(frames: Frames, TrialKey { entrant, load }: TrialKey) -> TrialRecord {
    TrialRecord {
        entrant,
        load,
        duration_ns: frames.net_ns(),
        intended: frames.made,
        sent: frames.made,
        answered: frames.judged,
        answered_in_time: frames.judged,
        frames: Some(frames),
        // Nothing of the nodes' CPUs: they did more than frames.
        ..TrialRecord::default()
    }
}
