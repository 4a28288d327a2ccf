//! What a trial loads.

use std::time::Duration;

use load::Client;
use record::{Load, Void};

use crate::part::{LoadPart, LoadedPart};
use crate::traffic::TransferredAmounts;
use crate::usage::{CounterSnapshot, Usage};
use crate::wire::Patience;
use crate::{ByRole, LabError, NodeCpus};

/// What a trial loads: a client's connections to a server, and what counts the load's cost on both sides.
pub(crate) trait Subject {
    /// The name of the candidate.
    fn name(&self) -> &str;

    /// How long its wire makes everything take.
    fn patience(&self) -> Patience;

    /// The client's connections, which ask for answers of a size from now on; one client a thread.
    fn clients(&mut self, body_bytes: u32) -> &mut [Client];

    /// This client's part of a load, of which clients on other machines have the rest.
    fn own_part(&self, load: &Load) -> Load {
        load.clone()
    }

    /// Lets the clients on other machines begin their parts of a slice, of which this is the whole.
    fn begin_elsewhere(&mut self, _slice: &LoadPart) -> Result<(), LabError> {
        Ok(())
    }

    /// What came of their parts, when all are done.
    fn loaded_elsewhere(&mut self) -> Result<Vec<LoadedPart>, LabError> {
        Ok(Vec::new())
    }

    /// Announces to another machine that a warm-up of so long begins, where there is no time to ask between it and the
    /// measured part.
    fn begin(&mut self, _warmup: Duration) -> Result<(), LabError> {
        Ok(())
    }

    /// Looks at the counters of both sides, before the measured part of a trial.
    fn count(&mut self) -> Result<CounterSnapshot, LabError>;

    /// What a trial cost both sides since, and why it does not count, if packets did not take the path; an error if the
    /// server has ended. `work` is what this client got through, and what all clients did.
    fn spent(
        &mut self,
        before: &CounterSnapshot,
        cpus: &NodeCpus,
        work: &ByRole<TransferredAmounts>,
    ) -> Result<(Usage, Option<Void>), LabError>;

    /// An error if the server has ended.
    fn check_server(&mut self) -> Result<(), LabError>;
}
