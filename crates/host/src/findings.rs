//! The output of `hostgap doctor --json`, as far as settings follow from it.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use record::RequestedValue;
use serde::Deserialize;

use crate::HostError;

/// The output of a diagnosis, read from a file.
#[derive(Debug)]
pub struct Findings {
    /// The file from which they were read, for messages.
    path: PathBuf,
    pub(crate) document: Document,
}

/// The output of doctor; only the fields that matter here. All are optional, so that a file written by hand works too.
#[derive(Debug, Deserialize)]
pub(crate) struct Document {
    #[serde(default)]
    pub(crate) boot_id: Option<String>,
    #[serde(default)]
    pub(crate) netns: Option<String>,
    pub(crate) findings: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct Finding {
    pub(crate) code: String,
    pub(crate) severity: String,
    pub(crate) title: String,
    pub(crate) device: Option<String>,
    pub(crate) because_of: Vec<String>,
    pub(crate) proposals: Vec<Proposed>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Proposed {
    pub(crate) knob: String,
    pub(crate) value: RequestedValue,
    #[serde(default)]
    pub(crate) route: Option<IpNet>,
}

impl Default for Finding {
    fn default() -> Self {
        Finding {
            code: "a finding".to_owned(),
            severity: "warning".to_owned(),
            title: String::new(),
            device: None,
            because_of: Vec::new(),
            proposals: Vec::new(),
        }
    }
}

impl Findings {
    /// Reads what was in the file at `path`.
    ///
    /// # Errors
    /// [`HostError::BadRequest`]: the text is not what `hostgap doctor --json` writes.
    pub fn parse(path: &Path, text: &str) -> Result<Findings, HostError> {
        let bad = |error: serde_json::Error| bad(path, &error);
        let report: serde_json::Value = serde_json::from_str(text).map_err(bad)?;
        if !report["findings"].is_array() {
            return Err(self::bad(
                path,
                &"there is no list \"findings\"; `hostgap doctor --json` writes one",
            ));
        }
        let document = serde_json::from_value(report).map_err(bad)?;
        Ok(Findings { path: path.to_owned(), document })
    }

    /// The error for what they say.
    pub(crate) fn bad(&self, what: &dyn Display) -> HostError {
        bad(&self.path, what)
    }
}

fn bad(path: &Path, what: &dyn Display) -> HostError {
    HostError::BadRequest(format!("findings {}: {what}", path.display()))
}
