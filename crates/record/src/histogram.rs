//! Histograms of nanoseconds that travel as HdrHistogram V2 payloads.

use hdrhistogram::Histogram as Hdr;

/// A histogram of nanoseconds, 1 ns to 1 h with three significant digits.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram(pub Hdr<u64>);

impl Histogram {
    /// The greatest value that can be told from greater ones: one hour in nanoseconds.
    pub const MAX_NS: u64 = 3_600_000_000_000;

    /// An empty one.
    pub fn new() -> Histogram {
        Histogram(Hdr::new_with_bounds(1, Histogram::MAX_NS, 3).expect("1 ns to 1 h in 3 digits are valid bounds"))
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}
