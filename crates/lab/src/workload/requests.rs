//! Requests and answers, at a rate or in a closed loop: `http`, `connect`, `grpc`, `tcp-rr`, `udp-rr`.

use record::{Load, TrialRecord};

use super::Workload;
use crate::trial::{Method, measure};
use crate::{LabError, Standing};

/// Clients of the generator ask a server.
pub(super) struct Requests;

impl Workload for Requests {
    fn open(&self, standing: &mut Standing, body_bytes: u32, connections: u32) -> Result<(), LabError> {
        standing.connect(body_bytes, connections)
    }

    fn trial(
        &self,
        standing: &mut Standing,
        method: &Method,
        load: &Load,
        indexes: (usize, usize),
    ) -> Result<TrialRecord, LabError> {
        measure(standing, method, load, indexes)
    }

    fn is_served(&self) -> bool {
        true
    }

    fn has_capacity(&self) -> bool {
        true
    }
}
