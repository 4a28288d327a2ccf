//! Names of Services and pods: a CoreDNS in the cluster.

use std::fs;

use anyhow::{Context, Result};

use crate::{Cluster, image, run};

/// The address of the cluster's DNS server, which pods have as theirs; `names.yaml` has it too.
pub(crate) const DNS: &str = "10.96.0.10";

impl Cluster {
    /// Starts the DNS server as a pod behind a Service, and waits until it is ready.
    ///
    /// # Errors
    /// It does not get ready within half an hour, which is longer than any test may take.
    pub fn serve_names(&self) -> Result<()> {
        self.provide(&image::COREDNS)?;
        let manifest = self.folder.join("names.yaml");
        fs::write(&manifest, include_str!("names.yaml")).context("could not write names.yaml")?;
        run(self.kubectl().arg("apply").arg("--filename").arg(manifest))?;
        let rollout =
            ["--namespace", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=30m"];
        run(self.kubectl().args(rollout)).map(drop).with_context(|| self.last_words())
    }
}
