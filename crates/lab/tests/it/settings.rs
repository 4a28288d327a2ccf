//! Settings are in force where they should be, before the first socket. A setting that this kernel lacks is
//! refused with the reason.

use lab::{BuiltTopology, Contender, Home, MachineUse, PluginDirs, Shape};
use linux::Netns;
use linux::features::{Facts, probe};
use record::{Candidate, Placement, RequestedValue, Side, Tuning};
use testkit::run;
use tune::Races;

use crate::one_side::sides;
use crate::paths::runnable;
use crate::standing::{left, shape, staffing};

fn knobs(knobs: &[(&str, &str)]) -> std::collections::BTreeMap<String, RequestedValue> {
    knobs
        .iter()
        .map(|(knob, value)| ((*knob).to_owned(), RequestedValue::Text((*value).to_owned())))
        .collect()
}

fn tuned(path: &str, both: &[(&str, &str)]) -> Candidate {
    let tune = Tuning { both: knobs(both), ..Tuning::default() };
    Candidate { path: path.to_owned(), name: Some("tuned".to_owned()), tune, ..Candidate::default() }
}

/// The last contender, after its settings were tried on this kernel.
fn proved(candidate: &Candidate, facts: &Facts) -> Contender {
    let mut contenders =
        lab::contenders(std::slice::from_ref(candidate), facts, &PluginDirs::default()).unwrap();
    lab::prove(&mut contenders, facts, MachineUse::Shared).unwrap();
    contenders.pop().unwrap()
}

fn sockets(place: &plan::Place) -> String {
    run(&place.open().unwrap(), "ss", &["-Htin", "state", "established"])
}

/// Builds the topology with four connections and passes the sockets of both ends to `look`. The server's
/// sockets are new too.
fn with_sockets(contender: &Contender, look: impl Fn(&BuiltTopology, [String; 2])) {
    let root = tempfile::tempdir().unwrap();
    let claim = Home::at(root.path()).claim().unwrap();
    let (settings, in_container) = (contender.settings.clone(), contender.in_container);
    let shape = Shape { settings, in_container, ..shape(contender.path, claim.id(), false) };
    let mut built =
        BuiltTopology::build(&contender.name, shape, &staffing(), &claim.dir().join("tuned")).unwrap();
    built.connect(100, 4).unwrap();
    let ends = [&built.topology.client, &built.topology.server].map(sockets);
    look(&built, ends);
    built.take_down().unwrap();
    assert_eq!(left(claim.id()), []);
    claim.end().unwrap();
}

#[test]
fn both_ends_of_every_data_path_have_what_was_set() {
    let facts = probe().unwrap();
    for path in runnable() {
        check_both_ends(path.name, Side::Both, &facts);
        for side in sides(path) {
            check_both_ends(path.name, side, &facts);
        }
    }
}

#[track_caller]
fn check_both_ends(path: &str, in_container: Side, facts: &Facts) {
    let asked =
        [("tcp_congestion_control", "reno"), ("initcwnd", "23"), ("rto_min", "17"), ("rps_cpus", "none")];
    let mut candidate = Candidate { in_container, ..tuned(path, &asked) };
    candidate.tune.server.insert("initcwnd".to_owned(), RequestedValue::Number(31));
    let contender = proved(&candidate, facts);
    assert_eq!(contender.unmet, [] as [String; 0], "{path}");
    with_sockets(&contender, |_, [client, server]| {
        for (end, cwnd) in [(client, "cwnd:23 "), (server, "cwnd:31 ")] {
            let found = [" reno ", cwnd].map(|word| end.matches(word).count());
            assert_eq!(found, [4, 4], "{path} {in_container}: {end}");
        }
    });
}

/// Masquerading needs the connection tracking that the setting turns off.
#[test]
fn the_client_alone_in_a_container_takes_no_notrack() {
    let candidate = Candidate { in_container: Side::Client, ..tuned("bridge+direct", &[("notrack", "80")]) };
    let contender = proved(&candidate, &probe().unwrap());
    let (settings, in_container) = (contender.settings, contender.in_container);
    let shape = Shape { settings, in_container, ..shape(contender.path, "hg-none", false) };
    let refused = lab::Topology::plan(shape).unwrap_err().to_string();
    assert!(refused.contains("may be masqueraded"), "{refused}");
}

/// Where a namespace may not make it the default, the routes set it.
#[test]
fn an_algorithm_is_in_force_whoever_may_choose_it() {
    let facts = probe().unwrap();
    for name in ["cubic", "illinois"] {
        for path in ["host", "ptp+direct"] {
            let contender = proved(&tuned(path, &[("tcp_congestion_control", name)]), &facts);
            if let [why] = contender.unmet.as_slice() {
                testkit::skip(why);
                continue;
            }
            with_sockets(&contender, |built, ends| {
                for end in ends {
                    assert_eq!(end.matches(&format!(" {name} ")).count(), 4, "{path}: {end}");
                }
                let commands = built.topology.commands().join("\n");
                let ways = [format!("congctl {name}"), format!("tcp_congestion_control={name}")];
                assert!(ways.iter().any(|way| commands.contains(way)), "{commands}");
            });
        }
    }
}

#[test]
fn one_side_alone_has_what_was_set_for_it() {
    let facts = probe().unwrap();
    let tune = Tuning { server: knobs(&[("initcwnd", "29"), ("qdisc", "pfifo")]), ..Tuning::default() };
    let candidate = Candidate { tune, ..tuned("host", &[]) };
    with_sockets(&proved(&candidate, &facts), |built, [client, server]| {
        assert_eq!((client.matches("cwnd:29 ").count(), server.matches("cwnd:29 ").count()), (0, 4));
        let queues = [&built.topology.client, &built.topology.server]
            .map(|place| run(&place.open().unwrap(), "tc", &["qdisc", "show", "dev", "eth0"]));
        assert!(!queues[0].contains("pfifo ") && queues[1].contains("qdisc pfifo "), "{queues:?}");
    });
}

/// How many connections the nodes track, and how many of these are the topology's own.
fn tracked(built: &BuiltTopology) -> [usize; 2] {
    built.topology.nodes.as_ref().both().map(|node| {
        let plan::Place::Netns(name) = &node.place else { panic!("{:?}", node.place) };
        // `self` would show the namespace of the process's first thread.
        let table = || std::fs::read_to_string("/proc/thread-self/net/nf_conntrack").unwrap();
        let ours = |line: &&str| line.contains("dport=80 ");
        Netns::open(name).unwrap().run(|| table().lines().filter(ours).count()).unwrap()
    })
}

/// Applies to the packets that the nodes forward. With IPv6, packets of neighbour discovery are not tracked
/// either.
#[test]
fn connections_are_tracked_in_the_nodes_unless_they_are_not_to_be() {
    let facts = probe().unwrap();
    with_sockets(&proved(&tuned("bridge+direct", &[]), &facts), |built, _| {
        assert!(tracked(built).iter().all(|count| *count >= 4), "{:?}", tracked(built));
    });
    let untracked = proved(&tuned("bridge+direct", &[("notrack", "80")]), &facts);
    assert_eq!(untracked.unmet, [] as [String; 0]);
    with_sockets(&untracked, |built, _| {
        assert_eq!(tracked(built), [0, 0]);
    });
    let published = proved(&tuned("docker", &[("notrack", "80")]), &facts);
    let shape = Shape { settings: published.settings, ..shape(published.path, "hg-none", false) };
    let error = lab::Topology::plan(shape).unwrap_err().to_string();
    assert!(error.contains("which needs connections to be tracked"), "{error}");
}

#[test]
fn each_group_of_queues_has_the_cpus_of_its_list() {
    if linux::cpu::online().unwrap().len() < 2 {
        return testkit::skip("a second CPU is needed for a second list");
    }
    let facts = probe().unwrap();
    let xps = |queues: &str| tuned("ptp+direct", &[("channels", queues), ("xps_cpus", "1;0")]);
    with_sockets(&proved(&xps("2"), &facts), |built, _| {
        for node in built.topology.nodes.as_ref().both() {
            let plan::Place::Netns(name) = &node.place else { panic!("{:?}", node.place) };
            let read =
                "cat /sys/class/net/eth0/queues/tx-0/xps_cpus /sys/class/net/eth0/queues/tx-1/xps_cpus";
            // `ip netns exec` mounts the sysfs of that namespace.
            let args = ["netns", "exec", name.as_str(), "sh", "-c", read];
            assert_eq!(run(&Netns::current().unwrap(), "ip", &args), "2\n1\n");
        }
    });
    let contradiction = lab::contenders(&[xps("1")], &facts, &PluginDirs::default()).unwrap_err().to_string();
    let refused =
        "use the settings of tuned: xps_cpus cannot be \"1;0\" beside channels = 1: there is 1 queue";
    assert!(contradiction.contains(refused), "{contradiction}");
    let uneven = proved(&tuned("ptp+direct", &[("xps_cpus", "1;0")]), &facts);
    let shape = Shape { settings: uneven.settings, ..shape(uneven.path, "hg-none", false) };
    let error = lab::Topology::plan(shape).unwrap_err().to_string();
    assert!(error.contains("there is 1 queue, which 2 lists of CPUs cannot share out evenly"), "{error}");
}

#[test]
fn an_mtu_is_that_of_all_that_is_above_it() {
    let facts = probe().unwrap();
    with_sockets(&proved(&tuned("ptp+vxlan", &[("mtu", "9001")]), &facts), |built, _| {
        assert_eq!(built.topology.pod_mtu_bytes, 8951);
        let netns = built.topology.server.open().unwrap();
        assert!(run(&netns, "ip", &["link", "show", "dev", "eth0"]).contains("mtu 8951"));
    });
}

#[test]
fn what_this_kernel_does_not_take_says_why() {
    let facts = probe().unwrap();
    #[track_caller]
    fn check(facts: &Facts, knob: (&str, &str), expected: &str) {
        let found = proved(&tuned("host", &[knob]), facts);
        assert!(found.unmet.len() == 1 && found.unmet[0].contains(expected), "{:?}", found.unmet);
        let required = Candidate { required: true, ..tuned("host", &[knob]) };
        let mut contenders = lab::contenders(&[required], facts, &PluginDirs::default()).unwrap();
        let error = lab::prove(&mut contenders, facts, MachineUse::Shared).unwrap_err().to_string();
        assert!(error.starts_with("run tuned here: ") && error.contains(expected), "{error}");
    }
    check(&facts, ("congctl", "hgnothing"), "congctl = hgnothing: set congctl");
    check(&facts, ("tcp_congestion_control", "hgnothing"), "lack the module tcp_hgnothing");
    let newest = Facts { kernel: "6.18.0".to_owned(), ..facts.clone() };
    check(&newest, ("tcp_adv_win_scale", "2"), "it has no effect on kernels from 6.6");
    check(&facts, ("rps_sock_flow_entries", "1024"), "all of this machine shares it");
    check(&facts, ("sched_migration_cost_ns", "500000"), "all of this machine shares it");
    check(&facts, ("hystart", "1"), "all of this machine shares it");
    // Where the machine is ours, the table can be set, and with it the setting that needs it.
    let asked = tuned("host", &[("rps_sock_flow_entries", "1024"), ("rps_flow_cnt", "1024")]);
    let mut contenders = lab::contenders(&[asked], &facts, &PluginDirs::default()).unwrap();
    lab::prove(&mut contenders, &facts, MachineUse::Ours).unwrap();
    assert_eq!(contenders.last().unwrap().unmet, [] as [String; 0]);
    let flows = std::fs::read_to_string("/proc/sys/net/core/rps_sock_flow_entries").unwrap();
    if flows.trim() == "0" {
        check(&facts, ("rps_flow_cnt", "1024"), "following of flows is off on this machine");
    }
}

#[test]
fn every_knob_races_where_its_row_says() {
    let facts = probe().unwrap();
    let ownable = |reason: &str| reason.contains("only in a VM that hostgap has booted");
    let not_here = |reason: &str| {
        reason.contains("it has no effect on kernels from") || reason.contains("following of flows is off")
    };
    for knob in tune::all() {
        let is_later = knob.since.is_some_and(|since| tune::Since::of_release(&facts.kernel) < Some(since));
        let Some(races) = knob.races().filter(|_| !is_later) else { continue };
        let unmet = proved(&tuned("host", &[(knob.id, knob.example)]), &facts).unmet;
        let fits = match races {
            Races::All | Races::OnOneMachine => {
                unmet.iter().all(|reason| not_here(reason) || lacks_module(knob, reason))
            }
            Races::OwnMachine => unmet.iter().any(|reason| ownable(reason)),
            Races::BetweenCards | Races::BetweenMachines | Races::Never => {
                !unmet.is_empty() && !unmet.iter().any(|reason| ownable(reason))
            }
        };
        assert!(fits, "{} is set {races}: {unmet:?}", knob.id);
    }
}

/// Whether the kernel lacks the module of an algorithm or a qdisc.
fn lacks_module(knob: &tune::Knob, reason: &str) -> bool {
    matches!(knob.kind, tune::ValueKind::Algorithm | tune::ValueKind::Qdisc)
        && reason.contains("no such file or directory")
}

#[test]
fn what_has_no_place_in_an_arrangement_is_refused() {
    #[track_caller]
    fn check(path: &str, placement: Placement, tune: &Tuning, expected: &str) {
        let settings = tune::Settings::read(tune).unwrap();
        let shape = Shape { placement, settings, ..shape(datapath::find(path).unwrap(), "x", false) };
        let error = lab::Topology::plan(shape).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let both = |knob: (&str, &str)| Tuning { both: knobs(&[knob]), ..Tuning::default() };
    let one = |knob: (&str, &str)| Tuning { client: knobs(&[knob]), ..Tuning::default() };
    let (same, two) = (Placement::SameNode, Placement::TwoNodes);
    check("host", same, &both(("initcwnd", "16")), "what the host says to itself takes no route");
    check("host", same, &one(("tcp_sack", "0")), "the host is client and server in the same namespace");
    for wires in [("rps_cpus", "node"), ("gro", "0"), ("channels", "1"), ("threaded_napi", "1")] {
        check("docker", same, &both(wires), "the settings of the wire: on one node nothing crosses it");
    }
    check("docker", two, &one(("mtu", "9000")), "set it for both sides");
    let settings = tune::Settings::read(&one(("tcp_sack", "0"))).unwrap();
    let shape = Shape { placement: same, settings, ..shape(datapath::find("docker").unwrap(), "x", false) };
    assert!(lab::Topology::plan(shape).is_ok());
}
