//! The results of a race, as plain values. The table, the JSON and the page show only these values, and none of them
//! is text that must be parsed again. All durations of requests are nanoseconds, all ratios are candidate ÷ reference.

use std::collections::BTreeSet;

use record::{Capacity, Counters, Experiment, Handshakes, Machine, NodePair, Setting, Witness};
use serde::Serialize;
use verdict::{Shortfall, Verdict};

use crate::by_cpu::CpuShares;
use crate::card_counts::CardSummary;
use crate::figures;
use crate::late::LateLoad;
use crate::profile::ProfiledLoad;
use crate::published::{Agreements, PublishedFigure};
use crate::quantities::{CurvePoint, FrameCost, Load, Quantiles, Ratio, Ratios, TransferRates};
use crate::stalls::Stalls;
use crate::sweep::SweepSummary;
use crate::timeline::Timeline;
use crate::until::{NamedFloor, Pursued};

/// The version of the JSON that a [`Summary`] becomes; described by `docs/report.schema.json`.
pub const SCHEMA: u32 = 2;

/// The results of a race.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The version of the JSON format, [`SCHEMA`].
    pub schema: u32,
    /// The version of hostgap that ran the race.
    pub hostgap: String,
    /// Start, in seconds since 1970.
    pub started_unix_s: u64,
    /// The seed of the order of trials and of the resampling.
    pub seed: u64,
    /// What was asked, without its published figures, which are in [`Summary::published`].
    pub experiment: Experiment,
    /// The machine that ran the race.
    pub machine: Machine,
    /// The server program: "nginx/1.22.1".
    pub server: String,
    /// The nodes between which it ran, if it is one of a race of all pairs of a cluster's nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<NodePair>,
    /// How far the race came.
    pub progress: Progress,
    /// The reference's highest sustained rates, one a body size.
    pub capacities: Vec<Capacity>,
    /// The loads, in the order of [`Candidate::rates`].
    pub loads: Vec<Load>,
    /// All entrants, those that could not run too, in display order: the reference, its control, the contenders.
    pub candidates: Vec<Candidate>,
    /// The reference compared with itself, one entry for each load.
    pub noise: Vec<Noise>,
    /// How the race went, if it was to end for what it sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Pursued>,
    /// Instructions per request, one entry for each load, if a virtual machine's clock counted them; the other figures
    /// of a load are then meaningless.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exact: Vec<Exact>,
    /// Lines over the swept quantity; absent without a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<SweepSummary>,
    /// What trials reached, round by round; for the page alone, since a record has the trials.
    #[serde(skip)]
    pub timeline: Option<Timeline>,
    /// How the machine was watched for stalls, if it was to be; for the page alone, since a record has it.
    #[serde(skip)]
    pub witness: Option<Witness>,
    /// Where CPU time went, one entry a sampled load; empty where it was not asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<ProfiledLoad>,
    /// Why answers were late, one entry a load that was looked at; empty where it was not asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<LateLoad>,
    /// Published figures for the same question.
    pub published: Vec<PublishedFigure>,
    /// How many of those stand how to ours.
    pub agreements: Agreements,
    /// The agreement in a sentence; `None` without comparable published figures.
    pub agreement: Option<String>,
    /// The race in a sentence or two.
    pub verdict: String,
    /// What a reader must know to believe the figures: a cut file, few builds, a single round.
    pub notes: Vec<String>,
}

impl Summary {
    /// The candidates at a load with the shares of each CPU; empty if they were not requested.
    pub(crate) fn by_cpu(&self, load: usize) -> Vec<(usize, &Candidate, &[CpuShares])> {
        let of = |(index, candidate)| {
            let candidate: &Candidate = candidate;
            let shares = candidate.rates.get(load)?.by_cpu.as_slice();
            (!shares.is_empty()).then_some((index, candidate, shares))
        };
        self.candidates.iter().enumerate().filter_map(of).collect()
    }

    /// The candidates at a load with the counts of their cards; empty where the wire has none.
    pub(crate) fn cards(&self, load: usize) -> Vec<(usize, &Candidate, &CardSummary)> {
        let of = |(index, candidate)| {
            let candidate: &Candidate = candidate;
            Some((index, candidate, candidate.rates.get(load)?.cards.as_ref()?))
        };
        self.candidates.iter().enumerate().filter_map(of).collect()
    }

    /// Whether cards were counted at any load.
    pub(crate) fn has_cards(&self) -> bool {
        self.candidates.iter().flat_map(|candidate| &candidate.rates).any(|rate| rate.cards.is_some())
    }
}

/// How far a race came.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    /// The number of rounds requested.
    pub rounds_asked: u32,
    /// Rounds in the record.
    pub rounds: u32,
    /// Rounds that ran and were taken out of the record.
    pub rounds_missing: u32,
    /// Builds of the topologies that those rounds ran on.
    pub builds: u32,
    /// From the first packet to the last in seconds; `None`: the record has no end.
    pub wall_s: Option<f64>,
    /// Why the race ended early, if it did and recorded the reason.
    pub stopped: Option<String>,
    /// Trials in the record, void ones included.
    pub trials: u64,
    /// Void trials among them.
    pub void_trials: u64,
    /// Why they are void, the most frequent reason first. Candidates have their own, by load.
    #[serde(skip)]
    pub void_reasons: Vec<VoidReason>,
}

/// A candidate's part in the race.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// What all others are divided by.
    Reference,
    /// The reference again: what it differs by is noise.
    Control,
    /// A candidate that is compared with the reference.
    Contender,
}

/// A candidate and its results at every load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// The name in tables.
    pub name: String,
    /// The data path; for CNI plugins the same as the name.
    pub path: String,
    /// What it stands for in the world.
    pub stands_for: String,
    /// Reference, control or contender.
    pub role: Role,
    /// False: it could not run here, see `reasons`.
    pub runnable: bool,
    /// Why it could not run; empty if it could.
    pub reasons: Vec<String>,
    /// It broke during the race, which went on without it. Its figures come from its earlier trials, and are not
    /// compared, because the reference has more trials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broke: Option<Broke>,
    /// The commands that a person would type to build the same, in order.
    pub commands: Vec<String>,
    /// The settings that distinguish it from its data path; empty: the kernel's defaults.
    pub settings: Vec<Setting>,
    /// The pod's MTU in bytes.
    pub mtu: Option<u32>,
    /// Answers per second when every connection sends again at once, at the first such load. If there is none, the
    /// reference has the value that the race found before its rounds. `None` if it was not measured.
    pub capacity_rps: Option<f64>,
    /// The same ÷ the reference's.
    pub capacity_ratio: Option<Ratio>,
    /// One entry a load, in the order of [`Summary::loads`]; empty where it could not run.
    pub rates: Vec<RateSummary>,
}

/// When and why a candidate broke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Broke {
    /// In which round, from 1.
    pub round: u32,
    /// What was seen, in words.
    pub why: String,
}

/// A candidate at a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateSummary {
    /// Bytes of the answer's body.
    pub body_bytes: u32,
    /// Requests per second requested; `None`: a closed loop, or an unlimited stream.
    pub requested_rps: Option<f64>,
    /// The share of capacity that the rate was asked as, 0 to 1.
    pub of_capacity: Option<f64>,
    /// Expected answers per second of measured time; `None` without a trial that counts.
    pub achieved_rps: Option<f64>,
    /// The comparison with the reference; `None` if no figure could be compared.
    pub verdict: Option<Verdict>,
    /// Which statistic decided, in words.
    pub verdict_reason: String,
    /// The level of the intervals that the verdict rests on, 0 to 1: higher than 0.95, since there are several tests.
    /// `None` without a test, and where the rate cannot be compared.
    pub level: Option<f64>,
    /// What was missing of the rate, in all slices or in some; of a rate that was not kept in all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<Shortfall>,
    /// received − intended, in nanoseconds.
    pub response_ns: Quantiles,
    /// p99 of the response time in a typical slice, in nanoseconds: the mean of the middle half of the slices' p99.
    /// `None` without a rate, or with fewer than eight slices of at least 1,000 requests.
    pub typical_p99_ns: Option<f64>,
    /// received − sent, in nanoseconds.
    pub service_ns: Quantiles,
    /// sent − intended: the wait for the generator, or for a free connection.
    pub lag_ns: Quantiles,
    /// Response-time percentiles ÷ the reference's.
    pub ratio: Ratios,
    /// Answers per second ÷ the reference's, without a rate; at a rate both answer the requested number. For downloads
    /// and streams of bytes it compares bytes per second, for streams of datagrams those that arrived.
    pub rps_ratio: Option<Ratio>,
    /// What was carried; of downloads and streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried: Option<TransferRates>,
    /// What a frame costs; of packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<FrameCost>,
    /// TLS handshakes in the trials that count, where connections are made in them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
    /// Response time along the percentiles, ascending, as far as it is valid.
    pub curve: Vec<CurvePoint>,
    /// CPU time of both nodes: microseconds a request; of streams of datagrams a packet, of streams of bytes and of
    /// downloads a megabyte (10⁶ bytes). So are the nodes' own below. The figure to compare: where the sender's CPU
    /// does the receive work, each node's own holds some of the other's.
    pub cpu_us_per_request: Option<f64>,
    /// CPU time of the server's node: microseconds a request.
    pub server_cpu_us_per_request: Option<f64>,
    /// Share of softirq in it, 0 to 1.
    pub server_softirq_share: Option<f64>,
    /// CPU time of the client's node: microseconds a request, the generator's own included.
    pub client_cpu_us_per_request: Option<f64>,
    /// Share of softirq in it, 0 to 1.
    pub client_softirq_share: Option<f64>,
    /// The time of each single CPU, the server's first; empty if it was not requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_cpu: Vec<CpuShares>,
    /// How often the cards interrupted, and what each CPU received from them; where the wire has cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cards: Option<CardSummary>,
    /// The number of trials that count.
    pub trials: u64,
    /// Measured time of those, in seconds.
    pub measured_s: f64,
    /// Trials that do not count.
    pub void_trials: u64,
    /// Slices of which no trial counts: void, and as often as they were repeated.
    pub missing_slices: u64,
    /// Why not, each reason once with its count.
    pub void_reasons: Vec<VoidReason>,
    /// Requests without an expected answer, in the trials that count, those beside stalls too. At a rate, those that
    /// count rank above every answer in the percentiles.
    pub missed: u64,
    /// The statistics that have no ratio because they lie among the requests without an answer, or may, here or at the
    /// reference: a verdict by them is by the shares of requests that have an answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub among_unanswered: Vec<&'static str>,
    /// Broken connections in those trials.
    pub connection_errors: u64,
    /// Answers with another status or length than expected.
    pub unexpected: u64,
    /// What the stacks counted in those trials.
    pub counters: Counters,
    /// What a witness of the machine's stalls saw; absent where nothing watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalls: Option<Stalls>,
    /// What was sent again, which time-outs expired, and how many samples took as long, where a time-out would show.
    pub tail: Option<String>,
    /// Percentiles that are not shown, with what they would need.
    pub needs: Vec<Need>,
    /// How much longer the race would have to be for p50, typical p99 and p99 to be known to ±3 %.
    pub precision: Vec<Precision>,
}

impl RateSummary {
    /// Whether in at least half of the slices requests waited in a queue that grew until the end. The latencies then
    /// say how long the rate was sent, and nothing about the data path, so they have no ratio.
    pub fn is_past_capacity(&self) -> bool {
        self.shortfall.is_some_and(|short| short.queued)
    }

    /// The verdict, or why there is none.
    pub(crate) fn verdict_word(&self) -> &'static str {
        match self.verdict {
            None if self.is_past_capacity() => "past capacity",
            None => "not comparable",
            Some(verdict) => figures::verdict_word(verdict),
        }
    }
}

/// A reason for void trials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct VoidReason {
    /// In words, with the worst figure.
    pub reason: String,
    pub trials: u64,
}

/// What a percentile that is not shown would need.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Need {
    /// The percentile's name: "p99.99".
    pub percentile: &'static str,
    pub samples: u64,
    /// Measured seconds of this candidate at this load, at the rate achieved.
    pub measured_s: Option<f64>,
    /// The same in rounds of this race.
    pub rounds: Option<u64>,
}

/// How long a race would know a ratio to ±3 %.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Precision {
    /// "p50", "typical p99" or "p99", or "req/s" without a rate; of downloads and streams "Mbit/s" or "packets/s".
    pub percentile: &'static str,
    /// Half the interval's width now, as a share: 0.05 is ±5 %.
    pub half_width: f64,
    /// Rounds needed for ±3 %, with as many rounds per build as now; `None`: more than is practical (200 000 builds).
    pub rounds: Option<u64>,
    /// The duration of a race of that many rounds, in seconds.
    pub wall_s: Option<f64>,
}

impl Precision {
    /// What they are given of, each once: percentiles of a rate in their usual order, and throughputs after them.
    pub(crate) fn labels<'a>(of: impl Iterator<Item = &'a Precision>) -> Vec<&'static str> {
        let usual = |label: &&str| ["p50", "typical p99", "p99"].iter().position(|one| one == label);
        let labels: BTreeSet<(bool, Option<usize>, &'static str)> = of
            .map(|precision| precision.percentile)
            .map(|label| (usual(&label).is_none(), usual(&label), label))
            .collect();
        labels.into_iter().map(|(_, _, label)| label).collect()
    }
}

/// The reference compared with itself at a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Noise {
    /// Bytes of the answer's body.
    pub body_bytes: u32,
    /// Requests per second requested; `None` without a rate.
    pub requested_rps: Option<f64>,
    /// "host again" ÷ "host".
    pub ratio: Ratios,
    /// What a p50 must differ by to be called different, as a share: 0.02 is 2 %.
    pub p50_floor: Option<f64>,
    /// What a p99 must differ by.
    pub p99_floor: Option<f64>,
    /// What the p99 of a typical slice must differ by.
    pub typical_p99_floor: Option<f64>,
    /// What the requests per second must differ by, without a rate.
    pub rps_floor: Option<f64>,
    /// What the statistic that the race was to know must differ by, where that is none of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named_floor: Option<NamedFloor>,
    /// Whether the control differs from the reference, judged by the interval alone. Any value but
    /// [`Verdict::Indistinguishable`] means that the race did not treat all candidates alike.
    pub verdict: Option<Verdict>,
}

/// What a request costs in instructions, all candidates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exact {
    /// Bytes of the answer's body.
    pub body_bytes: u32,
    /// The candidates with counts, in display order; one of which no trial counts is not among them.
    pub candidates: Vec<Instructions>,
}

/// What a request costs in instructions: of client, server and both nodes' kernels together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Instructions {
    /// The name of the candidate.
    pub name: String,
    /// The median of the repetitions.
    pub per_request: f64,
    /// The greatest repetition less the least, as a share of the median: 0.001 is a thousandth.
    pub spread: f64,
    /// How often it was counted, each time as the median of several slices.
    pub repetitions: u64,
    /// How much more it takes than the reference, in the unit of `per_request`.
    pub more: Option<f64>,
    /// The same as a share of the reference's.
    pub over: Option<f64>,
    /// The comparison with the reference: a difference counts if it is greater than the reference's difference from
    /// itself.
    pub verdict: Verdict,
}
