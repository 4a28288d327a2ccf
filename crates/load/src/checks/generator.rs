//! Whether the figures are the server's or the generator's own.

use stats::Percentile;

use super::phrases::time;
use super::{CheckResult, CheckWeight};
use crate::{Outcome, Schedule, ThreadCost};

/// The generator's own lateness may be this share of the median of the response times.
const LATE_SHARE_MAX: f64 = 0.1;
/// Lateness below that is a wake-up from sleep, and no fault.
const LATE_NS_MIN: f64 = 10_000.0;
/// The greatest share of the time in which a thread may be ready to run without a CPU. Waking up takes up to that.
const STARVED_MAX: f64 = 0.01;
/// How often a second a thread may lose its CPU.
const SWITCHES_PER_S_MAX: f64 = 100.0;
/// Losing the CPU is harmless if it comes back at once: 10 µs each time, at the limit above.
const SWITCHES_STARVED_MIN: f64 = 0.001;
/// A busier thread has no reserve for a moment with more work.
pub(super) const BUSY_MAX: f64 = 0.8;
/// Half of the requests of a thread that spins are sent sooner after their instant than that; a thread that works all
/// the time comes to them when it can.
const ON_TIME_NS: u64 = 1_000;
/// The greatest share of CPU time that the hypervisor may take: several times what an idle neighbour does.
const STOLEN_MAX: f64 = 0.025;

/// Whether the generator sent on time, measured against what it measures.
pub(super) fn late(outcome: &Outcome, schedule: &Schedule) -> CheckResult {
    if matches!(schedule, Schedule::Saturate) {
        return CheckResult::unjudged("late", CheckWeight::Doubt, "there is no schedule to be late for");
    }
    let Some(percentile) = Percentile::P99.or_lower(outcome.late.len()) else {
        return CheckResult::unjudged("late", CheckWeight::Doubt, "too few requests were sent");
    };
    if outcome.response.is_empty() {
        return CheckResult::unjudged("late", CheckWeight::Doubt, "there are no answers to hold it against");
    }
    let late_ns = outcome.late.value_at_quantile(percentile.quantile()) as f64;
    let response_ns = outcome.response.value_at_quantile(0.5) as f64;
    let limit_ns = (LATE_SHARE_MAX * response_ns).max(LATE_NS_MIN);
    let text = format!(
        "the generator itself was late by {} ({}), and the median answer took {}",
        time(late_ns),
        percentile.label(),
        time(response_ns)
    );
    CheckResult::passed("late", CheckWeight::Doubt, text)
        .unless(
            late_ns <= limit_ns,
            "the run is limited by the client, whose lateness is in the response times; give it CPUs of its own \
             (--cpus), real-time priority (--fifo 20), more threads or a lower rate",
        )
        .figures(&[("late_ns", late_ns), ("response_p50_ns", response_ns), ("limit_ns", limit_ns)])
}

/// The kernel's accounts of the generator's threads; the worst thread counts.
pub(super) fn books(outcome: &Outcome) -> [CheckResult; 3] {
    let threads = &outcome.threads;
    if threads.is_empty() {
        return ["run_queue", "switches", "headroom"].map(|id| {
            CheckResult::unjudged(id, CheckWeight::Doubt, "the kernel's books of the threads are missing")
        });
    }
    [run_queue(threads), switches(threads), headroom(threads, outcome.late.value_at_quantile(0.5))]
}

/// Whether threads had a CPU when they were ready to run.
fn run_queue(threads: &[ThreadCost]) -> CheckResult {
    let starved = threads.iter().map(ThreadCost::starved).fold(0.0, f64::max);
    let text = format!("a thread waited for a CPU in {} of the time", percent(starved));
    CheckResult::passed("run_queue", CheckWeight::Doubt, text)
        .unless(
            starved <= STARVED_MAX,
            "answers lay unread meanwhile, which looks like a slow server; other programs want the same CPU, so \
             give the generator one of its own (--cpus) or real-time priority (--fifo 20)",
        )
        .figures(&[("starved_share", starved), ("limit_share", STARVED_MAX)])
}

/// Whether threads kept the CPU that they had.
fn switches(threads: &[ThreadCost]) -> CheckResult {
    let rate = |thread: &ThreadCost| match thread.wall_ns {
        0 => 0.0,
        wall_ns => thread.involuntary_switches as f64 * 1e9 / wall_ns as f64,
    };
    let bad =
        |thread: &&ThreadCost| rate(thread) > SWITCHES_PER_S_MAX && thread.starved() > SWITCHES_STARVED_MIN;
    let per_s = threads.iter().map(rate).fold(0.0, f64::max);
    let text = format!("a thread lost its CPU {per_s:.1} times a second");
    CheckResult::passed("switches", CheckWeight::Doubt, text)
        .unless(
            threads.iter().find(bad).is_none(),
            "and it did not get it back at once; other programs want the same CPU, so give the generator one of \
             its own (--cpus) or real-time priority (--fifo 20)",
        )
        .figures(&[("involuntary_per_s", per_s), ("limit_per_s", SWITCHES_PER_S_MAX)])
}

/// Whether threads had time left. When saturating they have none, and every request is on time.
fn headroom(threads: &[ThreadCost], late_p50_ns: u64) -> CheckResult {
    let busy = threads.iter().map(ThreadCost::busy).fold(0.0, f64::max);
    let saturates = busy > BUSY_MAX && late_p50_ns <= ON_TIME_NS;
    let mut text = format!("the busiest thread worked in {} of the time", percent(busy));
    if saturates {
        text += ", as in a closed loop, and sent in time";
    }
    CheckResult::passed("headroom", CheckWeight::Doubt, text)
        .unless(
            busy <= BUSY_MAX || saturates,
            "a client this busy adds a queue of its own to what it measures; use more threads and CPUs, or a \
             lower rate",
        )
        .figures(&[("busy_share", busy), ("limit_share", BUSY_MAX)])
}

/// Whether a hypervisor left the machine its CPUs. The caller counts: the share of the CPU time that was taken, on the
/// relevant CPUs during the run; `None` if too little time passed for the kernel's counters.
pub fn steal(stolen: Option<f64>) -> CheckResult {
    let Some(stolen) = stolen else {
        return CheckResult::unjudged(
            "steal",
            CheckWeight::Doubt,
            "the kernel counts it in ticks, and too few passed",
        );
    };
    let text = format!("the hypervisor took {} of the CPU time", percent(stolen));
    CheckResult::passed("steal", CheckWeight::Doubt, text)
        .unless(
            stolen <= STOLEN_MAX,
            "both the generator and a server on this machine stood still meanwhile; repeat it when the \
             neighbours are quiet, or on a machine of its own",
        )
        .figures(&[("stolen_share", stolen), ("limit_share", STOLEN_MAX)])
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::made::{RATE_PER_S, good};
    use super::*;
    use crate::ScheduleCost;

    const CONSTANT: Schedule = Schedule::Constant { rate_per_s: RATE_PER_S };

    /// A good run, but with one request in fifty as late as that.
    #[track_caller]
    fn check_late(late_ns: u64, response_ns: u64, passed: bool) {
        let mut outcome = good();
        outcome.late.record_n(late_ns, outcome.intended / 50).unwrap();
        outcome.response.clear();
        outcome.response.record_n(response_ns, outcome.intended).unwrap();
        let check = late(&outcome, &CONSTANT);
        assert_eq!(check.passed, Some(passed), "{check:?}");
    }

    #[test]
    fn lateness_is_measured_against_the_answers() {
        check_late(9_900, 25_000, true);
        check_late(12_000, 25_000, false);
        check_late(90_000, 1_000_000, true);
        check_late(110_000, 1_000_000, false);
        assert_eq!(late(&good(), &Schedule::Saturate).passed, None);
    }

    #[test]
    fn with_few_requests_a_lower_percentile_is_judged() {
        let mut outcome = good();
        outcome.late.clear();
        outcome.late.record_n(1_000, 190).unwrap();
        outcome.late.record_n(5_000_000, 5).unwrap();
        let check = late(&outcome, &CONSTANT);
        assert!(check.passed == Some(true) && check.text.contains("(p90)"), "{check:?}");
        outcome.late.clear();
        outcome.late.record_n(5_000_000, 19).unwrap();
        assert_eq!(late(&outcome, &CONSTANT).passed, None);
    }

    #[test]
    fn without_answers_lateness_has_no_measure() {
        let mut outcome = good();
        outcome.response.clear();
        let check = late(&outcome, &CONSTANT);
        assert!(check.passed.is_none() && check.text.contains("no answers"), "{check:?}");
    }

    /// The books of one good thread, changed, beside those of another.
    fn changed(change: impl FnOnce(&mut ThreadCost)) -> Vec<ThreadCost> {
        let thread = good().threads.remove(0);
        let mut bad = thread.clone();
        change(&mut bad);
        vec![thread, bad]
    }

    #[test]
    fn a_thread_that_waits_for_a_cpu_fails_the_check() {
        let at = |run_queue_ns| {
            run_queue(&changed(|thread| thread.in_schedule.run_queue_ns = run_queue_ns)).passed
        };
        let second = good().threads[0].in_schedule.wall_ns;
        assert_eq!(at(second / 101), Some(true));
        assert_eq!(at(second / 99), Some(false));
    }

    #[test]
    fn interruptions_count_if_they_cost() {
        let at = |switches: u64, run_queue_ns: u64| {
            let threads = changed(|thread| {
                thread.involuntary_switches = switches * thread.wall_ns / 1_000_000_000;
                thread.in_schedule.run_queue_ns = run_queue_ns * thread.wall_ns / 1_000_000_000;
            });
            super::switches(&threads).passed
        };
        assert_eq!(at(90, 5_000_000), Some(true));
        assert_eq!(at(200, 900_000), Some(true));
        assert_eq!(at(200, 1_100_000), Some(false));
    }

    #[test]
    fn a_busy_thread_is_distinguished_from_one_that_spins() {
        let work = |of: &mut ScheduleCost, share| of.cpu_ns = (of.wall_ns as f64 * share) as u64;
        let busy = |share: f64| changed(|thread| work(&mut thread.in_schedule, share));
        assert_eq!(headroom(&busy(0.79), 5_000).passed, Some(true));
        assert_eq!(headroom(&busy(0.81), 5_000).passed, Some(false));
        assert_eq!(headroom(&busy(1.0), 90).passed, Some(true));
    }

    #[test]
    fn stolen_time_fails_the_check() {
        assert_eq!(steal(Some(0.02)).passed, Some(true));
        assert_eq!(steal(Some(0.03)).passed, Some(false));
        assert_eq!(steal(None).passed, None);
    }

    #[test]
    fn without_books_nothing_is_judged() {
        let mut outcome = good();
        outcome.threads.clear();
        assert!(books(&outcome).iter().all(|check| check.passed.is_none()));
    }
}
