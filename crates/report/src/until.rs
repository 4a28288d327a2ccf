//! The end of a race that ends for what it sees: what left when, what is open, and what more time would bring.

use record::Leaving;
use serde::Serialize;

/// How such a race went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pursued {
    /// The statistic that was named; `None`: at each load of the one that decides first there.
    pub statistic: Option<&'static str>,
    /// What was asked, as a share: 0.03 is ±3 %.
    pub half_width: f64,
    /// The most seconds that it might take.
    pub budget_s: u32,
    /// The rule by which it ended.
    pub ended: StopReason,
    /// The looks, in their order. The end is none.
    pub looks: Vec<LookTaken>,
    /// Every contender at every load, in display order; without contenders the control.
    pub comparisons: Vec<ComparisonExit>,
}

/// Why a race ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Every comparison was settled.
    Settled,
    /// Another build did not fit into the budget.
    Budget,
    /// It was interrupted, or is still running.
    Unfinished,
}

/// What one look at the comparisons decided.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LookTaken {
    /// Builds that had raced by then.
    pub builds: u32,
    /// Rounds that had been raced by then.
    pub rounds: u32,
    /// The level of an interval that had to exclude 1 for a difference at this look, 0 to 1, before it is divided among
    /// the tests of a candidate.
    pub level: f64,
    /// How many comparisons left.
    pub left: usize,
}

/// A comparison, and how it left.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparisonExit {
    /// The candidate that was compared with the reference, by its name.
    pub candidate: String,
    /// The load's index in [`crate::Summary::loads`].
    pub load: usize,
    /// Why it left; `ended`: it was undecided at the end.
    pub why: Leaving,
    /// Builds that it raced in.
    pub builds: u32,
    /// The level of its intervals, 0 to 1. They cover the true ratio in 95 % of all races, looks included.
    pub level: f64,
    /// The statistic that was to be known; `None` where nothing was asked of this load, and where it is past capacity.
    pub statistic: Option<&'static str>,
    /// Half the width of that interval, as a share; `None` where there is no interval.
    pub half_width: Option<f64>,
    /// The same after another minute; of those that are undecided.
    pub half_width_in_a_minute: Option<f64>,
    /// Seconds that would still be needed for what was asked, if builds take as long and scatter as before; of those
    /// who are undecided, `None` if it is more than is practical.
    pub needed_s: Option<f64>,
}

/// The floor of the statistic that was named, where it is none of those that always are shown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NamedFloor {
    /// The statistic's name, such as "p99.9".
    pub statistic: &'static str,
    /// What it must differ by to be called different, as a share.
    pub floor: f64,
}
