//! Kubernetes as a lease source, against a real API server and etcd. Nodes are posted; nothing runs on them.

use std::time::{Duration, Instant};

use agent::lease::{Announcement, Lease, Snapshot, TunnelData, VxlanEnd};
use agent::source::kubernetes::PREFIX;
use cluster::ControlPlane;
use datapath::Addresses;
use linux::Mac;
use serde_json::{Value, json};

use crate::control::{ELSEWHERE, Scene};

const PORT: u16 = ControlPlane::PORT;

/// A node without prefixes that has said nothing.
fn bare(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } })
}

pub(crate) fn with_pods(name: &str, cidrs: &[&str]) -> Value {
    let mut node = bare(name);
    node["spec"] = json!({ "podCIDR": cidrs[0], "podCIDRs": cidrs });
    node
}

/// A node that has announced itself with an address.
pub(crate) fn peer(name: &str, cidr: &str, address: &str) -> Value {
    let mut node = with_pods(name, &[cidr]);
    node["metadata"]["annotations"] = json!({
        format!("{PREFIX}/kube-subnet-manager"): "true",
        format!("{PREFIX}/backend-type"): "host-gw",
        format!("{PREFIX}/backend-data"): "null",
        format!("{PREFIX}/public-ip"): address,
    });
    node
}

pub(crate) fn own(address: [u8; 4]) -> Announcement {
    Announcement {
        public: Addresses::both(address.into(), "2001:db8::1".parse().unwrap()),
        backend: "vxlan".to_owned(),
        data: Some(TunnelData::Vxlan(VxlanEnd { vni: Some(1), mac: Mac([2, 0, 0, 0, 0, 4]) })),
        data_v6: Some(TunnelData::Vxlan(VxlanEnd { vni: Some(1), mac: Mac([2, 0, 0, 0, 0, 6]) })),
    }
}

fn annotation<'a>(node: &'a Value, name: &str) -> Option<&'a str> {
    node["metadata"]["annotations"][format!("{PREFIX}/{name}")].as_str()
}

fn names(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.others.keys().map(String::as_str).collect()
}

fn address_of(snapshot: &Snapshot, name: &str) -> Option<String> {
    let lease: &Lease = snapshot.others.get(name)?.as_ref().ok()?;
    Some(lease.node.public.v4?.to_string())
}

#[test]
fn a_node_gets_its_prefixes_and_announces_itself() {
    let Some(scene) = Scene::new() else { return };
    scene.create(PORT, &[bare("own")]);
    let mut following = scene.follow("own", own([192, 0, 2, 1]));
    let first = following.until_whole();
    assert_eq!(
        (first.own.families().len(), first.network.unwrap()["Network"].as_str()),
        (0, Some("10.0.0.0/8"))
    );
    assert_eq!(annotation(&scene.node("own"), "kube-subnet-manager"), None);

    // Its prefixes come later.
    let pods = json!({ "spec": { "podCIDR": "10.1.2.0/24", "podCIDRs": ["10.1.2.0/24", "fd00:1:2::/64"] } });
    scene.kubectl(&["patch", "node", "own", "--patch", &pods.to_string()]);
    let snapshot = following.until(|snapshot| !snapshot.own.families().is_empty());
    let waited = "waiting for the prefixes of this node's pods: node own has no podCIDR";
    assert_eq!(following.said(), [waited, "this node's pods have prefixes"]);
    assert_eq!(snapshot.own.to_string(), "10.1.2.0/24, fd00:1:2::/64");
    let node = scene.until_node("own", |node| annotation(node, "kube-subnet-manager") == Some("true"));
    let announced = ["backend-type", "backend-data", "public-ip", "backend-v6-data", "public-ipv6"];
    assert_eq!(
        announced.map(|name| annotation(&node, name).unwrap()),
        [
            "vxlan",
            r#"{"VNI":1,"VtepMAC":"02:00:00:00:00:04"}"#,
            "192.0.2.1",
            r#"{"VNI":1,"VtepMAC":"02:00:00:00:00:06"}"#,
            "2001:db8::1"
        ]
    );
    let condition = &node["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("NetworkUnavailable"), &json!("False")));
    assert_eq!(condition["reason"], "HostgapIsUp");

    // Another address of the node, one that an administrator wants, and an annotation that somebody removed.
    following.announce(own([192, 0, 2, 9]));
    scene.until_node("own", |node| annotation(node, "public-ip") == Some("192.0.2.9"));
    let overwrite = format!("{PREFIX}/public-ip-overwrite=198.51.100.1");
    scene.kubectl(&["annotate", "node", "own", &overwrite]);
    scene.until_node("own", |node| annotation(node, "public-ip") == Some("198.51.100.1"));
    scene.kubectl(&["annotate", "node", "own", &format!("{PREFIX}/backend-type-")]);
    scene.until_node("own", |node| annotation(node, "backend-type") == Some("vxlan"));

    // What is of no concern is answered with nothing. Another node, which was posted later, shows that it was seen.
    following.announce(own([192, 0, 2, 9]));
    scene.kubectl(&["label", "node", "own", "a=b"]);
    scene.set_network(&json!({ "Network": "10.0.0.0/9" }));
    scene.create(PORT, &[peer("other", "10.1.3.0/24", "192.0.2.2")]);
    let snapshot = following.until(|snapshot| names(snapshot) == ["other"]);
    assert_eq!(snapshot.network.unwrap()["Network"], "10.0.0.0/9");
    assert_eq!(scene.patches(), 4, "each change is written once");

    scene.kubectl(&["delete", "node", "own"]);
    following.until(|snapshot| snapshot.own.families().is_empty());
    scene.create(PORT, &[with_pods("own", &["10.1.7.0/24"])]);
    following.until(|snapshot| snapshot.own.to_string() == "10.1.7.0/24");
    scene.until_node("own", |node| annotation(node, "public-ip") == Some("192.0.2.9"));
}

#[test]
fn other_nodes_come_change_and_go() {
    let Some(scene) = Scene::new() else { return };
    let garbage = peer("c", "10.1.3.0/24", "garbage");
    let same = peer("d", "10.1.1.0/24", "192.0.2.4");
    let nodes = [with_pods("own", &["10.1.0.0/24"]), peer("a", "10.1.1.0/24", "192.0.2.1")];
    let nodes = nodes.into_iter().chain([with_pods("b", &["10.1.2.0/24"]), garbage, same]);
    scene.create(PORT, &nodes.collect::<Vec<_>>());
    let mut following = scene.follow("own", own([192, 0, 2, 100]));
    let snapshot = following.until(|snapshot| names(snapshot) == ["a", "c", "d"]);
    let reason = snapshot.others["c"].as_ref().unwrap_err();
    assert!(reason.contains("public-ip is no address"), "{reason}");
    let pods = |name: &str| snapshot.others[name].as_ref().unwrap().pods.clone();
    assert_eq!(pods("a"), pods("d"), "who has two nodes of one prefix must hear of both");

    // One announces itself, one has another address, one goes, and one is made again with another prefix.
    let announced = peer("b", "10.1.2.0/24", "192.0.2.2")["metadata"].take();
    scene.kubectl(&["patch", "node", "b", "--patch", &json!({ "metadata": announced }).to_string()]);
    following.until(|snapshot| address_of(snapshot, "b").as_deref() == Some("192.0.2.2"));
    scene.kubectl(&["annotate", "--overwrite", "node", "a", &format!("{PREFIX}/public-ip=192.0.2.9")]);
    following.until(|snapshot| address_of(snapshot, "a").as_deref() == Some("192.0.2.9"));
    scene.kubectl(&["delete", "node", "c", "d"]);
    following.until(|snapshot| names(snapshot) == ["a", "b"]);
    scene.create(PORT, &[peer("d", "10.1.4.0/24", "192.0.2.4")]);
    let snapshot = following.until(|snapshot| names(snapshot) == ["a", "b", "d"]);
    assert_eq!(snapshot.others["d"].as_ref().unwrap().pods.to_string(), "10.1.4.0/24");

    // Many at once arrive whole, both at a watcher and at a lister (300 nodes are several pages).
    let of = |number: u32| {
        (format!("n{number:03}"), format!("10.2.{number}.0/24"), format!("198.51.100.{number}"))
    };
    let many: Vec<Value> =
        (0..250).map(of).map(|(name, cidr, address)| peer(&name, &cidr, &address)).collect();
    let more =
        (0..50).map(|number| peer(&format!("m{number}"), &format!("10.3.{number}.0/24"), "198.51.100.255"));
    scene.create(PORT, &many.into_iter().chain(more).collect::<Vec<_>>());
    let watched = following.until(|snapshot| snapshot.others.len() == 303);
    assert!(watched.others.values().all(Result::is_ok));
    assert_eq!(address_of(&watched, "n249").as_deref(), Some("198.51.100.249"));
    let listed = scene.follow("b", own([192, 0, 2, 2])).until_whole();
    assert_eq!(listed.others.len(), 303);
    let differs = |name: &&String| listed.others.get(*name) != watched.others.get(*name);
    assert_eq!(
        watched.others.keys().filter(differs).collect::<Vec<_>>(),
        ["b"],
        "a node is none of its others"
    );
}

#[test]
fn an_api_server_that_is_away_is_waited_for() {
    let Some(mut scene) = Scene::new() else { return };
    scene.create(PORT, &[with_pods("own", &["10.1.0.0/24"]), peer("a", "10.1.1.0/24", "192.0.2.1")]);
    let mut following = scene.follow("own", own([192, 0, 2, 100]));
    let before = following.until(|snapshot| snapshot.unreachable.is_none() && names(snapshot) == ["a"]);

    scene.until_node("own", |node| annotation(node, "kube-subnet-manager").is_some());

    scene.plane.kill_api_server().unwrap();
    let refused =
        |snapshot: &Snapshot| snapshot.unreachable.as_ref().is_some_and(|why| why.contains("refused"));
    let away = following.until(refused);
    assert_eq!(Snapshot { unreachable: None, ..away }, before);
    scene.plane.start_api_server(PORT).unwrap();
    assert_eq!(following.until_whole(), before);
    scene.create(PORT, &[peer("b", "10.1.2.0/24", "192.0.2.2")]);
    following.until(|snapshot| names(snapshot) == ["a", "b"]);

    // While it is away for the source, nodes change, and etcd forgets how.
    let version = scene.kubectl(&["get", "node", "b", "--output", "jsonpath={.metadata.resourceVersion}"]);
    scene.plane.kill_api_server().unwrap();
    following.until(refused);
    let past = following.history().len();
    scene.plane.start_api_server(ELSEWHERE).unwrap();
    scene.kubectl_at(ELSEWHERE, &["delete", "node", "a"]);
    scene.create(ELSEWHERE, &[peer("c", "10.1.3.0/24", "192.0.2.3")]);
    scene.kubectl_at(
        ELSEWHERE,
        &["annotate", "--overwrite", "node", "b", &format!("{PREFIX}/public-ip=192.0.2.9")],
    );
    scene.plane.compact().unwrap();
    scene.plane.kill_api_server().unwrap();
    scene.plane.start_api_server(PORT).unwrap();
    let snapshot = following.until(|snapshot| names(snapshot) == ["b", "c"]);
    assert_eq!(address_of(&snapshot, "b").as_deref(), Some("192.0.2.9"));
    // Where the source was is forgotten indeed.
    let watch = format!("/api/v1/nodes?watch=1&timeoutSeconds=1&resourceVersion={version}");
    let answer = scene.kubectl(&["get", "--raw", &watch]);
    assert!(answer.contains(r#""code":410"#), "{answer}");
    scene.create(PORT, &[peer("d", "10.1.4.0/24", "192.0.2.4")]);
    following.until(|snapshot| snapshot.unreachable.is_none() && names(snapshot) == ["b", "c", "d"]);
    let stale = |snapshot: &&Snapshot| snapshot.unreachable.is_none() && names(snapshot) == ["a", "b"];
    assert_eq!(following.history()[past..].iter().find(stale), None, "what is stale must not pass for whole");
    let said = following.said();
    let begins: Vec<&str> = said.iter().map(|line| line.split(';').next().unwrap()).collect();
    let (away, again) = ("the cluster's nodes cannot be watched", "the cluster's nodes are watched again");
    assert_eq!(begins, [away, again, away, again], "each is said once: {said:#?}");
}

#[test]
fn an_api_server_that_does_not_answer_is_waited_for() {
    let Some(mut scene) = Scene::new() else { return };
    scene.create(PORT, &[with_pods("own", &["10.1.0.0/24"]), peer("a", "10.1.1.0/24", "192.0.2.1")]);
    let kubeconfig = scene.kubeconfig("own");
    scene.plane.pause_api_server().unwrap();
    let mut following = scene.follow_with(&kubeconfig, "own", own([192, 0, 2, 100]));
    let first = following.until(|_| true).unreachable;
    following.until(|snapshot| snapshot.unreachable.is_some() && snapshot.unreachable != first);
    scene.plane.resume_api_server().unwrap();
    assert_eq!(names(&following.until_whole()), ["a"]);
}

/// In which a silent partition is noticed, on a busy machine too: half of this on a quiet one.
const NOTICED: Duration = Duration::from_secs(60);

/// Connections stand, and nothing comes over them, not even a refusal.
#[test]
fn an_api_server_behind_a_silent_partition_is_noticed() {
    let Some(scene) = Scene::new() else { return };
    scene.create(PORT, &[with_pods("own", &["10.1.0.0/24"]), peer("a", "10.1.1.0/24", "192.0.2.1")]);
    let mut following = scene.follow("own", own([192, 0, 2, 100]));
    following.until(|snapshot| snapshot.unreachable.is_none() && names(snapshot) == ["a"]);
    scene.until_node("own", |node| annotation(node, "kube-subnet-manager").is_some());
    let network = scene.plane.network().display().to_string();
    let nft = |command: &str| testkit::shell(&format!("nsenter --net={network} nft '{command}'"));
    nft("add table inet partition");
    let begun = Instant::now();
    // What is dropped on the way out would be an error for the sender; on the way in the sender does not notice.
    nft("add chain inet partition in { type filter hook input priority 0; }");
    nft(&format!("add rule inet partition in tcp dport {PORT} drop"));
    nft(&format!("add rule inet partition in tcp sport {PORT} drop"));
    following.until(|snapshot| snapshot.unreachable.is_some());
    let took = begun.elapsed();
    assert!(took < NOTICED, "{took:?}");
    nft("delete table inet partition");
    assert_eq!(names(&following.until_whole()), ["a"]);
}

#[test]
fn the_rights_of_the_role_are_enough() {
    let Some(scene) = Scene::without_rights() else { return };
    scene.create(PORT, &[with_pods("own", &["10.1.0.0/24"]), peer("a", "10.1.1.0/24", "192.0.2.1")]);
    // The account, and no right yet.
    scene.kubectl(&["create", "serviceaccount", "--namespace", "kube-system", "hostgap"]);
    let mut following = scene.follow("own", own([192, 0, 2, 100]));
    let forbidden = |snapshot: &Snapshot| {
        snapshot
            .unreachable
            .as_ref()
            .is_some_and(|why| why.contains("403") && why.contains("nodes is forbidden"))
    };
    following.until(forbidden);
    scene.give_rights();
    let snapshot = following.until_whole();
    assert_eq!((names(&snapshot), snapshot.own.to_string().as_str()), (vec!["a"], "10.1.0.0/24"));
    scene.until_node("own", |node| annotation(node, "public-ip") == Some("192.0.2.100"));

    // What is announced cannot be written for a while.
    let role = |verbs: &str| {
        let patch = json!({ "rules": [
            { "apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"] },
            { "apiGroups": [""], "resources": ["nodes/status"], "verbs": [verbs] },
        ] });
        scene.kubectl(&["patch", "clusterrole", "hostgap", "--type=merge", "--patch", &patch.to_string()]);
    };
    role("get");
    following.announce(own([192, 0, 2, 9]));
    following
        .until(|snapshot| snapshot.unreachable.as_ref().is_some_and(|why| why.contains("not announced")));
    role("patch");
    following.until_whole();
    scene.until_node("own", |node| annotation(node, "public-ip") == Some("192.0.2.9"));
}
