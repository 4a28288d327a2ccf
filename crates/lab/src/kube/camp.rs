//! What a race has made in a cluster: its namespace, pods and Services, and the hands in the pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use record::Workload;
use serde_json::Value;

use super::hands::Hand;
use super::kubectl::Kubectl;
use super::manifests::{Manifests, Side, pod_name, service_name};
use super::namespace::LeasedNamespace;
use super::nodes::Node;
use super::path::{By, PodPath, Pods};
use super::protocol::{Answer, Serve, Task, Workers};
use super::ready::{gone, name_of};
use crate::{Event, LabError, OwnProgram};

/// What stands in a cluster for a race. Ended or dropped, it goes.
pub(super) struct Camp<'a> {
    namespace: LeasedNamespace<'a>,
    /// The client's and the server's.
    pub(super) nodes: [Node; 2],
    pods: BTreeMap<String, Value>,
    hands: BTreeMap<String, Arc<Hand>>,
    /// Where each server listens.
    ports: BTreeMap<Pods, u16>,
}

impl<'a> Camp<'a> {
    /// A camp of which nothing stands yet.
    pub(super) fn new(kubectl: &'a Kubectl, manifests: Manifests<'a>, nodes: [Node; 2]) -> Camp<'a> {
        let (pods, hands, ports) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Camp { namespace: LeasedNamespace::new(kubectl, manifests), nodes, pods, hands, ports }
    }

    /// What all objects have in common.
    pub(super) fn manifests(&self) -> &Manifests<'a> {
        &self.namespace.manifests
    }

    /// All objects in the namespace that the paths need, beside its own.
    pub(super) fn objects(&self, paths: &BTreeSet<PodPath>) -> Vec<Value> {
        let pairs: BTreeSet<&Pods> = paths.iter().map(|path| &path.pods).collect();
        let [client, server] = &self.nodes;
        let mut objects = Vec::new();
        for pods in pairs {
            objects.push(self.manifests().pod(Side::Client, pods, &client.name));
            objects.push(self.manifests().pod(Side::Server, pods, &server.name));
            if *pods == Pods::Policy {
                objects.push(self.manifests().policy());
            }
        }
        let services = paths.iter().filter(|path| path.by != By::Address);
        objects.extend(services.map(|path| self.manifests().service(path.by, &path.pods)));
        objects
    }

    /// Makes everything, and waits until all pods run and have a hand.
    pub(super) fn pitch(
        &mut self,
        paths: &BTreeSet<PodPath>,
        own: &OwnProgram,
        stop: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(Event),
    ) -> Result<(), LabError> {
        let node = self.nodes[0].name.clone();
        for pod in self.namespace.make(&node, self.objects(paths), own, stop, tell)? {
            self.pods.insert(name_of(&pod).to_owned(), pod);
        }
        self.start_hands()
    }

    /// Starts a hand in each pod.
    fn start_hands(&mut self) -> Result<(), LabError> {
        let program = self.manifests().program();
        for (name, pod) in &self.pods {
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            let hand =
                Hand::start(self.namespace.kubectl, self.manifests().namespace, (name, node), &program);
            let hand = hand.map_err(|why| self.namespace.kubectl.failed(why))?;
            self.hands.insert(name.clone(), Arc::new(hand));
        }
        Ok(())
    }

    /// Where threads of a side run: on CPUs that were named, or the last of the pod's. Of two pods on one node the client's
    /// are the last, and the server's those before.
    pub(super) fn workers(&self, side: Side, named: Option<&linux::CpuSet>) -> Workers {
        let count = self.manifests().cpus;
        let is_behind = side == Side::Server && self.nodes[0].name == self.nodes[1].name;
        match named {
            Some(cpus) => Workers::Named(cpus.clone()),
            None => Workers::Last { count, others: if is_behind { count } else { 0 } },
        }
    }

    /// Has the servers of all pairs answer.
    pub(super) fn serve(
        &mut self,
        paths: &BTreeSet<PodPath>,
        workload: &Workload,
        (cpus, host_port): (Option<&linux::CpuSet>, u16),
    ) -> Result<(), LabError> {
        let pairs: BTreeSet<&Pods> = paths.iter().map(|path| &path.pods).collect();
        for pods in pairs {
            let hand = self.hand(Side::Server, pods);
            let any = if workload.ipv6 { IpAddr::from([0_u16; 8]) } else { IpAddr::from([0_u8; 4]) };
            let (address, port) = match pods {
                // Where only those find it who know the node's address in the cluster.
                Pods::Host => (self.server_node(workload.ipv6)?, host_port),
                Pods::HostAgain => {
                    let port = if host_port == 0 { 0 } else { host_port.saturating_add(1) };
                    (self.server_node(workload.ipv6)?, port)
                }
                _ => (any, self.manifests().port),
            };
            let workers = self.workers(Side::Server, cpus);
            let serve = Serve { workload: workload.clone(), address, port, workers };
            match hand.ask(&Task::Serve(serve), None, "host")? {
                Answer::Serves { port } => self.ports.insert(pods.clone(), port),
                other => return Err(hand.strange(&other)),
            };
        }
        Ok(())
    }

    fn server_node(&self, ipv6: bool) -> Result<IpAddr, LabError> {
        self.nodes[1].address(ipv6).map_err(|why| self.namespace.kubectl.failed(why))
    }

    /// The hand of a side of a pair.
    pub(super) fn hand(&self, side: Side, pods: &Pods) -> Arc<Hand> {
        Arc::clone(&self.hands[&pod_name(side, pods)])
    }

    /// What the client of a path calls: an address or a name with a port.
    ///
    /// # Errors
    /// The cluster gives it none, in words: why the path cannot race.
    pub(super) fn address(&self, path: &PodPath) -> Result<String, String> {
        let (ipv6, port) = (self.manifests().ipv6, self.ports[&path.pods]);
        let with_port = |address: IpAddr, port: u16| std::net::SocketAddr::new(address, port).to_string();
        let pod = &self.pods[&pod_name(Side::Server, &path.pods)];
        match (path.by, &path.pods) {
            (By::Address, Pods::Host | Pods::HostAgain) => Ok(with_port(self.nodes[1].address(ipv6)?, port)),
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
            (By::Name, pods) => Ok(format!("{}:{port}", service_name(By::Name, pods))),
            (by, pods) => {
                let name = service_name(by, pods);
                let service = self.namespace.kubectl.get(&[
                    "service",
                    &name,
                    "--namespace",
                    self.manifests().namespace,
                ])?;
                let spec = &service["spec"];
                if by == By::NodePort {
                    let port =
                        spec["ports"][0]["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok());
                    let port = port.ok_or("the cluster gives it no NodePort")?;
                    return Ok(with_port(self.nodes[1].address(ipv6)?, port));
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
            let spec = &self.pods[&pod_name(side, pods)]["spec"];
            let usual = spec["containers"].as_array().map_or(0, Vec::len);
            let before = spec["initContainers"].as_array().into_iter().flatten();
            usual + before.filter(|container| container["restartPolicy"] == "Always").count()
        })
    }

    /// Deletes everything, and waits until it is gone.
    ///
    /// # Errors
    /// It cannot be deleted.
    pub(super) fn strike(&mut self) -> Result<(), LabError> {
        let struck = self.namespace.strike();
        // Their other ends are gone.
        self.hands.clear();
        struck
    }

    /// An error with what the cluster says of the pod that does not answer any more, where it is gone.
    pub(super) fn explained(&self, error: LabError) -> LabError {
        let LabError::Machine { machine, why, remedy } = error else { return error };
        let hand = self.hands.values().find(|hand| hand.name() == machine);
        let says = hand.and_then(|hand| self.why_gone(hand));
        let why = says.map_or(why.clone(), |says| format!("{says} ({why})"));
        LabError::Machine { machine, why, remedy }
    }

    /// An error of a candidate, or of the pod that is gone by which it broke.
    pub(super) fn because_of_a_pod(&self, error: LabError, pods: &Pods) -> LabError {
        let LabError::Broken { what, .. } = &error else { return error };
        for hand in [Side::Server, Side::Client].map(|side| self.hand(side, pods)) {
            if let Some(says) = self.why_gone(&hand) {
                let why = format!("{says} ({what})");
                return LabError::Machine { machine: hand.name().to_owned(), why, remedy: None };
            }
        }
        error
    }

    /// Why a pod is no more; what the cluster cannot say now does not explain anything.
    fn why_gone(&self, hand: &Hand) -> Option<String> {
        let get = ["pod", hand.pod(), "--namespace", self.manifests().namespace];
        match self.namespace.kubectl.find(&get) {
            Ok(Some(pod)) => gone(&pod),
            Ok(None) => Some("it was deleted".to_owned()),
            Err(_) => None,
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
