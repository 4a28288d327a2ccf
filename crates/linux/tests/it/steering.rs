//! Queues and counters of a namespace. They are its own, never the host's.

use std::net::Ipv4Addr;

use linux::procfs::Procfs;
use linux::sysfs::{NetSysfs, Queue};
use linux::{CpuSet, LinkKind, VethPeer, cpu};

use crate::world::{PATIENCE, TestNetns, eventually, ifname, udp};

const HOST_FILE: &str = "/sys/class/net/lo/queues/rx-0/rps_cpus";

#[test]
fn a_mask_is_written_in_the_namespace_alone() {
    let place = TestNetns::new("rps");
    let before = std::fs::read_to_string(HOST_FILE).unwrap();
    let sysfs = NetSysfs::open(&place.netns).unwrap();
    let lo = ifname("lo");
    assert_eq!(sysfs.links().unwrap(), std::slice::from_ref(&lo));
    assert_eq!(sysfs.queues(&lo).unwrap(), [Queue::Rx(0), Queue::Tx(0)]);
    assert_eq!(sysfs.read_queue_cpus(&lo, Queue::Rx(0)).unwrap(), CpuSet::default());
    let online = cpu::online().unwrap();
    sysfs.write_queue_cpus(&lo, Queue::Rx(0), &online).unwrap();
    assert_eq!(sysfs.read_queue_cpus(&lo, Queue::Rx(0)).unwrap(), online);
    let judged = std::process::Command::new("ip")
        .args(["netns", "exec", place.name.as_str(), "cat", HOST_FILE])
        .output()
        .unwrap();
    assert_eq!(CpuSet::from_mask(&String::from_utf8(judged.stdout).unwrap()).unwrap(), online);
    assert_eq!(std::fs::read_to_string(HOST_FILE).unwrap(), before);
    sysfs.write_queue_cpus(&lo, Queue::Rx(0), &CpuSet::default()).unwrap();
    assert_eq!(sysfs.read_queue_cpus(&lo, Queue::Rx(0)).unwrap(), CpuSet::default());
}

#[test]
fn links_made_later_are_seen_and_missing_ones_are_named() {
    let place = TestNetns::new("queues");
    let sysfs = NetSysfs::open(&place.netns).unwrap();
    let peer = VethPeer { name: ifname("hgv1"), netns: None, mtu: None, mac: None };
    place.add("hgv0", LinkKind::Veth { peer });
    assert!(sysfs.queues(&ifname("hgv0")).unwrap().contains(&Queue::Rx(0)));
    let error = sysfs.queues(&ifname("nothing")).unwrap_err();
    let text =
        format!("list /sys/class/net/nothing/queues in namespace {}: no such file or directory", place.name);
    assert_eq!(error.to_string(), text);
}

#[test]
fn steered_packets_are_received_by_the_cpu_that_was_named() {
    let allowed = cpu::allowed().unwrap();
    let (Some(first), Some(last)) =
        (allowed.iter().next(), allowed.iter().last().filter(|_| allowed.len() > 1))
    else {
        return testkit::skip("steering needs two CPUs");
    };
    let place = TestNetns::new("steer");
    let sysfs = NetSysfs::open(&place.netns).unwrap();
    sysfs.write_queue_cpus(&ifname("lo"), Queue::Rx(0), &[last].into_iter().collect()).unwrap();
    let steered = || {
        let cpus = Procfs::kernel().softnet().unwrap();
        cpus.into_iter().find(|row| row.cpu == last).unwrap().received_rps
    };
    let (sender, receiver) = (udp(&place), udp(&place));
    let target = receiver.local_addr().unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let before = steered();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cpu::pin_current_thread(&[first].into_iter().collect()).unwrap();
            eventually("50 packets interrupt the other CPU", || {
                for _ in 0..20 {
                    sender.send_to(b"x", target).unwrap();
                    // One packet at a time. A packet that finds the other CPU awake needs no interrupt, and
                    // the test counts interrupts.
                    receiver.recv(&mut [0; 8]).unwrap();
                }
                steered() - before >= 50
            });
        });
    });
}

#[test]
fn counters_are_those_of_the_place() {
    let place = TestNetns::new("counters");
    let read = || place.netns.run(|| Procfs::kernel().counters()).unwrap().unwrap();
    let before = read();
    let socket = udp(&place);
    for _ in 0..5 {
        // A new namespace has no listener. The error for the previous packet may surface here.
        let _ = socket.send_to(b"x", (Ipv4Addr::LOCALHOST, 9));
    }
    let since = read().since(&before, "UdpNoPorts");
    assert!((1..=5).contains(&since), "{since}");
    let links = place.netns.run(|| Procfs::kernel().link_counters()).unwrap().unwrap();
    assert_eq!(links.keys().map(ToString::to_string).collect::<Vec<_>>(), ["lo"]);
    assert!(links[&ifname("lo")].rx_packets >= since);
}
