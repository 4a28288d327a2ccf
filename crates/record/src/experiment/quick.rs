//! The quick form of an experiment: its question, raced for only a minute or two.

use serde::{Deserialize, Serialize};

use crate::{Experiment, ExperimentError};

/// Keys of an experiment with the values that they have in its quick form, tables within tables as in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quick(toml::Table);

impl Experiment {
    /// The experiment with its `[quick]` table applied; `None` without that table. Tables are merged key by key, other
    /// values are replaced.
    ///
    /// # Errors
    ///
    /// A key that an experiment does not have, or a value that it cannot have.
    pub fn quick(&self) -> Result<Option<Experiment>, ExperimentError> {
        let Some(Quick(over)) = &self.quick else { return Ok(None) };
        let fault = |what: &str| ExperimentError::Quick { what: what.trim().replace('\n', "; ") };
        let mut whole = toml::Table::try_from(self).map_err(|error| fault(&error.to_string()))?;
        lay(&mut whole, over);
        let quick: Experiment = whole.try_into().map_err(|error: toml::de::Error| fault(error.message()))?;
        quick.validate().map_err(|error| fault(&error.to_string()))?;
        Ok(Some(quick))
    }
}

fn lay(under: &mut toml::Table, over: &toml::Table) {
    for (key, value) in over {
        match (under.get_mut(key), value) {
            (Some(toml::Value::Table(under)), toml::Value::Table(over)) => lay(under, over),
            _ => {
                under.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestedRate;

    fn with(quick: &str) -> Result<Option<Experiment>, ExperimentError> {
        let text = "schema = 1\nname = \"x\"\nrates = [\"10%\", \"50%\"]\nrounds = 40\n[workload]\nconnections = 500\n";
        Experiment::from_toml(&format!("{text}{quick}"))?.quick()
    }

    #[test]
    fn what_the_table_says_is_laid_over_and_the_rest_stays() {
        let quick = "[quick]\nrounds = 4\nbuilds = 2\nrates = [\"50%\"]\nworkload.body_bytes = [100]\n";
        let quick = with(quick).unwrap().expect("there is a table");
        assert_eq!((quick.rounds, quick.builds, quick.slice_ms), (4, 2, 100));
        assert_eq!(quick.rates, [RequestedRate::OfCapacity(0.5)]);
        assert_eq!((quick.workload.connections, quick.workload.body_bytes.as_slice()), (500, &[100][..]));
        assert_eq!(quick.quick, None, "it is what it is, and has no quicker form");
    }

    #[test]
    fn without_the_table_there_is_no_quick_form() {
        assert_eq!(with("").unwrap(), None);
    }

    #[test]
    fn what_no_experiment_can_be_is_refused_when_the_file_is_read() {
        let error = |quick: &str| with(quick).unwrap_err().to_string();
        assert!(error("[quick]\nround = 4").contains("[quick]: unknown field `round`"));
        assert!(error("[quick]\nrounds = 4").contains("[quick]: `builds` is 12: 1 to 4 is expected"));
        assert!(error("[quick]\nrounds = \"few\"").contains("[quick]: invalid type"));
    }
}
