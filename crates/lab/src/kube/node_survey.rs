//! A look at each node of a cluster by a short pod in its network.

use serde_json::Value;

use super::access::ClusterAccess;
use super::manifests::{CONTAINER, Manifests, node_pod_name};
use super::namespace::LeasedNamespace;
use super::nodes::{Node, all};
use crate::race::fresh_seed;
use crate::{Event, LabError};

/// Looks that go on at the same time. Each has a process of `kubectl`.
const AT_ONCE: usize = 16;

/// How the nodes of a cluster are looked at.
#[derive(Debug, Clone)]
pub struct NodeSurvey {
    /// The cluster. No nodes are all that run Linux and are ready.
    pub access: ClusterAccess,
    /// The arguments of this program on each node; it prints JSON.
    pub arguments: Vec<String>,
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
    /// Makes a pod on each node, runs the program in all of them, and deletes everything. `None` if it was stopped.
    ///
    /// # Errors
    /// [`LabError::Machine`]: pods cannot be made or deleted, and why in the cluster's words.
    pub fn run(&self, emit: &mut dyn FnMut(Event)) -> Result<Option<Vec<NodeSeen>>, LabError> {
        emit(Event::Connecting { machine: self.access.kubectl.cluster() });
        let nodes =
            all(&self.access.kubectl, &self.access.nodes).map_err(|why| self.access.kubectl.failed(why))?;
        let made = format!("hostgap-look-{:06}", fresh_seed());
        let manifests = self.manifests(self.access.namespace.as_ref().unwrap_or(&made));
        let mut namespace = LeasedNamespace::new(&self.access.kubectl, manifests);
        let pods = nodes.iter().map(|node| namespace.manifests.node_pod(&node.name)).collect();
        let stop = || self.access.is_stopped();
        let stood = namespace.make(&nodes[0].name, pods, &self.access.own, &stop, emit);
        let seen = match stood {
            Ok(_) => Ok(Some(self.look(&namespace.manifests, &nodes))),
            Err(_) if stop() => Ok(None),
            Err(error) => Err(error),
        };
        let struck = namespace.strike();
        seen.and_then(|seen| struck.map(|()| seen))
    }

    /// Runs the program on all nodes, some at a time.
    fn look(&self, manifests: &Manifests<'_>, nodes: &[Node]) -> Vec<NodeSeen> {
        let mut all = Vec::with_capacity(nodes.len());
        for some in nodes.chunks(AT_ONCE) {
            std::thread::scope(|scope| {
                let looks: Vec<_> =
                    some.iter().map(|node| scope.spawn(|| self.look_at(manifests, &node.name))).collect();
                all.extend(looks.into_iter().map(|look| look.join().expect("a look does not panic")));
            });
        }
        all
    }

    fn look_at(&self, manifests: &Manifests<'_>, node: &str) -> NodeSeen {
        let (pod, program) = (node_pod_name(node), manifests.program());
        let exec =
            ["exec", "--namespace", manifests.namespace, &pod, "--container", CONTAINER, "--", &program];
        let arguments = self.arguments.iter().map(String::as_str);
        let printed = self.access.kubectl.printed(&exec.into_iter().chain(arguments).collect::<Vec<_>>());
        NodeSeen { node: node.to_owned(), printed }
    }

    fn manifests<'a>(&'a self, namespace: &'a str) -> Manifests<'a> {
        Manifests {
            namespace,
            owns_namespace: self.access.namespace.is_none(),
            image: self.access.pod_image(),
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
