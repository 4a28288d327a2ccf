//! A trial: one slice of one candidate at one load.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    CardCounts, Counters, CpuTime, Frames, Handshakes, Histogram, Junk, Measure, Transfer, Void, Witnessed,
};

/// What one trial gave. The default is a trial that gave nothing: each kind of workload names what it gives.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialRecord {
    /// The candidate, as an index into [`crate::Header::entrants`].
    pub entrant: usize,
    /// Index into the record's loads.
    pub load: usize,
    /// The measured part in nanoseconds: from the first intended instant to the end of the schedule. Of packets: the
    /// CPU time of all frames less what it took to make as many ([`Frames::net_ns`]).
    pub duration_ns: u64,
    /// Requests whose intended instant lay in the measured part.
    pub intended: u64,
    /// Intended requests that were sent.
    pub sent: u64,
    /// Intended requests that were answered as expected.
    pub answered: u64,
    /// Answered requests whose answer came within the measured part.
    pub answered_in_time: u64,
    /// How long `answered_in_time` answers take, in nanoseconds, where that is not the measured part. In a closed loop
    /// it follows from the times between the answers of each connection: the measured part holds too few, since each
    /// connection waits for its first one. Of several clients it follows from the sum of their rates: at a rate each
    /// has a measured part that ends with the period of its own last request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_ns: Option<u64>,
    /// How far apart the machines with clients began, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients_apart: Option<ClientsApart>,
    /// Those still open when the trial stopped waiting. They are in no histogram.
    pub missed: u64,
    /// The greatest age of a missed request in nanoseconds.
    pub missed_age_max_ns: u64,
    /// Connections that broke or could not be made.
    pub connection_errors: u64,
    /// Answers with another status or length than expected.
    pub unexpected: u64,
    /// Response, service and lag, in nanoseconds.
    pub latencies: Latencies,
    /// The same response times without the machine's stalls, where a witness watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witnessed: Option<Witnessed>,
    /// CPU time of the client's node.
    pub client_cpu: CpuTime,
    /// CPU time of the server's node.
    pub server_cpu: CpuTime,
    /// Of which each CPU of the node spent this, where [`crate::Experiment::by_cpu`] asks for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub client_by_cpu: BTreeMap<u16, CpuTime>,
    /// The time of each CPU of the server's node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server_by_cpu: BTreeMap<u16, CpuTime>,
    /// What the stacks counted.
    pub counters: Counters,
    /// What the cards of the wire counted, and the CPUs that received from them; where the wire has cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cards: Option<CardCounts>,
    /// What was carried; of downloads and streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Transfer>,
    /// What became of the frames; of packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<Frames>,
    /// What became of the frames of a flood, of candidates that had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub junk: Option<Junk>,
    /// TLS handshakes within the trial, where connections are made in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
    /// Why it does not count, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<Void>,
}

/// How far apart the clients of a trial began: from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientsApart {
    /// In nanoseconds.
    pub ns: u64,
    /// By how much that may be wrong, in nanoseconds: the machines' clocks are compared by a question and its answer.
    pub error_ns: u64,
}

/// The three times of a request as histograms of nanoseconds. In a closed loop (no rate) only `service` is meaningful:
/// `response` equals it and `lag` is zero.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latencies {
    /// received − intended, in nanoseconds.
    pub response: Histogram,
    /// received − sent, in nanoseconds.
    pub service: Histogram,
    /// sent − intended, in nanoseconds.
    pub lag: Histogram,
}

impl TrialRecord {
    /// Intended requests that are in no histogram. Leaving them out would make a path that loses requests look fast.
    /// Without a rate no request has an intended instant, and requests that are open at the end are no slower than
    /// those that were answered.
    pub fn unanswered(&self) -> u64 {
        self.missed.max(self.intended.saturating_sub(self.latencies.response.count()))
    }

    /// The response times that count, and how many requests without an expected answer stand above them: without the
    /// machine's stalls where a witness watched, else all.
    pub fn counted(&self) -> (&Histogram, u64) {
        match &self.witnessed {
            Some(seen) => (&seen.response, seen.intended.saturating_sub(seen.response.count())),
            None => self.whole(),
        }
    }

    /// All response times, and how many requests without an expected answer stand above them.
    pub fn whole(&self) -> (&Histogram, u64) {
        (&self.latencies.response, self.unanswered())
    }

    /// Adds what another client did in the same trial: counts are summed, histograms merged. The trial is as long as
    /// the longer of the two parts, its rate is the sum of theirs, and it is void if either is.
    pub fn add_client(&mut self, other: &TrialRecord) {
        self.loop_ns = self.loop_with(other);
        self.duration_ns = self.duration_ns.max(other.duration_ns);
        self.intended += other.intended;
        self.sent += other.sent;
        self.answered += other.answered;
        self.answered_in_time += other.answered_in_time;
        self.missed += other.missed;
        self.missed_age_max_ns = self.missed_age_max_ns.max(other.missed_age_max_ns);
        self.connection_errors += other.connection_errors;
        self.unexpected += other.unexpected;
        self.latencies.response += &other.latencies.response;
        self.latencies.service += &other.latencies.service;
        self.latencies.lag += &other.latencies.lag;
        self.client_cpu += other.client_cpu;
        self.counters += other.counters;
        if let Some(theirs) = other.handshakes {
            let ours = self.handshakes.get_or_insert_default();
            ours.full += theirs.full;
            ours.resumed += theirs.resumed;
        }
        // What a witness of one machine saw says nothing of the others' requests, and the times of one machine's
        // CPUs are not another's.
        self.witnessed = None;
        self.client_by_cpu.clear();
        if self.void.is_none() {
            self.void.clone_from(&other.void);
        }
    }

    /// How long the answers of both take at the sum of their rates, in nanoseconds; `None` where both took as long.
    fn loop_with(&self, other: &TrialRecord) -> Option<u64> {
        if self.loop_ns.or(other.loop_ns).is_none() && self.duration_ns == other.duration_ns {
            return None;
        }
        let per_ns = |part: &TrialRecord| part.answered_in_time as f64 / part.throughput_ns().max(1) as f64;
        let answered = self.answered_in_time + other.answered_in_time;
        (answered > 0).then(|| (answered as f64 / (per_ns(self) + per_ns(other))) as u64)
    }

    /// In how long it got its work done, in nanoseconds: what its throughput is divided by.
    pub fn throughput_ns(&self) -> u64 {
        self.loop_ns.unwrap_or(self.duration_ns)
    }

    /// What it got done, in the unit of its throughput.
    pub fn work(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Latency | Measure::Packets | Measure::Frames => self.answered_in_time,
            Measure::Bandwidth => self.carried.map_or(0, |carried| carried.bytes),
        }
    }
}
