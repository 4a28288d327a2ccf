//! One slice of one candidate at one load.

mod subject;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bpf::witness::Witness;
use linux::cpu::Scheduling;
use load::witness::run_witnessed;
use load::{Client, Exchange, Live, LoadError, Outcome, Run, Schedule, Wait};
use record::{Arrivals, Capacity, Handshakes, Histogram, Latencies, Load, TrialRecord, Void};

pub(crate) use self::subject::Subject;
use crate::part::{Began, Elsewhere, LoadPart, apart};
use crate::traffic::TransferredAmounts;
use crate::trial_key::TrialKey;
use crate::usage::{CounterSnapshot, Usage};
use crate::void::{unanswered, void};
use crate::witness::{self, Witnesses};
use crate::{ByRole, LabError, NodeCpus};

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
    /// Selects the instants of random arrivals, of the warm-up as of the measured part.
    pub seed: u64,
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
            seed: 0,
        }
    }

    /// Learns from the reference's capacity how long an answer takes: in a closed loop each connection waits for one,
    /// so that their number is rate times time (Little's law).
    pub(crate) fn learn(&mut self, found: &Capacity, connections: usize) {
        let answer_s = connections as f64 / found.rate_per_s;
        self.answer = self.answer.max(Duration::try_from_secs_f64(answer_s).unwrap_or_default());
    }
}

/// After the schedule's end an answer is waited for so many times as long as one takes at the capacity, beyond what
/// the wire takes: a machine that does other work meanwhile is that much slower. So is a datagram, before its
/// socket sends the next.
const ANSWERS_WAITED_FOR: u32 = 4;

/// How many connections a client has for answers of a size.
pub(crate) fn connections(subject: &mut dyn Subject, body_bytes: u32) -> usize {
    subject.clients(body_bytes).iter().map(Client::connections).sum()
}

/// Runs a trial. `key` says which of the record's it is. Where one of several clients is lost, the trial does
/// not count, and has nothing of the others either.
pub(crate) fn measure(
    subject: &mut dyn Subject,
    method: &Method,
    load: &Load,
    key: TrialKey,
) -> Result<TrialRecord, LabError> {
    match measured(subject, method, load, key) {
        Err(LabError::ClientLost { machine, why }) => {
            let void = Void::ClientLost { machine, what: why };
            let nothing = Outcome::new(load.rate_per_s, load::Protocol::Http);
            Ok(record(&nothing, &Usage::default(), key, Some(void)))
        }
        result => result,
    }
}

fn measured(
    subject: &mut dyn Subject,
    method: &Method,
    load: &Load,
    key: TrialKey,
) -> Result<TrialRecord, LabError> {
    let wanted = subject.patience().warmup(method.warmup);
    let own = subject.own_part(load);
    let warmup = warmup(wanted, &own, connections(subject, load.body_bytes));
    rest(method, warmup + method.slice);
    subject.begin(length(&own, warmup))?;
    run_everywhere(subject, method, load, warmup, (None, None))?;
    let slice = subject.patience().slice(method.slice);
    make_ready(subject, load.body_bytes)?;
    let before = subject.count()?;
    let witness = method.witness.as_deref().and_then(Witnesses::watching);
    let (outcome, Elsewhere { parts, apart }) =
        run_everywhere(subject, method, load, slice, (witness, Some(key)))?;
    let answered = parts.iter().map(|part| part.counts.answered).sum();
    let mut trial = judged(subject, method, &own, (&outcome, &before), answered, key)?;
    parts.iter().filter_map(|part| part.trial.as_ref()).for_each(|part| trial.add_client(part));
    trial.clients_apart = apart;
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
    key: TrialKey,
) -> Result<TrialRecord, LabError> {
    let work = ByRole { client: outcome.answered, server: outcome.answered + elsewhere };
    let (usage, detour) = subject.spent(before, &method.cpus, &work.map(TransferredAmounts::exchanges))?;
    // Where the machine was kept from running, unanswered requests say nothing of the path.
    let until = |look| before.steal_permille_until(look, &method.cpus);
    let stolen = outcome.late_look.as_ref().map(until);
    let void = detour.or_else(|| void(load, outcome, &usage, stolen)).or_else(|| unanswered(outcome));
    Ok(record(outcome, &usage, key, void))
}

/// Sends one slice of load from all clients and waits for the answers: what came of this machine's part,
/// which a witness may watch, and of the others'. `measured` says which trial of the record, where it is
/// the measured part of one.
///
/// The others are told first, so that all begin within the time that a line takes to them.
pub(crate) fn run_everywhere(
    subject: &mut dyn Subject,
    method: &Method,
    load: &Load,
    duration: Duration,
    (witness, measured): (Option<&Witness>, Option<TrialKey>),
) -> Result<(Outcome, Elsewhere), LabError> {
    let own = subject.own_part(load);
    subject.begin_elsewhere(&LoadPart {
        load: load.clone(),
        duration,
        answer: method.answer,
        seed: method.seed,
        measured,
    })?;
    let began = Began::now();
    let outcome = run(subject, method, &own, duration, witness);
    // They are heard also if this one failed: a later request would get the answers to this one.
    let parts = subject.loaded_elsewhere();
    let (outcome, parts) = (outcome?, parts?);
    let all: Vec<Began> = std::iter::once(began).chain(parts.iter().map(|part| part.began)).collect();
    Ok((outcome, Elsewhere { parts, apart: apart(&all) }))
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
    let schedule = match (load.rate_per_s, load.arrivals) {
        (Some(rate_per_s), Arrivals::Constant) => Schedule::Constant { rate_per_s },
        (Some(rate_per_s), Arrivals::Poisson) => Schedule::Poisson { rate_per_s, seed: method.seed },
        (None, _) => Schedule::Saturate,
    };
    let patience = subject.patience();
    let connections = connections(subject, load.body_bytes);
    let clients = subject.clients(load.body_bytes);
    // The kernel stops a real-time thread that never sleeps for 50 ms in each second.
    let polls = clients.iter().any(Client::polls);
    let scheduling = if polls { Scheduling::Normal } else { method.scheduling };
    let answers = method.answer * ANSWERS_WAITED_FOR;
    Run {
        requests: due(load, duration),
        drain: patience.drain(load.body_bytes, connections) + answers,
        presumed_lost: Some(patience.datagram() + answers),
        // On a CPU that both nodes share, whoever spins keeps the server from it.
        wait: if method.cpus.client == method.cpus.server { Wait::Sleep } else { Wait::Hybrid },
        // With fewer connections than CPUs there are fewer clients too.
        threads: method.cpus.each_client().into_iter().take(clients.len()).collect(),
        scheduling,
        ..Run::new(schedule, duration)
    }
}

/// The requests of a slice at equal intervals. It ends with the period of the last one: one request in a tenth of a
/// second is no rate of one a second. `None`: as many as come in its time.
fn due(load: &Load, duration: Duration) -> Option<u64> {
    let rate_per_s = load.rate_per_s.filter(|_| load.arrivals.are_usual())?;
    // A product of whole numbers may be a hair too great.
    Some((rate_per_s * duration.as_secs_f64() - 1e-6).ceil().max(1.0) as u64)
}

/// How long a slice is that is to last so long.
fn length(load: &Load, duration: Duration) -> Duration {
    let whole = due(load, duration).zip(load.rate_per_s);
    whole.map_or(duration, |(requests, rate_per_s)| Duration::from_secs_f64(requests as f64 / rate_per_s))
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

fn record(outcome: &Outcome, usage: &Usage, key: TrialKey, void: Option<Void>) -> TrialRecord {
    TrialRecord {
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
        handshakes: recorded_handshakes(outcome.handshakes),
        void,
        ..usage.of_trial(key, &outcome.threads)
    }
}

/// TLS handshakes for a record, which has none where there were none.
pub(crate) fn recorded_handshakes(handshakes: load::Handshakes) -> Option<Handshakes> {
    (handshakes != load::Handshakes::default())
        .then_some(Handshakes { full: handshakes.full, resumed: handshakes.resumed })
}
