//! When a trial does not count, and which of the reasons are the candidate's.

use std::collections::BTreeMap;
use std::time::Duration;

use load::windows::{Witnessed, stalled_ns};
use load::{Outcome, ThreadCost};
use record::{CpuTime, Load, Void};

use crate::usage::{Usage, steal_permille};

/// The limit of the p99 of the generator's own lateness. Measured on a virtual machine of two CPUs under `SCHED_FIFO`,
/// 32 connections, 17 000, 35 000 and 60 000 requests/s: 19 to 64 µs in 47 of 48 runs with hybrid waiting, 38 to 99 µs
/// in 21 of 24 that slept only, for a request waits until the answers and the softirq work of those before it are
/// done. The four others had 201 to 475 µs, with other programs at work on both CPUs. The limit stands in the gap.
const LATE_LIMIT_NS: u64 = 150_000;

/// The limit of the time that a generator's thread is ready to run without a CPU, in permille of the slice: of the wait
/// for last answers that follows where one is lost, the limit would be many times as lax. Lateness is blind to that
/// while all connections are busy, and answers that lie unread make the candidate slow. In the good runs it was 0 to 10
/// ‰, which is waking up; a real-time thread that the kernel stops for 50 ms in each second has 50 ‰, and was seen with
/// a p99 of 77 µs of lateness and 25 ms of lag.
pub(crate) const STARVED_LIMIT_PERMILLE: u32 = 30;

/// The limit of the generator threads' busy share, in permille. They sleep between requests, so a thread without any
/// idle time measures its own queue. Short of that lateness is the criterion, and it is measured directly: where the
/// sender's CPU does the receive work, an expensive path takes most of the client's CPU, and must not be void for it.
const BUSY_LIMIT_PERMILLE: u32 = 990;

/// The limit of stolen time, in permille of the nodes' CPU time. The kernel counts it in ticks of 10 ms; on two CPUs
/// and a slice of 100 ms one tick is 50.
const STEAL_LIMIT_PERMILLE: u32 = 25;

/// The limit of the time for which a CPU quota stopped a side, in permille of the time of its CPUs. A stop lasts for
/// the rest of a period, which is 100 ms as a rule, and requests of that time wait for its end: where they are one in a
/// hundred, p99 is the quota's.
const THROTTLED_LIMIT_PERMILLE: u32 = 10;

/// The limit of the share of a trial that lies within windows around stalls, in permille. What is left is as good as
/// any other time, but the reference's other trials of the round should not be compared with a handful of requests.
const LEFT_OUT_LIMIT_PERMILLE: u32 = 500;

/// Void if most of what was sent was never answered.
pub(crate) fn unanswered(outcome: &Outcome) -> Option<Void> {
    // Of the requests that were sent: a path that is only too slow for a rate answers late, but it answers.
    let unanswered = outcome.sent.saturating_sub(outcome.answered);
    let answers = outcome.intended == 0 || (outcome.sent > 0 && unanswered * 2 <= outcome.sent);
    (!answers).then(|| Void::Unanswered {
        intended: outcome.intended,
        sent: outcome.sent,
        unanswered,
        unexpected: outcome.unexpected.count(),
        connection_errors: outcome.faults.count(),
    })
}

/// What breaks a candidate if it stays so; `None` for what is no fault of the candidate.
pub(crate) fn breaks(void: &Void) -> Option<String> {
    match void {
        Void::PathChanged { what } => Some(format!("the path changed: {what}")),
        Void::Unanswered { intended, sent, unanswered, unexpected, connection_errors } => Some(format!(
            "{unanswered} of {sent} requests that were sent, of {intended} that were due, got no valid answer \
             ({unexpected} unexpected answers, {connection_errors} connection errors)"
        )),
        Void::OnClient { machine, why } => breaks(why).map(|what| format!("on {machine}: {what}")),
        _ => None,
    }
}

/// Whether a trial does not count for its path.
pub(crate) fn is_of_the_path(void: &Void) -> bool {
    match void {
        Void::PathChanged { .. } => true,
        Void::OnClient { why, .. } => is_of_the_path(why),
        _ => false,
    }
}

/// What keeps a slice beside the trials from counting: most of what was sent was never answered,
/// though the generator ran.
pub(crate) fn unanswered_slice(load: &Load, outcome: &Outcome) -> Option<Void> {
    if kept_from_running(load, outcome).is_some() { None } else { unanswered(outcome) }
}

/// What was stolen from a witnessed trial is left out of it, so that only much of it makes it void. Where answers were
/// waited for in vain, so much in permille was stolen of the slice alone.
pub(crate) fn void(
    load: &Load,
    outcome: &Outcome,
    usage: &Usage,
    of_slice_permille: Option<u32>,
) -> Option<Void> {
    let stood_still = match (&outcome.witnessed, of_slice_permille) {
        (Some(seen), _) => stood_still(seen, outcome.duration),
        (None, Some(permille)) => too_much(permille),
        (None, None) => stolen(usage),
    };
    throttled(usage, outcome.threads.len()).or(stood_still).or_else(|| kept_from_running(load, outcome))
}

/// Void if little is left of a trial without the machine's stalls.
fn stood_still(seen: &Witnessed, duration: Duration) -> Option<Void> {
    let share = seen.left_out_ns as f64 / duration.as_nanos().max(1) as f64;
    let left_out_permille = (share * 1000.0) as u32;
    (left_out_permille > LEFT_OUT_LIMIT_PERMILLE)
        .then_some(Void::StoodStill { left_out_permille, limit_permille: LEFT_OUT_LIMIT_PERMILLE })
}

/// Void if the generator could not do what was asked of it when it was asked.
pub(crate) fn kept_from_running(load: &Load, outcome: &Outcome) -> Option<Void> {
    // A closed loop has no schedule to be late for, and is meant to take all of the client's CPUs.
    load.rate_per_s?;
    let busiest = outcome.threads.iter().map(ThreadCost::busy).fold(0.0, f64::max);
    let busy_permille = (busiest * 1000.0) as u32;
    if busy_permille > BUSY_LIMIT_PERMILLE {
        return Some(Void::ClientBusy { busy_permille });
    }
    let starved = outcome.threads.iter().map(|thread| starved(thread, outcome)).fold(0.0, f64::max);
    if let Some(void) = too_starved(starved) {
        return Some(void);
    }
    let late = outcome.witnessed.as_ref().map_or(&outcome.late, |seen| &seen.late);
    let late_p99_ns = late.value_at_quantile(0.99);
    (late_p99_ns > LATE_LIMIT_NS).then_some(Void::GeneratorLate { late_p99_ns, limit_ns: LATE_LIMIT_NS })
}

/// Void if a sender of datagrams at a rate waited for a CPU: what was due meanwhile goes at once when it has one, and
/// what of that finds no room is no loss of the path's. Its lateness says little of it, since only the first of what it
/// then sends is late by its own fault.
pub(crate) fn starved_sender(load: &Load, threads: &[ThreadCost]) -> Option<Void> {
    load.rate_per_s?;
    too_starved(threads.iter().map(ThreadCost::starved).fold(0.0, f64::max))
}

fn too_starved(share: f64) -> Option<Void> {
    let run_queue_permille = (share * 1000.0) as u32;
    (run_queue_permille > STARVED_LIMIT_PERMILLE)
        .then_some(Void::GeneratorStarved { run_queue_permille, limit_permille: STARVED_LIMIT_PERMILLE })
}

/// The share of the slice in which a thread was ready to run without a CPU, less the stalls of the CPUs that it may run
/// on: what became due in those does not count anyway.
fn starved(thread: &ThreadCost, outcome: &Outcome) -> f64 {
    let stalls = outcome.witnessed.as_ref().map_or(&[][..], |seen| seen.stalls.as_slice());
    let slice_ns = thread.in_schedule.wall_ns;
    let stalled_ns = stalled_ns(stalls, thread.cpus.as_ref(), outcome.started_ns.saturating_add(slice_ns));
    let stalled = stalled_ns as f64 / slice_ns.max(1) as f64;
    (thread.starved() - stalled).max(0.0)
}

/// Void if a quota or the hypervisor took too much. It is all that can void a trial that has no schedule: a client
/// that sends as much as goes is not late, and has no idle time to lack.
pub(crate) fn kept_from_cpus(usage: &Usage) -> Option<Void> {
    throttled(usage, usage.client.len()).or_else(|| stolen(usage))
}

/// Void if a CPU quota stopped a side that was to use so many CPUs. A group is stopped on all CPUs on which it has
/// work, and the kernel adds up their times.
pub(crate) fn throttled(usage: &Usage, cpus: usize) -> Option<Void> {
    let all = usage.wall.as_secs_f64() * cpus.max(1) as f64;
    let throttled_permille =
        (usage.throttled.as_secs_f64() / all.max(f64::MIN_POSITIVE) * 1000.0).round() as u32;
    (throttled_permille > THROTTLED_LIMIT_PERMILLE)
        .then_some(Void::Throttled { throttled_permille, limit_permille: THROTTLED_LIMIT_PERMILLE })
}

fn stolen(usage: &Usage) -> Option<Void> {
    too_much(usage.steal_permille())
}

/// The same of a node's CPUs alone.
pub(crate) fn stolen_from(cpus: &BTreeMap<u16, CpuTime>) -> Option<Void> {
    too_much(steal_permille([cpus]))
}

fn too_much(steal_permille: u32) -> Option<Void> {
    (steal_permille > STEAL_LIMIT_PERMILLE).then_some(Void::Stolen { steal_permille })
}

#[cfg(test)]
mod tests {
    use load::{Protocol, ScheduleCost};

    use super::*;

    const MS: u64 = 1_000_000;

    fn load() -> Load {
        Load::at_rate(0, 1_000.0)
    }

    /// What a thread got in a slice of 100 ms, whose last answer was waited for in vain.
    fn cost(in_schedule: ScheduleCost) -> ThreadCost {
        ThreadCost {
            cpus: None,
            cpu_ns: in_schedule.cpu_ns,
            spun_ns: in_schedule.spun_ns,
            spun_alone_ns: 0,
            wall_ns: 1_701 * MS,
            voluntary_switches: 0,
            involuntary_switches: 0,
            run_queue_ns: in_schedule.run_queue_ns,
            in_schedule: ScheduleCost { wall_ns: 100 * MS, ..in_schedule },
        }
    }

    fn kept(in_schedule: ScheduleCost) -> Option<Void> {
        let threads = vec![cost(in_schedule)];
        kept_from_running(&load(), &Outcome { threads, ..Outcome::new(load().rate_per_s, Protocol::Http) })
    }

    #[test]
    fn a_wait_for_an_answer_hides_no_want_of_a_cpu() {
        let waited = |run_queue_ns| kept(ScheduleCost { run_queue_ns, ..ScheduleCost::default() });
        assert!(waited(2 * MS).is_none());
        assert!(matches!(waited(45 * MS), Some(Void::GeneratorStarved { run_queue_permille: 450, .. })));
    }

    #[test]
    fn a_client_that_worked_throughout_its_slice_had_no_headroom() {
        let worked = |cpu_ns, spun_ns| kept(ScheduleCost { cpu_ns, spun_ns, ..ScheduleCost::default() });
        assert!(matches!(worked(100 * MS, 0), Some(Void::ClientBusy { busy_permille: 1000 })));
        assert!(worked(100 * MS, 30 * MS).is_none());
    }

    #[test]
    fn what_a_quota_stopped_does_not_count() {
        let stopped = |ms| Usage {
            wall: Duration::from_millis(100),
            throttled: Duration::from_millis(ms),
            ..Usage::default()
        };
        assert!(throttled(&stopped(1), 1).is_none());
        // The rest of a period: 40 ms on each of two CPUs.
        let void = throttled(&stopped(80), 2);
        assert!(matches!(void, Some(Void::Throttled { throttled_permille: 400, .. })), "{void:?}");
        // So long on one of many is little of their time.
        assert!(throttled(&stopped(3), 4).is_none());
    }

    #[test]
    fn a_flow_counts_only_if_its_sender_had_a_cpu() {
        let waited = |run_queue_ns| {
            [cost(ScheduleCost::default()), cost(ScheduleCost { run_queue_ns, ..ScheduleCost::default() })]
        };
        assert!(starved_sender(&load(), &waited(3 * MS)).is_none());
        assert!(matches!(
            starved_sender(&load(), &waited(9 * MS)),
            Some(Void::GeneratorStarved { run_queue_permille: 90, .. })
        ));
        // As much as goes is no schedule that it could miss.
        assert!(starved_sender(&Load { rate_per_s: None, ..load() }, &waited(9 * MS)).is_none());
    }
}
