//! Knobs with the values to try, and arms as settings of a candidate.

use std::collections::BTreeMap;

use linux::features::Facts;
use record::{Candidate, RequestedValue, SearchOption, Side, Tuning};
use stats::search::{Arm, OPTIONS_MAX, Space};
use tune::Settings;

use crate::{Contender, LabError, MachineUse, prove};

/// A knob and the values to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Factor {
    /// The name of the knob.
    pub knob: String,
    /// The side on which it is set.
    pub side: Side,
    /// The values, besides the one that the incumbent has.
    pub values: Vec<RequestedValue>,
}

/// The incumbent with all that may be set besides.
#[derive(Debug)]
pub(super) struct Factors {
    candidate: Candidate,
    incumbent: Contender,
    facts: Facts,
    /// Every option with its value as it was written.
    pub(super) options: Vec<(SearchOption, RequestedValue)>,
    /// The options that this machine takes: the search's number of each is its place here.
    open: Vec<usize>,
    /// Options that contradict each other and are in no arm together, by their places in the list of all, and why.
    pub(super) apart: Vec<([usize; 2], String)>,
    pub(super) space: Space,
    proven: BTreeMap<Arm, Contender>,
}

impl Factors {
    /// Reads the values and tries each on this machine. An option that it does not take is left out and says why.
    pub(super) fn prove(
        candidate: Candidate,
        incumbent: Contender,
        factors: &[Factor],
        facts: &Facts,
    ) -> Result<Factors, LabError> {
        refuse_unsound(factors)?;
        let mut options = Vec::new();
        let (mut open, mut values) = (Vec::new(), Vec::new());
        for factor in factors {
            let before = open.len();
            for requested in &factor.values {
                let tune = with(&candidate.tune, factor, requested);
                let mut contender = contender(&incumbent, &tune)?;
                prove(std::slice::from_mut(&mut contender), facts, MachineUse::Shared)?;
                contender.unmet.extend(contradiction(&contender));
                if contender.races() {
                    open.push(options.len());
                }
                let (knob, value, side) = (factor.knob.clone(), requested.to_string(), factor.side);
                options.push((SearchOption { knob, value, side, unmet: contender.unmet }, requested.clone()));
            }
            if open.len() > before {
                values.push(open.len() - before);
            }
        }
        if values.is_empty() {
            let why =
                options.iter().flat_map(|(option, _)| option.unmet.clone()).collect::<Vec<_>>().join("; ");
            return Err(LabError::Experiment { what: "no setting can be made here".to_owned(), why });
        }
        let factors = Factors {
            candidate,
            incumbent,
            facts: facts.clone(),
            options,
            open,
            apart: Vec::new(),
            space: Space::new(&values),
            proven: BTreeMap::new(),
        };
        factors.without_contradictions()
    }

    /// The same without arms whose settings contradict each other, as those of a candidate in a race would be refused.
    fn without_contradictions(mut self) -> Result<Factors, LabError> {
        let mut pairs = Vec::new();
        for b in 0..self.open.len() {
            for a in 0..b {
                let arm = Arm::of([a, b]);
                let of = contender(&self.incumbent, &self.tune(&arm))?;
                let [place_a, place_b] = [self.open[a], self.open[b]];
                // Values of one knob are never together; there the second replaces the first.
                if let Some(why) = contradiction(&of) {
                    pairs.push((a, b));
                    self.apart.push(([place_a, place_b], why));
                }
            }
        }
        self.space = self.space.apart(pairs);
        Ok(self)
    }

    /// What of the options is not tried together, in words.
    pub(super) fn apart_text(&self) -> Vec<String> {
        let label = |place: usize| self.options[place].0.label();
        self.apart.iter().map(|([a, b], why)| format!("{} and {}: {why}", label(*a), label(*b))).collect()
    }

    /// The places of an arm's options in the list of all.
    pub(super) fn places(&self, arm: &Arm) -> Vec<usize> {
        arm.options().iter().map(|option| self.open[*option]).collect()
    }

    /// The options of an arm in words.
    pub(super) fn label(&self, arm: &Arm) -> String {
        let labels = self.places(arm).into_iter().map(|place| self.options[place].0.label());
        labels.collect::<Vec<_>>().join(" and ")
    }

    /// The settings of an arm: the incumbent's, and its own over them.
    pub(super) fn tune(&self, arm: &Arm) -> Tuning {
        self.places(arm).into_iter().fold(self.candidate.tune.clone(), |tune, place| {
            let (SearchOption { knob, side, .. }, value) = &self.options[place];
            with(&tune, &Factor { knob: knob.clone(), side: *side, values: Vec::new() }, value)
        })
    }

    /// The contender of an arm, after this kernel was asked whether it takes all of it together.
    pub(super) fn contender(&mut self, arm: &Arm) -> Result<Contender, LabError> {
        if let Some(known) = self.proven.get(arm) {
            return Ok(known.clone());
        }
        let mut contender = contender(&self.incumbent, &self.tune(arm))?;
        prove(std::slice::from_mut(&mut contender), &self.facts, MachineUse::Shared)?;
        self.proven.insert(arm.clone(), contender.clone());
        Ok(contender)
    }

    pub(super) fn incumbent(&self) -> &Contender {
        &self.incumbent
    }
}

/// A tuning with one more setting. What is set for both sides replaces what was set for one.
fn with(tune: &Tuning, factor: &Factor, value: &RequestedValue) -> Tuning {
    let mut tune = tune.clone();
    let knobs = match factor.side {
        Side::Client => &mut tune.client,
        Side::Server => &mut tune.server,
        Side::Both => {
            tune.client.remove(&factor.knob);
            tune.server.remove(&factor.knob);
            &mut tune.both
        }
    };
    knobs.insert(factor.knob.clone(), value.clone());
    tune
}

fn contender(incumbent: &Contender, tune: &Tuning) -> Result<Contender, LabError> {
    let failed = |why| LabError::Settings { candidate: "the search".to_owned(), why };
    let settings = Settings::read(tune).map_err(failed)?;
    Ok(Contender { settings, required: false, ..incumbent.clone() })
}

/// Why no link can have the settings of a contender together, where they contradict each other.
fn contradiction(contender: &Contender) -> Option<String> {
    contender.settings.consistent().err().map(|why| why.to_string())
}

fn refuse_unsound(factors: &[Factor]) -> Result<(), LabError> {
    let refused = |what: String, why: &str| Err(LabError::Experiment { what, why: why.to_owned() });
    let count: usize = factors.iter().map(|factor| factor.values.len()).sum();
    if count > OPTIONS_MAX {
        return refused(format!("{count} values"), &format!("a search can compare at most {OPTIONS_MAX}"));
    }
    for (at, factor) in factors.iter().enumerate() {
        let knob = &factor.knob;
        if factor.values.is_empty() {
            return refused(
                format!("{knob} without a value"),
                "at least one is needed that the incumbent does not have",
            );
        }
        let clash = |other: &&Factor| {
            other.knob == *knob
                && (other.side == factor.side || [other.side, factor.side].contains(&Side::Both))
        };
        if factors[..at].iter().find(clash).is_some() {
            return refused(format!("{knob} twice"), "give all values of a knob at once");
        }
        for (at, value) in factor.values.iter().enumerate() {
            if factor.values[..at].iter().any(|other| other.to_string() == value.to_string()) {
                return refused(format!("{knob}={value} twice"), "each value is tried once");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factor(knob: &str, side: Side, values: &[&str]) -> Factor {
        let values = values.iter().map(|value| RequestedValue::Text((*value).to_owned())).collect();
        Factor { knob: knob.to_owned(), side, values }
    }

    #[track_caller]
    fn check(factors: &[Factor], expected: &str) {
        let error = refuse_unsound(factors).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn what_cannot_be_distinguished_is_refused() {
        let sack = factor("tcp_sack", Side::Both, &["0"]);
        check(&[factor("tcp_sack", Side::Both, &[])], "tcp_sack without a value");
        check(&[sack.clone(), sack.clone()], "tcp_sack twice");
        check(&[sack.clone(), factor("tcp_sack", Side::Client, &["1"])], "tcp_sack twice");
        check(&[factor("initcwnd", Side::Both, &["9", "9"])], "initcwnd=9 twice");
        let many: Vec<String> = (0..33).map(|value| value.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        check(&[factor("initcwnd", Side::Both, &many)], "33 values");
        let sides = [factor("tcp_sack", Side::Server, &["0"]), factor("tcp_sack", Side::Client, &["0"])];
        assert!(refuse_unsound(&sides).is_ok());
    }

    #[test]
    fn an_option_replaces_what_the_incumbent_has() {
        let value = RequestedValue::Number(1);
        let mut tune = Tuning::default();
        tune.client.insert("tcp_sack".to_owned(), RequestedValue::Number(0));
        let both = with(&tune, &factor("tcp_sack", Side::Both, &[]), &value);
        assert!(both.client.is_empty() && both.both["tcp_sack"] == value);
        let client = with(&both, &factor("tcp_sack", Side::Client, &[]), &RequestedValue::Number(0));
        assert_eq!((client.both.len(), client.client.len()), (1, 1));
    }
}
