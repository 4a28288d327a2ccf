//! The cause of a late answer: a pure function of its instants and of what was seen meanwhile.
//!
//! The time of an answer, from intended to received, is divided among the causes. Each instant belongs to the first
//! cause of [`Cause::ALL`] that was at work in it, and the cause with most of the time gets the answer. What no cause
//! explains is *unknown*, less the median, which is what an answer takes anyway.
//!
//! The order of precedence goes from what explains others to what is explained by them:
//!
//! 1. While a CPU **stands still**, everything on it seems to take long: softirq work, the server, the generator. A
//!    timer that expires meanwhile sends segments again that were not lost.
//! 2. While TCP waits to **send again**, nothing happens on the connection, whatever the CPUs do. The wait lasts from
//!    the call that sent the segment (or the retransmission before) to the retransmission.
//! 3. A **dropped** packet explains a wait only if no retransmission ended it: else the timer is the cause of its
//!    length, and the drop is counted beside it.
//! 4. **Softirq** work keeps threads from their CPU, so a thread that waits meanwhile waits for it.
//! 5. A thread of the **server without a CPU** has not read the request, or not answered it.
//! 6. The **generator** sent late although a connection was free, waited for its CPU, or let the answer lie.
//! 7. The **server** had read the request and not answered it, on a CPU that it had.
//! 8. Else the request lay in the server's socket: it was **queued** behind others.
//!
//! *Knock-on*. A thread that could not run for 2 ms leaves a queue behind, and the requests in it are late although
//! nothing was wrong any more when they were sent. So an answer that was queued, or is unexplained, inherits the cause
//! of the late answer before it that was still open when it was intended, if that cause holds up all requests and not
//! one connection alone. And a request that waited for a connection inherits the cause of the answer that made it free.

use record::Cause;

use super::answer::AnsweredRequest;
use super::evidence::{CpuInterval, Resent, RetransmitKind, SliceEvents};

/// What is late: the limit and what an answer takes in the middle, both of the candidate at this load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usual {
    pub(crate) median_ns: u64,
    /// An answer that takes longer is late: p99.
    pub(crate) limit_ns: u64,
}

/// Part of an answer's time that is not explained yet: the cause that explains a part takes it away.
struct Rest(Vec<(u64, u64)>);

/// What the largest part of an answer's time was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Of(Cause),
    /// It waited until a connection was free.
    Connection,
}

/// The late answers of a slice with their causes, in the order in which they were intended.
pub(crate) fn causes(
    answers: &[AnsweredRequest],
    usual: Usual,
    evidence: &SliceEvents,
) -> Vec<(AnsweredRequest, Cause)> {
    let mut late: Vec<AnsweredRequest> =
        answers.iter().copied().filter(|answer| answer.response_ns() > usual.limit_ns).collect();
    late.sort_by_key(|answer| (answer.intended_ns, answer.received_ns));
    let mut found: Vec<(AnsweredRequest, Cause)> = Vec::with_capacity(late.len());
    for answer in late {
        let cause = match largest(&answer, usual, evidence) {
            Part::Connection => freed_by(&answer, &found).unwrap_or(Cause::Queue),
            Part::Of(own @ (Cause::Unknown | Cause::Queue)) => before(&answer, &found).unwrap_or(own),
            Part::Of(own) => own,
        };
        found.push((answer, cause));
    }
    found
}

/// The part with most of the time; of equal ones the first in the order of precedence.
fn largest(answer: &AnsweredRequest, usual: Usual, evidence: &SliceEvents) -> Part {
    let mut rest = Rest(vec![(answer.intended_ns, answer.received_ns)]);
    let mut parts: Vec<(Part, u64)> = Vec::new();
    for cause in Cause::ALL.iter().copied().filter(|cause| *cause != Cause::Unknown) {
        if cause == Cause::Generator {
            // Before the connection was free the generator could not send.
            parts.push((Part::Connection, rest.take((answer.intended_ns, answer.free_ns))));
        }
        let taken = intervals(cause, answer, evidence).into_iter().map(|interval| rest.take(interval)).sum();
        parts.push((Part::Of(cause), taken));
    }
    parts.push((Part::Of(Cause::Unknown), rest.length().saturating_sub(usual.median_ns)));
    let most = parts.iter().map(|(_, ns)| *ns).max().unwrap_or(0);
    let first = parts.iter().find(|(_, ns)| *ns == most && most > 0);
    first.map_or(Part::Of(Cause::Unknown), |(part, _)| *part)
}

/// When a cause was at work for an answer.
fn intervals(cause: Cause, answer: &AnsweredRequest, evidence: &SliceEvents) -> Vec<(u64, u64)> {
    let stages = evidence.stages(answer);
    let on_its_cpus = |interval: &&CpuInterval| match stages.and_then(|stages| stages.server_cpu) {
        Some(server) => [answer.cpu, server].contains(&interval.cpu),
        None => true,
    };
    let on_cpus = |intervals: &[CpuInterval]| {
        intervals.iter().filter(on_its_cpus).map(|interval| (interval.from_ns, interval.until_ns)).collect()
    };
    match cause {
        Cause::Stall => on_cpus(&evidence.stalls),
        Cause::TimeOut => resent(RetransmitKind::TimeOut, answer, evidence),
        Cause::Probe => resent(RetransmitKind::Probe, answer, evidence),
        Cause::FastRetransmit => resent(RetransmitKind::Fast, answer, evidence),
        Cause::Drop => {
            let dropped = evidence.drops.iter().filter(|(port, _)| *port == answer.port && answer.port != 0);
            dropped.filter(|(_, ns)| is_open(*ns, answer)).map(|(_, ns)| (*ns, answer.received_ns)).collect()
        }
        Cause::Softirq => on_cpus(&evidence.softirqs),
        Cause::ServerWaited => on_cpus(&evidence.server_waits),
        Cause::Generator => {
            let waits = evidence.client_waits.iter().filter(|wait| wait.cpu == answer.cpu);
            let mut own: Vec<(u64, u64)> = waits.map(|wait| (wait.from_ns, wait.until_ns)).collect();
            own.push((answer.intended_ns.max(answer.free_ns), answer.sent_ns));
            own.extend(stages.and_then(|stages| Some((stages.back_ns?, answer.received_ns))));
            own
        }
        Cause::Server => stages.and_then(|stages| stages.in_the_server()).into_iter().collect(),
        Cause::Queue => {
            stages.and_then(|stages| Some((stages.arrived_ns?, stages.read_ns?))).into_iter().collect()
        }
        Cause::Unknown => Vec::new(),
    }
}

/// The waits for retransmissions of a kind, each from the one before it, or from the call that sent the segment.
fn resent(kind: RetransmitKind, answer: &AnsweredRequest, evidence: &SliceEvents) -> Vec<(u64, u64)> {
    let mut waits = Vec::new();
    let mut from_ns = answer.sent_ns;
    let own = |sent: &&Resent| answer.port != 0 && sent.port == answer.port;
    for sent in evidence.resent.iter().filter(own).filter(|sent| is_open(sent.at_ns, answer)) {
        // An answer that was lost left the server when that had it, not when the request was sent.
        let answered_ns = evidence.stages(answer).and_then(|stages| stages.answered_ns);
        let since_ns = answered_ns.filter(|ns| sent.by_server && *ns < sent.at_ns).unwrap_or(from_ns);
        if sent.kind == kind {
            waits.push((since_ns.max(from_ns), sent.at_ns));
        }
        from_ns = sent.at_ns;
    }
    waits
}

fn is_open(at_ns: u64, answer: &AnsweredRequest) -> bool {
    (answer.sent_ns..=answer.received_ns).contains(&at_ns)
}

/// The cause of the late answer that this one's connection was busy with.
fn freed_by(answer: &AnsweredRequest, found: &[(AnsweredRequest, Cause)]) -> Option<Cause> {
    let frees = |(before, _): &&(AnsweredRequest, Cause)| {
        before.port == answer.port
            && before.cpu == answer.cpu
            && before.received_ns.abs_diff(answer.free_ns) <= READ_NS
    };
    found.iter().rev().find(frees).map(|(_, cause)| *cause)
}

/// Between the reading of an answer and the note that its connection is free there is no more than the generator's own
/// loop.
const READ_NS: u64 = 1_000;

/// The cause of the last late answer that was still open when this one was intended, if it holds up all.
fn before(answer: &AnsweredRequest, found: &[(AnsweredRequest, Cause)]) -> Option<Cause> {
    let open = |(other, cause): &&(AnsweredRequest, Cause)| {
        other.received_ns > answer.intended_ns && is_shared(*cause)
    };
    found.iter().rev().find(open).map(|(_, cause)| *cause)
}

/// Whether a cause holds up all requests, and not those of one connection.
fn is_shared(cause: Cause) -> bool {
    match cause {
        Cause::Stall | Cause::Softirq | Cause::ServerWaited | Cause::Generator | Cause::Server => true,
        Cause::TimeOut
        | Cause::Probe
        | Cause::FastRetransmit
        | Cause::Drop
        | Cause::Queue
        | Cause::Unknown => false,
    }
}

impl Rest {
    /// Takes an interval out. How much of it was still there, in nanoseconds.
    fn take(&mut self, (from, until): (u64, u64)) -> u64 {
        let before = self.length();
        if from < until {
            let outside = |(begin, end): (u64, u64)| [(begin, end.min(from)), (begin.max(until), end)];
            self.0 = self.0.iter().copied().flat_map(outside).filter(|(begin, end)| begin < end).collect();
        }
        before - self.length()
    }

    fn length(&self) -> u64 {
        self.0.iter().map(|(begin, end)| end.saturating_sub(*begin)).sum()
    }
}

#[cfg(test)]
mod tests;
