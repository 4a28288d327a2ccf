//! What the whole machine shares: planted in a virtual machine that is nobody else's.

use std::net::UdpSocket;
use std::time::Duration;

use doctor::{Diagnosis, Place, Window, diagnose};
use linux::sysctl::{self, Key};
use linux::sysfs::{NetSysfs, Queue};
use testkit::{require_root, run, skip};

use super::{Busy, CLIENT, Line, SERVER, check_first, ifname, sleep};

fn can_run() -> bool {
    if !require_root() {
        return false;
    }
    let own = std::env::var_os("HOSTGAP_VM").is_some();
    if !own {
        skip("it changes what the whole machine shares, which only a virtual machine of ours may");
    }
    own
}

/// A parameter of the machine that has its old value again when this is dropped.
struct Changed {
    key: Key,
    old: String,
}

impl Changed {
    fn to(key: &str, value: &str) -> Changed {
        let key = Key::new(key).unwrap();
        let old = sysctl::read(&key).unwrap().unwrap_or_else(|| panic!("there is a parameter {key}"));
        sysctl::write(&key, value).unwrap();
        Changed { key, old }
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        let _ = sysctl::write(&self.key, &self.old);
    }
}

/// Looks at the machine's first namespace before and after something happens.
fn watch_here(during: impl FnOnce()) -> Diagnosis {
    let (before, _) = Place::here().look().unwrap();
    during();
    let (after, _) = Place::here().look().unwrap();
    diagnose(&Window { before: &before, after: &after })
}

#[test]
fn a_table_of_flows_without_queues_is_half_of_rfs() {
    if !can_run() {
        return;
    }
    let changed = Changed::to("net/core/rps_sock_flow_entries", "32768");
    check_first(&watch_here(|| ()), "HG022");
    drop(changed);
}

#[test]
fn a_nearly_full_table_of_connections_is_named() {
    if !can_run() {
        return;
    }
    let line = Line::new();
    // Connections are tracked where a rule asks for their state.
    run(&line.client, "nft", &["add", "table", "ip", "hgt"]);
    run(&line.client, "nft", &["add", "chain", "ip", "hgt", "out", "{ type filter hook output priority 0; }"]);
    run(&line.client, "nft", &["add", "rule", "ip", "hgt", "out", "ct", "state", "new", "counter"]);
    let changed = Changed::to("net/netfilter/nf_conntrack_max", "100");
    let diagnosis = line.watch("client", || {
        let socket = line.client.run(|| UdpSocket::bind((CLIENT, 0))).unwrap().unwrap();
        (1..=92).for_each(|port| drop(socket.send_to(b"x", (SERVER, port))));
        sleep(100);
    });
    check_first(&diagnosis, "HG050");
    drop(changed);
}

#[test]
fn a_full_table_of_neighbours_is_named() {
    if !can_run() {
        return;
    }
    let line = Line::new();
    let keys = ["gc_thresh1", "gc_thresh2", "gc_thresh3"];
    let changed = keys.map(|key| Changed::to(&format!("net/ipv4/neigh/default/{key}"), "8"));
    // The table is the machine's, and only its first namespace tells of it.
    let diagnosis = watch_here(|| {
        let socket = line.client.run(|| UdpSocket::bind((CLIENT, 0))).unwrap().unwrap();
        (10..80).for_each(|host| drop(socket.send_to(b"x", (format!("10.77.0.{host}"), 9))));
        sleep(100);
    });
    check_first(&diagnosis, "HG053");
    drop(changed);
}

#[test]
fn a_backlog_of_two_packets_overflows() {
    if !can_run() {
        return;
    }
    let line = Line::new();
    // Another CPU than the sender's receives, and its backlog holds next to nothing.
    let sysfs = NetSysfs::open(&line.server).unwrap();
    sysfs.write_queue_cpus(&ifname("eth0"), Queue::Rx(0), &"1".parse().unwrap()).unwrap();
    let changed = Changed::to("net/core/netdev_max_backlog", "2");
    let server = line.server.run(|| UdpSocket::bind((SERVER, 0))).unwrap().unwrap();
    let address = server.local_addr().unwrap();
    server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let reading = Busy::with(move || {
        let _ = server.recv(&mut [0; 200]);
        true
    });
    let diagnosis = line.watch("server", || {
        let client = line.client.run(|| UdpSocket::bind((CLIENT, 0))).unwrap().unwrap();
        (0..5000).for_each(|_| drop(client.send_to(&[0; 100], address)));
        sleep(100);
    });
    check_first(&diagnosis, "HG002");
    drop((changed, reading));
}
