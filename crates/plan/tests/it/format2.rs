//! This program can undo what a program with format 2 of the journal has done.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::fmt::Write;

use linux::{Netlink, Netns};
use plan::{Journal, Kernel, Undone, undo};
use serde_json::{Value, json};
use testkit::{World, dump, require_root, shell};

use crate::sample::ifname;

/// The state before that program. A link that was up once keeps the qdisc that it got then.
const BEFORE: &str = "ip -n HOME link add own0 address 02:aa:00:00:00:01 type veth peer name own1
ip -n HOME link add port0 address 02:aa:00:00:00:03 type veth peer name port1
ip -n HOME link add follower link own0 address 02:aa:00:00:00:02 type macvlan
ip -n HOME link set own0 up
ip -n HOME link set own0 down
ip netns exec HOME sysctl -qw net.ipv4.ip_forward=1
ip netns exec HOME sysctl -qw net.ipv4.ip_forward=0";
/// What the program did, in the order of [`lines`].
const DONE: &str = "ip -n HOME link add br0 type bridge
ip -n HOME link set own0 mtu 1400
ip -n HOME link set own0 up
ip -n HOME link set port0 master br0
bridge -n HOME link set dev port0 hairpin on
ip -n HOME address add 192.0.2.1/24 dev own0
ip netns exec HOME sysctl -qw net.ipv4.ip_forward=1
ip -n HOME link set own0 gso_max_segs 1
tc -n HOME qdisc replace dev own0 root handle 7: pfifo limit 77";

/// Each step with the state before and after it, in format 2 (`src/journal/golden/v2.journal`).
fn lines(netlink: &Netlink) -> Vec<(Value, Value, Value)> {
    let index = |name: &str| netlink.index_of(&ifname(name)).unwrap();
    let (own, port, bridge, follower) = (index("own0"), index("port0"), index("br0"), index("follower"));
    let links = ["all", "default", "lo", "own0", "own1", "port0", "port1", "follower", "br0"];
    let along = |value: &str, redirects: &str| {
        let forwarding = links.iter().map(|link| (format!("net/ipv4/conf/{link}/forwarding"), json!(value)));
        let redirects = ("net/ipv4/conf/all/accept_redirects".to_owned(), json!(redirects));
        Value::Object(forwarding.chain([redirects]).collect())
    };
    let done = || json!("as_planned");
    let pfifo = json!({ "kind": "pfifo", "major": 7, "options": [77, 0, 0, 0], "branched": false });
    vec![
        (
            json!({ "add_link": { "name": "br0", "kind": "bridge" } }),
            json!("absent"),
            json!({ "link": { "index": bridge } }),
        ),
        (
            json!({ "set_link_mtu": { "link": "own0", "mtu": 1400 } }),
            json!({ "mtu": { "index": own, "mtu": 1500, "others": { follower.to_string(): 1500 } } }),
            json!({ "mtu": { "others": { follower.to_string(): 1400 } } }),
        ),
        (
            json!({ "set_link_up": { "link": "own0" } }),
            json!({ "up": { "index": own, "up": false } }),
            done(),
        ),
        (
            json!({ "set_link_master": { "link": "port0", "master": "br0" } }),
            json!({ "master": { "index": port, "master": null } }),
            json!({ "link": { "index": bridge } }),
        ),
        (
            json!({ "set_hairpin": { "link": "port0" } }),
            json!({ "hairpin": { "index": port, "on": false } }),
            done(),
        ),
        (json!({ "add_address": { "link": "own0", "address": "192.0.2.1/24" } }), json!("absent"), done()),
        (
            json!({ "set_sysctl": { "key": "net/ipv4/ip_forward", "value": "1" } }),
            json!({ "sysctl": { "value": "0", "along": along("0", "1") } }),
            json!({ "sysctl": { "value": "1", "along": along("1", "0") } }),
        ),
        (
            json!({ "set_gso_max_segs": { "link": "own0", "segments": 1 } }),
            json!({ "gso_max_segs": { "index": own, "segments": 65535 } }),
            done(),
        ),
        (
            json!({ "set_root_qdisc": { "link": "own0", "qdisc": { "pfifo": { "limit": 77 } } } }),
            json!({ "root_qdisc": { "index": own } }),
            json!({ "root_qdisc": { "qdisc": pfifo } }),
        ),
    ]
}

fn journal(place: &Value, home: &Netns) -> String {
    let mut text = String::new();
    let mut write = |line: Value| {
        let json = line.to_string();
        writeln!(text, "{:08x} {json}", crc32fast::hash(json.as_bytes())).unwrap();
    };
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    write(json!({ "header": { "version": 2, "boot_id": boot_id.trim(), "pid": 4711 } }));
    let cookie = home.cookie().unwrap();
    for (seq, (step, before, after)) in lines(&Netlink::open_in(home).unwrap()).into_iter().enumerate() {
        let placed = json!({ "place": place, "step": step });
        write(
            json!({ "intent": { "seq": seq, "placed": placed, "netns_cookie": cookie, "before": before } }),
        );
        write(json!({ "done": { "seq": seq, "after": after } }));
    }
    text
}

#[test]
fn what_a_program_with_format_2_has_done_is_undone() {
    if !require_root() {
        return;
    }
    let world = World::new();
    let home = world.add("home");
    let name = world.name("home");
    shell(&BEFORE.replace("HOME", name.as_str()));
    let before = dump(&home);
    shell(&DONE.replace("HOME", name.as_str()));

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    std::fs::write(&path, journal(&json!({ "netns": name.as_str() }), &home)).unwrap();
    let undone = undo(&mut Journal::open(&path).unwrap(), &mut Kernel::new().unwrap());
    assert_eq!(undone.len(), 9);
    assert!(undone.iter().all(|(_, undone)| *undone == Undone::Restored), "{undone:#?}");
    before.assert_same(&dump(&home), "after the undo of format 2");
}
