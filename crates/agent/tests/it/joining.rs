//! Nodes that come, come back, and meet what is there.

use std::collections::BTreeSet;
use std::time::Duration;

use agent::source::etcd::EtcdSource;
use datapath::Prefixes;
use ipnet::IpNet;
use serde_json::json;

use crate::log::Log;
use crate::scene::{ENDPOINT, Node, config, name, node, patiently, value, with_etcd};
use testkit::Etcd;

fn source() -> EtcdSource {
    EtcdSource::at(vec![ENDPOINT.to_owned()])
}

fn prefixes(texts: &[&str]) -> Prefixes {
    texts.iter().map(|text| text.parse::<IpNet>().unwrap()).collect()
}

/// A network of three prefixes: 10.5.1.0/24 to 10.5.3.0/24.
fn three() -> serde_json::Value {
    json!({ "Network": "10.5.0.0/22", "Backend": { "Type": "vxlan" } })
}

#[test]
fn two_nodes_take_different_prefixes_and_see_each_other() {
    with_etcd(&config(), async |etcd| {
        let (mut one, mut two) = (Node::start(node(1)), Node::start(node(2)));
        let (pods_one, pods_two) = (one.own().await, two.own().await);
        assert_ne!(pods_one, pods_two);
        assert_eq!(one.other(&name(&pods_two)).await.unwrap().node, node(2));
        let seen = two.other(&name(&pods_one)).await.unwrap();
        assert_eq!((seen.pods.to_string(), seen.node), (pods_one.clone(), node(1)));
        let (written, lease) = etcd.get(&format!("subnets/{}", name(&pods_one))).unwrap();
        assert_ne!(lease, "0");
        let written: serde_json::Value = serde_json::from_str(&written).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(&value(1)).unwrap());
        let snapshot = one.until(|seen| seen.unreachable.is_none()).await;
        assert_eq!((snapshot.network, snapshot.others.len()), (Some(config()), 1));
    });
}

#[test]
fn a_node_that_comes_back_has_its_prefix_again() {
    with_etcd(&config(), async |etcd| {
        let mut before = Node::start(node(1));
        let pods = before.own().await;
        drop(before);
        // It says something else of itself now, at the same address.
        let mut changed = node(1);
        changed.data = node(7).data;
        let mut after = Node::start(changed.clone());
        assert_eq!(after.own().await, pods);
        let mut witness = Node::start(node(2));
        assert_eq!(witness.other(&name(&pods)).await.unwrap().node, changed);
        drop(after);
        // Its lease is gone, and so is its address, and it remembers.
        etcd.delete(&format!("subnets/{}", name(&pods)));
        let mut elsewhere = Node::start_as(EtcdSource { previous: prefixes(&[&pods]), ..source() }, node(3));
        assert_eq!(elsewhere.own().await, pods);
        // A node whose remembered prefix is another's now takes a new one.
        let mut late = Node::start_as(EtcdSource { previous: prefixes(&[&pods]), ..source() }, node(4));
        assert_ne!(late.own().await, pods);
    });
}

#[test]
fn a_prefix_that_no_longer_fits_the_network_is_given_back() {
    with_etcd(&json!({ "Network": "10.5.0.0/16", "SubnetLen": 26 }), async |etcd| {
        let mut before = Node::start(node(1));
        let pods = before.own().await;
        drop(before);
        etcd.put("config", &config().to_string());
        let mut after = Node::start(node(1));
        let pods_now = after.own().await;
        assert!(pods_now.ends_with("/24"), "{pods_now}");
        assert_eq!(etcd.get(&format!("subnets/{}", name(&pods))), None);
    });
}

#[test]
fn a_network_that_gets_ipv6_leaves_a_node_its_ipv4() {
    with_etcd(&config(), async |etcd| {
        let mut before = Node::start(node(1));
        let pods = before.own().await;
        drop(before);
        let mut both = config();
        (both["EnableIPv6"], both["IPv6Network"]) = (json!(true), json!("fc00::/48"));
        etcd.put("config", &both.to_string());
        let mut after = Node::start(node(1));
        let pods_now = after.own().await;
        assert!(pods_now.starts_with(&format!("{pods}, fc00:")), "{pods_now}");
        assert_eq!(etcd.get(&format!("subnets/{}", name(&pods))), None);
        assert!(etcd.get(&format!("subnets/{}", name(&pods_now))).is_some());
    });
}

#[test]
fn an_agent_that_runs_says_that_it_does_not_follow_another_division() {
    with_etcd(&config(), async |etcd| {
        let log = Log::default();
        let _listening = tracing::subscriber::set_default(log.clone());
        let mut one = Node::start(node(1));
        let pods = one.own().await;
        let mut both = config();
        (both["EnableIPv6"], both["IPv6Network"]) = (json!(true), json!("fc00::/48"));
        let said = || {
            let says = format!("gives nodes other prefixes now than {pods}");
            log.lines().iter().filter(|line| line.contains(&says)).count()
        };
        for (config, times) in [(both, 1), (config(), 1)] {
            etcd.put("config", &config.to_string());
            let seen = one.until(|seen| seen.network.as_ref() == Some(&config)).await;
            assert_eq!((seen.own.to_string(), said()), (pods.clone(), times));
        }
    });
}

#[test]
fn a_reservation_is_for_the_node_with_its_address() {
    with_etcd(&three(), async |etcd| {
        etcd.put("subnets/10.5.1.0-24", r#"{"PublicIP":"192.168.0.1"}"#);
        // Without a value it is taken, too, and so is what is longer than a node's prefix.
        etcd.put("subnets/10.5.2.128-25", "");
        let mut other = Node::start(node(2));
        assert_eq!(other.own().await, "10.5.3.0/24");
        assert!(!other.seen.borrow().others.contains_key("10.5.1.0-24"));
        let mut meant = Node::start(node(1));
        assert_eq!(meant.own().await, "10.5.1.0/24");
        assert_eq!(other.other("10.5.1.0-24").await.unwrap().node, node(1));
        // It stays a reservation.
        assert_eq!(etcd.get("subnets/10.5.1.0-24").unwrap().1, "0");
        // Nothing is left, until something is.
        let mut late = Node::start(node(3));
        late.until(|seen| seen.others.len() == 3).await;
        assert_eq!(late.seen.borrow().own, Prefixes::default());
        etcd.delete("subnets/10.5.2.128-25");
        assert_eq!(late.own().await, "10.5.2.0/24");
    });
}

#[test]
fn a_lease_is_renewed_while_its_node_lives() {
    with_etcd(&config(), async |etcd| {
        let short = EtcdSource { ttl: Duration::from_secs(2), ..source() };
        let mut one = Node::start_as(short, node(1));
        let name = name(&one.own().await);
        let mut two = Node::start(node(2));
        two.other(&name).await.unwrap();
        let key = format!("subnets/{name}");
        let mut leases = BTreeSet::new();
        patiently(async {
            while leases.len() < 4 {
                leases.insert(etcd.get(&key).expect("it is renewed before it ends").1);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        assert_eq!(two.seen.borrow().others.len(), 1);
        drop(one);
        two.until(|seen| seen.others.is_empty()).await;
    });
}

/// All draw from the same few prefixes at the same time.
#[test]
fn of_many_nodes_that_start_at_once_no_two_have_the_same_prefix() {
    with_etcd(&json!({ "Network": "10.5.0.0/18" }), async |_: &mut Etcd| {
        let mut nodes: Vec<Node> = (1..=50).map(|last| Node::start(node(last))).collect();
        let mut taken = BTreeSet::new();
        for node in &mut nodes {
            assert!(taken.insert(node.own().await));
            node.until(|seen| seen.others.len() == 49 && seen.others.values().all(Result::is_ok)).await;
        }
    });
}
