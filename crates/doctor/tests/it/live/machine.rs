//! Faults in resources that the whole machine shares, planted in a private virtual machine.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use doctor::{Diagnosis, ExaminedNetns, Window, diagnose};
use linux::cpu::pin_current_thread;
use linux::sysctl::{self, Key};
use linux::sysfs::{NetSysfs, Queue};
use testkit::{Flood, dear_rules, require_root, run, skip};

use super::{CLIENT, Line, SERVER, check_first, check_known, ifname, is_first, is_foremost, repeat, sleep};

fn can_run() -> bool {
    if !require_root() {
        return false;
    }
    let own = std::env::var_os("HOSTGAP_VM").is_some();
    if !own {
        skip("it changes shared settings of the whole machine, and needs a virtual machine of ours");
    }
    own
}

/// A changed parameter of the machine. Dropping this restores the old value.
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

/// Takes a snapshot of the machine's first namespace before and after `during`.
pub(super) fn watch_here(during: impl FnOnce()) -> Diagnosis {
    let (before, _) = ExaminedNetns::here().look().unwrap();
    during();
    let (after, _) = ExaminedNetns::here().look().unwrap();
    diagnose(&Window { before: &before, after: &after })
}

#[test]
fn a_table_of_flows_without_queues_is_half_of_rfs() {
    if !can_run() {
        return;
    }
    let changed = Changed::to("net/core/rps_sock_flow_entries", "32768");
    check_known(&watch_here(|| ()), "HG022");
    drop(changed);
}

#[test]
fn a_nearly_full_table_of_connections_is_named() {
    if !can_run() {
        return;
    }
    let line = Line::new();
    // The kernel tracks connections where a rule asks for their state.
    run(&line.client, "nft", &["add", "table", "ip", "hgt"]);
    run(
        &line.client,
        "nft",
        &["add", "chain", "ip", "hgt", "out", "{ type filter hook output priority 0; }"],
    );
    run(&line.client, "nft", &["add", "rule", "ip", "hgt", "out", "ct", "state", "new", "counter"]);
    let changed = Changed::to("net/netfilter/nf_conntrack_max", "100");
    let diagnosis = line.watch("client", || {
        let socket = line.client.run(|| UdpSocket::bind((CLIENT, 0))).unwrap().unwrap();
        // Each is in the table when it is sent.
        (1..=92).for_each(|port| drop(socket.send_to(b"x", (SERVER, port))));
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
    // The whole machine shares the table, and only its first namespace reports it.
    let diagnosis = watch_here(|| {
        let socket = line.client.run(|| UdpSocket::bind((CLIENT, 0))).unwrap().unwrap();
        // The table is asked for room when they are sent.
        (10..80).for_each(|host| drop(socket.send_to(b"x", (format!("10.77.0.{host}"), 9))));
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
    // Another CPU than the sender's receives, with a short backlog.
    let sysfs = NetSysfs::open(&line.server).unwrap();
    sysfs.write_queue_cpus(&ifname("eth0"), Queue::Rx(0), &"1".parse().unwrap()).unwrap();
    let changed = Changed::to("net/core/netdev_max_backlog", "2");
    // Without a listener, no slow reader can be the cause.
    let diagnosis = line.watch("server", || {
        let client = line.client.run(|| UdpSocket::bind((CLIENT, 0))).unwrap().unwrap();
        let flood = move || {
            pin_current_thread(&"0".parse().unwrap()).unwrap();
            (0..10_000).for_each(|_| drop(client.send_to(&[0; 100], (SERVER, 9))));
        };
        // What finds no room is dropped when it is sent.
        std::thread::spawn(flood).join().unwrap();
    });
    check_first(&diagnosis, "HG002");
    drop(changed);
}

/// Sends datagrams to the server from CPU 0. Each passes a list of rules. After every forty the thread rests
/// for `rests` times as long as they took, and at least `rests` times three milliseconds, so that its CPU
/// keeps the same share of idle time on a slow machine. With more rules fewer packets fill a CPU, but with
/// too many rules a machine that has other work gets too few packets through.
fn flood(line: &Line, rests: u32, rules: u16) -> Flood {
    dear_rules(&line.server, rules);
    let client = line.client.run(|| UdpSocket::bind((CLIENT, 0))).unwrap().unwrap();
    Flood::from(0, move || {
        let begin = Instant::now();
        (0..40).for_each(|_| drop(client.send_to(&[0; 100], (SERVER, 9))));
        std::thread::sleep(begin.elapsed().max(Duration::from_millis(3)) * rests);
    })
}

#[test]
fn a_cpu_that_only_receives_is_named() {
    if !can_run() {
        return;
    }
    let line = Line::new();
    let sysfs = NetSysfs::open(&line.server).unwrap();
    sysfs.write_queue_cpus(&ifname("eth0"), Queue::Rx(0), &"1".parse().unwrap()).unwrap();
    // The sender's CPU must keep time to spare, although it does the bridge's work too. How much rest that
    // takes depends on the machine that emulates this one, and on its other work.
    let mut rests = [3, 5, 2, 8].into_iter().cycle();
    let window = || {
        let _flood = flood(&line, rests.next().unwrap(), 4500);
        watch_here(|| sleep(3000))
    };
    repeat(|diagnosis| is_first(diagnosis, "HG001"), window);
}

#[test]
fn a_single_queue_without_steering_is_named() {
    if !can_run() {
        return;
    }
    let line = Line::new();
    // Sending uses the same CPU and must take little of its time.
    let flood = flood(&line, 0, 3500);
    let window = || line.watch("server", || sleep(3000));
    let diagnosis = repeat(|diagnosis| is_foremost(diagnosis, "HG020"), window);
    drop(flood);
    let first = &diagnosis.findings[0];
    assert_eq!(first.seen.proposals[0].value, "1", "{first:?}");
}
