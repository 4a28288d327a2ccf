//! A look at each node of a cluster by a short pod in its network.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::access::ClusterAccess;
use super::kubectl::CommandLimit;
use super::manifests::{CONTAINER, Manifests, node_pod_name};
use super::namespace::LeasedNamespace;
use super::nodes::{LeftOut, NOT_READY, Node, all};
use crate::race::fresh_seed;
use crate::{Event, LabError};

/// Looks that go on at the same time. Each has a process of `kubectl`.
const AT_ONCE: usize = 16;
/// On so many nodes a guard is tried. Where it starts on none of them, the cause is rather the cluster or the image.
const GUARDS_MAX: usize = 3;

/// How the nodes of a cluster are looked at.
#[derive(Debug, Clone)]
pub struct NodeSurvey {
    /// The cluster. No nodes are all that run Linux.
    pub access: ClusterAccess,
    /// The arguments of this program on each node; it prints JSON.
    pub arguments: Vec<String>,
    /// How long the program may take on a node.
    pub limit: Duration,
}

/// What was seen of a node.
#[derive(Debug, Clone)]
pub struct NodeSeen {
    /// The name of the node in the cluster.
    pub node: String,
    /// What the program printed there, or why it did not.
    pub printed: Result<Value, String>,
}

impl NodeSurvey {
    /// Makes a pod on each node that is ready, runs the program in all of them, and deletes everything. `None` if it
    /// was stopped. A node that cannot be looked at does not keep the others from it.
    ///
    /// # Errors
    /// [`LabError::Machine`]: pods cannot be made, or on no node one that guards them; why in the cluster's words.
    pub fn run(&self, emit: &mut dyn FnMut(Event)) -> Result<Option<Vec<NodeSeen>>, LabError> {
        emit(Event::Connecting { machine: self.access.kubectl.cluster() });
        let (nodes, others) = all(&self.access.kubectl, &self.access.nodes)?;
        others.into_iter().for_each(|LeftOut { node, why }| emit(Event::NodeLeftOut { node, why }));
        let run = fresh_seed();
        let made = format!("hostgap-look-{run:06}");
        let manifests = self.manifests(self.access.namespace.as_ref().unwrap_or(&made), run);
        let mut namespace = LeasedNamespace::new(&self.access, manifests);
        let seen = self.see(&mut namespace, &nodes, emit);
        // An interrupt from here on is for the wait until all is deleted.
        let is_stopped = self.access.is_stopped();
        namespace.remove(emit);
        if is_stopped { Ok(None) } else { seen.map(Some) }
    }

    /// Makes the pods and looks.
    fn see(
        &self,
        namespace: &mut LeasedNamespace<'_>,
        nodes: &[Node],
        emit: &mut dyn FnMut(Event),
    ) -> Result<Vec<NodeSeen>, LabError> {
        let ready: Vec<&Node> = nodes.iter().filter(|node| node.is_ready()).collect();
        let name = namespace.manifests.namespace.to_owned();
        emit(Event::CreatingPods { namespace: name, pods: ready.len() });
        self.guard(namespace, &ready, emit)?;
        let pods = ready.iter().map(|node| namespace.manifests.node_pod(&node.name)).collect();
        let mut lost: BTreeMap<String, String> = BTreeMap::new();
        let mut loses = |pod: &str, why: String| {
            lost.insert(pod.to_owned(), why);
            Ok(())
        };
        let filled = namespace.fill(pods, emit, &mut loses);
        filled.map_err(|why| self.access.kubectl.failed(why))?;
        Ok(self.look(namespace, nodes, &lost))
    }

    /// Holds the lease of a guard on one of the nodes. Those that other pods may be on come first.
    fn guard(
        &self,
        namespace: &mut LeasedNamespace<'_>,
        nodes: &[&Node],
        emit: &mut dyn FnMut(Event),
    ) -> Result<(), LabError> {
        let mut nodes = nodes.to_vec();
        nodes.sort_by_key(|node| !node.is_open());
        nodes.truncate(GUARDS_MAX);
        for (at, node) in nodes.iter().enumerate() {
            namespace.create_ground(&node.name)?;
            let Err(why) = namespace.await_guard(emit) else { return Ok(()) };
            let Some(next) = nodes.get(at + 1).filter(|_| !self.access.is_stopped()) else {
                return Err(self.access.kubectl.failed(why));
            };
            let why = format!("a guard on node {}, as that on {} did not start: {why}", next.name, node.name);
            emit(Event::AwaitingPod { why });
            namespace.remove(emit);
        }
        Ok(())
    }

    /// Runs the program on all nodes, some at a time; pods that are lost have a reason.
    fn look(
        &self,
        namespace: &LeasedNamespace<'_>,
        nodes: &[Node],
        lost: &BTreeMap<String, String>,
    ) -> Vec<NodeSeen> {
        let look_at = |node: &Node| {
            let pod = node_pod_name(&node.name);
            let printed = match lost.get(&pod) {
                _ if !node.is_ready() => Err(NOT_READY.to_owned()),
                Some(why) => Err(why.clone()),
                None => self.printed_in(namespace, &pod),
            };
            NodeSeen { node: node.name.clone(), printed }
        };
        let mut seen = Vec::with_capacity(nodes.len());
        for some in nodes.chunks(AT_ONCE) {
            std::thread::scope(|scope| {
                let looks: Vec<_> = some.iter().map(|node| scope.spawn(move || look_at(node))).collect();
                seen.extend(looks.into_iter().map(|look| look.join().expect("a look does not panic")));
            });
        }
        seen
    }

    fn printed_in(&self, namespace: &LeasedNamespace<'_>, pod: &str) -> Result<Value, String> {
        namespace.equip(pod)?;
        let (name, program) = (namespace.manifests.namespace, namespace.manifests.program());
        let exec = ["exec", "--namespace", name, pod, "--container", CONTAINER, "--", &program];
        let arguments = self.arguments.iter().map(String::as_str);
        let limit = CommandLimit { time: self.limit, stop: &self.access.stop };
        self.access.kubectl.printed(limit, &exec.into_iter().chain(arguments).collect::<Vec<_>>())
    }

    fn manifests<'a>(&'a self, namespace: &'a str, run: u64) -> Manifests<'a> {
        Manifests {
            namespace,
            owns_namespace: self.access.namespace.is_none(),
            run,
            image: self.access.pod_image(),
            pull_secret: self.access.pull_secret.as_ref().map(|secret| secret.name.as_str()),
            copies: self.access.copy.is_some(),
            cpus: 1,
            guaranteed: false,
            port: 0,
            is_udp: false,
            ipv6: false,
            // A node that keeps pods away is one to look at, too.
            tolerates: true,
            sidecar: None,
        }
    }
}
