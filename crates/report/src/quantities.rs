//! The quantities of which a race's summary is made: loads, percentiles, ratios, transferred data.

use record::Measure;
use serde::Serialize;
use stats::Interval;

/// A load: a size and a rate, or a closed loop.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Load {
    /// Bytes of the answer's body.
    pub body_bytes: u32,
    /// Requests per second; `None`: a closed loop, or a stream without a limit.
    pub requested_rps: Option<f64>,
    /// The share of capacity that the rate was asked as, 0 to 1.
    pub of_capacity: Option<f64>,
    /// The measured quantity; in the JSON it follows from the experiment's workload.
    #[serde(skip)]
    pub measure: Measure,
}

/// The data volume of downloads and streams; `None` if unknown or not applicable.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct TransferRates {
    /// Megabits (10⁶) of content that arrived per second of measured time.
    pub mbit_per_s: Option<f64>,
    /// Of downloads: the mean time of an object, from the start of its connection to its last byte, in milliseconds.
    pub object_ms_mean: Option<f64>,
    /// Streams of datagrams: datagrams per second that the kernel took.
    pub sent_packets_per_s: Option<f64>,
    /// Streams of datagrams: datagrams per second that arrived.
    pub received_packets_per_s: Option<f64>,
    /// The share of sent datagrams that never arrived, 0 to 1.
    pub loss: Option<f64>,
    /// Datagrams that arrived after a later one of their flow.
    pub reordered: Option<u64>,
    /// The longest time between two arrivals, in nanoseconds.
    pub gap_max_ns: Option<u64>,
}

/// What a frame costs where the kernel makes and judges it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FrameCost {
    /// CPU time of a frame after it was made, in nanoseconds: on its way to the filter, in it, and after it. Where a
    /// virtual machine's clock counts instructions, as many of those.
    pub ns_per_packet: f64,
    /// CPU time to make a frame, in the same unit, which is subtracted.
    pub generator_ns_per_packet: f64,
    /// Frames in the trials that count.
    pub packets: u64,
}

/// Percentiles in nanoseconds; `None` where fewer than ten samples lie beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Quantiles {
    /// The median, in nanoseconds; `None` with too few samples.
    pub p50: Option<u64>,
    /// The 90th percentile, in nanoseconds.
    pub p90: Option<u64>,
    /// The 99th percentile, in nanoseconds.
    pub p99: Option<u64>,
    /// The 99.9th percentile, in nanoseconds.
    pub p99_9: Option<u64>,
    /// The 99.99th percentile, in nanoseconds.
    pub p99_99: Option<u64>,
    /// The 99.999th percentile, in nanoseconds.
    pub p99_999: Option<u64>,
    /// The greatest. A request that was never answered counts with the age at which the race gave it up.
    pub max: Option<u64>,
    /// The number of samples, unanswered requests included (except for `lag`, which counts sent requests).
    pub count: u64,
}

/// Percentiles ÷ the reference's; `None` where one of the two is not valid or no interval can be given.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Ratios {
    /// Ratio of the medians, candidate ÷ reference.
    pub p50: Option<Ratio>,
    /// Ratio of the 90th percentiles.
    pub p90: Option<Ratio>,
    /// Ratio of the 99th percentiles.
    pub p99: Option<Ratio>,
    /// Ratio of the 99.9th percentiles.
    pub p99_9: Option<Ratio>,
    /// Ratio of the 99.99th percentiles.
    pub p99_99: Option<Ratio>,
    /// Ratio of the 99.999th percentiles.
    pub p99_999: Option<Ratio>,
    /// Ratio of the 99th percentiles of typical slices.
    pub typical_p99: Option<Ratio>,
}

/// A ratio with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Of the merged histograms.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl From<Interval> for Ratio {
    fn from(Interval { value, low, high }: Interval) -> Ratio {
        Ratio { value, low, high }
    }
}

/// A point of the curve of latency by percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// The share of samples below, 0 to 1.
    pub quantile: f64,
    /// The value in nanoseconds.
    pub ns: u64,
}
