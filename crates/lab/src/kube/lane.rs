//! The way from a client's node to a server's, with the pods at both ends of it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use linux::CpuSet;
use record::NodePair;
use serde_json::Value;

use super::camp::Camp;
use super::hands::Hand;
use super::manifests::{Manifests, Side};
use super::nodes::Node;
use super::path::{By, PodPath, Pods};
use super::protocol::Workers;
use crate::LabError;

/// The way from a client's node to a server's, by their places among the nodes of a camp.
#[derive(Clone, Copy)]
pub(super) struct Lane<'a> {
    pub(super) camp: &'a Camp<'a>,
    pub(super) client: usize,
    pub(super) server: usize,
}

impl Camp<'_> {
    /// The way from the client's node to the server's, by their places among the nodes.
    pub(super) fn lane(&self, [client, server]: [usize; 2]) -> Lane<'_> {
        Lane { camp: self, client, server }
    }
}

impl<'a> Lane<'a> {
    /// What all objects have in common.
    pub(super) fn manifests(&self) -> &'a Manifests<'a> {
        self.camp.manifests()
    }

    /// The node of a side.
    pub(super) fn node(&self, side: Side) -> &'a Node {
        &self.camp.nodes()[self.seat(side)]
    }

    /// Both nodes, as a record has them.
    pub(super) fn pair(&self) -> NodePair {
        NodePair { client: self.node(Side::Client).in_zone(), server: self.node(Side::Server).in_zone() }
    }

    /// The hand of a side of a pair of pods.
    pub(super) fn hand(&self, side: Side, pods: &Pods) -> Arc<Hand> {
        self.camp.hand(side, pods, self.seat(side))
    }

    /// Whether both ends are one node.
    pub(super) fn is_within_a_node(&self) -> bool {
        self.node(Side::Client).name == self.node(Side::Server).name
    }

    /// Where threads of a side run: on CPUs that were named, or the last of the pod's. Of two pods on one node the client's
    /// are the last, and the server's those before.
    pub(super) fn workers(&self, side: Side, named: Option<&CpuSet>) -> Workers {
        let count = self.manifests().cpus;
        let is_behind = side == Side::Server && self.is_within_a_node();
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
        let (ipv6, port) = (self.manifests().ipv6, self.camp.port(&path.pods, self.server));
        let with_port = |address: IpAddr, port: u16| SocketAddr::new(address, port).to_string();
        let pod = self.camp.pod(Side::Server, &path.pods, self.server);
        let node = self.node(Side::Server);
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
            (By::Name, pods) => Ok(format!("{}:{port}", self.camp.service(By::Name, pods, self.server))),
            (by, pods) => {
                let name = self.camp.service(by, pods, self.server);
                let get = ["service", &name, "--namespace", self.manifests().namespace];
                let service = self.camp.kubectl().get(&get)?;
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

    /// How many containers run in each pod of a pair: the client's and the server's. Those that Kubernetes starts before and
    /// lets run beside are among them.
    pub(super) fn containers(&self, pods: &Pods) -> [usize; 2] {
        [Side::Client, Side::Server].map(|side| {
            let spec = &self.camp.pod(side, pods, self.seat(side))["spec"];
            let usual = spec["containers"].as_array().map_or(0, Vec::len);
            let before = spec["initContainers"].as_array().into_iter().flatten();
            usual + before.filter(|container| container["restartPolicy"] == "Always").count()
        })
    }

    /// An error of a candidate, or of the pod that is gone by which it broke.
    pub(super) fn because_of_a_pod(&self, error: LabError, pods: &Pods) -> LabError {
        let LabError::Broken { what, .. } = &error else { return error };
        for hand in [Side::Server, Side::Client].map(|side| self.hand(side, pods)) {
            if let Some(says) = self.camp.why_gone(&hand) {
                let why = format!("{says} ({what})");
                return LabError::Machine { machine: hand.name().to_owned(), why, remedy: None };
            }
        }
        error
    }

    fn seat(&self, side: Side) -> usize {
        match side {
            Side::Client => self.client,
            Side::Server => self.server,
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
