//! A wire between two cards of a virtual machine: nodes take them, ask over them, and give them back as they were.

use std::time::Duration;

use lab::{BuiltTopology, ByRole, CardWire, Home, MachineUse, PluginDirs, Shape};
use linux::ethtool::{Ethtool, NicParameter};
use linux::features::probe;
use linux::interrupts::{Interrupts, queue_of};
use linux::sysfs::NetSysfs;
use linux::{CpuSet, IfName, Netns};
use load::{Run, Schedule, Wait};
use record::{Candidate, RequestedValue, Stack, StackKind, Tuning};
use testkit::{card, dump, settle_card};

use crate::standing::{left, shape, staffing};

/// Both models have rings of a size that can be set; only the first can wait before it interrupts. Each has a CPU for
/// its interrupts.
fn tuned(path: &str) -> Candidate {
    let number = |name: &str, value| (name.to_owned(), RequestedValue::Number(value));
    let cpus = |list: &str| ("irq_affinity".to_owned(), RequestedValue::Text(list.to_owned()));
    let tune = Tuning {
        both: [number("ring_rx", 512)].into(),
        client: [number("coalesce_rx_usecs", 50), cpus("0")].into(),
        server: [cpus("1")].into(),
    };
    let name = Some("tuned".to_owned());
    Candidate { path: path.to_owned(), name, tune, required: true, ..Candidate::default() }
}

#[test]
fn nodes_ask_over_cards_and_give_them_back_as_they_were() {
    let (Some(client), Some(server)) = (card("igb"), card("vmxnet3")) else { return };
    [&client, &server].into_iter().for_each(settle_card);
    let here = Netns::current().unwrap();
    let before = dump(&here);
    // Only a card that is up says which they are.
    let placed = [&client, &server].map(|card| affinities(&here, card));
    let facts = probe().unwrap();
    let root = tempfile::tempdir().unwrap();
    let claim = Home::at(root.path()).claim().unwrap();
    for path in ["host", "bridge+direct", "ipvlan-l2"] {
        let mut contenders = lab::contenders(&[tuned(path)], &facts, &PluginDirs::default()).unwrap();
        lab::prove(&mut contenders, &facts, MachineUse::OursWithCards).unwrap();
        let settings = contenders.pop().unwrap().settings;
        let ends = ByRole { client: client.clone(), server: server.clone() };
        let cards =
            CardWire { ends, nic: tune::Nic { rx: 2, tx: 2, interrupts: vec![] }, interrupts_at_once: false };
        let plain = shape(datapath::find(path).unwrap(), claim.id(), false);
        let shape = Shape { cards: Some(cards), settings, steered: false, ..plain };
        let dir = claim.dir().join(lab::slug(path));
        let mut built = BuiltTopology::build(path, shape, &staffing(), &dir).unwrap();
        built.connect(100, 3).unwrap();
        let node = built.topology.nodes.client.place.open().unwrap();
        let set = |parameter| Ethtool::open_in(&node).unwrap().read(&"eth0".parse().unwrap(), parameter);
        for (parameter, value) in [(NicParameter::RingRx, 512), (NicParameter::CoalesceRxUsecs, 50)] {
            assert_eq!(set(parameter).unwrap().unwrap().now, value, "{path}: {parameter}");
        }
        for (node, cpu) in [(&built.topology.nodes.client, "0"), (&built.topology.nodes.server, "1")] {
            let wire = "eth0".parse().unwrap();
            let now = affinities(&node.place.open().unwrap(), &wire);
            assert!(!now.is_empty() && now.values().all(|cpus| cpus.to_string() == cpu), "{path}: {now:?}");
        }
        let schedule = Schedule::Constant { rate_per_s: 200.0 };
        let run = Run {
            drain: Duration::from_secs(20),
            wait: Wait::Sleep,
            ..Run::new(schedule, Duration::from_millis(200))
        };
        let outcome = load::run(built.clients(100), &run).unwrap();
        assert_eq!(outcome.answered, 40, "{path}: {outcome:?}");
        built.take_down().unwrap();
        assert_eq!(left(claim.id()), [], "{path}");
        before.assert_same(&dump(&here), path);
        let now = [&client, &server].map(|card| affinities(&here, card));
        assert_eq!(now, placed, "{path}");
    }
    claim.end().unwrap();
}

/// Which CPUs serve the interrupts of a card's queues, by number. A card that is down has only numbers.
fn affinities(netns: &Netns, card: &IfName) -> std::collections::BTreeMap<u32, CpuSet> {
    let numbers = NetSysfs::open(netns).unwrap().interrupts(card).unwrap();
    let interrupts = Interrupts::kernel();
    let listed = interrupts.list().unwrap();
    let of_queue = |number: &u32| {
        let named = listed.iter().find(|one| one.number == *number);
        named.is_none_or(|one| queue_of(&one.name).is_some())
    };
    let mut found = std::collections::BTreeMap::new();
    for number in numbers.into_iter().filter(of_queue) {
        found.extend(interrupts.read_cpus(number).unwrap().map(|cpus| (number, cpus)));
    }
    found
}

/// A driver says what it does not take only when it is asked. That ends the candidate, not the race.
#[test]
fn what_a_card_refuses_leaves_its_candidate_out() {
    let (Some(client), Some(server)) = (card("vmxnet3"), card("igb")) else { return };
    [&client, &server].into_iter().for_each(settle_card);
    let here = Netns::current().unwrap();
    let (before, facts) = (dump(&here), probe().unwrap());
    let asking = |name: &str, knob: &str, value| {
        let server = [(knob.to_owned(), value)].into();
        let tune = Tuning { server, ..Tuning::default() };
        Candidate { path: "host".to_owned(), name: Some(name.to_owned()), tune, ..Candidate::default() }
    };
    let with = |name: &str, knob: &str, value| asking(name, knob, RequestedValue::Number(value));
    let placed = |name: &str, cpus: &str| asking(name, "irq_affinity", RequestedValue::Text(cpus.to_owned()));
    let own_stack = |candidate: Candidate| Candidate {
        stack: Stack { kind: StackKind::Afxdp, ..Stack::default() },
        ..candidate
    };
    let candidates = [
        with("rings", "ring_rx", 512),
        // The driver takes steps of its own.
        with("waits", "coalesce_rx_usecs", 2),
        with("giant", "mtu", 16_000),
        with("large", "mtu", 9_000),
        placed("nowhere", "99"),
        placed("somewhere", "1"),
        own_stack(with("queues", "ring_rx", 512)),
        own_stack(with("queue", "channels", 1)),
    ];
    let mut contenders = lab::contenders(&candidates, &facts, &PluginDirs::default()).unwrap();
    lab::prove(&mut contenders, &facts, MachineUse::OursWithCards).unwrap();
    // Which CPUs run is known without a card; all else a veth has not.
    let refused = contenders.iter().filter(|contender| !contender.unmet.is_empty());
    assert_eq!(refused.map(|contender| contender.name.as_str()).collect::<Vec<_>>(), ["nowhere"]);
    let ends = ByRole { client, server };
    let nic = tune::Nic { rx: 2, tx: 2, interrupts: vec![] };
    let wire = CardWire { ends, nic, interrupts_at_once: false };
    let root = tempfile::tempdir().unwrap();
    let home = Home::at(root.path());
    lab::prove_on_cards(&mut contenders, &wire, &home).unwrap();
    before.assert_same(&dump(&here), "after all were tried");
    for (name, why) in [
        ("rings", ""),
        ("waits", "coalesce_rx_usecs = 2: "),
        ("giant", "takes an MTU of "),
        ("large", ""),
        ("nowhere", "irq_affinity = 99: "),
        ("somewhere", ""),
        ("queues", "takes frames from one queue, and the server's card has 2"),
        ("queue", ""),
    ] {
        let contender = contenders.iter().find(|contender| contender.name == name).unwrap();
        let unmet = contender.unmet.join("; ");
        assert!(unmet.is_empty() == why.is_empty() && unmet.contains(why), "{name}: {unmet:?}");
    }
    let required = Candidate { required: true, ..with("giant", "mtu", 16_000) };
    let mut contenders = lab::contenders(&[required], &facts, &PluginDirs::default()).unwrap();
    let error = lab::prove_on_cards(&mut contenders, &wire, &home).unwrap_err().to_string();
    assert!(error.contains("run giant here: mtu = 16000: the driver of eth"), "{error}");
    assert!(home.remains().unwrap().is_empty());
}
