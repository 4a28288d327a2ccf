//! hostgap's agents on the nodes: the DaemonSet of `deploy`, as a user has it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;

use crate::{AGENT_IMAGE, Cluster, NODES, run, write_agent_image};

/// The folder `deploy`, but for the network's configuration.
const MANIFESTS: [(&str, &str); 3] = [
    ("kustomization.yaml", include_str!("../../../deploy/kustomization.yaml")),
    ("rbac.yaml", include_str!("../../../deploy/rbac.yaml")),
    ("daemonset.yaml", include_str!("../../../deploy/daemonset.yaml")),
];

impl Cluster {
    /// Gives nodes the agent's image, applies the manifests, and waits until all agents and nodes are ready. `backend` is
    /// flannel's name of a transport.
    ///
    /// # Errors
    /// An agent or the API server does not start; what they wrote last is part of the error.
    pub fn connect_by_agents(&self, hostgap: &Path, attach: &str, backend: &str) -> Result<()> {
        self.import(&write_agent_image(hostgap, AGENT_IMAGE, &self.folder)?)?;
        self.write_manifests(attach, backend)?;
        self.apply_agents()?;
        for node in NODES {
            // The control plane is no node.
            for prefix in self.pod_prefixes(node)? {
                let via = if prefix.contains(':') { node.ipv6 } else { node.ipv4 };
                run(self.inside("ip").args(["route", "replace", &prefix, "via", via]))?;
            }
        }
        self.wait_for_nodes()
    }

    /// Applies the manifests as [`Cluster::connect_by_agents`] has written them, and waits until the agents are ready.
    ///
    /// # Errors
    /// One does not get ready.
    pub fn apply_agents(&self) -> Result<()> {
        run(self.kubectl().arg("apply").arg("--kustomize").arg(self.folder.join("agents")))?;
        self.wait_for_agents()
    }

    /// Waits until the agents are ready that the DaemonSet asks for now, and no other is left.
    ///
    /// # Errors
    /// One does not get ready within half an hour, which is longer than any test may take.
    pub fn wait_for_agents(&self) -> Result<()> {
        let mut status = self.kubectl();
        status.args([
            "--namespace",
            "kube-system",
            "rollout",
            "status",
            "daemonset/hostgap",
            "--timeout=30m",
        ]);
        run(&mut status).map(drop).with_context(|| self.last_words())
    }

    /// Writes what a user would: another configuration of the network, and one option more.
    fn write_manifests(&self, attach: &str, backend: &str) -> Result<()> {
        let overlay = self.folder.join("agents");
        let deploy = overlay.join("deploy");
        fs::create_dir_all(&deploy).with_context(|| format!("could not make {}", deploy.display()))?;
        let network = json!({
            "Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:244::/48",
            "Backend": { "Type": backend },
        });
        let option = json!([
            { "op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": format!("--attach={attach}") },
        ]);
        let kustomization = json!({
            "resources": ["deploy"],
            "patches": [{ "target": { "kind": "DaemonSet" }, "patch": option.to_string() }],
        });
        let mut files = vec![
            (overlay.join("kustomization.yaml"), kustomization.to_string()),
            (deploy.join("net-conf.json"), network.to_string()),
        ];
        files.extend(MANIFESTS.map(|(name, text)| (deploy.join(name), text.to_owned())));
        for (path, text) in files {
            fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))?;
        }
        Ok(())
    }
}
