//! Whether the path of a topology is still the one that was built, and packets took it.
//!
//! Two things are asked after each trial. Every step of the plan must be so, and its namespaces must hold what they
//! held ([`plan::Made`]). And the counters of the path must show the trial's packets ([`Traffic::detour`]): a change
//! that was taken back within the trial, or one that is in no list, shows there.

use std::time::Duration;

use record::Void;

use super::{AppliedPlan, BuiltTopology};
use crate::traffic::{Traffic, TransferredAmounts};
use crate::usage::{CounterSnapshot, Usage};
use crate::{ByRole, LabError, NodeCpus};

/// How long the end of a server may take to be known.
const ENDING: Duration = Duration::from_millis(100);

impl BuiltTopology {
    /// Looks at all that was built, before the first trial. Plugins are part of a path and may change what the plan did
    /// before them; what they leave otherwise is not expected later.
    pub(super) fn take_stock(&mut self) -> Result<(), LabError> {
        let changes = self.applied.take_stock(&self.topology.plan)?;
        let Some(change) = changes.first().filter(|_| self.topology.attachments.is_none()) else {
            return Ok(());
        };
        // What cannot be undone is still in the journal.
        let left = self.undo().unwrap_or_default();
        Err(self.broken(&AppliedPlan::otherwise(change, left)))
    }

    /// What has changed of the path since it was built, in words; `None` if nothing has. Takes about a millisecond, in
    /// which nothing may be measured.
    pub(crate) fn changed(&mut self) -> Result<Option<String>, LabError> {
        match (self.applied.changed()?, &self.there) {
            (None, Some(there)) => there.check(&self.name),
            (changed, _) => Ok(changed),
        }
    }

    /// The same, with an error if it changed because a server has ended: what that had at a link left it a moment
    /// before the end is known.
    pub(crate) fn why_changed(&mut self) -> Result<Option<String>, LabError> {
        let changed = self.changed()?;
        if changed.is_some() {
            self.servers.iter_mut().try_for_each(|server| server.check_within(ENDING))?;
        }
        Ok(changed)
    }

    /// Looks at the counters of both sides, before the measured part of a trial.
    pub(crate) fn count(&self) -> Result<CounterSnapshot, LabError> {
        if let Some(there) = &self.there {
            there.count(&self.name)?;
        }
        CounterSnapshot::take(&self.topology)
    }

    /// What a trial cost both sides since, and why it does not count, if packets did not take the path; an error if the
    /// server has ended. `work` is what this client got through, and what all clients did.
    pub(crate) fn spent(
        &mut self,
        before: &CounterSnapshot,
        cpus: &NodeCpus,
        work: &ByRole<TransferredAmounts>,
    ) -> Result<(Usage, Option<Void>), LabError> {
        let cpus = self.topology.shape.counted_cpus(cpus);
        let mut usage = CounterSnapshot::take(&self.topology)?.since(before, &cpus);
        let Some(there) = &self.there else {
            self.check_server()?;
            let detour = self.detour(&usage.traffic, &work.client)?;
            return Ok((usage, detour));
        };
        let spent = there.spent(&self.name, &work.server)?;
        usage.add_server(&spent);
        // Nothing else voids a trial for interruptions of the server's machine, which is not watched for stalls.
        let far = spent.detour.map(|what| Void::PathChanged { what }).or(spent.void);
        let here = match self.applied.changed()? {
            Some(what) => Some(what),
            None => self.strayed(&usage.traffic, &work.client),
        };
        Ok((usage, here.map(|what| Void::PathChanged { what }).or(far)))
    }

    /// Why a trial does not count: the path is not what was built, or packets went past it.
    pub(crate) fn detour(
        &mut self,
        traffic: &Traffic,
        work: &TransferredAmounts,
    ) -> Result<Option<Void>, LabError> {
        let what = match self.changed()? {
            Some(what) => Some(what),
            None => self.strayed(traffic, work),
        };
        Ok(what.map(|what| Void::PathChanged { what }))
    }

    /// What counters of this machine show of packets that went another way.
    fn strayed(&self, traffic: &Traffic, work: &TransferredAmounts) -> Option<String> {
        traffic.detour(&self.topology.traces, work).map(|what| self.applied.for_readers(&what))
    }

    /// The path is not what it was built as.
    pub(crate) fn path_broken(&self, what: &str) -> LabError {
        self.broken(&format!("the path changed: {what}"))
    }

    /// What failed because the path is gone, by what is gone; what it did not carry, as its own; any other
    /// error as it is.
    pub(crate) fn because_of_the_path(&mut self, error: LabError) -> LabError {
        match self.why_changed() {
            Ok(Some(what)) => self.path_broken(&what),
            Err(ended @ LabError::Server { .. }) => ended,
            Ok(None) | Err(_) => error.of_answers(),
        }
    }

    fn broken(&self, what: &str) -> LabError {
        LabError::Broken { candidate: self.name.clone(), what: what.to_owned() }
    }
}
