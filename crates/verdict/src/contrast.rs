//! How a statistic compares with another candidate's: by its ratio, or, where it lies among requests without an answer,
//! by the shares that were answered.
//!
//! **A path that loses requests has no ratio to lose by.** If more than a hundredth of its requests has no answer, its
//! p99 lies among these and is longer than any number. To leave that test out would judge it by the requests that it
//! did answer, and these may be faster for the others that are gone. So the test is then of the loss: the share that
//! was answered ÷ the other's, with an interval like any ratio's.

use stats::Spread;

use crate::samples::{Among, Samples};

/// A statistic of a candidate against another's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Contrast {
    /// The ratio of the two.
    Ratio(Spread),
    /// There is none, because that of one or both lies among the requests without an answer, or may.
    Answered(Answered),
}

/// The shares of requests that were answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    /// The one ÷ the other.
    pub(crate) ratio: Spread,
    /// Of the two.
    pub(crate) shares: [f64; 2],
    among: [Among; 2],
}

impl Contrast {
    /// Of a statistic, and of the shares that were answered. `None` if it has no value on one side, or of
    /// fewer than two units.
    pub(crate) fn of(
        [above, below]: [&Samples; 2],
        answered: [&Samples; 2],
        units: usize,
    ) -> Option<Contrast> {
        if let Some(ratio) = above.over(below, units) {
            return Some(Contrast::Ratio(ratio));
        }
        let among = [above.among()?, below.among()?];
        if among == [Among::Answers; 2] {
            return None;
        }
        let [shares_above, shares_below] = answered;
        let ratio = shares_above.over(shares_below, units)?;
        let shares = [shares_above.value?, shares_below.value?];
        Some(Contrast::Answered(Answered { ratio, shares, among }))
    }

    /// The ratio of the statistic, if it has one.
    pub(crate) fn ratio(&self) -> Option<Spread> {
        match self {
            Contrast::Ratio(ratio) => Some(*ratio),
            Contrast::Answered(_) => None,
        }
    }
}

impl Answered {
    /// Whether the statistic of each side lies among its requests without an answer, as far as can be known.
    pub(crate) fn is_unanswered(&self) -> [bool; 2] {
        self.among.map(|among| among == Among::Unanswered)
    }
}
