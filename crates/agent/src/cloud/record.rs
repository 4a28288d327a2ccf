//! What agents have made in the cloud for this node, in a file that outlives the machine's restart, as the cloud's routes do.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{CloudError, Place};
use crate::files;

/// The version of the form below.
const SCHEMA: u32 = 1;

/// What was made, as it has to be known to take it back. It has no secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// [`SCHEMA`].
    schema: u32,
    /// Where the calls went.
    pub(crate) region: String,
    /// The URL of it, if it is not the region's own.
    pub(crate) endpoint: Option<String>,
    /// The interfaces whose source/destination check was on, and was turned off.
    pub(crate) unchecked: Vec<String>,
    /// The routes.
    pub(crate) routes: Vec<Made>,
}

/// A route that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(crate) table: String,
    pub(crate) prefix: IpNet,
    /// Where it leads.
    pub(crate) interface: String,
    /// The interface to which a dead route led whose place it took.
    pub(crate) before: Option<String>,
}

/// The record of a network, in its file.
#[derive(Debug)]
pub(crate) struct RecordFile {
    path: PathBuf,
    pub(crate) record: Record,
}

impl Record {
    pub(crate) fn is_empty(&self) -> bool {
        self.unchecked.is_empty() && self.routes.is_empty()
    }

    pub(crate) fn made(&self, table: &str, prefix: IpNet) -> Option<&Made> {
        self.routes.iter().find(|made| made.table == table && made.prefix == prefix)
    }

    /// Notes a route. What was there before the first one is kept.
    pub(crate) fn add(&mut self, made: Made) {
        let before = self.made(&made.table, made.prefix).map(|known| known.before.clone());
        self.remove(&made.table, made.prefix);
        self.routes.push(Made { before: before.unwrap_or(made.before), ..made });
    }

    pub(crate) fn remove(&mut self, table: &str, prefix: IpNet) {
        self.routes.retain(|made| !(made.table == table && made.prefix == prefix));
    }
}

impl RecordFile {
    /// The file of a network in a directory.
    pub(crate) fn path(directory: &Path, network: &str) -> PathBuf {
        directory.join(format!("{network}.cloud.json"))
    }

    /// Reads it; where there is none, nothing was made.
    pub(crate) fn open(directory: &Path, network: &str) -> Result<RecordFile, CloudError> {
        let path = RecordFile::path(directory, network);
        let failed = |why: String| CloudError::Record { path: path.display().to_string(), why };
        let record = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str::<Record>(&text).map_err(|error| failed(error.to_string()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Record::default(),
            Err(error) => return Err(failed(error.to_string())),
        };
        if record.schema > SCHEMA {
            return Err(failed("it is of a newer version of this program".to_owned()));
        }
        Ok(RecordFile { path, record })
    }

    /// Notes where calls go.
    pub(crate) fn at(&mut self, place: &Place) {
        self.record.region.clone_from(&place.region);
        self.record.endpoint.clone_from(&place.endpoint);
    }

    /// Changes it, first in the file.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Record)) -> Result<(), CloudError> {
        let mut record = Record { schema: SCHEMA, ..self.record.clone() };
        change(&mut record);
        let written = if record.is_empty() {
            fs::remove_file(&self.path).or_else(|error| match error.kind() {
                ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })
        } else {
            let text = serde_json::to_string_pretty(&record).expect("its keys are texts");
            files::replace(&self.path, &(text + "\n")).map(drop)
        };
        let failed = |error: std::io::Error| CloudError::Record {
            path: self.path.display().to_string(),
            why: error.to_string(),
        };
        written.map_err(failed)?;
        self.record = record;
        Ok(())
    }
}
