//! A client's node and a server's, with the pods of a race on both.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use datapath::SocketRole;
use linux::CpuSet;
use record::NodePair;
use serde_json::Value;

use super::cluster_setup::ClusterSetup;
use super::manifests::Manifests;
use super::nodes::Node;
use super::path::{By, PodPath, Pods};
use super::pod_process::PodProcess;
use super::protocol::Workers;
use crate::LabError;

/// A client's node and a server's, by their indexes among the nodes of a setup, and the pods of the race on them.
#[derive(Clone, Copy)]
pub(super) struct NodePairPods<'a> {
    pub(super) setup: &'a ClusterSetup<'a>,
    pub(super) client: usize,
    pub(super) server: usize,
}

impl ClusterSetup<'_> {
    /// The nodes of these indexes, with their pods.
    pub(super) fn pair(&self, [client, server]: [usize; 2]) -> NodePairPods<'_> {
        NodePairPods { setup: self, client, server }
    }
}

impl<'a> NodePairPods<'a> {
    /// What all objects have in common.
    pub(super) fn manifests(&self) -> &'a Manifests<'a> {
        self.setup.manifests()
    }

    /// The node with the pod of this role.
    pub(super) fn node(&self, part: SocketRole) -> &'a Node {
        &self.setup.nodes()[self.seat(part)]
    }

    /// Both nodes, as a record has them.
    pub(super) fn recorded(&self) -> NodePair {
        NodePair {
            client: self.node(SocketRole::Client).in_zone(),
            server: self.node(SocketRole::Server).in_zone(),
        }
    }

    /// The process in the pod with this role of a pair of pods.
    pub(super) fn process(&self, part: SocketRole, pods: &Pods) -> Arc<PodProcess> {
        self.setup.process(part, pods, self.seat(part))
    }

    /// Whether both ends are one node.
    pub(super) fn is_within_a_node(&self) -> bool {
        self.node(SocketRole::Client).name == self.node(SocketRole::Server).name
    }

    /// Where threads of a pod with this role run: on CPUs that were named, or the last of the pod's. Of two pods on one
    /// node the client's are the last, and the server's those before.
    pub(super) fn workers(&self, part: SocketRole, named: Option<&CpuSet>) -> Workers {
        let count = self.manifests().cpus;
        let is_behind = part == SocketRole::Server && self.is_within_a_node();
        match named {
            Some(cpus) => Workers::Named(cpus.clone()),
            None => Workers::Last { count, others: if is_behind { count } else { 0 } },
        }
    }

    /// What the client of a path calls: an address or a name with a port.
    ///
    /// # Errors
    /// The cluster gives it none, in words: why the path cannot race.
    pub(super) fn address(&self, path: &PodPath) -> Result<String, String> {
        let (ipv6, port) = (self.manifests().ipv6, self.setup.port(&path.pods, self.server));
        let with_port = |address: IpAddr, port: u16| SocketAddr::new(address, port).to_string();
        let pod = self.setup.pod(SocketRole::Server, &path.pods, self.server);
        let node = self.node(SocketRole::Server);
        match (path.by, &path.pods) {
            (By::Address, Pods::Host | Pods::HostAgain) => Ok(with_port(node.address(ipv6)?, port)),
            (By::Address, Pods::Network(name)) => Ok(with_port(second_address(pod, name, ipv6)?, port)),
            (By::Address, _) => {
                let all = pod["status"]["podIPs"].as_array().into_iter().flatten();
                let mut all = all.filter_map(|one| one["ip"].as_str()?.parse::<IpAddr>().ok());
                let family = if ipv6 { "IPv6" } else { "IPv4" };
                let found = all.find(|address| address.is_ipv6() == ipv6);
                found
                    .map(|address| with_port(address, port))
                    .ok_or_else(|| format!("its pods have no {family}"))
            }
            (By::Name, pods) => Ok(format!("{}:{port}", self.setup.service(By::Name, pods, self.server))),
            (by, pods) => {
                let name = self.setup.service(by, pods, self.server);
                let get = ["service", &name, "--namespace", self.manifests().namespace];
                let service = self.setup.kubectl().get(&get)?;
                let spec = &service["spec"];
                if by == By::NodePort {
                    let port =
                        spec["ports"][0]["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok());
                    let port = port.ok_or("the cluster gives it no NodePort")?;
                    return Ok(with_port(node.address(ipv6)?, port));
                }
                let address = spec["clusterIP"].as_str().and_then(|address| address.parse().ok());
                Ok(with_port(address.ok_or("the cluster gives it no ClusterIP")?, port))
            }
        }
    }

    /// How many containers run in each pod of a pair: the client's and the server's. Those that Kubernetes starts
    /// before and lets run beside are among them.
    pub(super) fn containers(&self, pods: &Pods) -> [usize; 2] {
        [SocketRole::Client, SocketRole::Server].map(|part| {
            let spec = &self.setup.pod(part, pods, self.seat(part))["spec"];
            let usual = spec["containers"].as_array().map_or(0, Vec::len);
            let before = spec["initContainers"].as_array().into_iter().flatten();
            usual + before.filter(|container| container["restartPolicy"] == "Always").count()
        })
    }

    /// An error of a candidate, or of the pod that is gone by which it broke.
    pub(super) fn because_of_a_pod(&self, error: LabError, pods: &Pods) -> LabError {
        let LabError::Broken { what, .. } = &error else { return error };
        for process in [SocketRole::Server, SocketRole::Client].map(|part| self.process(part, pods)) {
            if let Some(says) = self.setup.why_gone(&process) {
                let why = format!("{says} ({what})");
                return LabError::of_machine(process.name().to_owned(), why);
            }
        }
        error
    }

    fn seat(&self, part: SocketRole) -> usize {
        match part {
            SocketRole::Client => self.client,
            SocketRole::Server => self.server,
        }
    }
}

/// The address that a pod has in a secondary network, as Multus writes it down.
fn second_address(pod: &Value, network: &str, ipv6: bool) -> Result<IpAddr, String> {
    let annotation = pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"].as_str();
    let none = || {
        format!(
            "its pods were given no interface in {network}: is there a Multus and a network of this name?"
        )
    };
    let networks: Value = serde_json::from_str(annotation.ok_or_else(none)?).map_err(|_| none())?;
    let mut named = networks.as_array().into_iter().flatten();
    let is_it = |one: &&Value| {
        let name = one["name"].as_str().unwrap_or_default();
        name == network || name.rsplit('/').next() == Some(network)
    };
    let found = named.find(is_it).ok_or_else(none)?;
    let mut addresses =
        found["ips"].as_array().into_iter().flatten().filter_map(|ip| ip.as_str()?.parse().ok());
    addresses.find(|address: &IpAddr| address.is_ipv6() == ipv6).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_second_interface_s_address_is_what_multus_says() {
        let status = json!([
            { "name": "cbr0", "ips": ["10.244.0.5"], "default": true },
            { "name": "default/blue", "interface": "net1", "ips": ["fd00::9", "192.168.7.9"] },
        ]);
        let annotation = json!({ "k8s.v1.cni.cncf.io/network-status": status.to_string() });
        let pod = json!({ "metadata": { "annotations": annotation } });
        assert_eq!(second_address(&pod, "blue", false), Ok(IpAddr::from([192, 168, 7, 9])));
        assert_eq!(second_address(&pod, "default/blue", true), Ok("fd00::9".parse().unwrap()));
        assert!(second_address(&pod, "green", false).unwrap_err().contains("is there a Multus"));
        assert!(second_address(&json!({}), "blue", false).unwrap_err().contains("no interface in blue"));
    }
}
