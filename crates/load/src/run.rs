//! A run: one pinned thread for each client, one schedule for all of them, one outcome.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use linux::cpu::{self, Scheduling};
use linux::procfs::{Procfs, Stat};
use linux::{CpuSet, clock};

use crate::exchange::{Exchange, ExchangeLog, logs, looks_every};
use crate::order::{Order, WhenBusy};
use crate::schedule::{Rate, Schedule};
use crate::thread::{RunningCounters, ThreadCost, ThreadCounters, ThreadPlacement};
use crate::wait::{Wait, WaitConditions, Waiting};
use crate::worker::Worker;
use crate::{Client, Live, LoadError, Outcome};

/// From the moment at which all threads are ready to the first intended instant, so that all are waiting for it.
const LEAD_NS: u64 = 1_000_000;
/// So long after the schedule's end at least, and after an answer is presumed lost, the CPUs are looked at: a tick of
/// the kernel's counters.
const LOOK_AFTER: Duration = Duration::from_millis(10);

/// The load for the clients' connections.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// When requests are sent.
    pub schedule: Schedule,
    /// What happens when no connection is free.
    pub when_busy: WhenBusy,
    /// How long the schedule is.
    pub duration: Duration,
    /// The number of requests, at least one, instead of the duration. At a constant rate it determines the length of
    /// the schedule. In a closed loop each thread ends with the last answer of its share; if no answer comes for as
    /// long as `drain`, it ends with the rest unsent. Not available for random instants, because the last of them is
    /// not known in advance.
    pub requests: Option<u64>,
    /// How long to wait for answers after the schedule's end. A thread that had no CPU at that moment starts counting
    /// when it runs again. Requests that are overdue because no connection was free are sent meanwhile. The run ends as
    /// soon as no request is open.
    pub drain: Duration,
    /// How long an answer is waited for after a request was sent. Then the request is missed and its connection is
    /// replaced. `None`: until the end of the run.
    pub timeout: Option<Duration>,
    /// How long a datagram without an answer keeps its socket from sending the next one: after that, and after
    /// four times as long as answers have taken on average (200 ms before a client had any), it most likely is
    /// lost. Its answer counts all the same if it comes. `None`: until `timeout`. Other requests than datagrams
    /// go by `timeout` alone.
    pub presumed_lost: Option<Duration>,
    /// How threads wait for the next instant.
    pub wait: Wait,
    /// Where each client's thread runs, in the order of the clients; empty: anywhere.
    pub threads: Vec<CpuSet>,
    /// The scheduling class of the threads.
    pub scheduling: Scheduling,
}

impl Run {
    /// The usual settings: a request waits for a connection, answers are awaited until a second after the schedule's
    /// end, and threads run on any CPU with normal scheduling.
    pub fn new(schedule: Schedule, duration: Duration) -> Run {
        Run {
            schedule,
            when_busy: WhenBusy::Wait,
            duration,
            requests: None,
            drain: Duration::from_secs(1),
            timeout: None,
            presumed_lost: None,
            wait: Wait::Hybrid,
            threads: vec![],
            scheduling: Scheduling::Normal,
        }
    }
}

/// Runs a schedule on the clients' connections and returns when every request is answered or given up.
///
/// Each client gets its own thread. The schedule starts when all threads are ready, on the requested CPUs and in the
/// requested scheduling class, with all connections established.
///
/// # Errors
/// In these cases no request is sent: the rate or the shape is impossible, a connection cannot be made, a CPU or a
/// scheduling class is not available. Later failures are counted in the outcome.
pub fn run(clients: &mut [Client], run: &Run) -> Result<Outcome, LoadError> {
    run_live(clients, run, &Live::default())
}

/// Like [`run`], with progress visible to other threads.
///
/// # Errors
/// Those of [`run`].
pub fn run_live(clients: &mut [Client], run: &Run, live: &Live) -> Result<Outcome, LoadError> {
    start(clients, run, live, None)
}

/// Takes blocks of requests that ended, on another thread; an empty one each second at least, if none is full.
pub type Sink<'a> = dyn FnMut(&[Exchange]) + Send + 'a;

/// Like [`run_live`], with every request that was due passed on in blocks, each once, when it has ended. Another
/// thread, with normal scheduling and on any CPU, calls `sink`; [`Outcome::unlogged`] counts what it was too slow for.
/// Without a rate nothing is passed on, since no request is due.
///
/// # Errors
/// Those of [`run`].
pub fn run_logged(
    clients: &mut [Client],
    run: &Run,
    live: &Live,
    sink: &mut Sink<'_>,
) -> Result<Outcome, LoadError> {
    start(clients, run, live, Some(sink).filter(|_| run.schedule.rate_per_s().is_some()))
}

fn start(
    clients: &mut [Client],
    run: &Run,
    live: &Live,
    sink: Option<&mut Sink<'_>>,
) -> Result<Outcome, LoadError> {
    let plan = Plan::new(clients.len(), run)?;
    let start = Start::new(clients.len());
    let each_per_s = run.schedule.rate_per_s().unwrap_or(f64::INFINITY) / clients.len() as f64;
    let logged = if sink.is_some() { clients.len() } else { 0 };
    let (mut logs, collector) = logs(logged, each_per_s * run.duration.as_secs_f64());
    logs.reverse();
    let protocol = clients[0].target.protocol();
    let mut late_look = None;
    let outcomes: Vec<Result<Option<Outcome>, LoadError>> = thread::scope(|scope| {
        let every = looks_every(each_per_s);
        let collecting = sink.map(|sink| scope.spawn(move || collector.collect(every, sink)));
        let threads: Vec<_> = clients
            .iter_mut()
            .enumerate()
            .map(|(index, client)| {
                let (plan, place, log, running) = (&plan, start.place(), logs.pop(), Running(&start));
                scope.spawn(move || {
                    let _until_its_end = running;
                    client.in_netns(|client| plan.thread(index, client, place, live, log))?
                })
            })
            .collect();
        late_look = plan.look_late(&start);
        let outcomes = threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread of the generator does not panic"))
            .collect();
        if let Some(collecting) = collecting {
            collecting.thread().unpark();
        }
        outcomes
    });
    let mut total = Outcome { late_look, ..Outcome::new(run.schedule.rate_per_s(), protocol) };
    for outcome in outcomes {
        if let Some(outcome) = outcome? {
            total.merge(&outcome);
        }
    }
    Ok(total)
}

/// A run that was found possible.
struct Plan<'a> {
    run: &'a Run,
    waiting: Waiting,
    threads: usize,
    duration: Duration,
}

impl<'a> Plan<'a> {
    fn new(threads: usize, run: &'a Run) -> Result<Plan<'a>, LoadError> {
        if threads == 0 {
            return Err(LoadError::Shape("there are no clients"));
        }
        if !run.threads.is_empty() && run.threads.len() != threads {
            return Err(LoadError::Shape("CPUs are needed for each client or for none"));
        }
        let rate = run.schedule.rate_per_s().map(Rate::new).transpose()?;
        if rate.is_none() && matches!(run.when_busy, WhenBusy::Drop | WhenBusy::Grow) {
            return Err(LoadError::Shape(
                "without a rate no request is due that could be dropped or grown for",
            ));
        }
        if [run.timeout, run.presumed_lost].into_iter().flatten().any(|time| time.is_zero()) {
            return Err(LoadError::Shape("a request needs some time to be answered in"));
        }
        let duration = duration(run, rate)?;
        let conditions = WaitConditions {
            duration_ns: duration.as_nanos().try_into().unwrap_or(u64::MAX),
            scheduling: run.scheduling,
            cpus_allowed: cpu::allowed()?.len(),
            period_ns: rate.map_or(u64::MAX, |rate| rate.intended_ns(threads as u64)),
        };
        Ok(Plan { run, waiting: Waiting::new(run.wait, conditions)?, threads, duration })
    }

    /// A thread from its first line to its last. `None`: another thread could not start, so this one did not either.
    fn thread(
        &self,
        index: usize,
        client: &mut Client,
        place: StartingPlace<'_>,
        live: &Live,
        log: Option<ExchangeLog>,
    ) -> Result<Option<Outcome>, LoadError> {
        if client.is_fresh() && self.run.when_busy == WhenBusy::Grow {
            return Err(LoadError::Shape(
                "a connection for each request is opened anyway, none is there to add",
            ));
        }
        let cpus = self.run.threads.get(index).cloned();
        client.begin()?;
        ThreadPlacement { cpus: cpus.as_ref(), scheduling: Some(self.run.scheduling) }.take()?;
        let mut outcome =
            Outcome::of_thread(self.run.schedule.rate_per_s(), client.target.protocol(), client.stamps());
        let worker = Worker::new(client, self.order(index)?, &mut outcome, live, log);
        let (before, counters) = (ThreadCounters::now()?, RunningCounters::begin()?);
        let Some(start_ns) = place.ready() else { return Ok(None) };
        let (spun, in_schedule) = worker.run(start_ns, &counters);
        let cost = before.until(ThreadCounters::now()?, cpus).with_spun(spun);
        outcome.threads.push(ThreadCost { in_schedule, ..cost });
        Ok(Some(outcome))
    }

    /// Looks at the CPUs if answers are still waited for when they should have come.
    fn look_late(&self, start: &Start) -> Option<Stat> {
        let start_ns = start.decided()?;
        let after = self.run.presumed_lost.unwrap_or(self.run.drain).max(LOOK_AFTER);
        let until = Duration::from_nanos(start_ns).saturating_add(self.duration).saturating_add(after);
        let is_over = start.is_over_within(until.saturating_sub(Duration::from_nanos(clock::now_ns())));
        if is_over { None } else { Procfs::kernel().stat().ok() }
    }

    /// How many of a number of requests are a thread's: those with k ≡ index mod threads, as of a schedule.
    fn share(&self, requests: u64, index: usize) -> u64 {
        requests.saturating_sub(index as u64).div_ceil(self.threads as u64)
    }

    fn order(&self, index: usize) -> Result<Order, LoadError> {
        Ok(Order {
            pace: self.run.schedule.pace(index, self.threads)?,
            when_busy: self.run.when_busy,
            duration: self.duration,
            requests: match self.run.schedule {
                Schedule::Saturate => self.run.requests.map(|requests| self.share(requests, index)),
                Schedule::Constant { .. } | Schedule::Poisson { .. } => None,
            },
            drain: self.run.drain,
            timeout: self.run.timeout,
            presumed_lost: self.run.presumed_lost,
            waiting: self.waiting.clone(),
        })
    }
}

/// How long the schedule is. With a number of requests it is as long as they take at the rate, or open.
fn duration(run: &Run, rate: Option<Rate>) -> Result<Duration, LoadError> {
    match (run.requests, run.schedule, rate) {
        (None, _, _) => Ok(run.duration),
        (Some(0), _, _) => Err(LoadError::Shape("a run has at least one request")),
        (Some(_), Schedule::Poisson { .. }, _) => Err(LoadError::Shape(
            "of random instants that of the last one is not known beforehand, so they need a duration",
        )),
        (Some(requests), _, Some(rate)) => Ok(Duration::from_nanos(rate.intended_ns(requests))),
        (Some(_), _, None) => Ok(Duration::MAX),
    }
}

/// The barrier of the threads. The last one to arrive sets the start; if one of them failed, none starts.
struct Start {
    threads: usize,
    state: Mutex<StartState>,
    decided: Condvar,
    over: Condvar,
}

#[derive(Default)]
struct StartState {
    arrived: usize,
    fallen: usize,
    start_ns: u64,
    ended: usize,
}

impl Start {
    fn new(threads: usize) -> Start {
        Start { threads, state: Mutex::default(), decided: Condvar::new(), over: Condvar::new() }
    }

    fn place(&self) -> StartingPlace<'_> {
        StartingPlace { start: self, left: false }
    }

    fn arrive(&self, fallen: bool) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrived += 1;
        state.fallen += usize::from(fallen);
        if state.arrived == self.threads {
            state.start_ns = clock::now_ns() + LEAD_NS;
            self.decided.notify_all();
        } else if !fallen {
            drop(state);
            return self.decided();
        }
        (state.fallen == 0).then_some(state.start_ns)
    }

    /// Waits until all have arrived. When they start; `None` if they do not.
    fn decided(&self) -> Option<u64> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |state: &mut StartState| state.arrived < self.threads;
        let state = self.decided.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        (state.fallen == 0).then_some(state.start_ns)
    }

    /// Waits for the ends of all threads, but no longer than that.
    fn is_over_within(&self, time: Duration) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = |state: &mut StartState| state.ended < self.threads;
        let waited = self.over.wait_timeout_while(state, time, runs);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// A thread, until it ends in whatever way.
struct Running<'a>(&'a Start);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).ended += 1;
        self.0.over.notify_all();
    }
}

/// A thread's place at the start. If it is dropped unused, the others stop waiting.
struct StartingPlace<'a> {
    start: &'a Start,
    left: bool,
}

impl StartingPlace<'_> {
    /// Waits for the others. When it starts; `None` if it does not.
    fn ready(mut self) -> Option<u64> {
        self.left = true;
        self.start.arrive(false)
    }
}

impl Drop for StartingPlace<'_> {
    fn drop(&mut self) {
        if !self.left {
            self.start.arrive(true);
        }
    }
}
