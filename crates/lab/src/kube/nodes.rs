//! The nodes of a race, out of those of the cluster.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use record::NodeInZone;
use serde_json::Value;

use super::kubectl::Kubectl;
use crate::LabError;

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    /// Its addresses in the cluster.
    pub(super) addresses: Vec<IpAddr>,
    /// What the kubelet says of it, for the record.
    pub(super) says: String,
    /// The zone that its label names.
    pub(super) zone: Option<String>,
    /// Why no pod is put there, if none is.
    closed: Option<Closed>,
    /// Why only pods that bear it are put there.
    tainted: Option<String>,
}

/// Why no pod is put on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Closed {
    /// It runs another system than Linux, of this name.
    System(String),
    NotReady,
    /// Pods that tolerate everything are put there all the same (the scheduler's plugin `NodeUnschedulable`).
    Cordoned,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::System(system) => write!(f, "it runs {system}"),
            Closed::NotReady => f.write_str(NOT_READY),
            Closed::Cordoned => f.write_str("it is cordoned"),
        }
    }
}

/// Why a node is not looked at that should be.
pub(super) const NOT_READY: &str = "it is not ready";

/// A node that takes no part in a race of all pairs or in a look, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) node: String,
    pub(super) why: String,
}

/// The label by which a node says in which zone it is.
const ZONE: &str = "topology.kubernetes.io/zone";
/// The most nodes of a race of all pairs. Each has some six pods, and a process of `kubectl` for each
/// of them runs here.
const NODES_MAX: usize = 32;

impl Node {
    /// The node as a record has it.
    pub(super) fn in_zone(&self) -> NodeInZone {
        NodeInZone { node: self.name.clone(), zone: self.zone.clone() }
    }

    /// Its address of a family.
    pub(super) fn address(&self, ipv6: bool) -> Result<IpAddr, String> {
        let family = if ipv6 { "IPv6" } else { "IPv4" };
        let found = self.addresses.iter().find(|address| address.is_ipv6() == ipv6);
        let other = if ipv6 { "leave out --ipv6" } else { "--ipv6 races over IPv6" };
        found.copied().ok_or_else(|| format!("node {} has no address of {family}; {other}", self.name))
    }

    /// Whether its kubelet says that it takes pods, as far as anybody lets them go there.
    pub(super) fn is_ready(&self) -> bool {
        self.closed.is_none() || self.closed == Some(Closed::Cordoned)
    }

    /// Whether any pods are put there.
    pub(super) fn is_open(&self) -> bool {
        self.why_shut().is_none()
    }

    fn why_shut(&self) -> Option<String> {
        self.closed.as_ref().map(ToString::to_string).or_else(|| self.tainted.clone())
    }

    fn of(object: &Value) -> Node {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let addresses = list(&object["status"]["addresses"]);
        let internal = addresses.iter().filter(|address| address["type"] == "InternalIP");
        let info = &object["status"]["nodeInfo"];
        let ready = list(&object["status"]["conditions"])
            .iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let taints = list(&object["spec"]["taints"]);
        let taint = taints.iter().find(|taint| taint["effect"] != "PreferNoSchedule");
        let system = text(&object["metadata"]["labels"]["kubernetes.io/os"]);
        let closed = match (ready, object["spec"]["unschedulable"] == true) {
            _ if !["linux", ""].contains(&system.as_str()) => Some(Closed::System(system)),
            (false, _) => Some(Closed::NotReady),
            (_, true) => Some(Closed::Cordoned),
            (true, false) => None,
        };
        Node {
            name: text(&object["metadata"]["name"]),
            addresses: internal.filter_map(|address| address["address"].as_str()?.parse().ok()).collect(),
            says: format!(
                "Linux {}, {}, kubelet {}",
                text(&info["kernelVersion"]),
                text(&info["containerRuntimeVersion"]),
                text(&info["kubeletVersion"])
            ),
            zone: object["metadata"]["labels"][ZONE].as_str().map(str::to_owned),
            closed,
            tainted: taint.map(|taint| format!("it has the taint {}", text(&taint["key"]))),
        }
    }
}

/// Refuses names of nodes that are not the ends of one race: two, or one with `same_node`.
///
/// # Errors
/// [`LabError::Experiment`], with what was named.
pub(super) fn check_ends(named: &[String], same_node: bool) -> Result<(), LabError> {
    let why = match named {
        [] => return Ok(()),
        [_] if same_node => return Ok(()),
        [_] => {
            "a race is from one node to another, and this names one: name the server's too (CLIENT,SERVER), or race between \
             pods of one node with --same-node"
        }
        _ if same_node => "with --same-node both pods are on one node, so one is named",
        [client, server] if client == server => {
            "a race is from one node to another: name two, or one together with --same-node"
        }
        [_, _] => return Ok(()),
        _ => "a race is from one node to another: name two, or race every pair of them with --all-pairs",
    };
    Err(LabError::Experiment { what: format!("--nodes {}", named.join(",")), why: why.to_owned() })
}

/// Refuses names of nodes of which there are no pairs.
///
/// # Errors
/// [`LabError::Experiment`], with what was named.
pub(super) fn check_pairs(named: &[String]) -> Result<(), LabError> {
    let twice = named.iter().enumerate().find(|(at, name)| named[..*at].contains(name));
    let why = match (named, twice) {
        (_, Some((_, name))) => format!("{name} is named twice"),
        ([_], None) => "a race of all pairs needs two nodes, and this names one".to_owned(),
        _ => return Ok(()),
    };
    Err(LabError::Experiment { what: format!("--nodes {}", named.join(",")), why })
}

/// The client's and the server's node: those that are named, whose taints are then tolerated, or the first two that
/// take any pods. One name is both; the names were [checked](check_ends).
///
/// # Errors
/// [`LabError::Machine`]: one that is named is not there; the cluster does not say which nodes
/// it has, or these or too many others take no pods.
pub(super) fn choose(kubectl: &Kubectl, named: &[String], same_node: bool) -> Result<[Node; 2], LabError> {
    let all = listed(kubectl)?;
    chosen(&all, named, same_node).map_err(|why| unsuited(kubectl, (&all, named), why))
}

/// All nodes of the cluster.
fn listed(kubectl: &Kubectl) -> Result<Vec<Node>, LabError> {
    let listed = kubectl.get(&["nodes"]).map_err(|why| kubectl.failed(why))?;
    Ok(listed["items"].as_array().into_iter().flatten().map(Node::of).collect())
}

/// The error that nodes are none for a race: a name is wrong, or the cluster's nodes are not as they have to be.
fn unsuited(kubectl: &Kubectl, (all, named): (&[Node], &[String]), why: String) -> LabError {
    if named.iter().all(|name| named_node(all, name).is_ok()) {
        return kubectl.failed(why);
    }
    LabError::not_there(kubectl.cluster(), why)
}

/// The nodes of a race of all pairs: those that are named, or all that take any pods; with `zones` one for each zone,
/// which is the first that is named or listed there. And, unless some are named, the others, each with the reason.
///
/// # Errors
/// Those of [`choose`], or there are too many.
pub(super) fn choose_many(
    kubectl: &Kubectl,
    named: &[String],
    zones: bool,
) -> Result<(Vec<Node>, Vec<LeftOut>), LabError> {
    let all = listed(kubectl)?;
    let nodes = many(&all, named, zones).map_err(|why| unsuited(kubectl, (&all, named), why))?;
    let others = if named.is_empty() { left_out(&all, &nodes) } else { Vec::new() };
    Ok((nodes, others))
}

fn left_out(all: &[Node], nodes: &[Node]) -> Vec<LeftOut> {
    let why = |node: &Node| {
        let of_zone = || {
            let first = nodes.iter().find(|first| first.zone == node.zone);
            first.map_or_else(
                || format!("it has no label {ZONE}"),
                |first| format!("{} stands for its zone", first.name),
            )
        };
        node.why_shut().unwrap_or_else(of_zone)
    };
    let others = all.iter().filter(|node| !nodes.contains(node));
    others.map(|node| LeftOut { node: node.name.clone(), why: why(node) }).collect()
}

fn many(all: &[Node], named: &[String], zones: bool) -> Result<Vec<Node>, String> {
    let mut nodes = named.iter().map(|name| find(all, name)).collect::<Result<Vec<Node>, String>>()?;
    if named.is_empty() {
        nodes.extend(all.iter().filter(|node| node.is_open()).cloned());
    }
    if zones {
        let mut seen = BTreeSet::new();
        let known = nodes.iter().filter(|node| node.zone.is_some()).count();
        let without = nodes.iter().find(|node| node.zone.is_none()).map(|node| node.name.clone());
        nodes.retain(|node| node.zone.as_ref().is_some_and(|zone| seen.insert(zone.clone())));
        match (seen.len(), without) {
            (0, _) => return Err(format!("no node has the label {ZONE}; leave out --zones")),
            (1, _) if known < 2 => return Err(format!("only node {} has the label {ZONE}", nodes[0].name)),
            (1, _) => {
                let zone = nodes[0].zone.clone().unwrap_or_default();
                return Err(format!(
                    "all nodes are in zone {zone:?}, and --zones races one node of each zone; leave it out"
                ));
            }
            (_, Some(name)) if !named.is_empty() => {
                return Err(format!("node {name} has no label {ZONE}, so it stands for no zone"));
            }
            _ => {}
        }
    }
    match nodes.len() {
        0 | 1 => {
            let why = closed(all);
            Err(format!(
                "a race of all pairs needs two nodes that take pods, and there are {}{why}",
                nodes.len()
            ))
        }
        many if many > NODES_MAX => Err(format!(
            "{many} nodes take pods, and a race of all pairs has {NODES_MAX} at most; name some with --nodes, or race one \
             of each zone with --zones"
        )),
        _ => Ok(nodes),
    }
}

/// Why nodes take no pods, in brackets.
fn closed(all: &[Node]) -> String {
    let closed = all.iter().filter_map(|node| Some(format!("{}: {}", node.name, node.why_shut()?)));
    let why: Vec<String> = closed.collect();
    if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) }
}

/// All nodes that run Linux, cordoned ones and those that are not ready among them, or those that are named. And,
/// unless some are named, the others, each with the reason.
///
/// # Errors
/// [`LabError::Machine`]: one that is named is not there; the cluster does not say which nodes
/// it has, one of these does not run Linux, or none is ready.
pub(super) fn all(kubectl: &Kubectl, named: &[String]) -> Result<(Vec<Node>, Vec<LeftOut>), LabError> {
    let all = listed(kubectl)?;
    to_see(&all, named).map_err(|why| unsuited(kubectl, (&all, named), why))
}

fn to_see(all: &[Node], named: &[String]) -> Result<(Vec<Node>, Vec<LeftOut>), String> {
    let runs_linux = |node: &Node| !matches!(node.closed, Some(Closed::System(_)));
    let nodes: Vec<Node> = match named {
        [] => all.iter().filter(|node| runs_linux(node)).cloned().collect(),
        named => {
            let found = |name: &String| {
                let node = named_node(all, name)?;
                if runs_linux(node) { Ok(node.clone()) } else { find(all, name) }
            };
            named.iter().map(found).collect::<Result<_, String>>()?
        }
    };
    if !nodes.iter().any(Node::is_ready) {
        return Err(format!("no node is ready{}", closed(all)));
    }
    let others = if named.is_empty() { left_out(all, &nodes) } else { Vec::new() };
    Ok((nodes, others))
}

/// A node that takes pods, by its name.
fn find(all: &[Node], name: &str) -> Result<Node, String> {
    match named_node(all, name)? {
        Node { closed: Some(why), .. } => Err(format!("node {name} takes no pods: {why}")),
        node => Ok(node.clone()),
    }
}

fn named_node<'n>(all: &'n [Node], name: &str) -> Result<&'n Node, String> {
    all.iter().find(|node| node.name == name).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|node| node.name.as_str()).collect();
        format!("there is no node {name:?}; there are {}", names.join(", "))
    })
}

fn chosen(all: &[Node], named: &[String], same_node: bool) -> Result<[Node; 2], String> {
    match named {
        [] => {
            let mut open = all.iter().filter(|node| node.is_open());
            let (first, second) = (open.next(), open.next());
            match (first, second) {
                (Some(only), _) if same_node => Ok([only.clone(), only.clone()]),
                (Some(client), Some(server)) => Ok([client.clone(), server.clone()]),
                _ => {
                    let why = closed(all);
                    Err(format!(
                        "a race needs two nodes that take pods{why}; --same-node races between pods of one"
                    ))
                }
            }
        }
        [client, .., server] => Ok([find(all, client)?, find(all, server)?]),
        [both] => find(all, both).map(|node| [node.clone(), node]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, taint: Option<&str>) -> Node {
        let taints: Vec<Value> =
            taint.into_iter().map(|key| json!({ "key": key, "effect": "NoSchedule" })).collect();
        Node::of(&json!({
            "metadata": { "name": name }, "spec": { "taints": taints },
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }],
                "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }, { "type": "Hostname", "address": name }],
                "nodeInfo": { "kernelVersion": "6.18", "containerRuntimeVersion": "containerd://2.1", "kubeletVersion": "v1.36" },
            },
        }))
    }

    fn names(nodes: Result<[Node; 2], String>) -> Result<[String; 2], String> {
        nodes.map(|nodes| nodes.map(|node| node.name))
    }

    #[test]
    fn the_first_two_nodes_that_take_pods_race() {
        let all = [
            node("control", Some("node-role.kubernetes.io/control-plane")),
            node("a", None),
            node("b", None),
        ];
        assert_eq!(names(chosen(&all, &[], false)).unwrap(), ["a", "b"]);
        assert_eq!(names(chosen(&all, &[], true)).unwrap(), ["a", "a"]);
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(names(chosen(&all, &named(&["b", "a"]), false)).unwrap(), ["b", "a"]);
        let why = |named: &[String]| chosen(&all, named, false).unwrap_err();
        assert_eq!(names(chosen(&all, &named(&["control", "a"]), false)).unwrap(), ["control", "a"]);
        assert!(why(&named(&["x", "a"])).contains("there are control, a, b"));
        let few = chosen(&all[..2], &[], false).unwrap_err();
        assert!(few.contains("two nodes") && few.contains("control: it has the taint"), "{few}");
    }

    #[test]
    fn names_are_those_of_the_ends_of_a_race() {
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let said = |checked: Result<(), LabError>| checked.err().map(|error| error.to_string());
        let ends = |names: &[&str], same_node| said(check_ends(&named(names), same_node));
        for (names, same_node) in [(&[][..], false), (&[], true), (&["a"], true), (&["a", "b"], false)] {
            assert_eq!(ends(names, same_node), None, "{names:?}");
        }
        for (names, same_node, expected) in [
            (
                &["a"][..],
                false,
                "race as asked: --nodes a: a race is from one node to another, and this names one",
            ),
            (&["a", "b"], true, "--nodes a,b: with --same-node both pods are on one node"),
            (
                &["a", "a"],
                false,
                "--nodes a,a: a race is from one node to another: name two, or one together with",
            ),
            (
                &["a", "b", "c"],
                false,
                "--nodes a,b,c: a race is from one node to another: name two, or race every",
            ),
        ] {
            let why = ends(names, same_node).unwrap();
            assert!(why.contains(expected), "{why}");
        }
        let pairs = |names: &[&str]| said(check_pairs(&named(names)));
        assert_eq!((pairs(&[]), pairs(&["a", "b", "c"])), (None, None));
        assert!(pairs(&["a"]).unwrap().contains("--nodes a: a race of all pairs needs two nodes"));
        assert!(pairs(&["a", "b", "a"]).unwrap().contains("--nodes a,b,a: a is named twice"));
    }

    fn in_zone(name: &str, zone: Option<&str>) -> Node {
        Node { zone: zone.map(str::to_owned), ..node(name, None) }
    }

    #[test]
    fn all_pairs_are_of_all_nodes_that_take_pods_or_of_those_that_are_named() {
        let all = [node("control", Some("control-plane")), node("a", None), node("b", None), node("c", None)];
        let of = |named: &[&str]| {
            let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
            let chosen = many(&all, &named, false);
            chosen.map(|nodes| nodes.into_iter().map(|node| node.name).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]).unwrap(), ["a", "b", "c"]);
        assert_eq!(of(&["control", "c"]).unwrap(), ["control", "c"]);
        assert!(of(&["a", "x"]).unwrap_err().contains("there are control, a, b, c"));
        let others = left_out(&all, &many(&all, &[], false).unwrap());
        assert_eq!(others.len(), 1);
        assert_eq!(
            (others[0].node.as_str(), others[0].why.as_str()),
            ("control", "it has the taint control-plane")
        );
        let few = many(&all[..2], &[], false).unwrap_err();
        assert!(few.contains("there are 1 (control: it has the taint control-plane)"), "{few}");
        let crowd: Vec<Node> = (0..33).map(|at| node(&format!("n{at}"), None)).collect();
        assert!(many(&crowd, &[], false).unwrap_err().contains("33 nodes take pods"));
    }

    #[test]
    fn one_node_stands_for_its_zone() {
        let all =
            [in_zone("a", Some("x")), in_zone("b", Some("x")), in_zone("c", Some("y")), in_zone("d", None)];
        let of = |all: &[Node], named: &[&str]| {
            let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
            many(all, &named, true).map(|nodes| nodes.into_iter().map(|node| node.name).collect::<Vec<_>>())
        };
        assert_eq!(of(&all, &[]).unwrap(), ["a", "c"]);
        let others = left_out(&all, &many(&all, &[], true).unwrap());
        let expected = [("b", "a stands for its zone"), ("d", "it has no label topology.kubernetes.io/zone")];
        assert_eq!(
            others.iter().map(|one| (one.node.as_str(), one.why.as_str())).collect::<Vec<_>>(),
            expected
        );
        assert_eq!(of(&all, &["b", "c"]).unwrap(), ["b", "c"]);
        assert!(of(&all, &["a", "c", "d"]).unwrap_err().contains("node d has no label"));
        assert!(of(&all[..2], &[]).unwrap_err().contains("all nodes are in zone \"x\""));
        assert!(
            of(&all[3..], &[]).unwrap_err().contains("no node has the label topology.kubernetes.io/zone")
        );
        assert!(of(&all[2..], &[]).unwrap_err().contains("only node c has the label"));
    }

    #[test]
    fn all_nodes_of_linux_are_to_be_seen() {
        let with = |name: &str, closed: Closed| Node { closed: Some(closed), ..node(name, None) };
        let all = [
            with("away", Closed::NotReady),
            with("kept", Closed::Cordoned),
            with("w", Closed::System("windows".to_owned())),
            node("control", Some("node-role.kubernetes.io/control-plane")),
        ];
        let names = |nodes: &[Node]| nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
        let (nodes, others) = to_see(&all, &[]).unwrap();
        assert_eq!(names(&nodes), ["away", "kept", "control"]);
        assert_eq!(nodes.iter().map(Node::is_ready).collect::<Vec<_>>(), [false, true, true]);
        assert_eq!(others, [LeftOut { node: "w".to_owned(), why: "it runs windows".to_owned() }]);
        let named = |name: &str| to_see(&all, &[name.to_owned()]);
        assert_eq!(names(&named("kept").unwrap().0), ["kept"]);
        assert!(named("w").unwrap_err().contains("node w takes no pods: it runs windows"));
        assert!(named("x").unwrap_err().contains("there are away, kept, w, control"));
        assert!(named("away").unwrap_err().contains("no node is ready (away: it is not ready;"));
    }

    #[test]
    fn a_node_says_what_it_is() {
        let node = node("a", None);
        assert_eq!(node.says, "Linux 6.18, containerd://2.1, kubelet v1.36");
        assert_eq!(node.address(false), Ok("192.0.2.1".parse().unwrap()));
        assert!(node.address(true).unwrap_err().contains("no address of IPv6"));
    }
}
