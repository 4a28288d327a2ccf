//! The two nodes of a race, out of those of the cluster.

use std::net::IpAddr;

use serde_json::Value;

use super::kubectl::Kubectl;

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    /// Its addresses in the cluster.
    pub(super) addresses: Vec<IpAddr>,
    /// What the kubelet says of it, for the record.
    pub(super) says: String,
    /// Why no pod is put there, if none is.
    closed: Option<String>,
    /// Why only pods that bear it are put there.
    tainted: Option<String>,
}

impl Node {
    /// Its address of a family.
    pub(super) fn address(&self, ipv6: bool) -> Result<IpAddr, String> {
        let family = if ipv6 { "IPv6" } else { "IPv4" };
        let found = self.addresses.iter().find(|address| address.is_ipv6() == ipv6);
        let other = if ipv6 { "leave out --ipv6" } else { "--ipv6 races over IPv6" };
        found.copied().ok_or_else(|| format!("node {} has no address of {family}; {other}", self.name))
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
            _ if !["linux", ""].contains(&system.as_str()) => Some(format!("it runs {system}")),
            (false, _) => Some("it is not ready".to_owned()),
            (_, true) => Some("it is cordoned".to_owned()),
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
            closed,
            tainted: taint.map(|taint| format!("it has the taint {}", text(&taint["key"]))),
        }
    }
}

/// The client's and the server's node: those that are named, whose taints are then tolerated, or the first two that take any
/// pods. One name is both.
///
/// # Errors
/// There are none, in words.
pub(super) fn choose(kubectl: &Kubectl, named: &[String], same_node: bool) -> Result<[Node; 2], String> {
    let listed = kubectl.get(&["nodes"])?;
    let all: Vec<Node> = listed["items"].as_array().into_iter().flatten().map(Node::of).collect();
    chosen(&all, named, same_node)
}

/// All nodes that run Linux and are ready, or those that are named.
///
/// # Errors
/// One that is named is not there or not ready, or there are none at all; in words.
pub(super) fn all(kubectl: &Kubectl, named: &[String]) -> Result<Vec<Node>, String> {
    let listed = kubectl.get(&["nodes"])?;
    let all: Vec<Node> = listed["items"].as_array().into_iter().flatten().map(Node::of).collect();
    let found = match named {
        [] => all.into_iter().filter(|node| node.closed.is_none()).collect(),
        named => named.iter().map(|name| find(&all, name)).collect::<Result<Vec<_>, _>>()?,
    };
    if found.is_empty() { Err("no node is ready".to_owned()) } else { Ok(found) }
}

/// A node that takes pods, by its name.
fn find(all: &[Node], name: &str) -> Result<Node, String> {
    match all.iter().find(|node| node.name == name) {
        Some(Node { closed: Some(why), .. }) => Err(format!("node {name} takes no pods: {why}")),
        Some(node) => Ok(node.clone()),
        None => {
            let names: Vec<&str> = all.iter().map(|node| node.name.as_str()).collect();
            Err(format!("there is no node {name:?}; there are {}", names.join(", ")))
        }
    }
}

fn chosen(all: &[Node], named: &[String], same_node: bool) -> Result<[Node; 2], String> {
    match named {
        [] => {
            let mut open = all.iter().filter(|node| node.closed.is_none() && node.tainted.is_none());
            let (first, second) = (open.next(), open.next());
            match (first, second) {
                (Some(only), _) if same_node => Ok([only.clone(), only.clone()]),
                (Some(client), Some(server)) => Ok([client.clone(), server.clone()]),
                _ => {
                    let why = |node: &Node| node.closed.clone().or(node.tainted.clone());
                    let closed = all.iter().filter_map(|node| Some((&node.name, why(node)?)));
                    let why: Vec<String> = closed.map(|(name, why)| format!("{name}: {why}")).collect();
                    let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
                    Err(format!(
                        "a race needs two nodes that take pods{why}; --same-node races between pods of one"
                    ))
                }
            }
        }
        [both] if same_node => find(all, both).map(|node| [node.clone(), node]),
        [client, server] if client != server && !same_node => Ok([find(all, client)?, find(all, server)?]),
        _ => Err("--nodes takes the client's and the server's node, or one with --same-node".to_owned()),
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
        assert!(why(&named(&["a"])).contains("or one with --same-node"));
        let few = chosen(&all[..2], &[], false).unwrap_err();
        assert!(few.contains("two nodes") && few.contains("control: it has the taint"), "{few}");
    }

    #[test]
    fn a_node_says_what_it_is() {
        let node = node("a", None);
        assert_eq!(node.says, "Linux 6.18, containerd://2.1, kubelet v1.36");
        assert_eq!(node.address(false), Ok("192.0.2.1".parse().unwrap()));
        assert!(node.address(true).unwrap_err().contains("no address of IPv6"));
    }
}
