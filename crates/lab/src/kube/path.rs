//! What races in a cluster: the ways by which a pod reaches a server.

use std::fmt;
use std::str::FromStr;

use record::{Candidate, Experiment, did_you_mean, nearest};

use super::sidecar::SidecarMark;
use crate::LabError;
use crate::candidate::HOST_AGAIN;

/// A way by which a client reaches its server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodPath {
    pub(super) by: By,
    pub(super) pods: Pods,
}

/// What the client calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    /// An address of the server's pod.
    Address,
    /// The ClusterIP of a Service.
    Service,
    /// A NodePort of the server's node.
    NodePort,
    /// The name of a headless Service.
    Name,
}

/// A pair of pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pods {
    /// In the network of their nodes.
    Host,
    /// The same again, with pods of its own: what differs between pods is part of the noise.
    HostAgain,
    /// In the cluster's network.
    Plain,
    /// The same, and a NetworkPolicy lets only this client to this server.
    Policy,
    /// The same, with a proxy that the cluster puts beside their container.
    Sidecar,
    /// With a second interface, in a network of this name.
    Network(String),
}

/// What stands before the name of a secondary network.
const NETWORK: &str = "network:";

/// Names of Services have 63 characters at most.
const NAME_MAX: usize = 40;

impl Pods {
    /// Whether they are in the network of their nodes.
    pub(super) fn are_of_nodes(&self) -> bool {
        matches!(self, Pods::Host | Pods::HostAgain)
    }

    /// A name for their objects.
    pub(super) fn name(&self) -> String {
        match self {
            Pods::Host => "host".to_owned(),
            Pods::HostAgain => "host-again".to_owned(),
            Pods::Plain => "pod".to_owned(),
            Pods::Policy => "policy".to_owned(),
            Pods::Sidecar => "sidecar".to_owned(),
            Pods::Network(name) => {
                let fits = |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit();
                let name: String = name.chars().take(NAME_MAX).collect();
                format!("net-{}", name.replace(|sign| !fits(sign), "-"))
            }
        }
    }
}

impl PodPath {
    pub(super) const HOST: PodPath = PodPath { by: By::Address, pods: Pods::Host };
    pub(super) const HOST_AGAIN: PodPath = PodPath { by: By::Address, pods: Pods::HostAgain };
    pub(super) const PLAIN: PodPath = PodPath { by: By::Address, pods: Pods::Plain };

    /// The names of those that race if none are named.
    const USUAL: [&str; 3] = ["pod", "service", "nodeport"];
    /// All others, for messages; `network:NAME` beside them.
    const OTHERS: [&str; 7] = [
        "headless",
        "pod+policy",
        "service+policy",
        "nodeport+policy",
        "pod+sidecar",
        "service+sidecar",
        "nodeport+sidecar",
    ];

    /// What it stands for in the world.
    pub(super) fn stands_for(&self) -> String {
        let by = match (self.by, &self.pods) {
            (_, Pods::Host | Pods::HostAgain) => {
                return "processes of the nodes, in the network of their machines".to_owned();
            }
            (By::Address, Pods::Network(name)) => {
                return format!("pods with a second interface in {name}, called by its address");
            }
            (By::Address, _) => "a pod calls a pod by its address",
            (By::Service, _) => "a pod calls a Service by its ClusterIP",
            (By::NodePort, _) => "a pod calls a NodePort of the server's node",
            (By::Name, _) => {
                "a pod calls a headless Service by its name, resolved before connections are opened"
            }
        };
        let with = match &self.pods {
            Pods::Host | Pods::HostAgain | Pods::Plain | Pods::Network(_) => "",
            Pods::Policy => ", past a NetworkPolicy that lets in only this client",
            Pods::Sidecar => ", through the proxies that the cluster puts beside both",
        };
        format!("{by}{with}")
    }
}

impl fmt::Display for PodPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match (&self.pods, self.by) {
            (Pods::Host | Pods::HostAgain, _) => return f.write_str("host"),
            (Pods::Network(name), _) => return write!(f, "{NETWORK}{name}"),
            (_, By::Address) => "pod",
            (_, By::Service) => "service",
            (_, By::NodePort) => "nodeport",
            (_, By::Name) => "headless",
        };
        f.write_str(by)?;
        match self.pods {
            Pods::Policy => f.write_str("+policy"),
            Pods::Sidecar => f.write_str("+sidecar"),
            Pods::Host | Pods::HostAgain | Pods::Plain | Pods::Network(_) => Ok(()),
        }
    }
}

impl FromStr for PodPath {
    type Err = String;

    fn from_str(text: &str) -> Result<PodPath, String> {
        if let Some(name) = text.strip_prefix(NETWORK).filter(|name| !name.is_empty()) {
            return Ok(PodPath { by: By::Address, pods: Pods::Network(name.to_owned()) });
        }
        let (by, pods) = match text.split_once('+') {
            None => (text, Pods::Plain),
            Some((by, "policy")) => (by, Pods::Policy),
            Some((by, "sidecar")) => (by, Pods::Sidecar),
            Some((_, other)) => return Err(format!("{other:?} is no kind of pods; policy or sidecar is")),
        };
        match by {
            "host" if pods == Pods::Plain => Ok(PodPath::HOST),
            "pod" => Ok(PodPath { by: By::Address, pods }),
            "service" => Ok(PodPath { by: By::Service, pods }),
            "nodeport" => Ok(PodPath { by: By::NodePort, pods }),
            "headless" if pods == Pods::Plain => Ok(PodPath { by: By::Name, pods }),
            _ => {
                let all = || ["host"].into_iter().chain(PodPath::USUAL).chain(PodPath::OTHERS);
                let known: Vec<&str> = all().collect();
                let nearest = nearest(text, all()).map(|name| format!("{name:?}"));
                let (names, maybe) = (known.join(", "), did_you_mean(nearest));
                Err(format!("a cluster has no path {text:?}; there are {names} and {NETWORK}NAME{maybe}"))
            }
        }
    }
}

/// A path that takes part.
#[derive(Debug, Clone)]
pub(super) struct ClusterContender {
    /// The name in tables.
    pub(super) name: String,
    pub(super) path: PodPath,
    /// That it cannot run is an error.
    pub(super) required: bool,
    /// Why it cannot run; empty: it races.
    pub(super) unmet: Vec<String>,
}

/// The contenders: the host, the host again, then the paths that the experiment names, or the usual ones.
///
/// # Errors
/// [`LabError::Experiment`]: a cluster has no such path, or a candidate asks for what a cluster's nodes
/// are not changed for.
pub(super) fn contenders(
    experiment: &Experiment,
    sidecar: Option<&SidecarMark>,
) -> Result<Vec<ClusterContender>, LabError> {
    let refused = |what: String, why: &str| LabError::Experiment { what, why: why.to_owned() };
    let usual = || PodPath::USUAL.map(|path| Candidate { path: path.to_owned(), ..Candidate::default() });
    let candidates = match experiment.candidates.as_slice() {
        [] => usual().to_vec(),
        some => some.to_vec(),
    };
    let host = |name: &str, path: PodPath| ClusterContender {
        name: name.to_owned(),
        path,
        required: true,
        unmet: Vec::new(),
    };
    let mut contenders = vec![host("host", PodPath::HOST), host(HOST_AGAIN, PodPath::HOST_AGAIN)];
    for candidate in candidates {
        let Candidate { path, required, name, connections, .. } = &candidate;
        let plain =
            Candidate { path: path.clone(), required: *required, name: name.clone(), ..Candidate::default() };
        if candidate != plain || connections.is_some() {
            let what = format!("what candidate {path:?} asks for besides its path");
            return Err(refused(what, "a cluster's nodes and pods are raced as they are"));
        }
        let parsed: PodPath =
            path.parse().map_err(|why: String| LabError::Experiment { what: "the paths".to_owned(), why })?;
        if parsed == PodPath::HOST {
            continue;
        }
        if parsed.pods == Pods::Sidecar && sidecar.is_none() {
            let why = "--sidecar KEY=VALUE says by which label or annotation the cluster adds its proxy";
            return Err(refused(format!("path {path:?}"), why));
        }
        let name = name.clone().unwrap_or_else(|| parsed.to_string());
        if contenders.iter().any(|other| other.name == name) {
            return Err(refused(format!("two candidates named {name:?}"), "each needs a name of its own"));
        }
        contenders.push(ClusterContender { name, path: parsed, required: *required, unmet: Vec::new() });
    }
    Ok(contenders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_as_it_is_written() {
        let names = PodPath::USUAL.into_iter().chain(PodPath::OTHERS).chain(["host", "network:blue/storage"]);
        for name in names {
            let path: PodPath = name.parse().unwrap();
            assert_eq!(path.to_string(), name);
        }
        let network: PodPath = "network:blue/storage".parse().unwrap();
        assert_eq!(network.pods.name(), "net-blue-storage");
    }

    #[test]
    fn a_path_that_no_cluster_has_is_refused_with_the_nearest() {
        let refused = |text: &str| text.parse::<PodPath>().unwrap_err();
        assert!(refused("servise").contains("did you mean \"service\""), "{}", refused("servise"));
        assert!(refused("pod+firewall").contains("policy or sidecar"));
        assert!(refused("headless+policy").contains("no path") && refused("network:").contains("no path"));
    }

    #[test]
    fn a_cluster_races_the_usual_paths_beside_the_host_twice() {
        let names = |experiment: &Experiment| -> Vec<String> {
            contenders(experiment, None).unwrap().into_iter().map(|one| one.name).collect()
        };
        assert_eq!(names(&Experiment::default()), ["host", "host again", "pod", "service", "nodeport"]);
        let candidate = |path: &str| Candidate { path: path.to_owned(), ..Candidate::default() };
        let of = |candidates: Vec<Candidate>| Experiment { candidates, ..Experiment::default() };
        let two = of(vec![candidate("host"), candidate("pod")]);
        assert_eq!(names(&two), ["host", "host again", "pod"]);
        let why = |experiment| contenders(&experiment, None).unwrap_err().to_string();
        assert!(why(of(vec![candidate("pod+sidecar")])).contains("--sidecar KEY=VALUE"));
        assert!(why(of(vec![candidate("pod"), candidate("pod")])).contains("a name of its own"));
        let many = Candidate { connections: Some(9), ..candidate("pod") };
        assert!(why(of(vec![many])).contains("raced as they are"));
    }
}
