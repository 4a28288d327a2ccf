//! What an owner has on this machine, found by its id, and how it is ended and undone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use linux::{Netns, NetnsName, netns};
use plan::{Journal, Kernel, Undone};

use super::Cleaned;
use crate::LabError;
use crate::cni::Attachment;

pub(super) fn namespaces_of(id: &str) -> Result<Vec<NetnsName>, LabError> {
    let prefix = format!("hg-{id}-");
    Ok(netns::list()?.into_iter().filter(|name| name.as_str().starts_with(&prefix)).collect())
}

/// Kills what lives in these namespaces.
pub(super) fn kill_in(names: &[NetnsName]) -> Result<u32, LabError> {
    let mut inodes = BTreeSet::new();
    for name in names {
        // A half-made one has no namespace behind its name, and so no process in it.
        if let Ok(netns) = Netns::open(name) {
            inodes.insert(netns.inode()?);
        }
    }
    Ok(linux::process::kill_in(&inodes)?)
}

pub(super) fn journals(dir: &Path) -> Result<Vec<PathBuf>, LabError> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(LabError::file("list", dir))? {
        let path = entry.map_err(LabError::file("list", dir))?.path();
        if path.extension().is_some_and(|extension| extension == "journal") {
            paths.push(path);
        }
    }
    Ok(paths)
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

pub(super) fn undo(path: &Path, cleaned: &mut Cleaned) {
    let mut journal = match Journal::open(path) {
        Ok(journal) => journal,
        Err(error) => return cleaned.failures.push(error.to_string()),
    };
    let mut kernel = match Kernel::new() {
        Ok(kernel) => kernel,
        Err(error) => return cleaned.failures.push(error.to_string()),
    };
    for (placed, undone) in plan::undo(&mut journal, &mut kernel) {
        match undone {
            Undone::Failed { why } => {
                cleaned.failures.push(format!("{}: {why}", placed.commands().join("; ")));
            }
            Undone::Restored | Undone::AlreadySo | Undone::Gone | Undone::Rebooted => cleaned.steps += 1,
            Undone::ChangedByOther { found } => {
                cleaned.failures.push(format!("{}: changed since to {found}", placed.commands().join("; ")));
            }
        }
    }
}
