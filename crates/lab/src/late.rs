//! Why answers are late: slices of their own after the rounds, in which programs in the kernel watch, while the last
//! build still stands. Half of the slices are not watched, so that the cost of watching is measured and not believed.

mod answer;
mod cause;
mod evidence;

use std::collections::BTreeMap;
use std::time::Duration;

use bpf::late::{LateConfig, LateEvents, LatePrograms, Namespace, Tracepoint};
use bpf::witness::{Stall, StallReport, Witness};
use linux::CpuSet;
use load::witness::FINE;
use load::{Client, Exchange, Outcome};
use record::{Cause, Histogram, Late, Load, Retransmitted, Void, WorkloadKind};
use stats::Random;

use crate::ports::SERVER_PORT;
use crate::repeats::until_answered;
use crate::trial::{Method, connections, rest, run, run_with_log, warmup};
use crate::visits::{Visit, visit_all};
use crate::void::unanswered_slice;
use crate::{BuiltTopology, Event, LabError};
use answer::AnsweredRequest;
use cause::{Usual, causes};
use evidence::{CpuInterval, SliceEvents, count, count_drops, is_loss};

/// A slice: long enough that a retransmission time-out of 200 ms and its answer lie within most of them, and
/// short enough for [`rest`].
const SLICE: Duration = Duration::from_millis(400);

/// How often each candidate is visited, each time for a slice that is watched and one that is not: four seconds of
/// each. At 20,000 requests/s 800 answers are then beyond p99, and 8 beyond p99.99.
const VISITS: usize = 10;

/// What is reported. Half of the answers of a fast path take longer than the first, but a cause has to explain most of
/// an answer's time beyond p99, which is several times as long.
const CONFIG: LateConfig = LateConfig {
    server_port: SERVER_PORT,
    wait: Duration::from_micros(30),
    softirq: Duration::from_micros(50),
    gap: Duration::from_micros(5),
    exchange: Duration::from_micros(150),
};

/// Workloads whose exchanges are known by the connection on which they are: it stays, and has one at a time.
pub(crate) fn is_for(kind: WorkloadKind) -> bool {
    match kind {
        WorkloadKind::Http | WorkloadKind::Grpc | WorkloadKind::TcpRr => true,
        WorkloadKind::Connect
        | WorkloadKind::Download
        | WorkloadKind::UdpRr
        | WorkloadKind::Verbs
        | WorkloadKind::TcpStream
        | WorkloadKind::UdpStream
        | WorkloadKind::Packets => false,
    }
}

/// An error if this workload has no late answers, or this kernel cannot be watched, before anything was changed.
pub(crate) fn possible(kind: WorkloadKind, cpus: &CpuSet) -> Result<(), LabError> {
    if !is_for(kind) {
        let why =
            "it is for workloads whose connections stay and carry one request at a time: http, grpc, tcp-rr";
        return Err(LabError::Experiment { what: "why_late".to_owned(), why: why.to_owned() });
    }
    LatePrograms::load(&CONFIG)?;
    Witness::new(cpus, FINE)?;
    Ok(())
}

/// A watched slice of a candidate at a load.
struct Slice {
    answers: Vec<AnsweredRequest>,
    evidence: SliceEvents,
}

/// The same as it was held.
struct WatchedSlice {
    outcome: Outcome,
    answers: Vec<AnsweredRequest>,
    seen: LateEvents,
    stood: StallReport,
}

/// All slices of a candidate at a load.
struct Course {
    late: Late,
    watched: load::Histogram<u64>,
    unwatched: load::Histogram<u64>,
    slices: Vec<Slice>,
}

/// What stays the same for all slices.
struct Watch {
    programs: LatePrograms,
    witness: Witness,
    reasons: BTreeMap<u32, String>,
    method: Method,
}

/// The lowest rate of each body size. Without a rate no request is due, and so none is late.
fn lowest(loads: &[Load]) -> Vec<usize> {
    let mut least: BTreeMap<u32, (f64, usize)> = BTreeMap::new();
    for (index, load) in loads.iter().enumerate() {
        let Some(rate) = load.rate_per_s else { continue };
        let entry = least.entry(load.body_bytes).or_insert((rate, index));
        if rate < entry.0 {
            *entry = (rate, index);
        }
    }
    least.into_values().map(|(_, index)| index).collect()
}

/// Visits all candidates, in shuffled order, several times, at the lowest rate of each body size: the programs cost
/// a dear path so much that at a higher one it would show its own queue. `None` if asked to
/// stop.
pub(crate) fn late(
    runners: &mut [(usize, BuiltTopology)],
    loads: &[Load],
    method: &Method,
    rng: &mut Random,
    stop: impl Fn() -> bool,
    emit: &mut dyn FnMut(Event),
) -> Result<Option<Vec<Late>>, LabError> {
    let mut watch = Watch {
        programs: LatePrograms::load(&CONFIG)?,
        witness: Witness::new(&method.cpus.all(), FINE)?,
        reasons: bpf::late::drop_reasons()?.into_iter().collect(),
        method: method.clone(),
    };
    let mut courses: BTreeMap<(usize, usize), Course> = BTreeMap::new();
    let visited = visit_all(runners, &lowest(loads), VISITS, rng, stop, |visit, rng| {
        let Visit { entrant, load, built, done, total } = visit;
        emit(Event::Watching { name: built.name.clone(), done, total });
        let course = courses
            .entry((load, entrant))
            .or_insert_with(|| Course::new(entrant, load, watch.programs.missing()));
        // All have the same random arrivals in a turn, and others in the next.
        watch.method.seed = method.seed.wrapping_add((done * VISITS / total) as u64);
        watch.visit(built, &loads[load], course, rng, emit)
    })?;
    if !visited {
        return Ok(None);
    }
    Ok(Some(courses.into_values().map(Course::finish).collect()))
}

impl Watch {
    /// Two slices of a candidate, watched and not, in a random order.
    fn visit(
        &self,
        built: &mut BuiltTopology,
        load: &Load,
        course: &mut Course,
        rng: &mut Random,
        emit: &mut dyn FnMut(Event),
    ) -> Result<(), LabError> {
        let name = built.name.clone();
        let mut order = [true, false];
        rng.shuffle(&mut order);
        let mut medians_ns = (0, 0);
        for watched in order {
            match watched {
                true => {
                    let slice =
                        until_answered(&name, emit, || built.awake(|built| self.watched(built, load)))?;
                    medians_ns.1 = slice.outcome.response.value_at_quantile(0.5);
                    course.take(slice, self);
                }
                false => {
                    let outcome =
                        until_answered(&name, emit, || built.awake(|built| self.unwatched(built, load)))?;
                    medians_ns.0 = outcome.response.value_at_quantile(0.5);
                    course.unwatched.add(&outcome.response).expect("all histograms have the same bounds");
                }
            }
        }
        course.late.medians_ns.push(medians_ns);
        Ok(())
    }

    /// A slice without the programs, and why it does not count.
    fn unwatched(&self, built: &mut BuiltTopology, load: &Load) -> Result<(Outcome, Option<Void>), LabError> {
        let slice = self.warm(built, load)?;
        let outcome = run(built, &self.method, load, slice, None)?;
        check(built)?;
        let void = unanswered_slice(load, &outcome);
        Ok((outcome, void))
    }

    /// A slice with the programs, and why it does not count.
    fn watched(
        &self,
        built: &mut BuiltTopology,
        load: &Load,
    ) -> Result<(WatchedSlice, Option<Void>), LabError> {
        let namespaces = namespaces(built)?;
        // Attached before the warm-up: the kernel patches its code, and the caches fill.
        let watching = self.programs.watch(&namespaces)?;
        let slice = self.warm(built, load)?;
        self.witness.start()?;
        let mut exchanges = Vec::new();
        let mut log = |block: &[Exchange]| exchanges.extend_from_slice(block);
        let outcome = run_with_log(built, &self.method, load, slice, &mut log);
        // After an error, too: it would watch the rest of the race.
        let stopped = self.witness.stop();
        let outcome = outcome?;
        stopped?;
        let seen = watching.end()?;
        let mut stood = StallReport::default();
        self.witness.look(&mut stood)?;
        check(built)?;
        let void = unanswered_slice(load, &outcome);
        let answers = answers(&exchanges, built.clients(load.body_bytes), &self.method);
        // A wait for another program is a cause of its own.
        stood.stalls.retain(|stall| stall.blocked_ns == 0);
        Ok((WatchedSlice { outcome, answers, seen, stood }, void))
    }

    /// Load before a slice; gives the length of the slice.
    fn warm(&self, built: &mut BuiltTopology, load: &Load) -> Result<Duration, LabError> {
        let patience = built.topology.shape.wires.patience();
        let before = warmup(patience.warmup(self.method.warmup), load, connections(built, load.body_bytes));
        let slice = patience.slice(SLICE);
        rest(&self.method, before + slice);
        run(built, &self.method, load, before, None)?;
        Ok(slice)
    }
}

/// An error if the server has ended or the path is not what was built.
fn check(built: &mut BuiltTopology) -> Result<(), LabError> {
    built.check_server()?;
    match built.changed()? {
        Some(what) => Err(built.path_broken(&what)),
        None => Ok(()),
    }
}

impl Course {
    fn new(entrant: usize, load: usize, missing: &[Tracepoint]) -> Course {
        Course {
            late: Late {
                entrant,
                load,
                unwatched: Histogram::new(),
                watched: Histogram::new(),
                medians_ns: Vec::new(),
                causes: BTreeMap::new(),
                retransmitted: Retransmitted::default(),
                drops: BTreeMap::new(),
                lost_events: 0,
                lost_answers: 0,
                missing: missing.iter().map(|tracepoint| tracepoint.name().to_owned()).collect(),
            },
            watched: Histogram::empty_hdr(),
            unwatched: Histogram::empty_hdr(),
            slices: Vec::new(),
        }
    }

    fn take(&mut self, slice: WatchedSlice, watch: &Watch) {
        let WatchedSlice { outcome, answers, seen, stood } = slice;
        self.watched.add(&outcome.response).expect("all histograms have the same bounds");
        self.late.lost_answers += outcome.unlogged;
        self.late.lost_events += stood.lost;
        let seen = &seen;
        count(seen, &mut self.late.retransmitted);
        count_drops(seen, &watch.reasons, &mut self.late.drops);
        self.late.lost_events += seen.lost;
        let cpus = watch.method.cpus.all();
        let lost = |reason: u32| watch.reasons.get(&reason).is_some_and(|name| is_loss(name));
        let mut evidence = SliceEvents::of(seen, |cpu| cpus.contains(cpu), lost);
        evidence.stalls = stood.stalls.iter().map(stood_still).collect();
        self.slices.push(Slice { answers, evidence });
    }

    /// Puts the late answers to their causes, now that it is known which are late.
    fn finish(self) -> Late {
        let usual = Usual {
            median_ns: self.watched.value_at_quantile(0.5),
            limit_ns: self.watched.value_at_quantile(0.99),
        };
        let mut by_cause: BTreeMap<Cause, load::Histogram<u64>> = BTreeMap::new();
        for slice in &self.slices {
            for (answer, cause) in causes(&slice.answers, usual, &slice.evidence) {
                let histogram = by_cause.entry(cause).or_insert_with(Histogram::empty_hdr);
                histogram.saturating_record(answer.response_ns());
            }
        }
        Late {
            unwatched: Histogram::from(&self.unwatched),
            watched: Histogram::from(&self.watched),
            causes: by_cause.iter().map(|(cause, histogram)| (*cause, Histogram::from(histogram))).collect(),
            ..self.late
        }
    }
}

fn stood_still(stall: &Stall) -> CpuInterval {
    let (from_ns, until_ns) = stall.stood_still_ns();
    CpuInterval { cpu: stall.cpu, from_ns, until_ns }
}

/// The namespaces of a topology by their inodes, and which of them is the server's.
fn namespaces(built: &BuiltTopology) -> Result<Vec<(u64, Namespace)>, LabError> {
    let topology = &built.topology;
    let found = topology.places().into_iter().map(|place| {
        let what = if place == topology.server { Namespace::Server } else { Namespace::OnTheWay };
        Ok((place.open()?.inode()?, what))
    });
    found.collect()
}

/// The answers among some requests, each with the port of its connection and the CPU of its thread.
fn answers(exchanges: &[Exchange], clients: &[Client], method: &Method) -> Vec<AnsweredRequest> {
    let ports: Vec<Vec<Option<u16>>> = clients.iter().map(Client::local_ports).collect();
    let cpus: Vec<u16> = method.cpus.client.iter().collect();
    let answered = exchanges.iter().filter(|exchange| exchange.received_ns != Exchange::NEVER);
    let answer = |exchange: &Exchange| {
        let client = exchange.client as usize;
        let port =
            ports.get(client).and_then(|ports| ports.get(exchange.connection as usize).copied().flatten());
        AnsweredRequest {
            intended_ns: exchange.intended_ns,
            sent_ns: exchange.sent_ns,
            received_ns: exchange.received_ns,
            free_ns: exchange.free_ns,
            port: port.unwrap_or(0),
            cpu: cpus[client],
        }
    };
    answered.map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_rate_of_each_size_is_watched() {
        let load = |body_bytes, rate_per_s| Load { rate_per_s, ..Load::closed_loop(body_bytes) };
        let loads = [load(100, None), load(100, Some(50.0)), load(4096, Some(20.0)), load(100, Some(30.0))];
        assert_eq!(lowest(&loads), [3, 2]);
        assert_eq!(lowest(&[load(100, None)]), [] as [usize; 0]);
    }
}
