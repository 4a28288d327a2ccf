//! Requests and answers, at a rate or in a closed loop: `http`, `connect`, `grpc`, `tcp-rr`, `udp-rr`, `verbs`.

use record::{Load, TrialRecord};

use super::WorkloadDriver;
use crate::trial::{Method, measure};
use crate::trial_key::TrialKey;
use crate::{BuiltTopology, LabError};

/// Clients of the generator ask a server.
pub(super) struct Requests;

impl WorkloadDriver for Requests {
    fn open(&self, built: &mut BuiltTopology, body_bytes: u32, connections: u32) -> Result<(), LabError> {
        built.connect(body_bytes, connections)
    }

    fn trial(
        &self,
        built: &mut BuiltTopology,
        method: &Method,
        load: &Load,
        key: TrialKey,
    ) -> Result<TrialRecord, LabError> {
        measure(built, method, load, key)
    }
}
