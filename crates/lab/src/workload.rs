//! What is done with a topology that stands: a file for each way of doing it.
//!
//! A kind of workload is one of [`record::WorkloadKind`]; [`of`] returns what runs its trials. Kinds that ask and are
//! answered share one way, in [`requests`]: they differ in the target and in whether connections stay.

mod download;
mod flood;
mod packets;
mod requests;
mod stream;

use record::{Load, TrialRecord, WorkloadKind};

pub(crate) use self::flood::trial;
use crate::trial::Method;
use crate::trial_key::TrialKey;
use crate::{BuiltTopology, LabError};

/// A way of doing a workload.
pub(crate) trait WorkloadDriver: Sync {
    /// Opens what stays open for a size as long as the topology stands, tried again until the server is ready.
    fn open(&self, built: &mut BuiltTopology, body_bytes: u32, connections: u32) -> Result<(), LabError>;

    /// Runs a trial. `key` says which of the record's it is.
    fn trial(
        &self,
        built: &mut BuiltTopology,
        method: &Method,
        load: &Load,
        key: TrialKey,
    ) -> Result<TrialRecord, LabError>;
}

/// What runs the trials of a kind of workload.
pub(crate) fn of(kind: WorkloadKind) -> &'static dyn WorkloadDriver {
    match kind {
        WorkloadKind::Http
        | WorkloadKind::Connect
        | WorkloadKind::Grpc
        | WorkloadKind::TcpRr
        | WorkloadKind::UdpRr
        | WorkloadKind::Verbs => &requests::Requests,
        WorkloadKind::Download => &download::Download,
        WorkloadKind::TcpStream | WorkloadKind::UdpStream => &stream::Stream,
        WorkloadKind::Packets => &packets::Packets,
    }
}

impl BuiltTopology {
    /// Opens what stays open for a size between trials; tried again until the server is ready.
    pub fn open(&mut self, body_bytes: u32, connections: u32) -> Result<(), LabError> {
        of(self.workload.kind).open(self, body_bytes, connections)
    }
}
