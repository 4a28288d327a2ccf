//! Where CPU time went, as plain values: time a request by parts of the kernel, and what each candidate differs by from
//! the reference. All times are microseconds of CPU time a request, of both nodes together.

mod parts;

use record::Measure;
use serde::Serialize;

pub use parts::PathPart;

/// What was sampled at a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProfiledLoad {
    /// Bytes of the answer's body.
    pub body_bytes: u32,
    /// Requests per second requested; `None` without a rate.
    pub requested_rps: Option<f64>,
    /// The share of capacity that the rate was asked as, 0 to 1.
    pub of_capacity: Option<f64>,
    /// What the workload is compared by: time is that of a request, of a packet or of a megabyte.
    #[serde(skip)]
    pub measure: Measure,
    /// Nanoseconds of a CPU that a sample stands for.
    pub period_ns: u64,
    /// The entrants that were sampled, in display order.
    pub candidates: Vec<Profiled>,
}

/// What was sampled of a candidate at a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Profiled {
    pub name: String,
    /// Requests that were answered meanwhile.
    pub requests: u64,
    /// Samples that found a CPU at work.
    pub samples: u64,
    /// Samples that found it idle.
    pub idle: u64,
    /// Missing samples: those that found no room, and those that the kernel left out.
    pub lost: u64,
    /// All parts but other programs.
    pub total: Cost,
    /// Each part, in the order of [`PathPart::ALL`].
    pub parts: Vec<PartCost>,
    /// Folded stacks with their samples, as the record has them.
    #[serde(skip)]
    pub stacks: Vec<(String, u64)>,
}

/// A part of the kernel, and its time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PartCost {
    /// The part of the system.
    pub part: PathPart,
    /// The CPU time that it takes of a request.
    #[serde(flatten)]
    pub cost: Cost,
}

/// CPU time for each answered request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// The estimate in microseconds.
    pub us_per_request: f64,
    /// Half the interval that holds the truth of all parts of a candidate together with 95 %, as far as sampling goes.
    pub half_width_us: f64,
    /// Against the reference; `None` for the reference, and for other programs.
    pub difference: Option<Difference>,
}

/// What a candidate spends more than the reference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// Microseconds; less than 0: it spends less.
    pub us: f64,
    /// Half its interval, as with [`Cost::half_width_us`].
    pub half_width_us: f64,
    /// It is greater than its half width, and than the reference's difference from itself.
    pub distinguishable: bool,
}
