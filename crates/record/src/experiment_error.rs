//! What is wrong with an experiment, and where.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::SCHEMA;
use crate::spelling::did_you_mean;

/// Why a text is not an experiment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExperimentError {
    /// The text is no TOML, a key is unknown or a value has another type than it should.
    #[error("line {line}, column {column}: {what}{}", hint(.nearest.as_deref()))]
    Text {
        /// The number of the line, from 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// The error, in words.
        what: String,
        /// The known key that is nearest to an unknown one.
        nearest: Option<String>,
    },
    /// The file is for another version of hostgap.
    #[error("the experiment has schema {found}, this hostgap knows schema {SCHEMA}")]
    Schema {
        /// The version in the file.
        found: u32,
    },
    /// The table `[quick]` does not yield a valid experiment.
    #[error("[quick]: {what}")]
    Quick {
        /// The error, in words.
        what: String,
    },
    /// A value is outside of what can be raced.
    #[error("`{key}` is {value}: {why}")]
    Range {
        /// The key with its tables, `workload.connections`.
        key: String,
        /// The invalid value, as text.
        value: String,
        /// The values that are allowed.
        why: String,
    },
}

/// The end of the message, with the nearest key.
fn hint(nearest: Option<&str>) -> String {
    did_you_mean(nearest.map(|key| format!("`{key}`")))
}

pub(crate) fn within(key: &str, value: u32, range: RangeInclusive<u32>) -> Result<(), ExperimentError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(out_of_range(key, value, format!("{} to {} is expected", range.start(), range.end())))
}

pub(crate) fn out_of_range(key: &str, value: impl Display, why: impl Into<String>) -> ExperimentError {
    ExperimentError::Range { key: key.to_owned(), value: value.to_string(), why: why.into() }
}

/// Line and column of a byte of the text.
pub(crate) fn place(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte.min(text.len())).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
