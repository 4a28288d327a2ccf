//! How a topology ends: taken down, left to stand, or dropped with what an error left of it.

use std::path::{Path, PathBuf};

use plan::Undone;

use super::BuiltTopology;
use crate::LabError;
use crate::server::Server;

/// The journal beside a candidate's directory. Names with a point have no extension: `loss 0.1 %` and `loss 0.5 %` are
/// two candidates.
pub(super) fn journal_of(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_os_string();
    name.push(".journal");
    dir.with_file_name(name)
}

impl BuiltTopology {
    /// Ends the server and undoes the plan. All that could not be undone is in the error.
    pub fn take_down(mut self) -> Result<(), LabError> {
        self.undo()
    }

    /// Lets everything stand when this process ends.
    pub fn leave_standing(mut self) {
        self.pools.clear();
        self.servers.drain(..).for_each(Server::leave_running);
        self.journal = None;
    }

    fn undo(&mut self) -> Result<(), LabError> {
        let Some(mut journal) = self.journal.take() else { return Ok(()) };
        self.pools.clear();
        self.judge = None;
        // Proxies first, so that none calls a server that is gone.
        let stopped = self.servers.drain(..).rev().map(Server::stop).fold(Ok(()), Result::and);
        let attachments =
            self.topology.attachments.iter_mut().flat_map(|pods| [&mut pods.server, &mut pods.client]);
        let mut attached: Vec<LabError> =
            attachments.flat_map(|attachment| attachment.del(&self.name, &self.dir)).collect();
        let attachments = self.topology.attachments.iter().flat_map(|pods| pods.as_ref().both());
        attached.extend(attachments.filter_map(|attachment| attachment.forget_pins().err()));
        let failures: Vec<String> = plan::undo(&mut journal, &mut self.kernel)
            .into_iter()
            .filter_map(|(placed, undone)| match undone {
                Undone::Failed { why } => Some(format!("{}: {why}", placed.commands().join("; "))),
                Undone::Restored
                | Undone::AlreadySo
                | Undone::LeftToOthers { .. }
                | Undone::Gone
                | Undone::Rebooted
                | Undone::ChangedByOther { .. } => None,
            })
            .collect();
        if !failures.is_empty() {
            // The journal stays, so that `hostgap clean` can try again.
            return Err(LabError::NotUndone { candidate: self.name.clone(), failures: failures.join("; ") });
        }
        let path = journal_of(&self.dir);
        std::fs::remove_file(&path).map_err(LabError::file("remove", &path))?;
        std::fs::remove_dir_all(&self.dir).map_err(LabError::file("remove", &self.dir))?;
        // What plugins could not take back was in the namespaces, or is nothing that the lab knows of.
        attached.into_iter().next().map_or(stopped, Err)
    }
}

impl Drop for BuiltTopology {
    fn drop(&mut self) {
        // Reached with a journal only on an error or a panic, whose own message matters more. What fails here is
        // still in the journal and is tried again by the next start.
        let _ = self.undo();
    }
}
