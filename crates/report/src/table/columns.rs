//! The columns of a load's table.

use record::Measure;

use crate::carried;
use crate::figures::{self, duration_ns};
use crate::quantities::{Load, Quantiles};
use crate::summary::{Candidate, RateSummary};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Achieved,
    Mbit,
    Object,
    Sent,
    Received,
    Loss,
    NsPerPacket,
    Generator,
    PerCpu,
    /// In the unit that the race is read by.
    ThroughputRatio(Measure),
    P50,
    P90,
    P99,
    P99_9,
    P99_99,
    P99_999,
    Max,
    P50Ratio,
    TypicalP99Ratio,
    P99Ratio,
    /// Of what the race is read by.
    Cpu(Measure),
    Verdict,
}

impl Column {
    /// The columns of a load, from left to right. Without a rate, percentiles only show the length of the client's own
    /// queue.
    pub(super) fn of(load: &Load, measure: Measure) -> &'static [Column] {
        match (measure, load.requested_rps) {
            (Measure::Bandwidth, _) => &[
                Column::Name,
                Column::Mbit,
                Column::Object,
                Column::ThroughputRatio(Measure::Bandwidth),
                Column::Cpu(Measure::Bandwidth),
                Column::Verdict,
            ],
            (Measure::Packets, _) => &[
                Column::Name,
                Column::Sent,
                Column::Received,
                Column::Loss,
                Column::Mbit,
                Column::ThroughputRatio(Measure::Packets),
                Column::Cpu(Measure::Packets),
                Column::Verdict,
            ],
            (Measure::Frames, _) => &[
                Column::Name,
                Column::NsPerPacket,
                Column::Generator,
                Column::PerCpu,
                Column::ThroughputRatio(Measure::Frames),
                Column::Verdict,
            ],
            (Measure::Latency, Some(_)) => &[
                Column::Name,
                Column::Achieved,
                Column::P50,
                Column::P90,
                Column::P99,
                Column::P99_9,
                Column::P99_99,
                Column::P99_999,
                Column::Max,
                Column::P50Ratio,
                Column::TypicalP99Ratio,
                Column::P99Ratio,
                Column::Cpu(Measure::Latency),
                Column::Verdict,
            ],
            (Measure::Latency, None) => &[
                Column::Name,
                Column::Achieved,
                Column::ThroughputRatio(Measure::Latency),
                Column::Cpu(Measure::Latency),
                Column::Verdict,
            ],
        }
    }

    pub(super) fn title(self) -> String {
        let fixed = match self {
            Column::ThroughputRatio(measure) => return format!("{} × host", measure.unit()),
            Column::Cpu(measure) => return format!("CPU µs/{}", carried::cpu_unit(measure)),
            Column::Name => "candidate",
            Column::Achieved => "req/s",
            Column::Mbit => "Mbit/s",
            Column::Object => "mean object time",
            Column::Sent => "sent/s",
            Column::Received => "received/s",
            Column::Loss => "lost",
            Column::NsPerPacket => "ns/packet",
            Column::Generator => "to make it",
            Column::PerCpu => Measure::Frames.unit(),
            Column::P50 => "p50",
            Column::P90 => "p90",
            Column::P99 => "p99",
            Column::P99_9 => "p99.9",
            Column::P99_99 => "p99.99",
            Column::P99_999 => "p99.999",
            Column::Max => "max",
            Column::P50Ratio => "p50 × host",
            Column::TypicalP99Ratio => "typical p99 × host",
            Column::P99Ratio => "p99 × host",
            Column::Verdict => "verdict",
        };
        fixed.to_owned()
    }

    /// The greater, the earlier the column goes when the line with these is too long; 0: it stays.
    pub(super) fn dispensable(self, beside: &[Column]) -> usize {
        match self {
            Column::Name | Column::P50 | Column::P99 => 0,
            Column::P50Ratio | Column::TypicalP99Ratio | Column::ThroughputRatio(_) | Column::Verdict => 0,
            Column::Received | Column::Loss | Column::Object | Column::NsPerPacket => 0,
            // One of the two ratios of the tail stays.
            Column::P99Ratio => usize::from(beside.contains(&Column::TypicalP99Ratio)),
            Column::Mbit | Column::Sent | Column::Generator => 2,
            Column::Achieved | Column::PerCpu => 2,
            Column::P99_9 => 3,
            Column::Cpu(_) => 4,
            Column::P90 => 5,
            Column::P99_99 => 6,
            Column::P99_999 => 7,
            Column::Max => 8,
        }
    }

    /// True if it has a value for a candidate.
    pub(super) fn says(self, rate: &RateSummary) -> bool {
        match self {
            Column::Name | Column::Achieved | Column::PerCpu | Column::Verdict => true,
            Column::ThroughputRatio(_) => rate.rps_ratio.is_some(),
            Column::Mbit | Column::Object | Column::Sent | Column::Received | Column::Loss => {
                self.carried(rate).is_some()
            }
            Column::NsPerPacket | Column::Generator => rate.frames.is_some(),
            Column::P50Ratio => rate.ratio.p50.is_some(),
            Column::TypicalP99Ratio => rate.ratio.typical_p99.is_some(),
            Column::P99Ratio => rate.ratio.p99.is_some(),
            Column::Cpu(_) => rate.cpu_us_per_request.is_some(),
            Column::P50
            | Column::P90
            | Column::P99
            | Column::P99_9
            | Column::P99_99
            | Column::P99_999
            | Column::Max => self.quantile(&rate.response_ns).is_some(),
        }
    }

    pub(super) fn cell(self, candidate: &Candidate, rate: &RateSummary) -> String {
        let missing = || "–".to_owned();
        match self {
            Column::Name => candidate.name.clone(),
            Column::Achieved | Column::PerCpu => rate.achieved_rps.map_or_else(missing, figures::rate),
            Column::ThroughputRatio(_) => rate.rps_ratio.as_ref().map_or_else(missing, figures::ratio),
            Column::Mbit | Column::Object | Column::Sent | Column::Received | Column::Loss => {
                self.carried(rate).unwrap_or_else(missing)
            }
            Column::NsPerPacket => {
                rate.frames.map_or_else(missing, |frames| carried::ns(frames.ns_per_packet))
            }
            Column::Generator => {
                rate.frames.map_or_else(missing, |frames| carried::ns(frames.generator_ns_per_packet))
            }
            Column::P50Ratio => rate.ratio.p50.as_ref().map_or_else(missing, figures::ratio),
            Column::TypicalP99Ratio => rate.ratio.typical_p99.as_ref().map_or_else(missing, figures::ratio),
            Column::P99Ratio => rate.ratio.p99.as_ref().map_or_else(missing, figures::ratio),
            Column::Cpu(_) => rate.cpu_us_per_request.map_or_else(missing, |us| format!("{us:.1}")),
            Column::Verdict => rate.verdict_word().to_owned(),
            Column::P50
            | Column::P90
            | Column::P99
            | Column::P99_9
            | Column::P99_99
            | Column::P99_999
            | Column::Max => self.quantile(&rate.response_ns).map_or_else(missing, duration_ns),
        }
    }

    fn quantile(self, of: &Quantiles) -> Option<u64> {
        match self {
            Column::P50 => of.p50,
            Column::P90 => of.p90,
            Column::P99 => of.p99,
            Column::P99_9 => of.p99_9,
            Column::P99_99 => of.p99_99,
            Column::P99_999 => of.p99_999,
            Column::Max => of.max,
            Column::Name
            | Column::Achieved
            | Column::Mbit
            | Column::Object
            | Column::Sent
            | Column::Received
            | Column::Loss
            | Column::NsPerPacket
            | Column::Generator
            | Column::PerCpu
            | Column::ThroughputRatio(_)
            | Column::P50Ratio
            | Column::TypicalP99Ratio
            | Column::P99Ratio
            | Column::Cpu(_)
            | Column::Verdict => None,
        }
    }

    /// A figure of what was carried.
    fn carried(self, rate: &RateSummary) -> Option<String> {
        let carried = rate.carried.as_ref()?;
        match self {
            Column::Mbit => carried.mbit_per_s.map(carried::mbit),
            Column::Object => carried::object_ms(carried),
            Column::Sent => carried.sent_packets_per_s.map(figures::rate),
            Column::Received => carried.received_packets_per_s.map(figures::rate),
            Column::Loss => carried::loss(carried),
            _ => None,
        }
    }
}
