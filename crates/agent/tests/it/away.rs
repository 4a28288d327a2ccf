//! An etcd that goes away, comes back, or has forgotten.

use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::lease::Lease;
use agent::source::etcd::EtcdSource;
use rustix::process::Signal;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::scene::{ENDPOINT, Node, config, name, node, patiently, value, with_bare_etcd, with_etcd};
use testkit::Etcd;

/// Kills it and waits until a node has noticed.
async fn lose(etcd: &mut Etcd, node: &mut Node) {
    etcd.kill();
    node.until(|seen| seen.unreachable.is_some()).await;
}

#[test]
fn while_etcd_is_away_all_stays() {
    with_etcd(&config(), async |etcd| {
        let (mut one, mut two) = (Node::start(node(1)), Node::start(node(2)));
        let (pods, other) = (one.own().await, two.own().await);
        one.other(&name(&other)).await.unwrap();
        let before = one.until(|seen| seen.unreachable.is_none()).await;
        lose(etcd, &mut one).await;
        let meanwhile = one.seen.borrow().clone();
        assert!(meanwhile.unreachable.as_ref().unwrap().contains("127.0.0.1:2379"), "{meanwhile:?}");
        assert_eq!((&meanwhile.own, &meanwhile.others), (&before.own, &before.others));
        assert_eq!(meanwhile.network, before.network);
        // It says something else of itself in the meantime.
        one.announce.send_replace(Some(node(77)));
        etcd.start();
        one.until(|seen| seen.unreachable.is_none()).await;
        // It may not have seen the first one before.
        let is_told =
            |lease: &Result<Lease, String>| lease.as_ref().is_ok_and(|lease| lease.node == node(77));
        two.until(|seen| seen.others.get(&name(&pods)).is_some_and(is_told)).await;
        etcd.put("subnets/10.5.200.0-24", &value(8));
        assert_eq!(one.other("10.5.200.0-24").await.unwrap().node, node(8));
        assert_eq!(one.own().await, pods);
    });
}

/// What was logged, from `DEBUG` on.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Level>>>);

impl Log {
    fn count(&self, level: Level) -> usize {
        self.0.lock().unwrap().iter().filter(|logged| **logged == level).count()
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("agent")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(*event.metadata().level());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn the_log_says_once_that_etcd_is_away_and_once_that_it_is_back() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    with_etcd(&config(), async |etcd| {
        let mut one = Node::start(node(1));
        one.own().await;
        one.until(|seen| seen.unreachable.is_none()).await;
        let before = (log.count(Level::WARN), log.count(Level::INFO), log.count(Level::DEBUG));
        lose(etcd, &mut one).await;
        // As many failed attempts as are logged.
        patiently(async {
            while log.count(Level::DEBUG) < before.2 + 3 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        etcd.start();
        one.until(|seen| seen.unreachable.is_none()).await;
        assert_eq!((log.count(Level::WARN), log.count(Level::INFO)), (before.0 + 1, before.1 + 1));
    });
}

#[test]
fn what_another_agent_says_of_the_node_is_logged_each_time_that_it_begins() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    with_etcd(&config(), async |etcd| {
        let mut one = Node::start(node(1));
        let key = format!("subnets/{}", name(&one.own().await));
        one.until(|seen| seen.unreachable.is_none()).await;
        let own = value(1);
        let twin = own.replace(r#""VNI":1"#, r#""VNI":2"#);
        assert_ne!(twin, own);
        let before = log.count(Level::WARN);
        for (said, warnings) in [(&twin, 1), (&own, 1), (&twin, 2)] {
            etcd.put(&key, said);
            // All that is reported before this has been looked at.
            let marker = format!("10.5.{}.0-24", 200 + etcd.put("nothing", "") % 50);
            etcd.put(&format!("subnets/{marker}"), &value(8));
            one.other(&marker).await.unwrap();
            assert_eq!(log.count(Level::WARN) - before, warnings, "{said}");
        }
    });
}

/// The watch goes on where it was cut, and what it asks for then is there no more.
#[test]
fn changes_that_were_compacted_away_are_read_again() {
    with_etcd(&config(), async |etcd| {
        let mut one = Node::start(node(1));
        let pods = one.own().await;
        etcd.put("subnets/10.5.200.0-24", &value(8));
        etcd.put("subnets/10.5.201.0-24", &value(8));
        one.until(|seen| seen.others.len() == 2 && seen.unreachable.is_none()).await;
        lose(etcd, &mut one).await;
        etcd.start();
        // The node's task does not run before the next wait.
        etcd.delete("subnets/10.5.200.0-24");
        etcd.put("subnets/10.5.202.0-24", &value(9));
        let last = etcd.put("subnets/10.5.203.0-24", &value(9));
        etcd.compact(last);
        let seen = one.until(|seen| seen.unreachable.is_none() && seen.others.len() == 3).await;
        let names: Vec<&str> = seen.others.keys().map(String::as_str).collect();
        assert_eq!(names, ["10.5.201.0-24", "10.5.202.0-24", "10.5.203.0-24"]);
        assert_eq!(seen.own.to_string(), pods);
    });
}

#[test]
fn a_node_starts_before_etcd_and_before_the_network() {
    with_bare_etcd(&[], async |etcd| {
        // It must have made its files: killed while it makes them it never starts again.
        etcd.delete("config");
        etcd.kill();
        let mut one = Node::start(node(1));
        one.until(|seen| seen.unreachable.as_ref().is_some_and(|why| why.contains("cannot be reached")))
            .await;
        etcd.start();
        let absent = "no configuration of a network at /coreos.com/network/config";
        one.until(|seen| seen.unreachable.as_ref().is_some_and(|why| why.contains(absent))).await;
        etcd.put("config", &config().to_string());
        one.own().await;
        one.until(|seen| seen.unreachable.is_none()).await;
    });
}

/// Its connections stand, and nothing comes over them.
#[test]
fn an_etcd_that_hangs_is_noticed() {
    with_etcd(&config(), async |etcd| {
        let mut one = Node::start(node(1));
        let pods = one.own().await;
        one.until(|seen| seen.unreachable.is_none()).await;
        etcd.signal(Signal::STOP);
        one.until(|seen| seen.unreachable.is_some()).await;
        etcd.signal(Signal::CONT);
        one.until(|seen| seen.unreachable.is_none()).await;
        etcd.put("subnets/10.5.200.0-24", &value(8));
        assert_eq!(one.other("10.5.200.0-24").await.unwrap().node, node(8));
        assert_eq!(one.own().await, pods);
    });
}

#[test]
fn another_member_is_asked_when_one_fails() {
    with_etcd(&config(), async |etcd| {
        // A member that takes every connection and hangs up.
        let member = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoints = vec![ENDPOINT.to_owned(), format!("http://{}", member.local_addr().unwrap())];
        let (count, mut asked) = watch::channel(0);
        tokio::spawn(async move {
            while member.accept().await.is_ok() {
                count.send_modify(|times| *times += 1);
            }
        });
        let mut one = Node::start_as(EtcdSource::at(endpoints), node(1));
        one.own().await;
        // Which of them was asked first is drawn: now the one that it has fails.
        one.until(|seen| seen.unreachable.is_none()).await;
        let before = *asked.borrow();
        lose(etcd, &mut one).await;
        patiently(asked.wait_for(|times| *times > before)).await.unwrap();
        etcd.start();
        one.until(|seen| seen.unreachable.is_none()).await;
    });
}

#[test]
fn a_store_that_has_lost_changes_is_not_believed() {
    with_etcd(&config(), async |etcd| {
        etcd.kill();
        let copy = etcd.dir().join("copy");
        let copied = Command::new("cp").arg("-r").arg(etcd.data()).arg(&copy).status().unwrap();
        assert!(copied.success());
        etcd.start();
        etcd.put("subnets/10.5.200.0-24", &value(8));
        let mut one = Node::start(node(1));
        let pods = one.own().await;
        one.until(|seen| seen.unreachable.is_none()).await;
        lose(etcd, &mut one).await;
        fs::remove_dir_all(etcd.data()).unwrap();
        fs::rename(&copy, etcd.data()).unwrap();
        etcd.start();
        let seen =
            one.until(|seen| seen.unreachable.as_ref().is_some_and(|why| why.contains("lost changes"))).await;
        assert!(seen.others.contains_key("10.5.200.0-24"));
        assert_eq!(seen.own.to_string(), pods);
    });
}

/// etcd calls the cluster the same whose directory was emptied, and its revisions pass those of before. It reports no
/// deletion.
#[test]
fn a_store_that_was_wiped_and_filled_again_has_the_node_again() {
    with_etcd(&config(), async |etcd| {
        etcd.put("subnets/10.5.200.0-24", &value(8));
        let mut one = Node::start(node(1));
        let pods = one.own().await;
        one.until(|seen| seen.unreachable.is_none() && seen.others.len() == 1).await;
        let key = format!("subnets/{}", name(&pods));
        let before = etcd.get(&key).unwrap();
        let reached = etcd.put("nothing", "");
        lose(etcd, &mut one).await;
        fs::remove_dir_all(etcd.data()).unwrap();
        etcd.start();
        // The node's task does not run before the next wait.
        etcd.put("config", &config().to_string());
        while etcd.put("subnets/10.5.201.0-24", &value(9)) <= reached {}
        let seen = one.until(|seen| seen.unreachable.is_none() && seen.others.len() == 1).await;
        assert_eq!(seen.others.keys().collect::<Vec<_>>(), ["10.5.201.0-24"]);
        let written = etcd.get(&key).unwrap();
        assert_eq!(written.0, before.0);
        assert_ne!(written.1, before.1);
        assert_eq!(one.own().await, pods);
    });
}

/// As after a restore from a backup, which makes a new cluster of it.
#[test]
fn another_cluster_is_believed_and_the_node_writes_itself_into_it() {
    with_etcd(&config(), async |etcd| {
        for _ in 0..20 {
            etcd.put("subnets/10.5.200.0-24", &value(8));
        }
        let mut one = Node::start(node(1));
        let pods = one.own().await;
        one.until(|seen| seen.unreachable.is_none() && seen.others.len() == 1).await;
        lose(etcd, &mut one).await;
        fs::remove_dir_all(etcd.data()).unwrap();
        etcd.set_arguments(&["--initial-cluster-token", "restored"]);
        etcd.start();
        etcd.put("config", &config().to_string());
        let key = format!("subnets/{}", name(&pods));
        let written = async {
            while etcd.get(&key).is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        patiently(written).await;
        // A node that came before could have taken that prefix: one in a hundred does.
        let mut two = Node::start(node(2));
        assert_eq!(two.other(&name(&pods)).await.unwrap().node, node(1));
        one.until(|seen| seen.unreachable.is_none() && !seen.others.contains_key("10.5.200.0-24")).await;
        assert_eq!(one.own().await, pods);
    });
}
