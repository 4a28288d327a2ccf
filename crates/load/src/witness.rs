//! A run beside a witness of the machine's stalls: what its response times are without the times at which the machine
//! did not run a CPU.

use std::sync::Mutex;
use std::time::Duration;

use bpf::witness::{Senses, StallReport, Witness};
use hdrhistogram::Histogram;
use linux::{CpuSet, clock};

use crate::outcome::histogram;
use crate::run::{Run, run_logged};
use crate::windows::{BEFORE_NS, Windows, Witnessed};
use crate::{Client, Exchange, Live, LoadError, Outcome};

/// A tick each half millisecond, where timers are cheap: four times as many saw hardly more. A tick that waits
/// for 60 µs is no other timer's work, which takes a tenth of that. A hypervisor that takes 150 µs to run an idle
/// CPU again does not do so each time: beside such wake-ups all others took less than 95 µs on the machine on
/// which this was chosen.
pub const FINE: Senses =
    Senses { period_ns: Some(500_000), late_ns: 60_000, stolen_ns: 50_000, woken_late_ns: 150_000 };

/// The kernel's own ticks, where timers are expensive. In a guest whose timers are the hypervisor's (PVM) a tick took
/// 17 µs, and with a timer that is always near each idle moment of the server sets it anew: ticks each 3 ms made p99
/// a quarter longer, and each millisecond as much, but did not make it scatter less.
pub const COARSE: Senses = Senses { period_ns: None, ..FINE };

/// A thread's wait for another program is known when it is over: longer ones than this, in nanoseconds, may be known
/// only after requests near their beginning were counted.
const WAIT_MAX_NS: u64 = 100_000_000;

/// How long the last tick of a CPU is waited for after a run.
const PATIENCE: Duration = Duration::from_secs(1);

/// Like [`crate::run_live`], beside a witness that watches from before the first request to after the last answer. The
/// outcome has [`Outcome::witnessed`], unless the witness lost a stall or the log a request.
///
/// # Errors
/// Those of [`crate::run`], and of a witness that cannot be started or read.
pub fn run_witnessed(
    clients: &mut [Client],
    run: &Run,
    live: &Live,
    witness: &Witness,
) -> Result<Outcome, LoadError> {
    witness.start()?;
    let tally = Mutex::new(Tally::new());
    let ran = run_logged(clients, run, live, &mut |block| {
        // The collector is the only one that takes the lock while the run lasts.
        let mut tally = tally.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        tally.add(block);
        // An error is met again at the end, where it is reported.
        let looked = match block {
            [] => witness.catch_up(clock::now_ns(), PATIENCE, &mut tally.seen).map(|_caught_up| ()),
            _ => witness.look(&mut tally.seen),
        };
        if looked.is_ok() {
            tally.settle();
        }
    });
    let mut tally = tally.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let watched = tally.finish(witness, ran.as_ref().map_or(0, |outcome| outcome.ended_ns));
    witness.stop()?;
    let mut outcome = ran?;
    watched?;
    if tally.seen.lost == 0 && outcome.unlogged == 0 && run.schedule.rate_per_s().is_some() {
        outcome.witnessed = Some(tally.witnessed(witness.cpus(), &outcome));
    }
    Ok(outcome)
}

/// Requests that are counted as soon as it is known whether a stall is near them.
struct Tally {
    seen: StallReport,
    /// Requests that ended and are not settled.
    pending: Vec<Exchange>,
    intended: u64,
    response: Histogram<u64>,
    late: Histogram<u64>,
}

impl Tally {
    fn new() -> Tally {
        Tally {
            seen: StallReport::default(),
            pending: Vec::new(),
            intended: 0,
            response: histogram(),
            late: histogram(),
        }
    }

    fn add(&mut self, exchanges: &[Exchange]) {
        self.pending.extend_from_slice(exchanges);
    }

    /// Counts the requests of which all is known: a stall whose window reaches back to them would have ended by now, or
    /// would show by the silence of its CPU.
    fn settle(&mut self) {
        let windows = Windows::of(&self.seen.stalls);
        let known_ns = self.seen.until_ns.saturating_sub(BEFORE_NS + WAIT_MAX_NS);
        let (intended, response, late) = (&mut self.intended, &mut self.response, &mut self.late);
        self.pending.retain(|exchange| {
            if exchange.intended_ns >= known_ns {
                return true;
            }
            if !windows.hold(exchange.intended_ns) {
                *intended += 1;
                exchange.response_ns().into_iter().for_each(|ns| response.saturating_record(ns));
                exchange.late_ns().into_iter().for_each(|ns| late.saturating_record(ns));
            }
            false
        });
    }

    /// Waits until all CPUs have ticked once more after the run, and counts the rest.
    fn finish(&mut self, witness: &Witness, ended_ns: u64) -> linux::Result<()> {
        let caught_up = witness.catch_up(ended_ns.saturating_add(BEFORE_NS), PATIENCE, &mut self.seen)?;
        // A CPU that does not tick, or not within so long a time, was not watched.
        self.seen.lost += u64::from(!caught_up);
        self.seen.until_ns = u64::MAX;
        self.settle();
        Ok(())
    }

    fn witnessed(self, cpus: &CpuSet, outcome: &Outcome) -> Witnessed {
        let end_ns = outcome.started_ns + u64::try_from(outcome.duration.as_nanos()).unwrap_or(u64::MAX / 2);
        Witnessed {
            cpus: cpus.clone(),
            intended: self.intended,
            response: self.response,
            late: self.late,
            left_out_ns: Windows::of(&self.seen.stalls).within(outcome.started_ns, end_ns),
            stalls: self.seen.stalls,
            lost: self.seen.lost,
            ticks: self.seen.ticks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bpf::witness::Stall;

    const MS: u64 = 1_000_000;

    fn stall(from_ns: u64, to_ns: u64) -> Stall {
        Stall { cpu: 0, from_ns, to_ns, late_ns: to_ns - from_ns, stolen_ns: 0, blocked_ns: 0 }
    }

    fn exchange(intended_ns: u64, response_ns: Option<u64>) -> Exchange {
        Exchange {
            intended_ns,
            sent_ns: intended_ns + 7,
            received_ns: response_ns.map_or(Exchange::NEVER, |ns| intended_ns + ns),
            free_ns: intended_ns,
            connection: 0,
            client: 0,
        }
    }

    #[test]
    fn what_became_of_a_request_decides_nothing() {
        let mut tally = Tally::new();
        tally.seen.stalls = vec![stall(10 * MS, 12 * MS)];
        // One inside the window that was fast and one that was never answered; the same two outside of it.
        let within = [exchange(11 * MS, Some(50)), exchange(11 * MS, None)];
        let outside = [exchange(40 * MS, Some(40 * MS)), exchange(40 * MS, None)];
        tally.add(&[within, outside].concat());
        tally.seen.until_ns = u64::MAX;
        tally.settle();
        assert_eq!((tally.intended, tally.response.len(), tally.late.len()), (2, 1, 2));
        assert!(tally.response.min() >= 39 * MS);
    }

    #[test]
    fn nothing_is_settled_before_all_is_known() {
        let mut tally = Tally::new();
        tally.add(&[exchange(5 * MS, Some(9)), exchange(7 * MS, Some(9))]);
        tally.seen.until_ns = WAIT_MAX_NS + 7 * MS;
        tally.settle();
        assert_eq!((tally.intended, tally.pending.len()), (1, 1));
        // The stall that was under way when the first was settled began after all that could touch it.
        let until_ns = WAIT_MAX_NS + 70 * MS;
        tally.seen = StallReport { stalls: vec![stall(7 * MS, 60 * MS)], until_ns, ..StallReport::default() };
        tally.settle();
        assert_eq!((tally.intended, tally.pending.len()), (1, 0));
    }
}
