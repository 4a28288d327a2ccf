//! hostgap's agent on the nodes: it reads their prefixes from Kubernetes and makes the ways between them.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};
use serde_json::json;

use crate::{Cluster, NODES, Node, files, run};

/// What an agent may do: the same file as for users.
const RIGHTS: &str = include_str!("../../../deploy/rbac.yaml");
/// Where a node's agent writes its number in the PID namespace of the cluster.
const PID: &str = "/run/hostgap-agent.pid";

impl Cluster {
    /// Gives agents their rights and their configuration, starts one on each node, and waits until Kubernetes calls all
    /// nodes ready. `backend` is flannel's name of a transport.
    ///
    /// # Errors
    /// An agent or the API server does not start; what they wrote last is part of the error.
    pub fn connect_by_agents(&self, hostgap: &Path, attach: &str, backend: &str) -> Result<()> {
        let mut apply = self.kubectl();
        let mut apply = apply.args(["apply", "--filename", "-"]).stdin(Stdio::piped()).spawn()?;
        apply.stdin.take().context("its input was not piped")?.write_all(RIGHTS.as_bytes())?;
        anyhow::ensure!(apply.wait()?.success(), "the rights of agents were not taken");
        let mut token = self.kubectl();
        token.args(["create", "token", "hostgap", "--namespace", "kube-system", "--duration", "24h"]);
        files::write_kubeconfig(&self.folder, "agent", run(&mut token)?.trim())?;
        let network = json!({
            "Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:244::/48",
            "Backend": { "Type": backend },
        });
        let file = self.folder.join("net-conf.json");
        fs::write(&file, network.to_string())
            .with_context(|| format!("could not write {}", file.display()))?;
        for node in NODES {
            self.start_agent(node, hostgap, attach)?;
            // The control plane is no node.
            for prefix in self.pod_prefixes(node)? {
                let via = if prefix.contains(':') { node.ipv6 } else { node.ipv4 };
                run(self.inside("ip").args(["route", "replace", &prefix, "via", via]))?;
            }
        }
        self.wait_for_nodes()
    }

    /// Starts a node's agent. It goes on until it is killed or the cluster ends.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_agent(&self, node: Node, hostgap: &Path, attach: &str) -> Result<()> {
        let log = self.folder.join(format!("{}.agent.log", node.name));
        let log = File::options().create(true).append(true).open(&log).context("open an agent's log")?;
        let folder = self.folder.display();
        let script = format!(
            "echo $$ >{PID}; exec {} agent run --source kubernetes --node {} --attach {attach} \
             --kubeconfig {folder}/agent.kubeconfig --net-config {folder}/net-conf.json --set-condition",
            hostgap.display(),
            node.name
        );
        let mut agent = self.on(node, "setsid");
        agent.args(["--fork", "sh", "-c", &script]).stdout(Stdio::null()).stderr(log);
        let started = agent.status().with_context(|| format!("could not start {agent:?}"))?;
        anyhow::ensure!(started.success(), "{agent:?} ended with {started}");
        Ok(())
    }

    /// Kills a node's agent, and waits until it is gone.
    ///
    /// # Errors
    /// None runs there.
    pub fn kill_agent(&self, node: Node) -> Result<()> {
        let kill =
            format!("pid=$(cat {PID}); kill -KILL $pid; while [ -e /proc/$pid/exe ]; do sleep 0.01; done");
        run(self.on(node, "sh").args(["-ec", &kill])).map(drop)
    }
}
