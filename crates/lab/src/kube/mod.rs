//! A Kubernetes cluster as the arena of a race: pods on two nodes, and the ways by which one reaches the other.
//!
//! The race is led here, by `kubectl` and with the user's own rights. It makes a namespace and in it pairs of pods, a
//! client's and a server's (`cluster_setup`). In each of them a process of this program (`pod_process`) serves or
//! loads, as lines of JSON over `kubectl exec` ask it to (`protocol`). The client's process alone measures latency. The
//! reference is the pair in the network of the nodes, and races twice. A race of all pairs (`tournament`) is many of
//! these between the same pods.
//!
//! Everything goes when the race ends. When this side dies, the pod that guards the race (`lease`) sees the end of its
//! input and has everything deleted.

mod access;
mod caller;
mod cluster_setup;
mod facts;
mod kubectl;
mod lease;
mod manifests;
mod namespace;
mod node_pair_pods;
mod node_survey;
mod nodes;
mod options;
mod pair_race;
mod pair_record;
mod path;
mod pod_process;
mod pod_tasks;
mod protocol;
mod pull_secret;
mod race;
mod ready;
mod rights;
mod runner;
mod schedule;
mod serving;
mod sidecar;
mod talk;
mod tournament;

pub use self::access::ClusterAccess;
pub use self::kubectl::Kubectl;
pub use self::lease::wait_for_the_end;
pub use self::node_survey::{NodeSeen, NodeSurvey};
pub use self::options::ClusterOptions;
pub use self::pair_record::PairResult;
pub use self::pod_tasks::do_pod_tasks;
pub use self::pull_secret::PullSecret;
pub use self::race::ClusterRace;
pub use self::sidecar::SidecarMark;
pub use self::tournament::{AllPairs, Tournament};
