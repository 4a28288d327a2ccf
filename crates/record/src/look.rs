//! Looks at a race that ends for what it sees: what left, when and why.

use serde::{Deserialize, Serialize};

use crate::RaceRecord;

/// A look at all comparisons after a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// Its number, from 1. The level of its intervals depends on it.
    pub number: u32,
    /// How many builds there were.
    pub builds: u32,
    /// How many rounds there were.
    pub rounds: u32,
    /// What left; later rounds go without it.
    pub left: Vec<Left>,
}

/// A candidate that left at a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Left {
    /// The candidate, as an index into [`crate::Header::entrants`].
    pub entrant: usize,
    /// Index into the record's loads.
    pub load: usize,
    /// Why.
    pub why: Leaving,
}

/// Why a candidate left at a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaving {
    /// A difference to the reference was found.
    Different,
    /// The ratio to the reference is known as well as was asked.
    Precise,
    /// The statistic that was named is none of this load's.
    NotAsked,
    /// Undecided: the time was up, or the others were done. Only in the last look.
    Ended,
}

impl Look {
    /// Whether it can be the next look of a record; otherwise why not.
    pub(crate) fn fits(&self, race: &RaceRecord) -> Result<(), String> {
        let number = self.number;
        if race.header.experiment.until.is_none() {
            return Err(format!("look {number} is in a race that was not to end for what it sees"));
        }
        let (last, rounds) = race.looks.last().map_or((0, 0), |last| (last.number, last.rounds));
        if number <= last || self.rounds < rounds {
            return Err(format!("look {number} is not later than the one before it"));
        }
        let ran = race.rounds.last().map_or(0, |round| round.round + 1);
        if self.rounds < ran {
            return Err(format!("look {number} saw {} rounds of the {ran} before it", self.rounds));
        }
        for left in &self.left {
            if left.entrant >= race.header.entrants.len() || left.load >= race.loads.len() {
                return Err(format!("at look {number} an unknown entrant or load left"));
            }
            if race.left(left.entrant, left.load).is_some() {
                return Err(format!("at look {number} a candidate left a load for a second time"));
            }
        }
        Ok(())
    }
}

impl RaceRecord {
    /// At which look a candidate left a load, and why; `None` if it did not.
    pub fn left(&self, entrant: usize, load: usize) -> Option<(&Look, Leaving)> {
        self.looks.iter().find_map(|look| {
            let left = look.left.iter().find(|left| (left.entrant, left.load) == (entrant, load))?;
            Some((look, left.why))
        })
    }
}
