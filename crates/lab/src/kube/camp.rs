//! What a race has made in a cluster: its namespace, pods and Services, and the hands in the pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use record::Workload;
use serde_json::Value;

use super::hands::Hand;
use super::kubectl::Kubectl;
use super::manifests::{Manifests, Seat, Side, pod_name, service_name};
use super::namespace::LeasedNamespace;
use super::nodes::Node;
use super::path::{By, PodPath, Pods};
use super::protocol::{Answer, Serve, Task};
use super::ready::{gone, name_of};
use crate::{Event, LabError, OwnProgram};

/// On which nodes a race has pods.
#[derive(Debug)]
pub(super) enum PodPlacement {
    /// The client's pods are on the first, the server's on the second.
    Pair(Box<[Node; 2]>),
    /// On each are a pod of a client and one of a server.
    Everywhere(Vec<Node>),
}

/// What stands in a cluster for a race. Ended or dropped, it goes.
pub(super) struct Camp<'a> {
    namespace: LeasedNamespace<'a>,
    placement: PodPlacement,
    pods: BTreeMap<String, Value>,
    hands: BTreeMap<String, Arc<Hand>>,
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

    /// The places of the nodes that have pods of a side.
    fn seats(&self, side: Side) -> Range<usize> {
        match (self, side) {
            (PodPlacement::Pair(_), Side::Client) => 0..1,
            (PodPlacement::Pair(_), Side::Server) => 1..2,
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

impl<'a> Camp<'a> {
    /// A camp of which nothing stands yet.
    pub(super) fn new(kubectl: &'a Kubectl, manifests: Manifests<'a>, placement: PodPlacement) -> Camp<'a> {
        let (pods, hands, ports) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Camp { namespace: LeasedNamespace::new(kubectl, manifests), placement, pods, hands, ports }
    }

    /// The nodes that have pods.
    pub(super) fn nodes(&self) -> &[Node] {
        self.placement.nodes()
    }

    pub(super) fn kubectl(&self) -> &'a Kubectl {
        self.namespace.kubectl
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
            for side in [Side::Client, Side::Server] {
                for at in self.placement.seats(side) {
                    let seat = Seat { node: &self.nodes()[at].name, tag: &self.placement.tag(at) };
                    objects.push(self.manifests().pod(side, pods, seat));
                }
            }
            if *pods == Pods::Policy {
                objects.push(self.manifests().policy());
            }
        }
        for path in paths.iter().filter(|path| path.by != By::Address) {
            let servers = self.placement.seats(Side::Server);
            objects.extend(
                servers.map(|at| self.manifests().service(path.by, &path.pods, &self.placement.tag(at))),
            );
        }
        objects
    }

    /// Makes everything, and waits until all pods run and have a hand.
    pub(super) fn pitch(
        &mut self,
        paths: &BTreeSet<PodPath>,
        own: &OwnProgram,
        stop: &dyn Fn() -> bool,
        emit: &mut dyn FnMut(Event),
    ) -> Result<(), LabError> {
        let node = self.nodes()[0].name.clone();
        for pod in self.namespace.make(&node, self.objects(paths), own, stop, emit)? {
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

    /// Has the servers of all pairs answer.
    pub(super) fn serve(
        &mut self,
        paths: &BTreeSet<PodPath>,
        workload: &Workload,
        (cpus, host_port): (Option<&linux::CpuSet>, u16),
    ) -> Result<(), LabError> {
        let pairs: BTreeSet<&Pods> = paths.iter().map(|path| &path.pods).collect();
        for at in self.placement.seats(Side::Server) {
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
        let hand = self.hand(Side::Server, pods, at);
        let any = if workload.ipv6 { IpAddr::from([0_u16; 8]) } else { IpAddr::from([0_u8; 4]) };
        let of_node = || self.nodes()[at].address(workload.ipv6).map_err(|why| self.kubectl().failed(why));
        let (address, port) = match pods {
            // Where only those find it who know the node's address in the cluster.
            Pods::Host => (of_node()?, host_port),
            Pods::HostAgain => (of_node()?, if host_port == 0 { 0 } else { host_port.saturating_add(1) }),
            _ => (any, self.manifests().port),
        };
        let client = self.placement.seats(Side::Client).find(|client| *client != at);
        let lane = self.lane([client.expect("a race has a client's node beside the server's"), at]);
        let workers = lane.workers(Side::Server, cpus);
        let serve = Serve { workload: workload.clone(), address, port, workers };
        match hand.ask(&Task::Serve(serve), None, "host")? {
            Answer::Serves { port } => Ok(port),
            other => Err(hand.strange(&other)),
        }
    }

    /// The hand of a side of a pair, on a node.
    pub(super) fn hand(&self, side: Side, pods: &Pods, at: usize) -> Arc<Hand> {
        Arc::clone(&self.hands[&pod_name(side, pods, &self.placement.tag(at))])
    }

    /// A pod of a pair, on a node.
    pub(super) fn pod(&self, side: Side, pods: &Pods, at: usize) -> &Value {
        &self.pods[&pod_name(side, pods, &self.placement.tag(at))]
    }

    /// Where the server of a pair listens on a node.
    pub(super) fn port(&self, pods: &Pods, at: usize) -> u16 {
        self.ports[&(at, pods.clone())]
    }

    /// The name of the Service before the server of a pair on a node.
    pub(super) fn service(&self, by: By, pods: &Pods, at: usize) -> String {
        service_name(by, pods, &self.placement.tag(at))
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
        // A candidate that broke by it may have said so.
        let says = hand.and_then(|hand| self.why_gone(hand)).filter(|says| !why.starts_with(says.as_str()));
        let why = says.map_or(why.clone(), |says| format!("{says} ({why})"));
        LabError::Machine { machine, why, remedy }
    }

    /// Why a pod is no more; what the cluster cannot say now does not explain anything.
    pub(super) fn why_gone(&self, hand: &Hand) -> Option<String> {
        let get = ["pod", hand.pod(), "--namespace", self.manifests().namespace];
        match self.namespace.kubectl.find(&get) {
            Ok(Some(pod)) => gone(&pod),
            Ok(None) => Some("it was deleted".to_owned()),
            Err(_) => None,
        }
    }
}
