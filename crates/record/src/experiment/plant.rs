//! A difference that is put into a race on purpose, to see whether the race finds it:
//! `plant = { share = "2%", delay = "300us" }`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::experiment_error::{ExperimentError, out_of_range};
use crate::{Candidate, Delay, Experiment, Measure, ServerKind, Share};

/// The longest delay: far beyond any tail that a race compares, and short enough for a slice to end.
const DELAY_MAX: Delay = Delay { ns: 1_000_000_000 };
/// Every answer, 100 %.
const ALL: Share = Share { billionths: 1_000_000_000 };

/// Answers that the server of one candidate holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plant {
    /// The share of answers, each chosen at random.
    pub share: Share,
    /// How long each is held back at least, from the moment when its request was read. With 0 nothing is late, but the
    /// server draws and looks at its timers all the same: the control of a planted delay.
    pub delay: Delay,
}

impl Plant {
    /// The share of answers that are not held back.
    pub fn others(&self) -> Share {
        Share { billionths: ALL.billionths.saturating_sub(self.share.billionths) }
    }
}

impl fmt::Display for Plant {
    /// `2% of its answers 300us late`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of its answers {} late", self.share, self.delay)
    }
}

impl Experiment {
    /// Checks what is planted into a candidate.
    pub(crate) fn validate_plant(&self, candidate: &Candidate) -> Result<(), ExperimentError> {
        let Some(plant) = candidate.plant else { return Ok(()) };
        if candidate.name.is_none() {
            let why = "a candidate with planted delays needs a `name`";
            return Err(out_of_range("candidates.name", "missing", why));
        }
        if plant.share > ALL {
            return Err(out_of_range("candidates.plant.share", plant.share, "up to 100% is possible"));
        }
        if plant.delay > DELAY_MAX {
            let why = format!("up to {DELAY_MAX} is possible");
            return Err(out_of_range("candidates.plant.delay", plant.delay, why));
        }
        let refused = |why: &str| Err(out_of_range("candidates.plant", plant, why));
        if self.workload.kind.measure() != Measure::Latency {
            return refused("only a workload whose requests are answered has answers to hold back");
        }
        if self.exact() {
            return refused("instructions are counted, and waiting takes none");
        }
        if self.workload.server == ServerKind::Nginx {
            return refused(
                "nginx holds nothing back; with `server = \"hostgap\"` hostgap's own responder answers all",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(workload: &str, candidate: &str) -> Result<Experiment, ExperimentError> {
        Experiment::from_toml(&format!(
            "schema = 1\nname = \"x\"\n{workload}\n[[candidates]]\npath = \"host\"\n{candidate}"
        ))
    }

    #[test]
    fn it_is_read_and_written() {
        let plant = "name = \"late\"\nplant = { share = \"2%\", delay = \"300us\" }";
        let experiment = with("", plant).unwrap();
        let read = experiment.candidates[0].plant.unwrap();
        assert_eq!(read.to_string(), "2% of its answers 300us late");
        assert_eq!(read.others().to_string(), "98%");
        assert_eq!(Experiment::from_toml(&experiment.to_toml()).unwrap(), experiment);
        let none = with("", "name = \"plain\"").unwrap();
        assert!(!none.to_toml().contains("plant"), "{}", none.to_toml());
    }

    #[test]
    fn what_cannot_be_planted_is_refused() {
        let plant = |share: &str, delay: &str| {
            format!("name = \"late\"\nplant = {{ share = \"{share}\", delay = \"{delay}\" }}")
        };
        let usual = plant("2%", "300us");
        let late = "`candidates.plant` is 2% of its answers 300us late";
        for (workload, candidate, says) in [
            (
                "",
                usual.replace("name = \"late\"\n", ""),
                "`candidates.name` is missing: a candidate with planted delays needs a `name`".to_owned(),
            ),
            ("", plant("101%", "1us"), "`candidates.plant.share` is 101%: up to 100% is possible".to_owned()),
            ("", plant("1%", "2s"), "`candidates.plant.delay` is 2s: up to 1s is possible".to_owned()),
            ("workload.server = \"nginx\"", usual.clone(), format!("{late}: nginx holds nothing back")),
            (
                "workload.kind = \"tcp-stream\"",
                usual.clone(),
                format!("{late}: only a workload whose requests"),
            ),
            (
                "vm = { kernels = [\"debian:6.12\"], exact = true }",
                usual.clone(),
                format!("{late}: instructions are counted"),
            ),
        ] {
            let error = with(workload, &candidate).expect_err(&candidate).to_string();
            assert!(error.contains(&says), "{says:?} is not in {error:?}");
        }
    }
}
