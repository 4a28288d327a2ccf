//! What a node sees while it runs.

use linux::PrivateKey;
use serde_json::json;

use crate::scene::{Node, config, keyed, name, node, value, with_etcd};

#[test]
fn leases_that_come_change_and_go_are_seen() {
    with_etcd(&config(), async |etcd| {
        let mut one = Node::start(node(1));
        one.own().await;
        etcd.put("subnets/10.5.200.0-24", &value(8));
        assert_eq!(one.other("10.5.200.0-24").await.unwrap().node, node(8));
        etcd.put("subnets/10.5.200.0-24", &value(9));
        one.until(|seen| seen.others["10.5.200.0-24"].as_ref().unwrap().node == node(9)).await;
        etcd.delete("subnets/10.5.200.0-24");
        one.until(|seen| seen.others.is_empty()).await;
    });
}

#[test]
fn a_node_with_another_address_keeps_its_prefix() {
    with_etcd(&config(), async |_| {
        let (mut one, mut two) = (Node::start(node(1)), Node::start(node(2)));
        let pods = one.own().await;
        two.other(&name(&pods)).await.unwrap();
        one.announce.send_replace(Some(node(77)));
        two.until(|seen| seen.others[&name(&pods)].as_ref().unwrap().node == node(77)).await;
        assert_eq!((one.own().await, two.seen.borrow().others.len()), (pods, 1));
    });
}

/// As after a restart of the machine, where DHCP gives it another address.
#[test]
fn a_node_that_comes_back_with_another_address_is_known_by_its_key() {
    with_etcd(&config(), async |_| {
        let key = PrivateKey::generate().unwrap().public();
        let (mut one, mut two) = (Node::start(keyed(1, key)), Node::start(node(2)));
        let pods = one.own().await;
        two.other(&name(&pods)).await.unwrap();
        drop(one);
        let mut again = Node::start(keyed(77, key));
        assert_eq!(again.own().await, pods);
        let seen = two.until(|seen| seen.others[&name(&pods)].as_ref().unwrap().node == keyed(77, key)).await;
        assert_eq!(seen.others.len(), 1);
    });
}

/// A machine that was made from another one's image, with its key.
#[test]
fn a_copy_of_a_key_does_not_take_the_lease_of_a_living_node() {
    with_etcd(&config(), async |etcd| {
        let key = PrivateKey::generate().unwrap().public();
        let mut one = Node::start(keyed(1, key));
        let pods = one.own().await;
        let mut copy = Node::start(keyed(3, key));
        let other =
            copy.until(|seen| !seen.own.families().is_empty() && seen.own.to_string() != pods).await.own;
        let mut two = Node::start(node(2));
        let holder = async |two: &mut Node, pods: &str| two.other(&name(pods)).await.unwrap().node;
        assert_eq!(holder(&mut two, &pods).await, keyed(1, key));
        assert_eq!(holder(&mut two, &other.to_string()).await, keyed(3, key));
        // It stays so: what comes behind all that was written is seen by all.
        etcd.put("subnets/10.5.255.0-24", &value(8));
        for node in [&mut one, &mut copy, &mut two] {
            node.other("10.5.255.0-24").await.unwrap();
        }
        assert_eq!((one.own().await, copy.own().await), (pods.clone(), other.to_string()));
        assert_eq!(holder(&mut two, &pods).await, keyed(1, key));
    });
}

#[test]
fn what_makes_no_sense_is_named_and_harms_nothing() {
    with_etcd(&config(), async |etcd| {
        let mut one = Node::start(node(1));
        one.own().await;
        etcd.put("subnets/what-is-this", &value(5));
        etcd.put("subnets/10.5.201.0-24", "{");
        etcd.put("subnets/10.5.202.0-24", &value(6).replace("02:09", "zz"));
        etcd.put("subnets/10.5.203.0-24", &value(7));
        // With this node's own address.
        etcd.put("subnets/10.5.204.0-24", &value(1));
        // A part of what another one has.
        etcd.put("subnets/10.5.203.128-25", &value(8));
        let seen = one.until(|seen| seen.others.len() == 6).await;
        let check = |name: &str, says: &str| {
            let why = seen.others[name].as_ref().unwrap_err();
            assert!(why.contains(says), "{says:?} is not in {why:?}");
        };
        check("what-is-this", "the key is not of the form");
        check("10.5.201.0-24", "not JSON");
        check("10.5.202.0-24", "`VtepMAC` is \"zz");
        check("10.5.204.0-24", "is this node's");
        check("10.5.203.128-25", "overlaps 10.5.203.0-24, which was there first");
        assert_eq!(seen.others["10.5.203.0-24"].as_ref().unwrap().node, node(7));
    });
}

#[test]
fn a_deleted_own_key_is_written_again() {
    with_etcd(&config(), async |etcd| {
        let (mut one, mut two) = (Node::start(node(1)), Node::start(node(2)));
        let pods = one.own().await;
        two.other(&name(&pods)).await.unwrap();
        etcd.delete(&format!("subnets/{}", name(&pods)));
        two.until(|seen| seen.others.is_empty()).await;
        assert_eq!(two.other(&name(&pods)).await.unwrap().node, node(1));
        assert_eq!(one.own().await, pods);
    });
}

#[test]
fn a_prefix_that_another_node_has_written_over_is_given_up() {
    with_etcd(&config(), async |etcd| {
        let mut one = Node::start(node(1));
        let pods = one.own().await;
        etcd.put(&format!("subnets/{}", name(&pods)), &value(9));
        assert_eq!(one.other(&name(&pods)).await.unwrap().node, node(9));
        let now = one.until(|seen| !seen.own.to_string().is_empty()).await.own.to_string();
        assert_ne!(now, pods);
        // One that makes no sense is no other node's.
        etcd.put(&format!("subnets/{}", name(&now)), "nonsense");
        let mut two = Node::start(node(2));
        two.until(|seen| seen.others.get(&name(&now)).is_some_and(|lease| lease.as_ref().is_ok())).await;
        assert_eq!(one.own().await, now);
    });
}

/// As while an agent is replaced, or by mistake on two nodes. They must not write in turns.
#[test]
fn two_agents_with_one_address_do_not_fight() {
    with_etcd(&config(), async |etcd| {
        let mut one = Node::start(node(1));
        let pods = one.own().await;
        let mut twin = node(1);
        twin.data = node(7).data;
        let mut second = Node::start(twin.clone());
        assert_eq!(second.own().await, pods);
        let key = format!("subnets/{}", name(&pods));
        let after = etcd.get(&key);
        // Long enough for both to have seen what the other one wrote: a third one's lease comes behind it.
        etcd.put("subnets/10.5.200.0-24", &value(8));
        one.other("10.5.200.0-24").await.unwrap();
        second.other("10.5.200.0-24").await.unwrap();
        assert_eq!(etcd.get(&key), after);
        let mut witness = Node::start(node(2));
        assert_eq!(witness.other(&name(&pods)).await.unwrap().node, twin);
    });
}

#[test]
fn a_configuration_that_changes_is_reported() {
    with_etcd(&config(), async |etcd| {
        let mut one = Node::start(node(1));
        let pods = one.own().await;
        let mut other = config();
        other["Backend"] = json!({ "Type": "host-gw" });
        etcd.put("config", &other.to_string());
        one.until(|seen| seen.network.as_ref() == Some(&other)).await;
        // One that is no JSON is reported as it is, and one that is gone is not missed.
        etcd.put("config", "{");
        one.until(|seen| seen.network == Some(json!("{"))).await;
        etcd.delete("config");
        etcd.kill();
        one.until(|seen| seen.unreachable.is_some()).await;
        etcd.start();
        etcd.put("subnets/10.5.200.0-24", &value(8));
        one.until(|seen| seen.unreachable.is_none()).await;
        assert_eq!(one.other("10.5.200.0-24").await.unwrap().node, node(8));
        let seen = one.seen.borrow().clone();
        assert_eq!((seen.network, seen.own.to_string()), (Some(json!("{")), pods));
    });
}

#[test]
fn three_hundred_leases_that_come_at_once_arrive_whole_and_in_few_snapshots() {
    with_etcd(&config(), async |etcd| {
        let mut one = Node::start(node(1));
        one.own().await;
        let keys: Vec<(String, String)> = (0..300)
            .map(|number| {
                let key = format!("subnets/10.6.{}.{}-28", number / 16, number % 16 * 16);
                (key, value(2 + (number % 200) as u8))
            })
            .collect();
        for some in keys.chunks(100) {
            etcd.put_all(some);
        }
        let mut snapshots = 0;
        while one.seen.borrow_and_update().others.len() < 300 {
            one.seen.changed().await.unwrap();
            snapshots += 1;
        }
        assert!(snapshots <= 30, "{snapshots}");
        assert!(one.seen.borrow().others.values().all(Result::is_ok));
    });
}
