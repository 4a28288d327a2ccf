//! What a race has made in a cluster: its namespace, pods and Services, and the hands in the pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use record::Workload;
use serde_json::Value;

use super::hands::{Hand, copy, hold_lease};
use super::kubectl::Kubectl;
use super::manifests::{LEASE, Manifests, Side, owned, pod_name, service_name};
use super::nodes::Node;
use super::path::{By, PodPath, Pods};
use super::protocol::{Answer, Serve, Task};
use super::ready::{await_pods, gone};
use crate::channel::Channel;
use crate::{LabError, OwnProgram};

/// How long pods may take until they run: an image of 20 MB over a slow line, a node that is added for them.
const READY_MAX: Duration = Duration::from_secs(300);
/// How long Kubernetes may take to delete everything.
const GONE_MAX: &str = "--timeout=180s";

/// What stands in a cluster for a race. Ended or dropped, it goes.
pub(super) struct Camp<'a> {
    pub(super) kubectl: &'a Kubectl,
    pub(super) manifests: Manifests<'a>,
    /// The client's and the server's.
    pub(super) nodes: [Node; 2],
    pods: BTreeMap<String, Value>,
    hands: BTreeMap<String, Arc<Hand>>,
    /// Where each server listens.
    ports: BTreeMap<Pods, u16>,
    /// While it lives, so does the camp.
    lease: Option<Channel>,
    stands: bool,
}

impl<'a> Camp<'a> {
    /// A camp of which nothing stands yet.
    pub(super) fn new(kubectl: &'a Kubectl, manifests: Manifests<'a>, nodes: [Node; 2]) -> Camp<'a> {
        let (pods, hands, ports) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Camp { kubectl, manifests, nodes, pods, hands, ports, lease: None, stands: false }
    }

    /// All objects but the ground, as the paths need them.
    pub(super) fn objects(&self, paths: &BTreeSet<PodPath>) -> Vec<Value> {
        let pairs: BTreeSet<&Pods> = paths.iter().map(|path| &path.pods).collect();
        let [client, server] = &self.nodes;
        let mut objects = Vec::new();
        for pods in pairs {
            objects.push(self.manifests.pod(Side::Client, pods, &client.name));
            objects.push(self.manifests.pod(Side::Server, pods, &server.name));
            if *pods == Pods::Policy {
                objects.push(self.manifests.policy());
            }
        }
        let services = paths.iter().filter(|path| path.by != By::Address);
        objects.extend(services.map(|path| self.manifests.service(path.by, &path.pods)));
        objects
    }

    /// Makes everything, and waits until all pods run.
    pub(super) fn pitch(
        &mut self,
        paths: &BTreeSet<PodPath>,
        own: &OwnProgram,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), LabError> {
        let kubectl = self.kubectl;
        let failed = |why: String| failed(kubectl, why);
        let objects = self.objects(paths);
        let pods = objects.iter().filter(|object| object["kind"] == "Pod").count() + 1;
        self.stands = true;
        self.kubectl.create(&self.manifests.ground()).map_err(failed)?;
        let job =
            self.kubectl.get(&["job", LEASE, "--namespace", self.manifests.namespace]).map_err(failed)?;
        let uid = job["metadata"]["uid"].as_str().unwrap_or_default();
        let objects: Vec<Value> = objects.into_iter().map(|object| owned(object, uid)).collect();
        self.kubectl.create(&objects).map_err(failed)?;
        let namespace = self.manifests.namespace;
        let ready = await_pods(self.kubectl, namespace, pods, READY_MAX, stop).map_err(failed)?;
        let content = match self.manifests.copies {
            true => Some(std::fs::read(&own.program).map_err(LabError::file("read", &own.program))?),
            false => None,
        };
        for pod in ready {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if let Some(content) = &content {
                copy(self.kubectl, namespace, &name, content)
                    .map_err(|why| failed(format!("pod {name}: {why}")))?;
            }
            if name.starts_with(LEASE) {
                self.lease = Some(hold_lease(self.kubectl, namespace, &name).map_err(failed)?);
            } else {
                self.pods.insert(name, pod);
            }
        }
        self.start_hands()
    }

    /// Starts a hand in each pod.
    fn start_hands(&mut self) -> Result<(), LabError> {
        let program = self.manifests.program();
        for (name, pod) in &self.pods {
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            let hand = Hand::start(self.kubectl, self.manifests.namespace, (name, node), &program);
            let hand = hand.map_err(|why| failed(self.kubectl, why))?;
            self.hands.insert(name.clone(), Arc::new(hand));
        }
        Ok(())
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
                _ => (any, self.manifests.port),
            };
            let workers = self.manifests.cpus;
            let serve = Serve { workload: workload.clone(), address, port, cpus: cpus.cloned(), workers };
            match hand.ask(&Task::Serve(serve), None, "host")? {
                Answer::Serves { port } => self.ports.insert(pods.clone(), port),
                other => return Err(hand.strange(&other)),
            };
        }
        Ok(())
    }

    fn server_node(&self, ipv6: bool) -> Result<IpAddr, LabError> {
        self.nodes[1].address(ipv6).map_err(|why| failed(self.kubectl, why))
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
        let (ipv6, port) = (self.manifests.ipv6, self.ports[&path.pods]);
        let with_port = |address: IpAddr, port: u16| std::net::SocketAddr::new(address, port).to_string();
        let pod = &self.pods[&pod_name(Side::Server, &path.pods)];
        match (path.by, &path.pods) {
            (By::Address, Pods::Host) => Ok(with_port(self.nodes[1].address(ipv6)?, port)),
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
                let service =
                    self.kubectl.get(&["service", &name, "--namespace", self.manifests.namespace])?;
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

    /// How many containers a pod of a pair has.
    pub(super) fn containers(&self, pods: &Pods) -> usize {
        let count = |side: Side| {
            self.pods[&pod_name(side, pods)]["spec"]["containers"].as_array().map_or(0, Vec::len)
        };
        count(Side::Client).min(count(Side::Server))
    }

    /// An error with what the cluster says of the pod that does not answer any more, where it is gone.
    pub(super) fn explained(&self, error: LabError) -> LabError {
        let LabError::Machine { machine, why, remedy } = error else { return error };
        let hand = self.hands.values().find(|hand| hand.name() == machine);
        let find = |hand: &Arc<Hand>| {
            self.kubectl.find(&["pod", hand.pod(), "--namespace", self.manifests.namespace])
        };
        let says = match hand.map(find) {
            Some(Ok(Some(pod))) => gone(&pod),
            Some(Ok(None)) => Some("it was deleted".to_owned()),
            // What the cluster cannot say now does not explain anything.
            Some(Err(_)) | None => None,
        };
        let why = says.map_or(why.clone(), |says| format!("{says} ({why})"));
        LabError::Machine { machine, why, remedy }
    }

    /// Deletes everything, and waits until it is gone.
    ///
    /// # Errors
    /// It cannot be deleted.
    pub(super) fn strike(&mut self) -> Result<(), LabError> {
        if !std::mem::take(&mut self.stands) {
            return Ok(());
        }
        self.hands.clear();
        let namespace = self.manifests.namespace;
        let deleted = if self.manifests.owns_namespace {
            self.kubectl.output(&["delete", "namespace", namespace, "--ignore-not-found", GONE_MAX], &[])
        } else {
            // What a Job owns goes before it.
            let job = ["delete", "job", LEASE, "--namespace", namespace, "--ignore-not-found"];
            self.kubectl.output(&[&job[..], &["--cascade=foreground", GONE_MAX]].concat(), &[])
        };
        // The pod at its other end is gone, or goes for this.
        drop(self.lease.take());
        let deleted = deleted.map(drop);
        deleted.map_err(|why| {
            failed(self.kubectl, format!("delete what the race has made in {namespace}: {why}"))
        })
    }
}

impl Drop for Camp<'_> {
    fn drop(&mut self) {
        // Something stands here only on an error, whose own message matters more; the lease's end removes it too.
        let _ = self.strike();
    }
}

/// An error of the cluster as a whole.
pub(super) fn failed(kubectl: &Kubectl, why: String) -> LabError {
    let machine = match &kubectl.context {
        Some(context) => format!("the cluster of context {context}"),
        None => "the cluster".to_owned(),
    };
    let remedy = why
        .to_lowercase()
        .contains("forbidden")
        .then(|| "hostgap race --kube --show-manifests prints the rights that a race needs".to_owned());
    LabError::Machine { machine, why, remedy }
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
