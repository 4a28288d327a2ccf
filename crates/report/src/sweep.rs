//! The results of a sweep: lines over the swept value, each point with its interval.

use record::AxisUnit;
use serde::Serialize;

/// A sweep with its figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweepSummary {
    /// The swept quantity, by its name in the experiment: "loss", "settings.initcwnd".
    pub over: String,
    /// What [`SweptPoint::value`] counts: "bytes", "% of capacity", "per second", "% lost", "ms", "connections", or ""
    /// for a knob's own.
    pub unit: &'static str,
    /// The same for the page.
    #[serde(skip)]
    pub axis: AxisUnit,
    /// One entry a load and statistic.
    pub charts: Vec<SweptChart>,
}

/// A statistic over the swept values, at what else the loads have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweptChart {
    /// Bytes of a body or packet; `None` if the sweep is over sizes.
    pub body_bytes: Option<u32>,
    /// Requests per second; `None` if the sweep is over rates, if the rates follow from each size's capacity, and
    /// without a rate.
    pub requested_rps: Option<f64>,
    /// The share of capacity that the rate was asked as, 0 to 1, likewise.
    pub of_capacity: Option<f64>,
    /// "p50", "p99", "typical p99" where slices have requests enough, "req/s", "Mbit/s", "packets/s" or "packets/CPU
    /// s".
    pub statistic: &'static str,
    /// What the estimates count: "ns", "req/s", "Mbit/s", "packets/s" or "packets/CPU s".
    pub unit: &'static str,
    /// One a data path, in display order.
    pub lines: Vec<SweptLine>,
    /// The reference and its control, where they were raced at no value of the sweep but as the experiment has it.
    pub levels: Vec<SweptLevel>,
}

/// A data path over the values.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SweptLine {
    pub name: String,
    /// Its points, by ascending value; a point without valid trials or with too few samples is absent.
    pub points: Vec<SweptPoint>,
}

/// A point of a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweptPoint {
    /// The name of its candidate.
    pub candidate: String,
    /// The same as its place in the summary.
    #[serde(skip)]
    pub index: usize,
    /// The swept value, in the sweep's unit.
    pub value: f64,
    /// The statistic, in the chart's unit.
    #[serde(flatten)]
    pub figure: SweptFigure,
}

/// A figure of the reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SweptLevel {
    /// The reference's name, or its control's.
    pub candidate: String,
    /// The statistic, in the chart's unit.
    #[serde(flatten)]
    pub figure: SweptFigure,
}

/// A statistic with its interval, at 95 % or in a race with `until` at the level of its ratio's; `None` where the race
/// can give none. It is that of the figure alone: unlike a ratio's, it includes drift that is common to all candidates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SweptFigure {
    /// Of all trials that count.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
}

/// The text for [`SweepSummary::unit`].
pub(crate) fn unit(axis: AxisUnit) -> &'static str {
    match axis {
        AxisUnit::Bytes => "bytes",
        AxisUnit::PercentOfCapacity => "% of capacity",
        AxisUnit::PerSecond => "per second",
        AxisUnit::PercentLost => "% lost",
        AxisUnit::Milliseconds => "ms",
        AxisUnit::Connections => "connections",
        AxisUnit::OfTheKnob => "",
    }
}
