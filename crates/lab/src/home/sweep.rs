//! What an owner has on this machine, found by its id, and how it is ended and undone.

use std::fs;
use std::path::Path;

use linux::{Netns, NetnsName, netns};
use plan::{TakenBackJournal, Undone};

use crate::LabError;
use crate::cni::Attachment;

pub(super) fn namespaces_of(id: &str) -> Result<Vec<NetnsName>, LabError> {
    let prefix = format!("hg-{id}-");
    Ok(netns::list()?.into_iter().filter(|name| name.as_str().starts_with(&prefix)).collect())
}

/// Kills what lives in these namespaces.
pub(super) fn kill_in(names: &[NetnsName]) -> Result<u32, LabError> {
    // One that is half made has no namespace behind its name, and so no process in it.
    let namespaces: Vec<Netns> = names.iter().filter_map(|name| Netns::open(name).ok()).collect();
    Ok(linux::process::kill_in(&namespaces)?)
}

/// Lets CNI plugins take back what they may have done outside the owner's namespaces; what they could not, in words.
pub(super) fn detach(dir: &Path) -> Result<Vec<String>, LabError> {
    let mut failures = Vec::new();
    for entry in fs::read_dir(dir).map_err(LabError::file("list", dir))? {
        let dir = entry.map_err(LabError::file("list", dir))?.path();
        if !dir.is_dir() {
            continue;
        }
        let candidate = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for attachment in Attachment::saved(&dir)?.iter_mut().rev() {
            failures.extend(attachment.del(&candidate, &dir).iter().map(ToString::to_string));
        }
    }
    Ok(failures)
}

/// Adds what could not be taken back to `failures`, in words. Returns how many steps were.
pub(super) fn failures_of(journal: TakenBackJournal, failures: &mut Vec<String>) -> u32 {
    let steps = match journal.steps {
        Ok(steps) => steps,
        Err(error) => {
            failures.push(error.to_string());
            return 0;
        }
    };
    let mut done = 0;
    for (placed, undone) in steps {
        let commands = || placed.commands().join("; ");
        match undone {
            Undone::Failed { why } => failures.push(format!("{}: {why}", commands())),
            Undone::Restored
            | Undone::AlreadySo
            | Undone::LeftToOthers { .. }
            | Undone::Gone
            | Undone::Rebooted => done += 1,
            Undone::ChangedByOther { found } => {
                failures.push(format!("{}: changed by another program to {found}", commands()));
            }
        }
    }
    done
}
