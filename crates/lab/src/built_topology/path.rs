//! Whether the path of a topology is still the one that was built, and packets took it.
//!
//! Two things are asked after each trial. Every step of the plan must be so, and its namespaces must hold what they held
//! ([`plan::Made`]). And the counters of the path must show the trial's packets ([`Traffic::detour`]): a change that was
//! taken back within the trial, or one that is in no list, shows there.

use record::Void;

use super::BuiltTopology;
use crate::LabError;
use crate::traffic::{Traffic, TransferredAmounts};

impl BuiltTopology {
    /// Looks at all that was built, before the first trial. Plugins are part of a path and may change what the plan did
    /// before them; what they leave otherwise is not expected later.
    pub(super) fn take_stock(&mut self) -> Result<(), LabError> {
        let changes = self.ground.take_stock(&self.topology.plan)?;
        match changes.first().filter(|_| self.topology.attachments.is_none()) {
            Some(change) => Err(self.broken(&format!("it was built, and yet {change}"))),
            None => Ok(()),
        }
    }

    /// What has changed of the path since it was built, in words; `None` if nothing has. Takes about a millisecond, in
    /// which nothing may be measured.
    pub(crate) fn changed(&mut self) -> Result<Option<String>, LabError> {
        self.ground.changed()
    }

    /// Why a trial does not count: the path is not what was built, or packets went past it.
    pub(crate) fn detour(
        &mut self,
        traffic: &Traffic,
        work: &TransferredAmounts,
    ) -> Result<Option<Void>, LabError> {
        let what = match self.changed()? {
            Some(what) => Some(what),
            None => traffic.detour(&self.topology.traces, work).map(|what| self.ground.for_readers(&what)),
        };
        Ok(what.map(|what| Void::PathChanged { what }))
    }

    /// The path is not what it was built as.
    pub(crate) fn path_broken(&self, what: &str) -> LabError {
        self.broken(&format!("the path changed: {what}"))
    }

    /// What failed because the path is gone, by what is gone; any other error as it is.
    pub(crate) fn because_of_the_path(&mut self, error: LabError) -> LabError {
        match self.changed() {
            Ok(Some(what)) => self.path_broken(&what),
            Ok(None) | Err(_) => error,
        }
    }

    fn broken(&self, what: &str) -> LabError {
        LabError::Broken { candidate: self.name.clone(), what: what.to_owned() }
    }
}
