//! Figures of others beside ours, as plain values.

use serde::Serialize;

use crate::summary::Ratio;

/// A figure that somebody published, beside ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedFigure {
    /// The name of the candidate that it is about.
    pub path: String,
    /// What was measured, where the metric and the load do not tell it.
    pub what: String,
    /// What it is compared by: "p99.5"; `None`: it is to be read, and is compared with nothing.
    pub metric: Option<&'static str>,
    /// The published figure.
    pub value: f64,
    /// The unit of the published figure and of ours.
    pub unit: String,
    /// Where it was published.
    pub source: String,
    /// The circumstances that it was measured under.
    pub setting: String,
    /// The load of ours that it belongs to, as a place in the list of loads; `None`: no such load was raced.
    pub load: Option<usize>,
    /// Our figure, in the same unit; `None` where it is not known.
    pub ours: Option<f64>,
    /// The name of the candidate that both are divided by.
    pub against: String,
    /// The published figure ÷ the one that was published for `against`. The interval is what rounding leaves open.
    pub published_ratio: Option<Ratio>,
    /// Our figure ÷ that of `against`, with its 95 % interval.
    pub ratio: Option<Ratio>,
    /// How the two ratios stand to each other.
    pub agreement: Agreement,
    /// Why, in words.
    pub reason: String,
}

/// How a published ratio and ours stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// It is what others are divided by, the reference's mostly.
    Reference,
    /// The published ratio lies within our interval, or is nearer to ours than the noise.
    Agrees,
    /// Both are above 1 or both below, and differ in size.
    SameDirection,
    /// One says that there is a difference, the other that there is none or the opposite one.
    Contradicts,
    /// Our interval, or the noise, holds the published ratio and 1: it takes more rounds to tell.
    Undecided,
    /// One of the ratios is not there.
    NotComparable,
    /// It is a figure without a metric, to be read.
    Shown,
}

impl PublishedFigure {
    /// Whether there is something to compare it with in principle: it has a metric and is not the reference's own.
    pub(crate) fn is_comparison(&self) -> bool {
        !matches!(self.agreement, Agreement::Reference | Agreement::Shown)
    }
}

impl Agreement {
    /// As it is said of a figure.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Agreement::Reference => "reference",
            Agreement::Agrees => "agrees",
            Agreement::SameDirection => "same direction",
            Agreement::Contradicts => "contradicts",
            Agreement::Undecided => "undecided",
            Agreement::NotComparable => "not comparable",
            Agreement::Shown => "",
        }
    }
}
