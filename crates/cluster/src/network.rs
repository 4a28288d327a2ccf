//! hostgap's network on the nodes.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{Cluster, NODES, Node, run};

/// Where containerd looks for networks.
const CONFIGURATIONS: &str = "/etc/cni/net.d";
/// How long a node may take. It is longer than any test may.
const PATIENCE: &str = "--timeout=30m";

impl Cluster {
    /// Waits until the controller manager has given a node its prefixes, and returns them: IPv4, IPv6.
    ///
    /// # Errors
    /// It gives others, or the API server does not answer.
    pub fn pod_prefixes(&self, node: Node) -> Result<Vec<String>> {
        // `create` waits for the node itself.
        for until in ["--for=create", "--for=jsonpath={.spec.podCIDRs[1]}"] {
            let mut wait = self.kubectl();
            wait.args(["wait", until, PATIENCE, "node", node.name]);
            run(&mut wait).with_context(|| self.last_words())?;
        }
        let mut get = self.kubectl();
        get.args(["get", "node", node.name, "--output", "jsonpath={.spec.podCIDRs[*]}"]);
        let prefixes: Vec<String> = run(&mut get)?.split_whitespace().map(str::to_owned).collect();
        if prefixes.len() != 2 {
            bail!("{} has the prefixes {prefixes:?} and not one of each family", node.name);
        }
        Ok(prefixes)
    }

    /// Installs the plugin on all nodes, with routes between them and from the control plane. The configurations are
    /// written to a directory of each node.
    ///
    /// # Errors
    /// The installation fails, or the nodes have no prefixes.
    pub fn install(&self, hostgap: &Path, attach: &str, configurations: &str) -> Result<()> {
        let program = hostgap.to_str().context("the program has a name that is no text")?;
        for node in NODES {
            let mut install = self.on(node, program);
            install.args([
                "cni",
                "install",
                "--name",
                "pods",
                "--attach",
                attach,
                "--conf-dir",
                configurations,
            ]);
            for prefix in self.pod_prefixes(node)? {
                install.args(["--subnet", &prefix]);
                let via = if prefix.contains(':') { node.ipv6 } else { node.ipv4 };
                let route = ["route", "replace", &prefix, "via", via];
                run(self.inside("ip").args(route))?;
                for peer in NODES.iter().filter(|peer| peer.name != node.name) {
                    run(self.on(*peer, "ip").args(route))?;
                }
            }
            run(&mut install)?;
        }
        Ok(())
    }

    /// Waits until Kubernetes calls all nodes ready: containerd has read the configuration of a network.
    ///
    /// # Errors
    /// The API server does not answer.
    pub fn wait_for_nodes(&self) -> Result<()> {
        let mut wait = self.kubectl();
        wait.args(["wait", "--for=condition=Ready", PATIENCE, "node", "--all"]);
        run(&mut wait).map(drop).with_context(|| self.last_words())
    }

    /// [`Cluster::install`] where containerd looks, and [`Cluster::wait_for_nodes`].
    ///
    /// # Errors
    /// As of those.
    pub fn connect(&self, hostgap: &Path, attach: &str) -> Result<()> {
        self.install(hostgap, attach, CONFIGURATIONS)?;
        self.wait_for_nodes()
    }
}
