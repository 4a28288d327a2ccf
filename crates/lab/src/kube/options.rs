//! What a race in a cluster needs beside its experiment.

use linux::CpuSet;

use super::access::ClusterAccess;
use super::sidecar::SidecarMark;

/// What a race in a cluster needs beside its experiment.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// How the cluster is reached, and what runs in its pods.
    pub access: ClusterAccess,
    /// Whole CPUs of a pod, and threads of client and server.
    pub pod_cpus: u32,
    /// Pods have these CPUs for themselves; otherwise they share with all others.
    pub guaranteed: bool,
    /// CPUs of the client's threads, where not the last that its pod may use.
    pub client_cpus: Option<CpuSet>,
    /// The same of the server's.
    pub server_cpus: Option<CpuSet>,
    /// Where the reference's server listens on its node; 0: at a port that is free.
    pub host_port: u16,
    /// How the cluster is asked for a sidecar.
    pub sidecar: Option<SidecarMark>,
}
