//! One slice of one candidate at one load.

mod subject;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bpf::witness::Witness;
use linux::cpu::Scheduling;
use load::windows::{Witnessed, stalled_ns};
use load::witness::run_witnessed;
use load::{Client, Exchange, Live, LoadError, Outcome, Run, Schedule, ThreadCost, Wait};
use record::{Capacity, CpuTime, Handshakes, Histogram, Latencies, Load, TrialRecord, Void};

pub(crate) use self::subject::Subject;
use crate::part::{LoadPart, LoadedPart};
use crate::traffic::TransferredAmounts;
use crate::usage::{CounterSnapshot, Usage, steal_permille, sum};
use crate::witness::{self, Witnesses};
use crate::{ByRole, Event, LabError, NodeCpus};

/// How a trial is run.
#[derive(Debug, Clone)]
pub struct Method {
    /// Load before the measured part; not counted. Longer where the wire is long.
    pub warmup: Duration,
    /// The measured part. Longer where the wire is long.
    pub slice: Duration,
    /// The CPUs on which each node's threads run.
    pub cpus: NodeCpus,
    /// Policy of the generator's threads.
    pub scheduling: Scheduling,
    /// Watches the machine during the measured part of a trial at a rate.
    pub witness: Option<Arc<Witnesses>>,
    /// How long the reference takes for an answer at its capacity, on average; zero until that is known. A server whose
    /// answers take seconds is waited for accordingly.
    pub answer: Duration,
}

impl Method {
    /// Slices of a tenth of a second after a fifth of that as warm-up.
    pub fn new(cpus: NodeCpus, scheduling: Scheduling) -> Method {
        Method {
            warmup: Duration::from_millis(20),
            slice: Duration::from_millis(100),
            cpus,
            scheduling,
            witness: None,
            answer: Duration::ZERO,
        }
    }

    /// Learns from the reference's capacity how long an answer takes: in a closed loop each connection waits for one,
    /// so that their number is rate times time (Little's law).
    pub(crate) fn learn(&mut self, found: &Capacity, connections: usize) {
        let answer_s = connections as f64 / found.rate_per_s;
        self.answer = self.answer.max(Duration::try_from_secs_f64(answer_s).unwrap_or_default());
    }
}

/// The limit of the p99 of the generator's own lateness. Measured on a virtual machine of two CPUs under `SCHED_FIFO`,
/// 32 connections, 17 000, 35 000 and 60 000 requests/s: 19 to 64 µs in 47 of 48 runs with hybrid waiting, 38 to 99 µs
/// in 21 of 24 that slept only, for a request waits until the answers and the softirq work of those before it are
/// done. The four others had 201 to 475 µs, with other programs at work on both CPUs. The limit stands in the gap.
const LATE_LIMIT_NS: u64 = 150_000;

/// The limit of the time that a generator's thread is ready to run without a CPU, in permille of wall time. Lateness is
/// blind to that while all connections are busy, and answers that lie unread make the candidate slow. In the good runs
/// it was 0 to 10 ‰, which is waking up; a real-time thread that the kernel stops for 50 ms in each second has 50 ‰,
/// and was seen with a p99 of 77 µs of lateness and 25 ms of lag.
pub(crate) const STARVED_LIMIT_PERMILLE: u32 = 30;

/// The limit of the generator threads' busy share, in permille. They sleep between requests, so a thread without any
/// idle time measures its own queue. Short of that lateness is the criterion, and it is measured directly: where the
/// sender's CPU does the receive work, an expensive path takes most of the client's CPU, and must not be void for it.
const BUSY_LIMIT_PERMILLE: u32 = 990;

/// The limit of stolen time, in permille of the nodes' CPU time. The kernel counts it in ticks of 10 ms; on two CPUs
/// and a slice of 100 ms one tick is 50.
const STEAL_LIMIT_PERMILLE: u32 = 25;

/// The limit of the share of a trial that lies within windows around stalls, in permille. What is left is as good as
/// any other time, but the reference's other trials of the round should not be compared with a handful of requests.
const LEFT_OUT_LIMIT_PERMILLE: u32 = 500;

/// After the schedule's end an answer is waited for so many times as long as one takes at the capacity, beyond what
/// the wire takes: a machine that does other work meanwhile is that much slower. So is a datagram, before its
/// socket sends the next.
const ANSWERS_WAITED_FOR: u32 = 4;

/// How many connections a client has for answers of a size.
pub(crate) fn connections(subject: &mut dyn Subject, body_bytes: u32) -> usize {
    subject.clients(body_bytes).iter().map(Client::connections).sum()
}

/// A slice that does not count is repeated at most so often. Then the candidate goes without it, and the report says
/// so, or it is broken if it never answered.
pub(crate) const REPEATS: usize = 2;

/// Runs a trial. `indexes` are the record's, of entrant and load. Where one of several clients is lost, the trial does
/// not count, and has nothing of the others either.
pub(crate) fn measure(
    subject: &mut dyn Subject,
    method: &Method,
    load: &Load,
    indexes: (usize, usize),
) -> Result<TrialRecord, LabError> {
    match measured(subject, method, load, indexes) {
        Err(LabError::ClientLost { machine, why }) => {
            let void = Void::ClientLost { machine, what: why };
            let nothing = Outcome::new(load.rate_per_s, load::Protocol::Http);
            Ok(record(&nothing, &Usage::default(), indexes, Some(void)))
        }
        result => result,
    }
}

fn measured(
    subject: &mut dyn Subject,
    method: &Method,
    load: &Load,
    indexes: (usize, usize),
) -> Result<TrialRecord, LabError> {
    let wanted = subject.patience().warmup(method.warmup);
    let own = subject.own_part(load);
    let warmup = warmup(wanted, &own, connections(subject, load.body_bytes));
    rest(method, warmup + method.slice);
    subject.begin(warmup)?;
    run_everywhere(subject, method, load, warmup, (None, None))?;
    let slice = subject.patience().slice(method.slice);
    make_ready(subject, load.body_bytes)?;
    let before = subject.count()?;
    let witness = method.witness.as_deref().and_then(Witnesses::watching);
    let (outcome, elsewhere) = run_everywhere(subject, method, load, slice, (witness, Some(indexes)))?;
    let answered = elsewhere.iter().map(|part| part.counts.answered).sum();
    let mut trial = judged(subject, method, &own, (&outcome, &before), answered, indexes)?;
    elsewhere.iter().filter_map(|part| part.trial.as_ref()).for_each(|part| trial.add_client(part));
    Ok(trial)
}

/// What a client's slice gave and cost since `before`, and whether it counts. So many requests were answered
/// to others in it.
pub(crate) fn judged(
    subject: &mut dyn Subject,
    method: &Method,
    load: &Load,
    (outcome, before): (&Outcome, &CounterSnapshot),
    elsewhere: u64,
    indexes: (usize, usize),
) -> Result<TrialRecord, LabError> {
    let work = ByRole { client: outcome.answered, server: outcome.answered + elsewhere };
    let (usage, detour) = subject.spent(before, &method.cpus, &work.map(TransferredAmounts::exchanges))?;
    // Where the machine was kept from running, unanswered requests say nothing of the path.
    let void = detour.or_else(|| void(load, outcome, &usage)).or_else(|| unanswered(outcome));
    Ok(record(outcome, &usage, indexes, void))
}

/// Sends one slice of load from all clients and waits for the answers: what came of this machine's part,
/// which a witness may watch, and of the others'. `measured` are the record's indexes, where it is the
/// measured part of a trial.
///
/// The others are told first, so that all begin within the time that a line takes to them.
pub(crate) fn run_everywhere(
    subject: &mut dyn Subject,
    method: &Method,
    load: &Load,
    duration: Duration,
    (witness, measured): (Option<&Witness>, Option<(usize, usize)>),
) -> Result<(Outcome, Vec<LoadedPart>), LabError> {
    let own = subject.own_part(load);
    subject.begin_elsewhere(&LoadPart { load: load.clone(), duration, answer: method.answer, measured })?;
    let outcome = run(subject, method, &own, duration, witness);
    // They are heard also if this one failed: a later request would get the answers to this one.
    let elsewhere = subject.loaded_elsewhere();
    Ok((outcome?, elsewhere?))
}

/// Looks at every connection: of thousands of them that takes milliseconds, which are no part of what requests cost.
pub(crate) fn make_ready(subject: &mut dyn Subject, body_bytes: u32) -> Result<(), LabError> {
    let ready = subject.clients(body_bytes).iter_mut().try_for_each(Client::make_ready);
    ran(subject, ready)
}

/// Leaves the CPUs to others, before threads of real-time policy may take all of a CPU for a time, 0.4 s at most: the
/// kernel stops those that ran for more than 95 % of a second, for the rest of it. The generator spins at a rate; in a
/// closed loop either it or the server never sleeps.
pub(crate) fn rest(method: &Method, runs: Duration) {
    if method.scheduling != Scheduling::Normal {
        thread::sleep(runs / 12);
    }
}

/// Long enough for two requests on each connection, whatever the rate: a TCP connection that was idle for longer than
/// its time-out acknowledges at once for a while and starts again with a small window, which is not to be measured.
/// Where there are so many connections that each is idle for so long between any two of its requests, that is their
/// usual state, and no warm-up changes it.
pub(crate) fn warmup(wanted: Duration, load: &Load, connections: usize) -> Duration {
    let between = load.rate_per_s.map_or(0.0, |rate| connections as f64 / rate);
    let twice = if between < RTO_MIN_S { 2.0 * between } else { 0.0 };
    wanted.max(Duration::from_secs_f64(twice))
}

/// Linux's minimum retransmission time-out (`TCP_RTO_MIN`), in seconds.
const RTO_MIN_S: f64 = 0.2;

/// Sends one slice of load from this machine and waits for the answers.
///
/// The generator sleeps only where the next instant is far, and spins before it: the timers of a thread that sleeps
/// between any two requests were half of the median on a virtual machine, and half of its CPU.
pub(crate) fn run(
    subject: &mut dyn Subject,
    method: &Method,
    load: &Load,
    duration: Duration,
    witness: Option<&Witness>,
) -> Result<Outcome, LabError> {
    let (run, rate_per_s) = (run_of(subject, method, load, duration), load.rate_per_s);
    let clients = subject.clients(load.body_bytes);
    let outcome = match witness.filter(|_| rate_per_s.is_some()) {
        Some(witness) => run_witnessed(clients, &run, &Live::default(), witness),
        None => load::run(clients, &run),
    };
    ran(subject, outcome)
}

/// The same; each request that was due goes to `log` when it has ended.
pub(crate) fn run_with_log(
    subject: &mut dyn Subject,
    method: &Method,
    load: &Load,
    duration: Duration,
    log: &mut (dyn FnMut(&[Exchange]) + Send),
) -> Result<Outcome, LabError> {
    let run = run_of(subject, method, load, duration);
    let outcome = load::run_logged(subject.clients(load.body_bytes), &run, &Live::default(), log);
    ran(subject, outcome)
}

/// What is asked of the generator.
fn run_of(subject: &mut dyn Subject, method: &Method, load: &Load, duration: Duration) -> Run {
    let schedule = match load.rate_per_s {
        Some(rate_per_s) => Schedule::Constant { rate_per_s },
        None => Schedule::Saturate,
    };
    let patience = subject.patience();
    let connections = connections(subject, load.body_bytes);
    let clients = subject.clients(load.body_bytes);
    // The kernel stops a real-time thread that never sleeps for 50 ms in each second.
    let polls = clients.iter().any(Client::polls);
    let scheduling = if polls { Scheduling::Normal } else { method.scheduling };
    let answers = method.answer * ANSWERS_WAITED_FOR;
    // A slice ends with the period of its last request: one request in a tenth of a second is no rate of one a second.
    // A product of whole numbers may be a hair too great.
    let due = |rate_per_s: f64| (rate_per_s * duration.as_secs_f64() - 1e-6).ceil().max(1.0) as u64;
    Run {
        requests: load.rate_per_s.map(due),
        drain: patience.drain(load.body_bytes, connections) + answers,
        presumed_lost: Some(patience.datagram() + answers),
        wait: Wait::Hybrid,
        // With fewer connections than CPUs there are fewer clients too.
        threads: method.cpus.each_client().into_iter().take(clients.len()).collect(),
        scheduling,
        ..Run::new(schedule, duration)
    }
}

/// A run's outcome; its failure in the lab's words.
fn ran<T>(subject: &mut dyn Subject, outcome: Result<T, LoadError>) -> Result<T, LabError> {
    match outcome {
        Ok(outcome) => Ok(outcome),
        Err(error) => {
            subject.check_server()?;
            Err(match error {
                // The connections were there before and the server lives: the way between them is gone.
                LoadError::Connect { .. } | LoadError::ConnectTimeout { .. } => LabError::Broken {
                    candidate: subject.name().to_owned(),
                    what: format!("could not {error}"),
                },
                error => LabError::Load { candidate: subject.name().to_owned(), why: Box::new(error) },
            })
        }
    }
}

/// Void if most of what was sent was never answered.
fn unanswered(outcome: &Outcome) -> Option<Void> {
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

/// Holds a slice, and again while it is void, as often as a trial is repeated: one without answers may be the machine's
/// doing. A candidate that answers in none of them is broken.
pub(crate) fn until_answered<T>(
    candidate: &str,
    emit: &mut dyn FnMut(Event),
    mut slice: impl FnMut() -> Result<(T, Option<Void>), LabError>,
) -> Result<T, LabError> {
    let mut repeats = REPEATS;
    loop {
        let (kept, void) = slice()?;
        let Some((what, why)) = void.and_then(|why| Some((breaks(&why)?, why))) else { return Ok(kept) };
        emit(Event::Voided { name: candidate.to_owned(), why });
        if repeats == 0 {
            return Err(LabError::Broken { candidate: candidate.to_owned(), what });
        }
        repeats -= 1;
    }
}

/// What was stolen from a witnessed trial is left out of it, so that only much of it makes it void.
fn void(load: &Load, outcome: &Outcome, usage: &Usage) -> Option<Void> {
    let stood_still = match &outcome.witnessed {
        Some(seen) => stood_still(seen, outcome.duration),
        None => stolen(usage),
    };
    stood_still.or_else(|| kept_from_running(load, outcome))
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
    let run_queue_permille = (starved * 1000.0) as u32;
    if run_queue_permille > STARVED_LIMIT_PERMILLE {
        return Some(Void::GeneratorStarved { run_queue_permille, limit_permille: STARVED_LIMIT_PERMILLE });
    }
    let late = outcome.witnessed.as_ref().map_or(&outcome.late, |seen| &seen.late);
    let late_p99_ns = late.value_at_quantile(0.99);
    (late_p99_ns > LATE_LIMIT_NS).then_some(Void::GeneratorLate { late_p99_ns, limit_ns: LATE_LIMIT_NS })
}

/// The share of the time in which a thread was ready to run without a CPU, less the stalls of the CPUs that it may run
/// on: what became due in those does not count anyway.
fn starved(thread: &ThreadCost, outcome: &Outcome) -> f64 {
    let stalls = outcome.witnessed.as_ref().map_or(&[][..], |seen| seen.stalls.as_slice());
    let stalled_ns = stalled_ns(stalls, thread.cpus.as_ref());
    let stalled = stalled_ns as f64 / thread.wall_ns.max(1) as f64;
    (thread.starved() - stalled).max(0.0)
}

/// Void if the hypervisor took too much. It is all that can void a trial that has no schedule: a client that sends as
/// much as goes is not late, and has no idle time to lack.
pub(crate) fn stolen(usage: &Usage) -> Option<Void> {
    too_much(usage.steal_permille())
}

/// The same of a node's CPUs alone.
pub(crate) fn stolen_from(cpus: &BTreeMap<u16, CpuTime>) -> Option<Void> {
    too_much(steal_permille([cpus]))
}

fn too_much(steal_permille: u32) -> Option<Void> {
    (steal_permille > STEAL_LIMIT_PERMILLE).then_some(Void::Stolen { steal_permille })
}

fn record(
    outcome: &Outcome,
    usage: &Usage,
    (entrant, load): (usize, usize),
    void: Option<Void>,
) -> TrialRecord {
    let handshakes = outcome.handshakes;
    TrialRecord {
        entrant,
        load,
        duration_ns: u64::try_from(outcome.duration.as_nanos()).unwrap_or(u64::MAX),
        intended: outcome.intended,
        sent: outcome.sent,
        answered: outcome.answered,
        answered_in_time: outcome.answered_in_schedule,
        loop_ns: outcome
            .intervals
            .answers_per_s()
            .map(|per_s| (outcome.answered_in_schedule as f64 / per_s * 1e9) as u64),
        missed: outcome.missed.count(),
        missed_age_max_ns: outcome.missed.ages.max(),
        connection_errors: outcome.faults.count(),
        unexpected: outcome.unexpected.count(),
        latencies: Latencies {
            response: Histogram::from(&outcome.response),
            service: Histogram::from(&outcome.service),
            lag: Histogram::from(&outcome.lag),
        },
        witnessed: witness::recorded(outcome),
        client_cpu: sum(&usage.client),
        server_cpu: sum(&usage.server),
        client_by_cpu: usage.client.clone(),
        server_by_cpu: usage.server.clone(),
        counters: usage.with_threads(&outcome.threads),
        cards: usage.cards.clone(),
        carried: None,
        frames: None,
        junk: None,
        handshakes: (handshakes != load::Handshakes::default())
            .then_some(Handshakes { full: handshakes.full, resumed: handshakes.resumed }),
        void,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of slices, the first of which have no answers, and how many there were.
    fn sliced(unanswered: usize) -> (Result<usize, LabError>, usize, usize) {
        let (mut slices, mut voided) = (0, 0);
        let none =
            || Void::Unanswered { sent: 4, intended: 4, unanswered: 4, unexpected: 0, connection_errors: 0 };
        let outcome = until_answered(
            "a",
            &mut |event| voided += usize::from(matches!(event, Event::Voided { .. })),
            || {
                slices += 1;
                Ok((slices, (slices <= unanswered).then(none)))
            },
        );
        (outcome, slices, voided)
    }

    #[test]
    fn who_answers_in_a_later_slice_is_not_broken() {
        assert!(matches!(sliced(0), (Ok(1), 1, 0)));
        assert!(matches!(sliced(2), (Ok(3), 3, 2)));
        let (outcome, slices, voided) = sliced(usize::MAX);
        assert_eq!((slices, voided), (3, 3));
        let Err(LabError::Broken { candidate, what }) = outcome else { panic!("{outcome:?}") };
        assert!(candidate == "a" && what.starts_with("4 of 4 requests"), "{what}");
    }
}
