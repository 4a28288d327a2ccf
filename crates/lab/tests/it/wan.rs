//! Wires that are longer, worse or narrower: what is built for them, and their effect on packets.

use std::time::Duration;

use lab::{BuiltTopology, Finished, Home, Shape, Staffing, Topology, Wires};
use linux::Netns;
use linux::features::{Feature, probe};
use load::{Outcome, Run, Schedule, Wait};
use record::{Placement, RequestedRate, TrialRecord, Underlay, Wire};
use testkit::run;

use crate::path::Ground;
use crate::standing::{left, shape, staffing};

fn wire(delay: Option<&str>, loss: Option<&str>, rate: Option<&str>) -> Wire {
    Wire {
        delay: delay.map(|text| text.parse().unwrap()),
        loss: loss.map(|text| text.parse().unwrap()),
        rate: rate.map(|text| text.parse().unwrap()),
        ..Wire::default()
    }
}

fn on(path: &str, id: &str, wires: Wires) -> Shape {
    Shape { wires, steered: false, ..shape(datapath::find(path).unwrap(), id, false) }
}

/// Checks the commands that differ from those of a plain wire.
#[track_caller]
fn check_commands(path: &str, wires: Wires, expected: &[&str]) {
    let commands = |wires| Topology::plan(on(path, "id", wires)).unwrap().commands();
    let plain = commands(Wires::default());
    let own: Vec<String> = commands(wires).into_iter().filter(|line| !plain.contains(line)).collect();
    assert_eq!(own, expected);
}

#[test]
fn a_bridge_between_the_nodes_does_what_the_wire_does() {
    let to_server = wire(Some("40ms"), Some("0.2%"), Some("100mbit"));
    let to_client = Wire { gso: Some(false), ..wire(Some("10ms"), None, None) };
    check_commands(
        "host",
        Wires { to_server, to_client },
        &[
            "ip netns add hg-id-host-wan",
            "ip -n hg-id-host-wan link set dev lo up",
            "ip netns exec hg-id-host-wan sysctl -w net.ipv6.conf.all.disable_ipv6=1",
            "ip -n hg-id-host-wan link add name br0 mtu 1500 type bridge",
            "ip -n hg-id-host-n1 link add name eth0 mtu 1500 type veth peer name eth1 mtu 1500 netns hg-id-host-wan",
            "ip netns exec hg-id-host-wan sysctl -w net.ipv6.conf.eth1.accept_dad=0",
            "ip -n hg-id-host-wan link set dev eth1 up",
            "ip -n hg-id-host-wan link set dev eth1 master br0",
            "ip -n hg-id-host-n2 link add name eth0 mtu 1500 type veth peer name eth2 mtu 1500 netns hg-id-host-wan",
            "ip netns exec hg-id-host-wan sysctl -w net.ipv6.conf.eth2.accept_dad=0",
            "ip -n hg-id-host-wan link set dev eth2 up",
            "ip -n hg-id-host-wan link set dev eth2 master br0",
            "ip -n hg-id-host-wan link set dev br0 up",
            "tc -n hg-id-host-wan qdisc replace dev eth2 root netem limit 2365 delay 40ms loss 0.2% rate 100mbit",
            "tc -n hg-id-host-wan qdisc replace dev eth1 root netem limit 1000000 delay 10ms",
            "ip netns exec hg-id-host-n2 ethtool -K eth0 tx-tcp-segmentation off",
            "ip netns exec hg-id-host-n2 ethtool -K eth0 tx-tcp6-segmentation off",
        ],
    );
}

#[test]
fn a_router_between_the_nodes_does_what_the_wire_does() {
    let wires = Wires { to_server: wire(Some("40ms"), None, None), to_client: wire(None, Some("1%"), None) };
    check_commands(
        "bridge+vpc",
        wires,
        &[
            "tc -n hg-id-bridge-vpc-router qdisc replace dev eth2 root netem limit 1000000 delay 40ms",
            "tc -n hg-id-bridge-vpc-router qdisc replace dev eth1 root netem limit 1000000 loss 1%",
        ],
    );
}

#[test]
fn packets_that_are_cut_need_nothing_in_between() {
    let cut = Wire { gso: Some(false), ..Wire::default() };
    check_commands(
        "host",
        Wires { to_server: cut, to_client: cut },
        &[
            "ip netns exec hg-id-host-n1 ethtool -K eth0 tx-tcp-segmentation off",
            "ip netns exec hg-id-host-n1 ethtool -K eth0 tx-tcp6-segmentation off",
            "ip netns exec hg-id-host-n2 ethtool -K eth0 tx-tcp-segmentation off",
            "ip netns exec hg-id-host-n2 ethtool -K eth0 tx-tcp6-segmentation off",
        ],
    );
}

/// A requested qdisc is placed inside the one that limits the line rate. The delay stays the same.
#[test]
fn a_line_rate_is_held_in_the_node_and_its_queue_is_managed() {
    let line = Wire { line_rate: Some("40mbit".parse().unwrap()), ..Wire::default() };
    let wires = Wires { to_server: Wire::default(), to_client: line };
    let tbf =
        "tc -n hg-id-host-n2 qdisc replace dev eth0 root handle 1: tbf rate 40mbit burst 3028 limit 3028";
    let inside = |qdisc| format!("{tbf} && tc -n hg-id-host-n2 qdisc replace dev eth0 parent 1:1 {qdisc}");
    check_commands("host", wires, &[&inside("pfifo limit 1000")]);
    let knobs = [("qdisc".to_owned(), record::RequestedValue::Text("fq_codel".to_owned()))];
    let tuning = record::Tuning { server: knobs.into(), ..record::Tuning::default() };
    let settings = tune::Settings::read(&tuning).unwrap();
    let commands = Topology::plan(Shape { settings, ..on("host", "id", wires) }).unwrap().commands();
    assert!(commands.contains(&inside("fq_codel")), "{commands:?}");
    assert!(!commands.iter().any(|line| line.contains("root fq_codel")), "{commands:?}");
}

/// Builds a path on a wire, sends 20 requests for answers of one size, calls `look`, and takes everything
/// down.
fn asked(path: &str, wires: Wires, body_bytes: u32, look: impl FnOnce(&BuiltTopology)) -> Outcome {
    let root = tempfile::tempdir().unwrap();
    let claim = Home::at(root.path()).claim().unwrap();
    let dir = claim.dir().join(lab::slug(path));
    let workload = record::Workload { body_bytes: vec![body_bytes], ..record::Workload::default() };
    let staffing = Staffing { workload, ..staffing() };
    let mut built = BuiltTopology::build(path, on(path, claim.id(), wires), &staffing, &dir).unwrap();
    built.connect(body_bytes, 4).unwrap();
    let run = Run {
        drain: wires.patience().drain(body_bytes, 4) + Duration::from_secs(10),
        wait: Wait::Sleep,
        ..Run::new(Schedule::Constant { rate_per_s: 20.0 }, Duration::from_secs(1))
    };
    let outcome = load::run(built.clients(body_bytes), &run).unwrap();
    look(&built);
    built.take_down().unwrap();
    assert_eq!(left(claim.id()), []);
    claim.end().unwrap();
    outcome
}

fn has_netem() -> bool {
    let why = probe().unwrap().missing.remove(&Feature::Netem);
    if let Some(why) = &why {
        testkit::skip(&format!("netem not available: {why}"));
    }
    why.is_none()
}

/// No answer can be faster than the wire's delay, however slow the machine is.
#[test]
fn every_kind_of_underlay_delays_each_way() {
    if !has_netem() {
        return;
    }
    let facts = probe().unwrap();
    let (there, back) = (Some("40ms"), Some("20ms"));
    let wires = Wires { to_server: wire(there, None, None), to_client: wire(back, None, None) };
    for path in ["host", "bridge+vxlan", "bridge+vpc", "macvlan", "ipvlan-l2"] {
        if let Some(unmet) = datapath::find(path).unwrap().unmet(&facts).first() {
            testkit::skip(&format!("{path}: {unmet}"));
            continue;
        }
        let outcome = asked(path, wires, 4096, |_| {});
        assert_eq!((outcome.answered, outcome.missed.count()), (20, 0), "{path}: {outcome:?}");
        let shortest = outcome.service.min();
        assert!(shortest >= 59_000_000, "{path} answered within {shortest} ns");
    }
}

/// The packets and bytes that a link has sent.
fn sent(built: &BuiltTopology, place: &plan::Place) -> (u64, u64) {
    let plan::Place::Netns(name) = place else { panic!("the lab builds in namespaces") };
    let netns = Netns::open(name).unwrap();
    let read = |what: &str| {
        let text = run(&netns, "ip", &["-s", "-j", "link", "show", "dev", "eth0"]);
        let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
        rows[0]["stats64"]["tx"][what].as_u64().unwrap()
    };
    assert_eq!(built.topology.shape.placement, Placement::TwoNodes);
    (read("packets"), read("bytes"))
}

/// An answer of 64 KiB is split into 46 segments where it enters a wire that takes one segment at a time,
/// even if a pod behind a bridge sends it. Otherwise TCP sends at least two segments at a time
/// (`tcp_min_tso_segs`).
#[test]
fn packets_are_cut_where_they_enter_the_wire() {
    let cut = Wire { gso: Some(false), ..Wire::default() };
    for path in ["host", "bridge+direct"] {
        let [(whole, _), (cut, bytes)] = [Wire::default(), cut].map(|wire| {
            let mut found = (0, 0);
            let outcome = asked(path, Wires { to_server: wire, to_client: wire }, 65_536, |built| {
                found = sent(built, &built.topology.nodes.server.place);
            });
            assert_eq!(outcome.answered, 20, "{path}");
            found
        });
        assert!(cut >= 20 * 46 && cut * 2 >= whole * 3, "{path}: {whole} packets and {cut}");
        assert!((20 * 65_536..=cut * 1514).contains(&bytes), "{path}: {bytes} bytes in {cut} packets");
    }
}

/// An answer of 64 KiB takes 12.5 ms at 40 Mbit/s, apart from its headers and the burst that leaves at once.
/// No machine can be faster.
#[test]
fn what_waits_for_the_line_waits_in_the_node() {
    if probe().unwrap().missing.contains_key(&Feature::Tbf) {
        return testkit::skip("tbf not available");
    }
    let line = Wire { line_rate: Some("40mbit".parse().unwrap()), ..Wire::default() };
    for path in ["host", "bridge+direct", "bridge+vpc", "ebpf+direct", "macvlan"] {
        if let Some(unmet) = datapath::find(path).unwrap().unmet(&probe().unwrap()).first() {
            testkit::skip(&format!("{path}: {unmet}"));
            continue;
        }
        let wires = Wires { to_server: Wire::default(), to_client: line };
        let outcome = asked(path, wires, 65_536, |built| {
            let plan::Place::Netns(name) = &built.topology.nodes.server.place else { unreachable!() };
            let text = run(&Netns::open(name).unwrap(), "tc", &["-s", "-j", "qdisc", "show", "dev", "eth0"]);
            let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
            let waited = rows[1]["bytes"].as_u64().unwrap();
            assert_eq!(rows[1]["kind"], "pfifo", "{path}: {text}");
            assert!(waited > 20 * 65_536, "{path}: {text}");
        });
        assert_eq!(outcome.answered, 20, "{path}");
        assert!(outcome.service.min() >= 12_500_000, "{path}: {} ns", outcome.service.min());
    }
}

/// Counts segments that overtook others. A busy machine drops some, which leaves gaps too, so the wire that
/// keeps the order has few rather than none.
#[test]
fn what_overtakes_is_counted() {
    if !has_netem() {
        return;
    }
    let underlay = Underlay { delay: Some("2ms".parse().unwrap()), gso: Some(false), ..Underlay::default() };
    let counted = |reorder: Option<&str>| {
        let mut ground = Ground::new(&["macvlan"]);
        (ground.experiment.rounds, ground.experiment.builds) = (1, 1);
        ground.experiment.rates = vec![RequestedRate::OfCapacity(0.5)];
        ground.experiment.workload.body_bytes = vec![65_536];
        let steering = ground.experiment.underlay.steering;
        let reorder = reorder.map(|share| share.parse().unwrap());
        ground.experiment.underlay = Underlay { steering, reorder, ..underlay };
        let (finished, race) = ground.run(&mut |_| {});
        assert_eq!(finished.unwrap(), Finished::Whole);
        // In a closed loop the answers of all connections may be too many at once for netem's queue.
        let at_rate = |trial: &&TrialRecord| race.loads[trial.load].rate_per_s.is_some();
        let trials = race.rounds.iter().flat_map(|round| &round.trials).filter(at_rate);
        trials.map(|trial| trial.counters.out_of_order).sum::<u64>()
    };
    let (in_order, reordered) = (counted(None), counted(Some("25%")));
    assert!(
        in_order * 10 < reordered,
        "{in_order} on the wire in order, {reordered} where a quarter overtakes"
    );
}
