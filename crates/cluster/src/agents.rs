//! hostgap's agents on the nodes: the DaemonSet of `deploy`, as a user has it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{AGENT_IMAGE, Cluster, NODES, run, write_agent_image};

/// The folder `deploy`, but for the network's configuration.
const MANIFESTS: [(&str, &str); 7] = [
    ("kustomization.yaml", include_str!("../../../deploy/kustomization.yaml")),
    ("agent/kustomization.yaml", include_str!("../../../deploy/agent/kustomization.yaml")),
    ("agent/rbac.yaml", include_str!("../../../deploy/agent/rbac.yaml")),
    ("agent/daemonset.yaml", include_str!("../../../deploy/agent/daemonset.yaml")),
    ("services/kustomization.yaml", include_str!("../../../deploy/services/kustomization.yaml")),
    ("services/rbac.yaml", include_str!("../../../deploy/services/rbac.yaml")),
    ("services/volumes.yaml", include_str!("../../../deploy/services/volumes.yaml")),
];
/// The control group of a node whose sockets' calls its agent leads: what is at `/sys/fs/cgroup` of a machine that is
/// one node. `node.sh` mounts it.
const SOCKETS: &str = "/run/sockets";

/// How the nodes' agents run.
#[derive(Debug, Clone, Copy)]
pub struct Agents<'a> {
    /// The executable of hostgap.
    pub hostgap: &'a Path,
    /// How pods reach their node, one of the plugin's attaches by name.
    pub attach: &'a str,
    /// How nodes reach each other's pods, by flannel's name.
    pub backend: &'a str,
    /// Whether they lead the calls of Services.
    pub services: bool,
}

impl Cluster {
    /// Gives nodes the agent's image, applies the manifests, and waits until all agents and nodes are ready.
    ///
    /// # Errors
    /// An agent or the API server does not start; what they wrote last is part of the error.
    pub fn connect_by_agents(&self, agents: Agents<'_>) -> Result<()> {
        self.import(&write_agent_image(agents.hostgap, &[AGENT_IMAGE], &self.folder)?)?;
        self.write_manifests(agents)?;
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
    fn write_manifests(&self, agents: Agents<'_>) -> Result<()> {
        let overlay = self.folder.join("agents");
        let deploy = overlay.join("deploy");
        for folder in ["agent", "services"] {
            let folder = deploy.join(folder);
            fs::create_dir_all(&folder).with_context(|| format!("could not make {}", folder.display()))?;
        }
        let network = json!({
            "Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:244::/48",
            "Backend": { "Type": agents.backend },
        });
        let kustomization = json!({
            "resources": [if agents.services { "deploy/services" } else { "deploy" }],
            "patches": patches(agents),
        });
        let mut files = vec![
            (overlay.join("kustomization.yaml"), kustomization.to_string()),
            (deploy.join("agent/net-conf.json"), network.to_string()),
        ];
        files.extend(MANIFESTS.map(|(name, text)| (deploy.join(name), text.to_owned())));
        for (path, text) in files {
            fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))?;
        }
        Ok(())
    }
}

/// What is not as in `deploy`.
fn patches(agents: Agents<'_>) -> Vec<Value> {
    let option = format!("--attach={}", agents.attach);
    let add = json!([{ "op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": option }]);
    let mut patches = vec![json!({ "target": { "kind": "DaemonSet" }, "patch": add.to_string() })];
    if agents.services {
        // Two nodes are on one machine: each leads the calls of its own sockets.
        let volume = json!({ "name": "cgroup", "hostPath": { "path": SOCKETS, "type": "Directory" } });
        let patch = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "name": "hostgap", "namespace": "kube-system" },
            "spec": { "template": { "spec": { "volumes": [volume] } } },
        });
        patches.push(json!({ "patch": patch.to_string() }));
    }
    patches
}
