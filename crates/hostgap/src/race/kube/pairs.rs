//! A race of all pairs of a cluster's nodes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::lab::kube::{PairResult, Tournament};
use ::lab::{Finished, LabError};

use super::print;
use crate::progress::Progress;
use crate::race::{Args, RECORD, fresh_dir};
use crate::{exit, output, report};

/// Races, and draws the map of all pairs that have a record.
pub(super) fn race(tournament: Tournament, name: &str, args: &Args) -> anyhow::Result<ExitCode> {
    if args.kube.show_manifests {
        return print(&tournament.manifests()?);
    }
    let dir = fresh_dir(&args.out, name)?;
    let mut progress = Progress::new();
    let result = tournament.run(&dir, RECORD, &mut |event| progress.show(&event));
    progress.finish();
    let finished = finish(&dir, result, args.json);
    tidy(&dir);
    finished
}

fn finish(dir: &Path, result: Result<Vec<PairResult>, LabError>, json: bool) -> anyhow::Result<ExitCode> {
    let records = records(dir);
    let shown = if records.is_empty() { Ok(None) } else { report::print_map(&records, json).map(Some) };
    let played = match result {
        Ok(played) => played,
        // An error about the page would hide the cause.
        Err(error) => {
            let kept = format!("finish the race ({} records are kept)", records.len());
            return Err(anyhow::Error::from(error).context(kept));
        }
    };
    let invalid = shown?.flatten();
    if played.is_empty() || played.iter().any(|pair| matches!(pair.result, Ok(Finished::Stopped))) {
        output::aside("interrupted: finished rounds are kept");
        return Ok(ExitCode::from(exit::INTERRUPTED));
    }
    let left = played.iter().filter(|pair| pair.result.is_err()).count();
    if left > 0 {
        output::aside(format_args!("not valid: {left} of {} pairs did not race to the end", played.len()));
        return Ok(ExitCode::from(exit::INVALID));
    }
    match invalid {
        Some(why) => {
            output::aside(format_args!("not valid: {why}"));
            Ok(ExitCode::from(exit::INVALID))
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// The records of pairs, in the order of their directories.
fn records(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut records: Vec<PathBuf> = entries.map(|entry| entry.path().join(RECORD)).collect();
    records.retain(|record| record.exists());
    records.sort();
    records
}

/// Removes directories in which nothing was written.
fn tidy(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        // This fails, as it should, if something was written there.
        let _ = std::fs::remove_dir(entry.path());
    }
    let _ = std::fs::remove_dir(dir);
}
