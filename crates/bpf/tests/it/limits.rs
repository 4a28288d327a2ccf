//! How many instructions the kernel's verifier counts in the programs, and what happens when a map is full.

use std::net::Ipv4Addr;

use bpf::forward::{ENDPOINTS_MAX, Endpoint, Program, add_endpoint, has_endpoint, remove_endpoint};
use linux::Mac;

use crate::node::{Node, ONE, TWO, can_run};

/// The kernel's own limit is a million. A program that comes near this one has a loop unrolled or a path
/// duplicated by mistake.
const INSTRUCTIONS_MAX: u32 = 20_000;

#[test]
fn the_verifier_is_soon_through() {
    if !can_run() {
        return;
    }
    for (kind, node) in [("direct", Node::direct()), ("tunnelled", Node::tunnelled())] {
        let programs: Vec<Program> = node.verified.iter().map(|verified| verified.program).collect();
        assert_eq!(programs, Program::FORWARD);
        let counts: Vec<u32> = node.verified.iter().map(|verified| verified.instructions).collect();
        let text = node.verified.iter().map(|v| format!("{} {}", v.program.name(), v.instructions));
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            format!("instructions verified, {kind}: {}\n", text.collect::<Vec<_>>().join(", ")).as_bytes(),
        );
        // Before Linux 5.16 the kernel does not report the number.
        if counts.iter().any(|count| *count > 0) {
            assert!(counts.iter().all(|count| (1..INSTRUCTIONS_MAX).contains(count)), "{counts:?}");
        }
    }
}

#[test]
fn a_full_map_is_said_and_leaves_nothing_behind() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let pod = |number: u32, addresses: &[u32]| Endpoint {
        link: 1_000_000 + number,
        mac: Mac::from_id(2, number),
        addresses: addresses.iter().map(|address| Ipv4Addr::from_bits(*address).into()).collect(),
        queued: false,
    };
    let base = Ipv4Addr::new(10, 0, 0, 0).to_bits();
    // Two pods already have an address each.
    let filling: Vec<u32> = (0..ENDPOINTS_MAX - 2).map(|number| base + number).collect();
    add_endpoint(&node.folder, &pod(0, &filling)).unwrap();
    let last = pod(1, &[base + ENDPOINTS_MAX]);
    let error = add_endpoint(&node.folder, &last).unwrap_err().to_string();
    assert!(error.contains("add an entry to") && error.contains("endpoints4"), "{error}");
    assert!(error.contains("it is full with 16384 entries"), "{error}");
    assert_eq!(has_endpoint(&node.folder, &last).unwrap(), None, "its link was removed too");
    // When one pod leaves, another has room.
    remove_endpoint(&node.folder, &node.endpoint(&TWO)).unwrap();
    add_endpoint(&node.folder, &last).unwrap();
}

#[test]
fn another_pods_names_are_refused() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let own = node.endpoint(&ONE);
    let addresses = vec![[10, 244, 1, 50].into()];
    let free = Endpoint { link: 1_000_000, mac: TWO.mac, addresses, queued: false };
    for (taken, map) in [
        (Endpoint { link: own.link, ..free.clone() }, "links"),
        (Endpoint { addresses: vec![free.addresses[0], ONE.v4.into()], ..free.clone() }, "endpoints4"),
        (Endpoint { addresses: vec![free.addresses[0], ONE.v6.into()], ..free.clone() }, "endpoints6"),
    ] {
        let error = add_endpoint(&node.folder, &taken).unwrap_err().to_string();
        assert!(error.contains(map), "{error}");
        assert_eq!(has_endpoint(&node.folder, &free).unwrap(), None, "what was written is taken back");
        assert_eq!(has_endpoint(&node.folder, &own).unwrap(), Some(true));
    }
}
