//! hostgap's network on the nodes.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{Cluster, NODES, Node, run};

impl Cluster {
    /// Waits until the controller manager has given a node its prefixes, and returns them: IPv4, IPv6.
    ///
    /// # Errors
    /// The node does not come within two minutes.
    pub fn pod_prefixes(&self, node: Node) -> Result<Vec<String>> {
        // `create` waits for the node itself.
        for until in ["--for=create", "--for=jsonpath={.spec.podCIDRs[1]}"] {
            let mut wait = self.kubectl();
            wait.args(["wait", until, "--timeout=120s", "node", node.name]);
            run(&mut wait).with_context(|| self.last_words())?;
        }
        let prefixes =
            run(self.kubectl().args(["get", "node", node.name, "--output", "jsonpath={.spec.podCIDRs[*]}"]))?;
        let prefixes: Vec<String> = prefixes.split_whitespace().map(str::to_owned).collect();
        if prefixes.len() != 2 {
            bail!("{} has the prefixes {prefixes:?} and not one of each family", node.name);
        }
        Ok(prefixes)
    }

    /// Installs the plugin on all nodes, with routes between them and from the control plane, and waits until Kubernetes calls them ready.
    ///
    /// # Errors
    /// The installation fails, or a node is not ready within two minutes.
    pub fn connect(&self, hostgap: &Path, attach: &str) -> Result<()> {
        let program = hostgap.to_str().context("the program has a name that is no text")?;
        for node in NODES {
            let mut install = self.on(node, program);
            install.args(["cni", "install", "--name", "pods", "--attach", attach]);
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
        let mut wait = self.kubectl();
        wait.args(["wait", "--for=condition=Ready", "--timeout=120s", "node", "--all"]);
        run(&mut wait).map(drop).with_context(|| self.last_words())
    }
}
