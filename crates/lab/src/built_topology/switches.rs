//! When switches poll whose threads do: while their candidate is loaded.
//!
//! All candidates of a race stand at the same time, and such a thread takes a CPU from the others whether there are
//! packets or not. So it rests meanwhile: it sleeps between two looks, the longer the less it finds.

use super::BuiltTopology;
use crate::LabError;

impl BuiltTopology {
    /// Does something while its switches poll, if it has some; they rest afterwards.
    pub(crate) fn awake<T>(
        &mut self,
        work: impl FnOnce(&mut BuiltTopology) -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        self.rest(false)?;
        let done = work(self);
        let rests = self.rest(true);
        done.and_then(|done| rests.map(|()| done))
    }

    /// Lets its switches rest, or poll from now on.
    pub fn rest(&self, rests: bool) -> Result<(), LabError> {
        // One that has ended is found out by those who look at the path.
        Ok(self.topology.polling_switches().into_iter().try_for_each(|switch| switch.set_rest(rests))?)
    }
}
