//! The file of `--hlog`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use ::load::hlog::{self, HlogError};
use ::load::{CheckedRun, plain};
use anyhow::Context;

use super::job::Job;

/// A log to be written at the end of a run.
pub(super) struct Hlog<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Hlog<'a> {
    /// Makes the file before the run, so that an unwritable file is not noticed only after an hour.
    pub(super) fn create(path: &'a Path) -> anyhow::Result<Hlog<'a>> {
        let file = File::create(path).with_context(|| format!("create {}", shown(path)))?;
        Ok(Hlog { path, file })
    }

    pub(super) fn write(self, job: &Job, runs: &[CheckedRun]) -> anyhow::Result<()> {
        let mut file = BufWriter::new(self.file);
        let what = format!("hostgap load {}", plain(&job.url));
        let written =
            hlog::write(&mut file, &what, runs).and_then(|()| file.flush().map_err(HlogError::from));
        written.with_context(|| format!("write {}", shown(self.path)))
    }
}

fn shown(path: &Path) -> String {
    plain(&path.display().to_string())
}
