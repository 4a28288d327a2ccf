//! Replaces a node's programs while packets flow.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bpf::forward::{
    Counter, Endpoint, FORMAT, NodeConfig, Program, Tunnel, add_endpoint, has_endpoint, has_tunnel,
    remove_endpoint, set_prefixes,
};
use libbpf_rs::{MapCore as _, MapHandle, MapType};
use linux::IfName;
use testkit::run;

use crate::datagrams::{echo, exchange, socket};
use crate::node::{HERE, Node, ONE, THERE, TWO, can_run, far, from_hop};
use crate::pinned::{self, State, maps, pin, pin_instead};
use crate::run::Verdict;

const TIMES: u32 = 20;
const PORT: u16 = 4001;

/// As `hostgap bpf replace` does it.
pub(crate) fn replace_all(node: &Node, config: &NodeConfig) -> linux::Result<bpf::Replaced> {
    node.netns.run(|| bpf::replace(&node.folder, config)).expect("root can do it")
}

fn replace_in(node: &Node, config: &NodeConfig) -> linux::Result<bpf::forward::Replaced> {
    replace_all(node, config).map(|replaced| replaced.forward)
}

/// Gives the pods and the next hop addresses and routes, and attaches the programs to the node's links.
pub(crate) fn furnish(node: &Node, by_filter: bool) {
    node.address_pods();
    let to_pods = format!("route add 10.244.1.0/24 via {HERE}");
    for arguments in [
        "link set lo up".to_owned(),
        format!("address add {THERE}/24 dev wire"),
        format!("address add {}/32 dev lo", far::DIRECT),
        to_pods,
    ] {
        run(&node.world.open("hop"), "ip", &arguments.split(' ').collect::<Vec<_>>());
    }
    attach(node, by_filter);
}

fn attach(node: &Node, by_filter: bool) {
    for (program, link) in
        [(Program::FromPod, ONE.link), (Program::FromPod, TWO.link), (Program::FromWire, "wire")]
    {
        let pin = program.link_pin(&node.folder, &IfName::new(link).expect("root can do it"));
        let index = node.index(link);
        let program = program.pin(&node.folder);
        let attached = node.netns.run(|| match by_filter {
            true => bpf::attach_filter(&program, index),
            false => bpf::attach(&program, bpf::Hook::Ingress, index, &pin).map(drop),
        });
        attached.expect("root can do it").expect("root can do it");
    }
}

/// Packets that the node's kernel itself has forwarded.
fn forwarded(node: &Node) -> u64 {
    let text = node
        .netns
        .run(|| fs::read_to_string("/proc/thread-self/net/snmp").expect("root can do it"))
        .expect("root can do it");
    let mut ip = text.lines().filter(|line| line.starts_with("Ip:")).map(|line| line.split(' '));
    let (mut names, mut values) = (ip.next().expect("root can do it"), ip.next().expect("root can do it"));
    let at = names.position(|name| name == "ForwDatagrams").expect("root can do it");
    values.nth(at).expect("root can do it").parse().expect("root can do it")
}

/// Replaces the programs many times while pods exchange packets with each other and with the next hop.
fn under_traffic(by_filter: bool) {
    let node = Node::direct_in_earnest();
    furnish(&node, by_filter);
    let ends = [("pod2", TWO.v4), ("hop", far::DIRECT)];
    let far_ends = ends.map(|(place, address)| socket(&node, place, address, PORT));
    let near_ends = [4002, 4003].map(|port| socket(&node, "pod1", ONE.v4, port));
    let (stop, stop_echo) = (AtomicBool::new(false), AtomicBool::new(false));
    let counts = [AtomicU64::new(0), AtomicU64::new(0)];
    let before = (node.counters(), forwarded(&node));
    std::thread::scope(|scope| {
        for socket in &far_ends {
            socket.set_read_timeout(Some(Duration::from_millis(100))).expect("root can do it");
            scope.spawn(|| echo(socket, &stop_echo));
        }
        let senders: Vec<_> = near_ends
            .iter()
            .zip(ends)
            .zip(&counts)
            .map(|((socket, (_, address)), count)| {
                let stop = &stop;
                scope.spawn(move || exchange(socket, (address, PORT).into(), stop, count))
            })
            .collect();
        let outcome = (0..TIMES).try_for_each(|_| {
            let replaced = replace_in(&node, &node.config)?;
            assert_eq!((replaced.from, replaced.links + replaced.filters), (FORMAT, 3));
            assert_eq!(replaced.made, [] as [String; 0]);
            Ok::<_, linux::Error>(())
        });
        stop.store(true, Ordering::Relaxed);
        let ended: Vec<_> = senders.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop_echo.store(true, Ordering::Relaxed);
        outcome.expect("root can do it");
        assert!(ended.iter().all(Result::is_ok), "a datagram was lost");
    });
    assert_eq!(
        (node.counters(), forwarded(&node)),
        before,
        "no packet was dropped or took the kernel's path"
    );
    let counts = counts.map(|count| count.load(Ordering::Relaxed));
    assert!(
        counts.iter().all(|count| *count > u64::from(TIMES)),
        "{counts:?} datagrams in {TIMES} replacements"
    );
}

#[test]
fn no_packet_is_lost() {
    if can_run() {
        under_traffic(false);
    }
}

#[test]
fn no_packet_is_lost_where_there_are_filters() {
    if can_run() {
        under_traffic(true);
    }
}

/// Pods, tunnels, counters and the programs at links.
#[test]
fn what_the_programs_know_stays() {
    if !can_run() {
        return;
    }
    let node = Node::tunnelled();
    attach(&node, false);
    node.send(Program::FromPod, ONE.link, &TWO.to(ONE.v4, b"x"));
    let State { names, maps: maps_before, .. } = State::of(&node.folder, &node);
    let counters = node.counters();
    let replaced = replace_in(&node, &node.config).unwrap();
    assert_eq!((replaced.from, replaced.links + replaced.filters), (FORMAT, 3));
    let State { names: names_after, maps: maps_after, .. } = State::of(&node.folder, &node);
    assert_eq!((names_after, maps_after), (names, maps_before), "the same pins, and the very same maps");
    assert_eq!(node.counters(), counters);
    for pod in [ONE, TWO] {
        assert_eq!(has_endpoint(&node.folder, &node.endpoint(&pod)).unwrap(), Some(true));
    }
    let prefix = "10.244.2.0/24".parse().unwrap();
    let tunnel = Tunnel { prefix, device: node.index("tun"), remote: THERE.into() };
    assert!(has_tunnel(&node.folder, &tunnel).unwrap());
    let found = node.send(Program::FromPod, ONE.link, &ONE.to(TWO.v4, b"x"));
    assert_eq!((found.verdict, found.counted), (Verdict::Redirect, vec![]));
    // The pinned program is the one that packets meet.
    let index = node.index(ONE.link);
    let pin = Program::FromPod.pin(&node.folder);
    let met = node.netns.run(|| bpf::met(&pin, bpf::Hook::Ingress, index)).unwrap().unwrap();
    assert_eq!(met, Some(0));
}

#[test]
fn the_configuration_and_the_prefixes_are_the_new_ones() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let wider: Vec<ipnet::IpNet> = vec!["10.244.0.0/16".parse().unwrap(), "198.51.100.0/24".parse().unwrap()];
    let config = NodeConfig { mtu: 1000, cluster: wider, ..node.config.clone() };
    node.ip(&format!("route add 198.51.100.0/24 via {THERE}"));
    replace_in(&node, &config).unwrap();
    let arrived = node.send(Program::FromWire, "wire", &from_hop(far::OUTSIDE, ONE.v4, b"x"));
    assert_eq!((arrived.verdict, arrived.counted), (Verdict::Redirect, vec![]));
    let long = node.send(Program::FromPod, ONE.link, &ONE.to(TWO.v4, &[0; 1000]));
    assert_eq!(long.counted, [Counter::PassTooBig]);
}

/// Folders of formats before lack these maps. Their programs here are those of today, so the tests show only what
/// happens to the maps.
#[test]
fn the_first_format_is_migrated() {
    migrates(1, &["format", "homes4", "homes6", "prefixes", "uplinks"]);
}

#[test]
fn the_second_format_is_migrated() {
    migrates(2, &["uplinks"]);
}

#[test]
fn the_third_format_is_migrated() {
    migrates(3, &[]);
}

/// Its programs would hand packets past the queue that limits the pod.
#[test]
fn a_pod_with_a_queue_needs_programs_that_know_of_it() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    attach(&node, false);
    let pod = Endpoint { queued: true, ..node.endpoint(&TWO) };
    remove_endpoint(&node.folder, &node.endpoint(&TWO)).unwrap();
    write_format(&node, 3);
    let error = add_endpoint(&node.folder, &pod).unwrap_err().to_string();
    assert!(error.contains("of format 3, hand packets past every queue"), "{error}");
    assert_eq!(has_endpoint(&node.folder, &pod).unwrap(), None);
    let _ = replace_in(&node, &node.config).unwrap();
    add_endpoint(&node.folder, &pod).unwrap();
}

fn migrates(from: u32, lacking: &[&str]) {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    attach(&node, false);
    let kept = |node: &Node| {
        let mut maps = maps(&node.folder);
        maps.retain(|name, _| !lacking.contains(&name.as_str()));
        maps
    };
    let before = kept(&node);
    write_format(&node, from);
    for gone in lacking {
        fs::remove_file(node.folder.join(gone)).unwrap();
    }
    let mut replaced = replace_in(&node, &node.config).unwrap();
    replaced.made.sort();
    assert_eq!((replaced.from, replaced.links + replaced.filters), (from, 3));
    assert_eq!(replaced.made, lacking);
    assert_eq!(kept(&node), before);
    for to in [TWO.v4, far::DIRECT] {
        let sent = node.send(Program::FromPod, ONE.link, &ONE.to(to, b"x"));
        assert_eq!((sent.verdict, sent.counted), (Verdict::Redirect, vec![]), "{to}");
    }
    assert_eq!(replace_in(&node, &node.config).unwrap().from, FORMAT);
    set_prefixes(&node.folder, &node.config.pods, &node.config.cluster).unwrap();
}

#[test]
fn a_cache_of_another_form_is_made_anew() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    attach(&node, false);
    pin_instead(&node.folder, "routes4", MapType::LruHash, 8, 64);
    let replaced = replace_in(&node, &node.config).unwrap();
    assert_eq!(replaced.made, ["routes4"]);
    let sent = node.send(Program::FromPod, ONE.link, &ONE.to(far::DIRECT, b"x"));
    assert_eq!((sent.verdict, sent.counted), (Verdict::Redirect, vec![]));
    assert!(MapHandle::from_pinned_path(node.folder.join("routes4")).unwrap().max_entries() > 1);
}

fn write_format(node: &Node, number: u32) {
    pinned::write_format(&node.folder, "format", number);
}

#[test]
fn what_cannot_be_kept_is_refused_and_nothing_is_changed() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    attach(&node, false);
    let refused = |config: &NodeConfig, words: &str| {
        let before = State::of(&node.folder, &node);
        let error = replace_in(&node, config).unwrap_err().to_string();
        assert!(error.contains("replace the programs of") && error.contains(words), "{error}");
        assert_eq!(State::of(&node.folder, &node), before, "{words}");
    };
    for number in [FORMAT + 1, u32::MAX, 0] {
        write_format(&node, number);
        refused(&node.config, &format!("its maps are of format {number}"));
    }
    write_format(&node, FORMAT);
    pin_instead(&node.folder, "endpoints4", MapType::Hash, 4, 16);
    refused(&node.config, "its map endpoints4 is a Hash of 1 entries");
    fs::remove_file(node.folder.join("endpoints4")).unwrap();
    refused(&node.config, "there is no map endpoints4");
}

/// A process that was killed has left unused pins, or new programs at some links only.
#[test]
fn what_was_begun_is_completed() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    attach(&node, false);
    let State { names, .. } = State::of(&node.folder, &node);
    // As after a kill before the first pin was replaced: two links have the programs of the folder's next
    // generation, and the pins are those of the previous one.
    let old: Vec<_> = Program::FORWARD.iter().map(|program| node.program(*program)).collect();
    replace_in(&node, &node.config).unwrap();
    for (program, old) in Program::FORWARD.iter().zip(&old) {
        let place = program.pin(&node.folder);
        fs::rename(&place, node.folder.join(format!("new_{}", program.name()))).unwrap();
        pin(old, &place);
    }
    let index = node.index(ONE.link);
    let met = || {
        let pin = Program::FromPod.pin(&node.folder);
        node.netns.run(|| bpf::met(&pin, bpf::Hook::Ingress, index)).unwrap().unwrap()
    };
    assert_eq!(met(), Some(0), "a program of another generation belongs to the node too");
    let replaced = replace_in(&node, &node.config).unwrap();
    assert_eq!((replaced.from, replaced.links + replaced.filters), (FORMAT, 3));
    assert_eq!(State::of(&node.folder, &node).names, names);
    assert_eq!(met(), Some(0));
}
