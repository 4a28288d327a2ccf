//! What a race has made in a cluster: its namespace, pods and Services, and a process of this program in each pod.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use datapath::SocketRole;
use record::Workload;
use serde_json::Value;

use super::access::ClusterAccess;
use super::kubectl::Kubectl;
use super::manifests::{Manifests, Seat, pod_name, service_name};
use super::namespace::LeasedNamespace;
use super::nodes::Node;
use super::path::{By, PodPath, Pods};
use super::pod_process::PodProcess;
use super::protocol::{Answer, Serve, Task};
use super::ready::{gone, name_of};
use crate::{Event, LabError};

/// On which nodes a race has pods.
#[derive(Debug)]
pub(super) enum PodPlacement {
    /// The client's pods are on the first, the server's on the second.
    Pair(Box<[Node; 2]>),
    /// On each are a pod of a client and one of a server.
    Everywhere(Vec<Node>),
}

/// What a race has made in a cluster. [`ClusterSetup::remove`] deletes it, and so does dropping it.
pub(super) struct ClusterSetup<'a> {
    namespace: LeasedNamespace<'a>,
    placement: PodPlacement,
    pods: BTreeMap<String, Value>,
    processes: BTreeMap<String, Arc<PodProcess>>,
    /// Where the servers of each node listen.
    ports: BTreeMap<(usize, Pods), u16>,
}

impl PodPlacement {
    fn nodes(&self) -> &[Node] {
        match self {
            PodPlacement::Pair(nodes) => nodes.as_slice(),
            PodPlacement::Everywhere(nodes) => nodes,
        }
    }

    /// The indexes of the nodes that have pods with a role.
    fn seats(&self, part: SocketRole) -> Range<usize> {
        match (self, part) {
            (PodPlacement::Pair(_), SocketRole::Client) => 0..1,
            (PodPlacement::Pair(_), SocketRole::Server) => 1..2,
            (PodPlacement::Everywhere(nodes), _) => 0..nodes.len(),
        }
    }

    /// What the names of a node's objects end with.
    fn tag(&self, at: usize) -> String {
        match self {
            PodPlacement::Pair(_) => String::new(),
            PodPlacement::Everywhere(_) => format!("-{}", at + 1),
        }
    }
}

impl<'a> ClusterSetup<'a> {
    /// A setup of which nothing is made yet.
    pub(super) fn new(
        access: &'a ClusterAccess,
        manifests: Manifests<'a>,
        placement: PodPlacement,
    ) -> ClusterSetup<'a> {
        let (pods, processes, ports) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        ClusterSetup { namespace: LeasedNamespace::new(access, manifests), placement, pods, processes, ports }
    }

    /// The nodes that have pods.
    pub(super) fn nodes(&self) -> &[Node] {
        self.placement.nodes()
    }

    pub(super) fn kubectl(&self) -> &'a Kubectl {
        self.namespace.kubectl()
    }

    /// What all objects have in common.
    pub(super) fn manifests(&self) -> &Manifests<'a> {
        &self.namespace.manifests
    }

    /// All objects in the namespace that the paths need, beside its own.
    pub(super) fn objects(&self, paths: &BTreeSet<PodPath>) -> Vec<Value> {
        let pairs: BTreeSet<&Pods> = paths.iter().map(|path| &path.pods).collect();
        let mut objects = Vec::new();
        for pods in pairs {
            for part in [SocketRole::Client, SocketRole::Server] {
                for at in self.placement.seats(part) {
                    let seat = Seat { node: &self.nodes()[at].name, tag: &self.placement.tag(at) };
                    objects.push(self.manifests().pod(part, pods, seat));
                }
            }
            if *pods == Pods::Policy {
                objects.push(self.manifests().policy());
            }
        }
        for path in paths.iter().filter(|path| path.by != By::Address) {
            let servers = self.placement.seats(SocketRole::Server);
            objects.extend(
                servers.map(|at| self.manifests().service(path.by, &path.pods, &self.placement.tag(at))),
            );
        }
        objects
    }

    /// Makes everything, and waits until all pods run and a process in each takes tasks.
    pub(super) fn make(
        &mut self,
        paths: &BTreeSet<PodPath>,
        emit: &mut dyn FnMut(Event),
    ) -> Result<(), LabError> {
        let node = self.nodes()[0].name.clone();
        for pod in self.namespace.make(&node, self.objects(paths), emit)? {
            self.pods.insert(name_of(&pod).to_owned(), pod);
        }
        self.start_processes()
    }

    /// Starts a process in each pod.
    fn start_processes(&mut self) -> Result<(), LabError> {
        let program = self.manifests().program();
        for (name, pod) in &self.pods {
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            let process =
                PodProcess::start(self.kubectl(), self.manifests().namespace, (name, node), &program);
            let process = process.map_err(|why| self.kubectl().failed(why))?;
            self.processes.insert(name.clone(), Arc::new(process));
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
        for at in self.placement.seats(SocketRole::Server) {
            for pods in &pairs {
                let port = self.serve_at(at, pods, workload, (cpus, host_port))?;
                self.ports.insert((at, (*pods).clone()), port);
            }
        }
        Ok(())
    }

    /// Has the server of a pair answer on a node; at which port.
    fn serve_at(
        &self,
        at: usize,
        pods: &Pods,
        workload: &Workload,
        (cpus, host_port): (Option<&linux::CpuSet>, u16),
    ) -> Result<u16, LabError> {
        let process = self.process(SocketRole::Server, pods, at);
        let any = if workload.ipv6 { IpAddr::from([0_u16; 8]) } else { IpAddr::from([0_u8; 4]) };
        let of_node = || self.nodes()[at].address(workload.ipv6).map_err(|why| self.kubectl().failed(why));
        let (address, port) = match pods {
            // Not at every address of the node: only at the one by which the cluster's nodes reach it.
            Pods::Host => (of_node()?, host_port),
            Pods::HostAgain => (of_node()?, if host_port == 0 { 0 } else { host_port.saturating_add(1) }),
            _ => (any, self.manifests().port),
        };
        let client = self.placement.seats(SocketRole::Client).find(|client| *client != at);
        let pair = self.pair([client.expect("a race has a client's node beside the server's"), at]);
        let workers = pair.workers(SocketRole::Server, cpus);
        let serve = Serve { workload: workload.clone(), address, port, workers };
        match process.ask(&Task::Serve(serve), None, "host")? {
            Answer::Serves { port } => Ok(port),
            other => Err(process.strange(&other)),
        }
    }

    /// The process in the pod with this role of a pair, on a node.
    pub(super) fn process(&self, part: SocketRole, pods: &Pods, at: usize) -> Arc<PodProcess> {
        Arc::clone(&self.processes[&pod_name(part, pods, &self.placement.tag(at))])
    }

    /// The pod with this role of a pair, on a node, as the API server describes it.
    pub(super) fn pod(&self, part: SocketRole, pods: &Pods, at: usize) -> &Value {
        &self.pods[&pod_name(part, pods, &self.placement.tag(at))]
    }

    /// The port at which the server of a pair listens on a node.
    pub(super) fn port(&self, pods: &Pods, at: usize) -> u16 {
        self.ports[&(at, pods.clone())]
    }

    /// The name of the Service before the server of a pair on a node.
    pub(super) fn service(&self, by: By, pods: &Pods, at: usize) -> String {
        service_name(by, pods, &self.placement.tag(at))
    }

    /// Deletes everything, and waits until it is gone. What cannot be deleted is an event.
    pub(super) fn remove(&mut self, emit: &mut dyn FnMut(Event)) {
        self.namespace.remove(emit);
        // Their other ends are gone, or on a node that does not answer.
        self.processes.values().for_each(|process| process.cut());
        self.processes.clear();
    }

    /// An error with what the cluster says of the pod that does not answer any more, where it is gone.
    pub(super) fn explained(&self, error: LabError) -> LabError {
        let LabError::Machine { machine, why, remedy, fault } = error else { return error };
        let process = self.processes.values().find(|process| process.name() == machine);
        // A candidate that broke by it may have said so.
        let says =
            process.and_then(|process| self.why_gone(process)).filter(|says| !why.starts_with(says.as_str()));
        let why = says.map_or(why.clone(), |says| format!("{says} ({why})"));
        LabError::Machine { machine, why, remedy, fault }
    }

    /// Why a pod is no more; what the cluster cannot say now does not explain anything.
    pub(super) fn why_gone(&self, process: &PodProcess) -> Option<String> {
        let get = ["pod", process.pod(), "--namespace", self.manifests().namespace];
        match self.kubectl().find(&get) {
            Ok(Some(pod)) => gone(&pod),
            Ok(None) => Some("it was deleted".to_owned()),
            Err(_) => None,
        }
    }
}
