//! A node as the API server has it, and the little of it that is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use datapath::{Addresses, Family, Prefixes};
use ipnet::IpNet;
use serde::Deserialize;

use super::annotations::{Annotations, Names, OfFamily};
use super::kind::{Kind, Object};
use super::tunnel;
use crate::backend::BackendKind;
use crate::lease::{Announcement, Lease, TunnelData};

/// Where the API server has all nodes.
pub(super) const NODES: &str = "/api/v1/nodes";
/// The condition of a node that keeps pods away from it, until its network says that it is there.
pub(super) const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// The fields that are read of a node. All others, which are most of its size, are skipped while it is parsed.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Node {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Deserialize)]
struct Metadata {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Spec {
    #[serde(default, rename = "podCIDR")]
    pod_cidr: String,
    #[serde(default, rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    name: String,
    status: String,
}

/// What is kept of a node's object: the rest of it would be most of the agent's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kept {
    /// This node's prefixes and annotations.
    Own(OwnNode),
    /// The lease of another node that has announced itself, or why its announcement cannot be used.
    Peer(Result<Lease, String>),
    /// Another node that has announced nothing, and is no part of the network yet.
    Silent,
}

/// What is kept of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnNode {
    /// Its pods' prefixes, or the reason why they make no sense. It has none at first.
    pub(super) pods: Result<Prefixes, String>,
    /// The annotations with our prefix.
    pub(super) annotations: Annotations,
    /// Whether Kubernetes knows that the node's network is there.
    pub(super) is_available: bool,
}

impl Kind for Node {
    const NAME: &'static str = "node";
    const PATH: &'static str = NODES;
    const LABELS: Option<&'static str> = None;
    /// A node has about 10 kB, most of them its list of images.
    const PAGE: u32 = 100;
    /// With what a connection may take to begin, an API server behind a silent partition is noticed within half a
    /// minute. Where nodes are many, their kubelets say something more often.
    const SILENCE_MAX: Duration = Duration::from_secs(20);
}

impl Kept {
    /// What is kept of a node, where `own` is this one's name.
    pub(super) fn of(node: Object<Node>, own: &str, names: &Names) -> Kept {
        let is_own = node.name == own;
        let Node { metadata: Metadata { mut annotations }, spec, status } = match node.fields {
            Ok(fields) => fields,
            Err(why) => return Kept::unread(is_own, &why),
        };
        if is_own {
            annotations.retain(|name, _| names.has(name));
            let says_so =
                |condition: &Condition| condition.name == NETWORK_UNAVAILABLE && condition.status == "False";
            let is_available = status.conditions.iter().any(says_so);
            return Kept::Own(OwnNode { pods: pods(&spec), annotations, is_available });
        }
        match annotations.get(&names.managed).is_some_and(|text| text == "true") {
            true => Kept::Peer(lease(&spec, &annotations, names)),
            false => Kept::Silent,
        }
    }

    /// What is kept of a node whose object cannot be read: what stands for it may be right.
    fn unread(is_own: bool, why: &str) -> Kept {
        let why = format!("its object cannot be read: {why}");
        match is_own {
            true => {
                Kept::Own(OwnNode { pods: Err(why), annotations: Annotations::new(), is_available: false })
            }
            false => Kept::Peer(Err(why)),
        }
    }
}

/// The prefixes of a node's pods: one of each family at most. `podCIDRs` has `podCIDR` as its first.
fn pods(spec: &Spec) -> Result<Prefixes, String> {
    let one = [&spec.pod_cidr];
    let texts: Vec<&String> = match spec.pod_cidrs.is_empty() {
        true => one.into_iter().filter(|text| !text.is_empty()).collect(),
        false => spec.pod_cidrs.iter().collect(),
    };
    let parse = |text: &&String| text.parse::<IpNet>().map_err(|error| format!("podCIDR {text:?}: {error}"));
    let prefixes: Prefixes = texts.iter().map(parse).collect::<Result<_, _>>()?;
    for family in Family::BOTH {
        let several: Prefixes = prefixes.only(&[family]);
        if several.iter().count() > 1 {
            return Err(format!("it has several podCIDRs of {}: {several}", family.name()));
        }
    }
    Ok(prefixes)
}

/// What another node says of itself.
fn lease(spec: &Spec, found: &Annotations, names: &Names) -> Result<Lease, String> {
    let pods = pods(spec)?;
    if pods.families().is_empty() {
        return Err("it has announced itself, and has no podCIDR".to_owned());
    }
    let backend =
        text(found, &names.backend_type).ok_or_else(|| format!("{} is missing", names.backend_type))?;
    let public = Addresses { v4: address(found, &names.v4)?, v6: address(found, &names.v6)? };
    if public.families().is_empty() {
        return Err(format!("{} and {} are missing", names.v4.public, names.v6.public));
    }
    let kind = BackendKind::find(backend);
    let (data, data_v6) = (tunnel_data(kind, found, &names.v4)?, tunnel_data(kind, found, &names.v6)?);
    if kind.is_some_and(BackendKind::has_tunnels) && data.is_none() && data_v6.is_none() {
        return Err(format!("{} and {} are missing", names.v4.data, names.v6.data));
    }
    Ok(Lease { pods, node: Announcement { public, backend: backend.to_owned(), data, data_v6 } })
}

fn text<'a>(found: &'a Annotations, name: &str) -> Option<&'a str> {
    found.get(name).map(String::as_str).filter(|text| !text.is_empty())
}

fn address<A: std::str::FromStr>(found: &Annotations, names: &OfFamily) -> Result<Option<A>, String> {
    let Some(text) = text(found, &names.public) else { return Ok(None) };
    let wrong = |_| format!("{} is no address of its family: {text:?}", names.public);
    text.parse().map(Some).map_err(wrong)
}

/// The data of other backends may have any form, which is theirs to judge.
fn tunnel_data(
    backend: Option<BackendKind>,
    found: &Annotations,
    names: &OfFamily,
) -> Result<Option<TunnelData>, String> {
    let text = text(found, &names.data).filter(|_| backend.is_some_and(BackendKind::has_tunnels));
    let Some(text) = text else { return Ok(None) };
    tunnel::parse(backend, text).map_err(|error| format!("{} makes no sense: {error}", names.data))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::source::kubernetes::annotations::PREFIX;

    fn kept(name: &str, pod_cidrs: &[&str], annotations: &[(&str, &str)]) -> Kept {
        let annotations: serde_json::Map<String, Value> =
            annotations.iter().map(|(name, text)| (format!("{PREFIX}/{name}"), json!(text))).collect();
        let node = json!({
            "metadata": { "name": name, "resourceVersion": "7", "annotations": annotations, "uid": "x" },
            "spec": { "podCIDR": pod_cidrs.first().unwrap_or(&""), "podCIDRs": pod_cidrs },
            "status": { "conditions": [{ "type": "NetworkUnavailable", "status": "False" }], "images": [] },
        });
        Kept::of(serde_json::from_value(node).unwrap(), "own", &Names::new(PREFIX))
    }

    #[test]
    fn a_node_that_cannot_be_read_is_named_and_no_other_is_lost() {
        let unread = |name: &str| {
            let node = json!({
                "metadata": { "name": name, "resourceVersion": "7" },
                "spec": { "podCIDRs": null },
            });
            Kept::of(serde_json::from_value(node).unwrap(), "own", &Names::new(PREFIX))
        };
        let Kept::Peer(Err(why)) = unread("other") else { panic!() };
        assert!(why.starts_with("its object cannot be read: invalid type: null"), "{why}");
        let Kept::Own(OwnNode { pods: Err(_), .. }) = unread("own") else { panic!() };
    }

    const SOUND: [(&str, &str); 4] = [
        ("kube-subnet-manager", "true"),
        ("backend-type", "vxlan"),
        ("backend-data", r#"{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}"#),
        ("public-ip", "192.0.2.1"),
    ];

    /// The reason why a sound node makes no sense once one annotation is another.
    fn reason(name: &'static str, text: &'static str) -> String {
        let annotations = [&SOUND[..], &[(name, text)]].concat();
        match kept("other", &["10.1.2.0/24"], &annotations) {
            Kept::Peer(Err(reason)) => reason,
            other => panic!("{name} {text:?} was taken: {other:?}"),
        }
    }

    #[test]
    fn a_node_that_has_announced_itself_is_a_peer() {
        let Kept::Peer(Ok(lease)) = kept("other", &["10.1.2.0/24", "fd00:1::/64"], &SOUND) else { panic!() };
        assert_eq!(lease.pods.to_string(), "10.1.2.0/24, fd00:1::/64");
        assert_eq!((lease.node.backend.as_str(), lease.node.public.iter().count()), ("vxlan", 1));
        assert_eq!(lease.node.data.unwrap().mac().unwrap().0[5], 1);
        assert_eq!(kept("other", &["10.1.2.0/24"], &SOUND[1..]), Kept::Silent);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        assert!(reason("public-ip", "fd00::1").contains("public-ip is no address of its family"));
        assert!(reason("public-ip", "").contains("public-ip and "));
        assert!(reason("backend-type", "").contains("backend-type is missing"));
        assert!(reason("backend-data", "garbage").contains("backend-data makes no sense"));
        assert!(reason("backend-data", "null").contains("backend-data and "));
        for cidrs in [&[][..], &["10.1.2.0/24", "10.1.3.0/24"], &["garbage"]] {
            assert!(matches!(kept("other", cidrs, &SOUND), Kept::Peer(Err(_))));
        }
    }

    #[test]
    fn another_transports_data_is_not_judged() {
        let annotations = [&SOUND[..], &[("backend-type", "ipsec"), ("backend-data", "not even JSON")]];
        let Kept::Peer(Ok(lease)) = kept("other", &["10.1.2.0/24"], &annotations.concat()) else { panic!() };
        assert_eq!((lease.node.backend.as_str(), lease.node.data), ("ipsec", None));
    }

    #[test]
    fn a_key_is_read_as_flannel_writes_it() {
        let with = |data, data_v6| {
            let more = [("backend-type", "wireguard"), ("backend-data", data), ("backend-v6-data", data_v6)];
            match kept("other", &["10.1.2.0/24", "fd00:1::/64"], &[&SOUND[..], &more].concat()) {
                Kept::Peer(lease) => lease,
                other => panic!("{other:?}"),
            }
        };
        let key = r#"{"PublicKey":"3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="}"#;
        let lease = with(key, key).unwrap();
        assert_eq!(lease.node.data.and_then(TunnelData::key).unwrap().0[0], 0xde);
        assert_eq!(lease.node.data_v6, lease.node.data);
        assert!(with(r#"{"PublicKey":"garbage"}"#, key).unwrap_err().contains("a public key of 32 bytes"));
        assert!(with("{}", key).unwrap_err().contains("has no `PublicKey`"));
        assert!(with("null", "null").unwrap_err().contains("are missing"));
    }

    #[test]
    fn of_this_node_the_annotations_are_kept() {
        let Kept::Own(own) = kept("own", &[], &SOUND) else { panic!() };
        assert_eq!((own.pods, own.annotations.len(), own.is_available), (Ok(Prefixes::default()), 4, true));
    }
}
