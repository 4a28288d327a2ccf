//! What a run gave.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use linux::procfs::Stat;

use crate::connection_error::{ConnectionError, ConnectionErrors};
use crate::handshakes::Handshakes;
use crate::intervals::Intervals;
use crate::overdue::{Dropped, Overdue, Short};
use crate::series::Series;
use crate::target::Protocol;
use crate::thread::ThreadCost;
use crate::windows::Witnessed;

/// The greatest latency that is recorded: one hour. Greater ones count as one hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// The result of a run: three times and three facts, the generator's own part in them, and an account of every
/// request.
///
/// Always:
/// - `intended = answered + unexpected + missed + dropped`,
/// - `intended = sent + missed.unsent + dropped`, and so
/// - `sent = answered + unexpected + missed.unanswered + missed.expired + missed.lost`.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// When the schedule started, in nanoseconds of [`linux::clock`].
    pub started_ns: u64,
    /// When the last answer had come or waiting ended, in nanoseconds of [`linux::clock`].
    pub ended_ns: u64,
    /// What requests and answers were made of.
    pub protocol: Protocol,
    /// How long the schedule was: as asked, or less if the run was stopped.
    pub duration: Duration,
    /// The requested rate in requests per second; `None` when saturating.
    pub rate_per_s: Option<f64>,
    /// received − intended, of the answered requests: what a user of the service feels. When saturating, requests
    /// are intended when they are sent, and this is the same as `service`.
    pub response: Histogram<u64>,
    /// received − sent, of the answered requests: what a generator would report that stops asking while it waits.
    pub service: Histogram<u64>,
    /// sent − intended, of the sent requests: how late the generator was, or how long a request waited for a free
    /// connection. Zero when saturating.
    pub lag: Histogram<u64>,
    /// sent − max(intended, the instant at which the connection became free), of the sent requests: the part of `lag`
    /// that the generator itself causes. A request without a free connection waits for the server or the path, and
    /// starts to be late only when it could be sent. Zero when saturating.
    ///
    /// A connection becomes free when its answer is *read*. An answer may lie in the socket because the generator's
    /// thread has no CPU. That is the generator's lateness too, but looks like a slow server here: it makes `service`
    /// longer and keeps the connection busy. [`ThreadCost::run_queue_ns`] reveals it.
    pub late: Histogram<u64>,
    /// Where `service` went, by the kernel's stamps; `None` if there were to be none ([`crate::Pool::stamps`]).
    pub split: Option<Split>,
    /// Requests that were due within the schedule.
    pub intended: u64,
    /// Requests sent, at any time.
    pub sent: u64,
    /// Requests sent before the schedule's end.
    pub sent_in_schedule: u64,
    /// Requests answered as expected, at any time.
    pub answered: u64,
    /// Requests answered as expected before the schedule's end.
    pub answered_in_schedule: u64,
    /// The intervals between answers of each connection when saturating for a time with one request at a time on each;
    /// else none.
    pub intervals: Intervals,
    /// Requests without an answer when the wait for it ended.
    pub missed: Missed,
    /// Requests that were due and deliberately not sent, because no connection was free ([`crate::WhenBusy::Drop`]).
    pub dropped: Dropped,
    /// For how long requests were overdue, and why.
    pub overdue: Overdue,
    /// The last part of that: since the last instant without an overdue request, if one was overdue at the schedule's
    /// end. So it explains why requests were not sent within the schedule.
    pub backlog: Overdue,
    /// The connections when none was free for a request that was due, the last time that this was so.
    pub short: Short,
    /// Connections that had requests open at the end, and had never had an answer.
    pub silent: u64,
    /// Requests with an answer of another status or length.
    pub unexpected: Unexpected,
    /// Datagrams that match no open request: too late, duplicate, or not ours.
    pub strays: u64,
    /// Connections that broke, or could not be made.
    pub faults: ConnectionErrors,
    /// The first broken connection; `None`: there was none.
    pub first_fault: Option<FirstConnectionError>,
    /// Connections that were opened after the start: replacements after an error or after the server closed one, and
    /// additional ones.
    pub reconnects: u64,
    /// How those in TLS among them began.
    pub handshakes: Handshakes,
    /// Connections that there are more than at the start ([`crate::WhenBusy::Grow`]).
    pub grown: u64,
    /// The most requests of one thread that were overdue at one instant behind another overdue one. Only requests due
    /// within the schedule count, so it is less than `intended`.
    pub backlog_max: u64,
    /// Requests that were to be logged and found no room in the log ([`crate::run_logged`]).
    pub unlogged: u64,
    /// The same run without the times at which the machine stood still; `None`: nothing watched
    /// ([`crate::witness::run_witnessed`]).
    pub witnessed: Option<Witnessed>,
    /// A thinned record of each thread's run.
    pub series: Vec<Series>,
    /// CPU time and context switches of each thread, in the order of the threads.
    pub threads: Vec<ThreadCost>,
    /// What the machine's CPUs had done soon after the schedule's end, if answers were still waited for that are
    /// presumed lost.
    pub late_look: Option<Stat>,
}

/// The two parts of the service time, of those answered requests that the kernel stamped.
#[derive(Debug, Clone)]
pub struct Split {
    /// From the driver's having the request to its having the answer, in nanoseconds: the way and the server.
    pub wire: Histogram<u64>,
    /// The rest, in nanoseconds: the client's own stack in both directions, and the wait until the generator read.
    pub client: Histogram<u64>,
}

/// Requests without an answer.
#[derive(Debug, Clone)]
pub struct Missed {
    /// How old they were, from the intended instant to that at which they were given up, in nanoseconds. Their
    /// response time is at least that; they are in no other histogram.
    pub ages: Histogram<u64>,
    /// Sent, and still open when waiting ended.
    pub unanswered: u64,
    /// Those of the unanswered that had been open for longer than any answer took: they are not merely on their way.
    pub stuck: u64,
    /// Requests sent and then given up after [`crate::Run::timeout`], and those behind such a request on its
    /// connection.
    pub expired: u64,
    /// Sent, and lost when their connection broke.
    pub lost: u64,
    /// Requests that were never sent: no connection came free until the end, or the one that was added for the request
    /// ([`crate::WhenBusy::Grow`]) could not be made. Such a request does not go back to those that wait.
    pub unsent: u64,
}

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Unanswered,
    Expired,
    Lost,
    Unsent,
}

/// The first time that a connection broke, or could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstConnectionError {
    /// Why it broke, or could not be made.
    pub fault: ConnectionError,
    /// How long after the schedule's start.
    pub after: Duration,
}

/// Answers with another status or length than expected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unexpected {
    /// Answers with another status.
    pub status: u64,
    /// The right status, but another length.
    pub length: u64,
    /// Of calls of gRPC those of another status by the code of their outcome; that of a good one, 0, counts none.
    pub grpc: [u64; 17],
    /// Status and bytes of the body of the first one.
    pub first: Option<(u16, u64)>,
}

/// A view of a run from outside, and the way to stop it. Numbers are up to 100 ms old.
#[derive(Debug, Default)]
pub struct Live {
    stop: AtomicBool,
    sent: AtomicU64,
    answered: AtomicU64,
}

impl Outcome {
    /// The empty outcome, before a run.
    pub fn new(rate_per_s: Option<f64>, protocol: Protocol) -> Outcome {
        Outcome {
            started_ns: u64::MAX,
            ended_ns: 0,
            protocol,
            duration: Duration::ZERO,
            rate_per_s,
            response: histogram(),
            service: histogram(),
            lag: histogram(),
            late: histogram(),
            split: None,
            intended: 0,
            sent: 0,
            sent_in_schedule: 0,
            answered: 0,
            answered_in_schedule: 0,
            intervals: Intervals::default(),
            missed: Missed { ages: histogram(), unanswered: 0, stuck: 0, expired: 0, lost: 0, unsent: 0 },
            dropped: Dropped::default(),
            overdue: Overdue::default(),
            backlog: Overdue::default(),
            short: Short::default(),
            silent: 0,
            unexpected: Unexpected::default(),
            strays: 0,
            faults: ConnectionErrors::default(),
            first_fault: None,
            reconnects: 0,
            handshakes: Handshakes::default(),
            grown: 0,
            backlog_max: 0,
            unlogged: 0,
            witnessed: None,
            series: Vec::new(),
            threads: Vec::new(),
            late_look: None,
        }
    }

    /// The empty outcome of one thread.
    pub(crate) fn of_thread(rate_per_s: Option<f64>, protocol: Protocol, stamps: bool) -> Outcome {
        let split = stamps.then(|| Split { wire: histogram(), client: histogram() });
        Outcome { series: vec![Series::new()], split, ..Outcome::new(rate_per_s, protocol) }
    }

    /// Notes one of the thread's requests in its series. Its number is that of the requests sent before it.
    pub(crate) fn series_sent(&mut self, number: u64, gap_ns: u64) {
        self.series[0].sent(number, gap_ns);
    }

    /// Records the answer to the request of a number in the series.
    pub(crate) fn series_answered(&mut self, number: u64, response_ns: u64) {
        self.series[0].answered(number, response_ns);
    }

    /// Fills in the times that are equal for all requests of a saturating thread, instead of recording them a million
    /// times a second: no request is late, and service equals response.
    pub(crate) fn saturated(&mut self) {
        let bounds = "all histograms have the same bounds";
        self.response.add(&self.service).expect(bounds);
        self.lag.saturating_record_n(0, self.sent);
        self.late.saturating_record_n(0, self.sent);
    }

    /// Requests per second that were answered as expected: at a rate within the schedule, for what comes while draining
    /// is no rate; when saturating by the intervals between answers, if there are any.
    pub fn answered_per_s(&self) -> f64 {
        let in_schedule = || per_second(self.answered_in_schedule, self.duration);
        self.intervals.answers_per_s().unwrap_or_else(in_schedule)
    }

    /// Requests per second that were sent within the schedule.
    pub fn sent_per_s(&self) -> f64 {
        per_second(self.sent_in_schedule, self.duration)
    }

    /// The share of the intended requests that were sent within the schedule and that were answered as expected,
    /// whichever is less; 0 to 1.
    pub fn kept(&self) -> f64 {
        if self.intended == 0 {
            return 1.0;
        }
        self.sent_in_schedule.min(self.answered) as f64 / self.intended as f64
    }

    /// Adds what another thread of the same run gave.
    pub(crate) fn merge(&mut self, other: &Outcome) {
        let bounds = "all histograms have the same bounds";
        self.response.add(&other.response).expect(bounds);
        self.service.add(&other.service).expect(bounds);
        self.lag.add(&other.lag).expect(bounds);
        self.late.add(&other.late).expect(bounds);
        self.missed.merge(&other.missed);
        match (&mut self.split, &other.split) {
            (Some(split), Some(other)) => {
                split.wire.add(&other.wire).expect(bounds);
                split.client.add(&other.client).expect(bounds);
            }
            (split, other) => *split = split.take().or_else(|| other.clone()),
        }
        self.started_ns = self.started_ns.min(other.started_ns);
        self.ended_ns = self.ended_ns.max(other.ended_ns);
        self.duration = self.duration.max(other.duration);
        self.intended += other.intended;
        self.sent += other.sent;
        self.sent_in_schedule += other.sent_in_schedule;
        self.answered += other.answered;
        self.answered_in_schedule += other.answered_in_schedule;
        self.intervals.add(other.intervals);
        self.dropped.merge(&other.dropped);
        self.overdue.merge(&other.overdue);
        self.backlog.merge(&other.backlog);
        self.short.merge(&other.short);
        self.silent += other.silent;
        self.unexpected.status += other.unexpected.status;
        self.unexpected.length += other.unexpected.length;
        self.unexpected.grpc.iter_mut().zip(other.unexpected.grpc).for_each(|(sum, count)| *sum += count);
        self.unexpected.first = self.unexpected.first.or(other.unexpected.first);
        self.strays += other.strays;
        self.faults.merge(&other.faults);
        if let Some(other) = &other.first_fault
            && self.first_fault.as_ref().is_none_or(|first| other.after < first.after)
        {
            self.first_fault = Some(other.clone());
        }
        self.reconnects += other.reconnects;
        self.handshakes.add(other.handshakes);
        self.grown += other.grown;
        self.unlogged += other.unlogged;
        self.series.extend_from_slice(&other.series);
        self.backlog_max = self.backlog_max.max(other.backlog_max);
        self.threads.extend_from_slice(&other.threads);
    }
}

impl Missed {
    /// The number of requests without an answer.
    pub fn count(&self) -> u64 {
        self.ages.len()
    }

    pub(crate) fn add(&mut self, reason: Reason, age_ns: u64) {
        self.add_many(reason, age_ns, 1);
    }

    pub(crate) fn add_many(&mut self, reason: Reason, age_ns: u64, count: u64) {
        self.ages.saturating_record_n(age_ns, count);
        *match reason {
            Reason::Unanswered => &mut self.unanswered,
            Reason::Expired => &mut self.expired,
            Reason::Lost => &mut self.lost,
            Reason::Unsent => &mut self.unsent,
        } += count;
    }

    fn merge(&mut self, other: &Missed) {
        self.ages.add(&other.ages).expect("all histograms have the same bounds");
        self.unanswered += other.unanswered;
        self.stuck += other.stuck;
        self.expired += other.expired;
        self.lost += other.lost;
        self.unsent += other.unsent;
    }
}

impl Unexpected {
    /// The number of unexpected answers.
    pub fn count(&self) -> u64 {
        self.status + self.length
    }
}

impl Live {
    /// Ends the schedule now; the run then drains as it would at its planned end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Requests sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Requests answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, sent: u64, answered: u64) {
        self.sent.fetch_add(sent, Ordering::Relaxed);
        self.answered.fetch_add(answered, Ordering::Relaxed);
    }
}

/// Three significant digits, as the record file has them. All memory is taken here.
pub(crate) fn histogram() -> Histogram<u64> {
    let mut histogram =
        Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("1 ns to 1 h in 3 digits are valid bounds");
    // Writes to every page, so that no page fault happens while a request waits.
    histogram.clear();
    histogram
}

fn per_second(count: u64, duration: Duration) -> f64 {
    if duration.is_zero() { 0.0 } else { count as f64 / duration.as_secs_f64() }
}
