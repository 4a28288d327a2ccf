//! How the requests of a rate are spread over time.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The instants at which requests are due. Both are known before the first is sent, and do not depend on answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// At equal intervals.
    #[default]
    Constant,
    /// At random, independent of each other, as the requests of many users are: a Poisson process. Every candidate of
    /// a round gets the same instants.
    Poisson,
}

impl Arrivals {
    /// The name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Arrivals::Constant => "constant",
            Arrivals::Poisson => "poisson",
        }
    }

    const ALL: [Arrivals; 2] = [Arrivals::Constant, Arrivals::Poisson];

    /// True at equal intervals.
    pub fn are_usual(&self) -> bool {
        *self == Arrivals::Constant
    }
}

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Arrivals, String> {
        let found = Arrivals::ALL.into_iter().find(|arrivals| arrivals.name() == text);
        found.ok_or_else(|| format!("`{text}` are no arrivals: constant or poisson is expected"))
    }
}
