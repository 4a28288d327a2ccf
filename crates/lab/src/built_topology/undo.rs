//! How a topology ends: taken down, left to stand, or dropped with what an error left of it.

use super::BuiltTopology;
use crate::LabError;
use crate::server::Server;

impl BuiltTopology {
    /// Ends the server and undoes the plan. All that could not be undone is in the error. Returns what another program
    /// has changed since, which is left as that has it, in words.
    pub fn take_down(mut self) -> Result<Vec<String>, LabError> {
        self.undo()
    }

    /// Lets everything stand when this process ends.
    pub fn leave_standing(mut self) {
        self.pools.clear();
        self.servers.drain(..).for_each(Server::leave_running);
        self.applied.leave();
    }

    pub(super) fn undo(&mut self) -> Result<Vec<String>, LabError> {
        if !self.applied.stands() {
            return Ok(Vec::new());
        }
        self.pools.clear();
        self.judge = None;
        // The kernel waits with the end of a device until no program has it open.
        self.verbs = None;
        // Proxies first, so that none calls a server that is gone.
        let stopped = self.servers.drain(..).rev().map(Server::stop).fold(Ok(()), Result::and);
        let far = self.there.take().map_or(Ok(Vec::new()), |there| there.take_down(&self.name));
        let attachments =
            self.topology.attachments.iter_mut().flat_map(|pods| [&mut pods.server, &mut pods.client]);
        let mut attached: Vec<LabError> =
            attachments.flat_map(|attachment| attachment.del(&self.name, self.applied.dir())).collect();
        let attachments = self.topology.attachments.iter().flat_map(|pods| pods.as_ref().both());
        attached.extend(attachments.filter_map(|attachment| attachment.forget_pins().err()));
        let own = self.applied.undo()?;
        // What plugins could not take back was in the namespaces, or is nothing that the lab knows of.
        let far = attached.into_iter().next().map_or(stopped.and(far), Err)?;
        Ok([own, far].concat())
    }
}

impl Drop for BuiltTopology {
    fn drop(&mut self) {
        // Something stands here only on an error or a panic, whose own message matters more. What fails here is still
        // in the journal and is tried again by the next start.
        let _ = self.undo();
    }
}
