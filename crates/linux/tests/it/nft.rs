//! Tables: text and JSON are equivalent, and a table is made and deleted as a whole.

use std::io::{ErrorKind, Write};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::slice;
use std::time::Duration;

use linux::netlink::Nftables;
use linux::netns;
use linux::nft::{
    self, Base, Chain, ChainKind, Datum, Element, Family, Hook, Map, Match, PacketField, Rule, Statement,
    Table,
};
use linux::process::Spawn;
use serde_json::json;

use crate::world::{TestNetns, ifname};

const TEXT: &str = r#"table ip hostgap {
	chain published {
		iifname "hgbr0" return
		tcp dport 8080 dnat to 10.1.0.7:80
		udp dport 8080 dnat to 10.1.0.7:80
	}

	chain in {
		type nat hook prerouting priority -100; policy accept;
		fib daddr type local jump published
	}

	chain out {
		type nat hook postrouting priority 100; policy accept;
		ip saddr 10.1.0.0/16 ip daddr != 10.1.0.7 masquerade fully-random
		oifname != "hgbr0" ip saddr 10.1.0.0/16 masquerade
	}

	chain through {
		type filter hook forward priority 0; policy accept;
		ct state established,related accept
		ip saddr != 10.1.0.0/16 ip daddr 10.1.0.7 drop
	}
}
"#;

const TEXT6: &str = r#"table ip6 hostgap {
	chain in {
		type nat hook prerouting priority -100; policy accept;
		ip6 daddr fd00::1 tcp dport 8080 dnat to [fd00::7]:80
	}
}
"#;

const TEXT_LINK: &str = r#"table netdev hostgap {
	chain arriving {
		type filter hook ingress device "lo" priority 0; policy accept;
		udp dport 9 counter drop
		udp dport 10 counter accept
	}
}
"#;

fn rule(matches: Vec<Match>, then: Statement) -> Rule {
    Rule { matches, then }
}

fn chain(name: &str, base: Option<(ChainKind, Hook, i32)>, rules: Vec<Rule>) -> Chain {
    let base = base.map(|(kind, hook, priority)| Base { kind, hook, priority });
    Chain { name: name.to_owned(), base, rules }
}

/// A table with every match and every verdict.
fn everything() -> Table {
    let saddr = |not| Match::Saddr { not, net: "10.1.0.0/16".parse().expect("a valid prefix") };
    let daddr = |not| Match::Daddr { not, net: "10.1.0.7/32".parse().expect("a valid prefix") };
    let bridge = || ifname("hgbr0");
    let publish = Statement::Dnat { to: "10.1.0.7".parse().expect("a valid address"), port: 80 };
    let published = vec![
        rule(vec![Match::Iifname { not: false, name: bridge() }], Statement::Return),
        rule(vec![Match::TcpDport(8080)], publish.clone()),
        rule(vec![Match::UdpDport(8080)], publish),
    ];
    let in_ = vec![rule(vec![Match::DaddrIsLocal], Statement::Jump("published".to_owned()))];
    let out = vec![
        rule(vec![saddr(false), daddr(true)], Statement::Masquerade { random: true }),
        rule(
            vec![Match::Oifname { not: true, name: bridge() }, saddr(false)],
            Statement::Masquerade { random: false },
        ),
    ];
    let through = vec![
        rule(vec![Match::Established], Statement::Accept),
        rule(vec![saddr(true), daddr(false)], Statement::Drop),
    ];
    Table {
        family: Family::Ip,
        name: "hostgap".to_owned(),
        maps: Vec::new(),
        chains: vec![
            chain("published", None, published),
            chain("in", Some((ChainKind::Nat, Hook::Prerouting, -100)), in_),
            chain("out", Some((ChainKind::Nat, Hook::Postrouting, 100)), out),
            chain("through", Some((ChainKind::Filter, Hook::Forward, 0)), through),
        ],
    }
}

fn over_ipv6() -> Table {
    let daddr = Match::Daddr { not: false, net: "fd00::1/128".parse().expect("a valid prefix") };
    let publish = Statement::Dnat { to: "fd00::7".parse().expect("a valid address"), port: 80 };
    let rules = vec![rule(vec![daddr, Match::TcpDport(8080)], publish)];
    let chains = vec![chain("in", Some((ChainKind::Nat, Hook::Prerouting, -100)), rules)];
    Table { family: Family::Ip6, name: "hostgap".to_owned(), maps: Vec::new(), chains }
}

/// What arrives at a link is counted and dropped before the kernel looks at it.
fn at_a_link() -> Table {
    let base = Some((ChainKind::Filter, Hook::Ingress { device: ifname("lo") }, 0));
    let rules = vec![
        rule(vec![Match::UdpDport(9), Match::Counter], Statement::Drop),
        rule(vec![Match::UdpDport(10), Match::Counter], Statement::Accept),
    ];
    Table {
        family: Family::Netdev,
        name: "hostgap".to_owned(),
        maps: Vec::new(),
        chains: vec![chain("arriving", base, rules)],
    }
}

/// Checks the text, and that nft makes the same ruleset from the text as from our JSON.
fn check(table: &Table, text: &str, rules: usize) {
    assert_eq!(table.to_text(), text);
    let (by_json, by_text) = (TestNetns::new("nft-json"), TestNetns::new("nft-text"));
    nft::add(&by_json.netns, table).expect("nft takes our JSON");
    let start = || Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn();
    let mut judge = by_text.netns.run(start).expect("the namespace is there").expect("nft is installed");
    let mut stdin = judge.stdin.take().expect("it was piped");
    stdin.write_all(text.as_bytes()).expect("nft reads");
    drop(stdin);
    assert!(judge.wait().expect("nft ends").success());
    let held = nft::dump(&by_json.netns).expect("the rules can be listed");
    assert_eq!(held, nft::dump(&by_text.netns).expect("the rules can be listed"));
    let objects = held.as_array().expect("a list");
    assert_eq!(objects.iter().filter(|object| object.get("rule").is_some()).count(), rules);
}

#[test]
fn text_and_json_say_the_same() {
    check(&everything(), TEXT, 8);
    check(&over_ipv6(), TEXT6, 1);
    check(&at_a_link(), TEXT_LINK, 2);
}

#[test]
fn packets_are_counted_at_a_link_and_dropped_or_not() {
    let place = TestNetns::new("nft-link");
    let table = at_a_link();
    nft::add(&place.netns, &table).unwrap();
    assert_eq!(nft::counted(&place.netns, &table).unwrap(), 0);
    let sockets = || [9, 10].map(|port| UdpSocket::bind(("127.0.0.1", port)).unwrap());
    let [dropped, arrived] = place.netns.run(sockets).unwrap();
    for (socket, times) in [(&dropped, 3), (&arrived, 4)] {
        let to = socket.local_addr().unwrap();
        (0..times).for_each(|n| assert_eq!(arrived.send_to(&[n], to).unwrap(), 1));
    }
    // The loopback carries them on the sender's CPU, before the call returns or soon after: the last one
    // says that all came.
    let mut byte = [0];
    (0..4).for_each(|n| assert_eq!((arrived.recv(&mut byte).unwrap(), byte), (1, [n])));
    assert_eq!(nft::counted(&place.netns, &table).unwrap(), 7);
    dropped.set_nonblocking(true).unwrap();
    assert_eq!(dropped.recv(&mut byte).unwrap_err().kind(), ErrorKind::WouldBlock);
    let none = Table { name: "none".to_owned(), ..table };
    assert!(nft::counted(&place.netns, &none).unwrap_err().is(libc::ENOENT));
}

#[test]
fn a_table_is_made_once_and_deleted_whole() {
    let place = TestNetns::new("nft");
    let table = everything();
    let nftables = Nftables::open_in(&place.netns).unwrap();
    let exists = || nftables.table_exists(Family::Ip, "hostgap").unwrap();
    assert!(!exists());
    assert_eq!(nft::dump(&place.netns).unwrap(), json!([]));
    nft::add(&place.netns, &table).unwrap();
    assert!(exists() && !nftables.table_exists(Family::Ip6, "hostgap").unwrap());
    let before = nft::dump(&place.netns).unwrap();
    let error = nft::add(&place.netns, &table).unwrap_err();
    assert!(error.is(libc::EEXIST), "{error}");
    let start = format!("add nftables table ip hostgap in namespace {}: file exists: ", place.name);
    assert!(error.to_string().starts_with(&start), "{error}");
    // A rejected transaction leaves no trace.
    assert_eq!(nft::dump(&place.netns).unwrap(), before);
    nftables.delete_table(Family::Ip, "hostgap").unwrap();
    assert!(!exists());
    assert_eq!(nft::dump(&place.netns).unwrap(), json!([]));
    let error = nftables.delete_table(Family::Ip, "hostgap").unwrap_err();
    assert!(error.is(libc::ENOENT), "{error}");
}

#[test]
fn each_change_of_the_rules_has_a_generation_of_its_own() {
    let (place, other) = (TestNetns::new("generation"), TestNetns::new("generation-other"));
    let [here, there] = [&place, &other].map(|place| Nftables::open_in(&place.netns).unwrap());
    let mut seen = vec![here.generation().unwrap()];
    let elsewhere = there.generation().unwrap();
    let mut changed = |what: &str| {
        let now = here.generation().unwrap();
        assert_eq!(here.generation().unwrap(), now, "a read changes nothing");
        assert!(now.is_some() && !seen.contains(&now), "{what}: {now:?} after {seen:?}");
        seen.push(now);
    };
    nft::add(&place.netns, &everything()).unwrap();
    changed("a new table");
    place.judge("nft", &["flush", "chain", "ip", "hostgap", "published"]);
    changed("a chain without its rules");
    place.judge("nft", &["add", "rule", "ip", "hostgap", "published", "return"]);
    changed("a new rule");
    here.delete_table(Family::Ip, "hostgap").unwrap();
    changed("a table that is gone");
    assert_eq!(there.generation().unwrap(), elsewhere, "another namespace has rules of its own");
}

/// Our nft dies with its caller. Before that, the kernel still adds what it was about to add.
#[test]
fn a_dying_nft_is_waited_for() {
    let place = TestNetns::new("settle");
    nft::settle(&place.netns).unwrap();
    let mut spawn = Spawn::new("nft");
    spawn.args = vec!["monitor".to_owned()];
    spawn.netns = Some(place.netns.try_clone().unwrap());
    let mut child = spawn.start().unwrap();
    let before = netns::pids_in(slice::from_ref(&place.netns)).unwrap();
    assert_eq!(before, [child.pid()]);
    std::thread::scope(|scope| {
        let settled = scope.spawn(|| nft::settle(&place.netns).unwrap());
        // It must not return while the process lives: only time can show that.
        std::thread::sleep(Duration::from_millis(200));
        assert!(!settled.is_finished());
        child.kill().unwrap();
        settled.join().unwrap();
        assert!(netns::pids_in(slice::from_ref(&place.netns)).unwrap().is_empty());
    });
}

/// A table with the map and the set of published ports.
fn with_maps(family: Family) -> Table {
    let key = vec![PacketField::Protocol, PacketField::Dport];
    let own = vec![PacketField::Saddr, PacketField::Daddr, PacketField::Protocol, PacketField::Dport];
    let maps = vec![
        Map { name: "ports".into(), key, value: vec![PacketField::Daddr, PacketField::Dport] },
        Map { name: "own".into(), key: own, value: vec![] },
        Map { name: "addresses".into(), key: vec![PacketField::Saddr], value: vec![] },
    ];
    Table { family, name: "hostgap".to_owned(), maps, chains: Vec::new() }
}

fn elements(family: Family) -> [Element; 3] {
    let pod = match family {
        Family::Ip => "10.1.0.7",
        Family::Ip6 => "fd00::7",
        Family::Netdev => unreachable!("links have no published ports"),
    };
    let element = Element { family, table: "hostgap".into(), map: String::new(), key: vec![], value: vec![] };
    let pod = Datum::Address(pod.parse().expect("a valid address"));
    let to = vec![pod, Datum::Port(80)];
    [
        Element {
            map: "ports".into(),
            key: vec![Datum::Tcp, Datum::Port(8080)],
            value: to,
            ..element.clone()
        },
        Element { map: "own".into(), key: vec![pod, pod, Datum::Udp, Datum::Port(80)], ..element.clone() },
        Element { map: "addresses".into(), key: vec![pod], ..element },
    ]
}

#[test]
fn elements_are_those_that_nft_lists_and_makes() {
    for family in [Family::Ip, Family::Ip6] {
        let place = TestNetns::new("elements");
        let nftables = Nftables::open_in(&place.netns).unwrap();
        for element in elements(family) {
            assert_eq!(nftables.find_element(&element).unwrap(), None, "there is no table");
            assert!(nftables.add_element(&element).unwrap_err().is(libc::ENOENT));
        }
        nft::add(&place.netns, &with_maps(family)).unwrap();
        let empty = nft::dump(&place.netns).unwrap();
        for element in elements(family) {
            let (kind, text) = (if element.map == "ports" { "map" } else { "set" }, element.to_text());
            assert_eq!(nftables.find_element(&element).unwrap(), None);
            nftables.add_element(&element).unwrap();
            assert!(nftables.add_element(&element).unwrap_err().is(libc::EEXIST));
            let listed = place.judge("nft", &["list", kind, family.name(), "hostgap", &element.map]);
            assert!(listed.contains(&format!("elements = {text}")), "{listed}");
            assert_eq!(nftables.find_element(&element).unwrap(), Some(element.clone()));
            nftables.delete_element(&element).unwrap();
            let error = nftables.delete_element(&element).unwrap_err();
            assert!(error.is(libc::ENOENT), "{error}");
            assert_eq!(nft::dump(&place.netns).unwrap(), empty);
            let _ = place.judge("nft", &["add", "element", &element.place(), &text]);
            assert_eq!(nftables.find_element(&element).unwrap(), Some(element.clone()), "nft made it");
            nftables.delete_element(&element).unwrap();
        }
    }
}

#[test]
fn an_element_of_another_value_is_found_with_it() {
    let place = TestNetns::new("other-element");
    let nftables = Nftables::open_in(&place.netns).unwrap();
    nft::add(&place.netns, &with_maps(Family::Ip)).unwrap();
    let [published, ..] = elements(Family::Ip);
    let elsewhere = vec![Datum::Address("10.1.0.9".parse().unwrap()), Datum::Port(81)];
    let other = Element { value: elsewhere, ..published.clone() };
    nftables.add_element(&other).unwrap();
    assert_eq!(nftables.find_element(&published).unwrap(), Some(other));
    // Deleting asks for the key alone.
    nftables.delete_element(&published).unwrap();
    assert_eq!(nftables.find_element(&published).unwrap(), None);
}
