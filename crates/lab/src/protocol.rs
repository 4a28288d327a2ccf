//! The transport protocol of a workload.

use datapath::Protocol;
use record::WorkloadKind;

/// What a data path that publishes ports publishes for a kind.
pub fn protocol(kind: WorkloadKind) -> Protocol {
    if kind.is_udp() { Protocol::Udp } else { Protocol::Tcp }
}
