//! The limits of a sweep, and the place in the file of a violation.

use serde::Deserialize;
use toml::{Spanned, Value};

use super::{Over, Sweep, alike};
use crate::experiment_error::{out_of_range, place};
use crate::{Candidate, Experiment, ExperimentError, RequestedRate, Workload};

/// The keys of errors of a sweep begin so.
const TABLE: &str = "sweep.";

impl Experiment {
    /// Checks the sweep of an experiment that is sound without it.
    pub(crate) fn validate_sweep(&self) -> Result<(), ExperimentError> {
        let Some(sweep) = &self.sweep else {
            let strays = self.candidates.iter().find_map(|candidate| candidate.swept.as_ref());
            let why = "a candidate has a place in a sweep, and there is no [sweep]";
            return strays.map_or(Ok(()), |stray| Err(out_of_range("candidates.swept.at", &stray.at, why)));
        };
        sweep.validate_values()?;
        self.validate_room(sweep)?;
        if !sweep.over.is_load() {
            self.validate_swept(sweep)?;
        }
        for (index, value) in sweep.values.iter().enumerate() {
            let alone = Sweep { values: vec![value.clone()], ..sweep.clone() };
            let candidates = self.candidates.iter().filter(|one| one.swept.is_none()).cloned().collect();
            let mut plain = Experiment { sweep: Some(alone), candidates, ..self.clone() };
            if sweep.over == Over::Rate {
                plain.rates.clear();
            }
            let laid = plain.swept();
            // What the experiment is without its sweep was checked before, so this is the value's.
            laid.validate_plain().map_err(|error| sweep.blamed(index, error))?;
        }
        self.swept().validate_plain().map_err(|error| {
            let values = format!("a list of {}", sweep.values.len());
            out_of_range(
                "sweep.values",
                values,
                format!("with all of them {error}; give fewer values or candidates"),
            )
        })
    }

    /// Whether only the sweep sets the swept quantity.
    fn validate_room(&self, sweep: &Sweep) -> Result<(), ExperimentError> {
        let refused = |why: &str| Err(out_of_range("sweep.over", &sweep.over, why));
        if self.exact() {
            return refused(
                "with `exact` instructions are counted, which no sweep draws; leave out one of the two",
            );
        }
        match &sweep.over {
            Over::Rate if !self.rates.is_empty() && !alike(&self.rates, &sweep.rates()) => {
                refused("`rates` names other rates; leave out one of the two")
            }
            Over::BodyBytes => {
                let sizes = &self.workload.body_bytes;
                let is_usual = *sizes == Workload::of(self.workload.kind).body_bytes;
                if is_usual || alike(sizes, &sweep.sizes()) {
                    return Ok(());
                }
                refused("`workload.body_bytes` names other sizes; leave out one of the two")
            }
            Over::Connections if self.workload.connections_min.is_some() => refused(
                "with `workload.connections_min` candidates may get fewer than their value; leave out one of the two",
            ),
            Over::Rate | Over::Connections | Over::Wire(..) | Over::Setting(..) => Ok(()),
        }
    }

    /// Whether there are candidates that can be had at each value.
    fn validate_swept(&self, sweep: &Sweep) -> Result<(), ExperimentError> {
        let refused = |why: String| Err(out_of_range("sweep.over", &sweep.over, why));
        if self.candidates.is_empty() {
            return refused("every candidate races at every value; say with [[candidates]] who".to_owned());
        }
        for candidate in &self.candidates {
            let name = candidate.title();
            match &candidate.swept {
                Some(swept) if !sweep.values.contains(&swept.at) => {
                    let why = "it is none of `sweep.values`";
                    return Err(out_of_range("candidates.swept.at", &swept.at, why));
                }
                Some(_) => {}
                None if name.is_empty() => {
                    let why = "a CNI configuration in a sweep needs a `name`";
                    return Err(out_of_range("candidates.name", "missing", why));
                }
                None if sweep.over.is_said_by(candidate) => {
                    let why =
                        format!("the candidate `{name}` has a value of its own; leave out one of the two");
                    return refused(why);
                }
                None => {}
            }
        }
        Ok(())
    }
}

impl Sweep {
    /// At least two values of one unit that rise.
    fn validate_values(&self) -> Result<(), ExperimentError> {
        let list = |count: &str, why: &str| Err(out_of_range("sweep.values", count, why));
        match self.values.as_slice() {
            [] => return list("empty", "at least two values are expected"),
            [_] => {
                return list(
                    "a single value",
                    "at least two are expected; without a sweep a value is written itself",
                );
            }
            _ => {}
        }
        let at = |index: usize, why: &str| Err(out_of_range(&key(index), &self.values[index], why));
        let places = self.places().or_else(|(index, why)| at(index, &why).map(|()| vec![]))?;
        if self.over == Over::Rate {
            let shares = self
                .rates()
                .iter()
                .map(|rate| matches!(rate, RequestedRate::OfCapacity(_)))
                .collect::<Vec<_>>();
            if let Some(index) = shares.iter().position(|share| *share != shares[0]) {
                return at(
                    index,
                    "shares of capacity and rates per second have no axis in common; write all in one unit",
                );
            }
        }
        match places.windows(2).position(|pair| pair[0] >= pair[1]) {
            Some(before) => at(before + 1, "values rise; write them in order, each once"),
            None => Ok(()),
        }
    }

    /// An error that a value makes.
    fn blamed(&self, index: usize, error: ExperimentError) -> ExperimentError {
        let why = match error {
            ExperimentError::Range { why, .. } => why,
            other => other.to_string(),
        };
        out_of_range(&key(index), &self.values[index], why)
    }
}

fn key(index: usize) -> String {
    format!("{TABLE}values[{index}]")
}

/// Where the parts of a sweep stand in a file.
#[derive(Deserialize)]
struct File {
    sweep: Option<Places>,
}

#[derive(Deserialize)]
struct Places {
    over: Option<Spanned<Value>>,
    values: Option<Spanned<Vec<Spanned<Value>>>>,
}

/// The error with its place in the text, if it is about the sweep.
pub(crate) fn located(text: &str, error: ExperimentError) -> ExperimentError {
    let what = error.to_string();
    let ExperimentError::Range { key, .. } = &error else { return error };
    let Some(part) = key.strip_prefix(TABLE) else { return error };
    let Ok(File { sweep: Some(places) }) = toml::from_str(text) else { return error };
    let index = part.trim_start_matches("values[").trim_end_matches(']').parse::<usize>().ok();
    let span = match (&places.values, index) {
        (Some(values), Some(index)) => values.get_ref().get(index).map(Spanned::span),
        (Some(values), None) if part == "values" => Some(values.span()),
        _ => places.over.as_ref().map(Spanned::span),
    };
    let Some(span) = span else { return error };
    let (line, column) = place(text, span.start);
    ExperimentError::Text { line, column, what, nearest: None }
}

/// Checks a candidate's own properties other than wire and settings.
pub(crate) fn connections(candidate: &Candidate, most: u32) -> Result<(), ExperimentError> {
    let Some(connections) = candidate.connections else { return Ok(()) };
    if candidate.name.is_none() {
        let why = "a candidate with connections of its own needs a `name`";
        return Err(out_of_range("candidates.name", "missing", why));
    }
    crate::experiment_error::within("candidates.connections", connections, 1..=most)
}
