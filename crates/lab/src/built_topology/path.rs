//! Whether the path of a topology is still the one that was built, and packets took it.
//!
//! Two things are asked after each trial. Every step of the plan must be so, and its namespaces must hold what they held
//! ([`plan::Made`]). And the counters of the path must show the trial's packets ([`Traffic::detour`]): a change that was
//! taken back within the trial, or one that is in no list, shows there.

use plan::{Made, StepError};
use record::Void;

use super::BuiltTopology;
use crate::traffic::{Traffic, TransferredAmounts};
use crate::{LabError, slug};

impl BuiltTopology {
    /// Looks at all that was built, before the first trial. Plugins are part of a path and may change what the plan did
    /// before them; what they leave otherwise is not expected later.
    pub(super) fn take_stock(&mut self) -> Result<(), LabError> {
        let made = Made::of(&self.topology.plan, &mut self.kernel);
        let (made, changes) = made.map_err(|source| self.look_error(source))?;
        if let Some(change) = changes.first().filter(|_| self.topology.attachments.is_none()) {
            return Err(self.broken(&format!("it was built, and yet {change}")));
        }
        self.made = Some(made);
        Ok(())
    }

    /// What has changed of the path since it was built, in words; `None` if nothing has. Takes about a millisecond, in
    /// which nothing may be measured.
    pub(crate) fn changed(&mut self) -> Result<Option<String>, LabError> {
        let Some(made) = &self.made else { return Ok(None) };
        let change = made.changed(&mut self.kernel).map_err(|source| self.look_error(source))?;
        Ok(change.map(|change| self.for_readers(&change.to_string())))
    }

    /// Why a trial does not count: the path is not what was built, or packets went past it.
    pub(crate) fn detour(
        &mut self,
        traffic: &Traffic,
        work: &TransferredAmounts,
    ) -> Result<Option<Void>, LabError> {
        let what = match self.changed()? {
            Some(what) => Some(what),
            None => traffic.detour(&self.topology.traces, work).map(|what| self.for_readers(&what)),
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

    fn look_error(&self, why: StepError) -> LabError {
        LabError::Look { candidate: self.name.clone(), why: Box::new(why) }
    }

    /// With the names of namespaces that the commands in the record have: without the id of this run.
    fn for_readers(&self, what: &str) -> String {
        what.replace(&self.topology.shape.prefix, &format!("hg-{}", slug(&self.name)))
    }
}
