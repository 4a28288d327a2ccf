//! A trial verifies that its packets took the path: any change during a race is named, and nothing else is.

use std::os::unix::fs::PermissionsExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datapath::DataPath;
use lab::{Event, Finished, Home, LabError, PluginDirs, Race, RaceOptions};
use linux::cpu::{self, Scheduling};
use linux::{IfName, Netns, NetnsName, netns};
use record::{
    Candidate, Experiment, Placement, RequestedRate, ServerKind, Steering, Void, Workload, WorkloadKind,
};
use testkit::{CpuQuota, shell};

use crate::paths::runnable;

/// A small race of some data paths, without a search for the best steering.
pub(crate) struct Ground {
    pub(crate) root: tempfile::TempDir,
    home: Home,
    pub(crate) experiment: Experiment,
    plugins: PluginDirs,
}

impl Ground {
    pub(crate) fn new(paths: &[&str]) -> Ground {
        let root = tempfile::tempdir().unwrap();
        let home = Home::at(root.path().join("run"));
        let named =
            |path: &&str| Candidate { path: (*path).to_owned(), required: true, ..Candidate::default() };
        let mut experiment = Experiment {
            rounds: 4,
            builds: 2,
            slice_ms: 50,
            candidates: paths.iter().map(named).collect(),
            // However slow the machine is, it sustains this beside others.
            rates: vec![RequestedRate::OfCapacity(0.1)],
            workload: Workload {
                server: ServerKind::Nginx,
                connections: 4,
                body_bytes: vec![100],
                ..Workload::default()
            },
            ..Experiment::default()
        };
        experiment.underlay.steering = Steering::Sender;
        Ground { root, home, experiment, plugins: PluginDirs::default() }
    }

    fn record(&self) -> PathBuf {
        self.root.path().join("race.jsonl")
    }

    /// The namespace of the running race whose name ends with `end`.
    fn namespace(&self, end: &str) -> NetnsName {
        let owners = std::fs::read_dir(self.root.path().join("run")).unwrap();
        let owners = owners.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let ids: Vec<String> = owners.filter(|name| !name.ends_with(".lock")).collect();
        let ours = |name: &NetnsName| {
            ids.iter().any(|id| name.as_str().starts_with(&format!("hg-{id}-")))
                && name.as_str().ends_with(end)
        };
        let names: Vec<NetnsName> = netns::list().unwrap().into_iter().filter(ours).collect();
        let [name] = names.as_slice() else { panic!("{end}: {names:?}") };
        name.clone()
    }

    /// The commands with the names of a candidate's namespaces filled in.
    pub(crate) fn in_namespaces(&self, candidate: &str, commands: &str) -> String {
        let slug = lab::slug(candidate);
        let parts = [("N1", "n1"), ("N2", "n2"), ("CLIENT", "client"), ("SERVER", "server")];
        parts.into_iter().fold(commands.to_owned(), |text, (word, part)| {
            if text.contains(word) {
                text.replace(word, self.namespace(&format!("-{slug}-{part}")).as_str())
            } else {
                text
            }
        })
    }

    /// Runs the race to its end. `emit` gets its events and may change the topologies.
    pub(crate) fn run(
        &self,
        emit: &mut dyn FnMut(&Event),
    ) -> (Result<Finished, LabError>, record::RaceRecord) {
        let settings = RaceOptions {
            machines: None,
            plugins: self.plugins.clone(),
            guest: None,
            record: self.record(),
            nginx: std::env::var_os("HOSTGAP_NGINX").map(PathBuf::from),
            own: crate::own("/bin/false"),
            cpus: cpu::allowed().unwrap(),
            scheduling: Scheduling::Normal,
            stop: Arc::default(),
        };
        let facts = linux::features::probe().unwrap();
        let race = Race::prepare(self.experiment.clone(), settings, &facts, self.home.clone()).unwrap();
        let finished = race.run(&mut |event| emit(&event));
        assert_eq!(self.home.remains().unwrap(), [], "nothing is left");
        (finished, record::RaceRecord::read(&self.record()).unwrap())
    }
}

/// The candidates whose trials were void because their path had changed, and what had changed.
pub(crate) fn changed(race: &record::RaceRecord) -> Vec<(String, String)> {
    let trials = race.rounds.iter().flat_map(|round| &round.trials);
    let changes = trials.filter_map(|trial| match &trial.void {
        Some(Void::PathChanged { what }) => {
            Some((race.header.entrants[trial.entrant].name.clone(), what.clone()))
        }
        _ => None,
    });
    changes.collect()
}

/// From the first trial on, a quota leaves the generator a fraction of what it needs at any rate.
#[test]
fn what_a_quota_stopped_does_not_count() {
    let Some(quota) = CpuQuota::new(2) else {
        return testkit::skip("no hierarchy of control groups has the cpu controller");
    };
    let mut ground = Ground::new(&["host"]);
    (ground.experiment.rounds, ground.experiment.builds) = (1, 1);
    let raced = std::panic::catch_unwind(AssertUnwindSafe(|| {
        ground.run(&mut |event| {
            if matches!(event, Event::Loads(_)) {
                quota.take(std::process::id());
            }
        })
    }));
    quota.let_go(std::process::id());
    // The race may end without a trial that counts.
    let (_, race) = raced.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let voids: Vec<_> = race.rounds.iter().flat_map(|round| &round.trials).map(|trial| &trial.void).collect();
    assert!(voids.iter().any(|void| matches!(void, Some(Void::Throttled { .. }))), "{voids:?}");
}

/// Streams and downloads between two nodes have a test of their own with the same check.
#[test]
fn untouched_paths_are_never_suspected() {
    let kinds = [
        (WorkloadKind::Http, Placement::TwoNodes, false),
        (WorkloadKind::Http, Placement::SameNode, true),
        (WorkloadKind::TcpStream, Placement::SameNode, false),
    ];
    let all = runnable();
    for (kind, placement, ipv6) in kinds {
        let is_called = |path: &&&DataPath| path.attach.refuses_callers(lab::family(ipv6)).is_none();
        // Its streams are refused.
        let is_heard = |path: &&&DataPath| !(kind.is_stream() && path.name == "pasta");
        let called = all.iter().filter(is_called).filter(is_heard).map(|path| path.name);
        let called: Vec<&str> = called.filter(|name| *name != "host").collect();
        let mut ground = Ground::new(&called);
        (ground.experiment.rounds, ground.experiment.builds) = (1, 1);
        let body_bytes = vec![if kind.is_http() { 100 } else { 200_000 }];
        let workload = Workload { body_bytes, ipv6, connections: 4, ..Workload::of(kind) };
        ground.experiment.workload = Workload { server: ServerKind::Nginx, ..workload };
        ground.experiment.placement = placement;
        if kind.is_stream() {
            ground.experiment.rates = Vec::new();
        }
        let (finished, race) = ground.run(&mut |_| {});
        assert_eq!(finished.unwrap(), Finished::Whole);
        assert_eq!(changed(&race), [], "{kind:?} {placement:?}");
        let broken: Vec<_> = race.rounds.iter().flat_map(|round| &round.broken).collect();
        assert!(broken.is_empty(), "{broken:?}");
    }
}

/// Runs shell commands before a trial of a candidate in the second round, with `N1`, `N2`, `CLIENT` and
/// `SERVER` in place of its namespaces. The trial must be void and the candidate break, both with these
/// words, while another candidate races on.
#[track_caller]
fn check(victim: &str, commands: &str, says: &str) {
    let Some((race, why)) = breaks(victim, commands) else { return };
    let void = changed(&race);
    assert!(!void.is_empty() && void.iter().all(|(name, _)| name == victim), "{void:?}");
    assert!(void[0].1.contains(says), "{void:?}");
    assert_eq!(why, format!("the path changed: {}", void[0].1));
}

/// The same, without a trial that must be void: the record, and why the candidate left. `None`, with the skip recorded,
/// if this kernel cannot run it.
#[track_caller]
fn breaks(victim: &str, commands: &str) -> Option<(record::RaceRecord, String)> {
    let facts = linux::features::probe().unwrap();
    if let Some(unmet) = datapath::find(victim).unwrap().unmet(&facts).first() {
        testkit::skip(&format!("{victim}: {unmet}"));
        return None;
    }
    let ground = Ground::new(&[victim, "macvlan"]);
    let (mut done, mut broke) = (false, Vec::new());
    let (finished, race) = ground.run(&mut |event| match event {
        Event::Trial { round: 1, name, .. } if name == victim && !done => {
            done = true;
            shell(&ground.in_namespaces(victim, commands));
        }
        Event::Broke { name, round, why } => broke.push((name.clone(), *round, why.clone())),
        _ => {}
    });
    assert_eq!(finished.unwrap(), Finished::Whole);
    let [(name, 1, why)] = broke.as_slice() else { panic!("{broke:?}") };
    assert_eq!(name, victim);
    let entrant = |name: &str| race.header.entrants.iter().position(|entrant| entrant.name == name).unwrap();
    assert_eq!(race.broke(entrant(victim)), Some((1, why.as_str())));
    // It raced before, and is in no later round or build. Trials may be void for other reasons on a busy
    // machine.
    for round in &race.rounds {
        let visits = |entrant: usize| round.trials.iter().filter(|trial| trial.entrant == entrant).count();
        assert!(round.round == 1 || (visits(entrant(victim)) > 0) == (round.round == 0), "{}", round.round);
        assert!(visits(0) > 0 && visits(entrant("macvlan")) > 0, "{}", round.round);
    }
    let why = why.clone();
    Some((race, why))
}

#[test]
fn a_race_knows_that_the_programs_are_gone() {
    let folder = format!("{}/N2-1", bpf::pins::ROOT);
    check(
        "ebpf+direct",
        &format!("umount --lazy {folder}"),
        "n2: the bpffs with the programs of hg-ebpf-direct-n2-1 is gone",
    );
    // Removing its pin ends the bpf link. On a kernel without tcx the program is a filter.
    let detach = format!("rm {folder}/link_hgp1 || tc -n N2 qdisc del dev hgp1 clsact");
    check("ebpf+direct", &detach, "n2: program from_pod is no longer at link hgp1");
    check("ebpf+vxlan", &detach.replace("N2", "N1"), "n1: program from_pod is no longer at link hgp1");
}

#[test]
fn a_race_knows_that_the_program_of_a_netkit_is_gone() {
    let detach = format!("rm {}/N2-1/link_hgp1", bpf::pins::ROOT);
    check("netkit+direct", &detach, "n2: program from_netkit is no longer at link hgp1");
}

#[test]
fn a_race_knows_that_a_pod_has_left_its_bridge() {
    // The pod sends to its own port, and the node reaches the pod by a route.
    let aside = "mac=$(ip netns exec N2 cat /sys/class/net/hgp1/address)
ip -n N2 link set hgp1 nomaster
ip -n SERVER neighbour replace 10.244.2.1 lladdr $mac dev eth0
ip -n N2 route add 10.244.2.2/32 dev hgp1";
    check("bridge+direct", aside, "n2: link hgp1 is no longer a port of hgbr1 but of none");
}

#[test]
fn a_race_knows_that_a_tunnel_was_left() {
    let direct =
        "bridge -n N1 fdb del $(bridge -n N1 fdb show dev hgvx1 | cut -d' ' -f1) dev hgvx1 dst 192.168.100.2
ip -n N1 route replace 10.244.2.0/24 via 192.168.100.2 dev eth0
ip -n N2 route replace 10.244.1.0/24 via 192.168.100.1 dev eth0";
    check("bridge+vxlan", direct, "n1: the forwarding entry for 02:02:00:02:00:00 of link hgvx1 is gone");
    let around = "ip -n N1 route add 10.244.2.2/32 via 192.168.100.2 dev eth0
ip -n N2 route add 10.244.1.2/32 via 192.168.100.1 dev eth0";
    check("ptp+vxlan", around, "n1: the route to 10.244.2.2/32 by link eth0 in table 254 is new");
}

/// Nothing goes on without it: no answer comes, and the path says why.
#[test]
fn a_race_knows_that_a_daemon_that_forwarded_has_ended() {
    let (victim, facts) = ("ovs-dpdk+direct", linux::features::probe().unwrap());
    if let Some(unmet) = datapath::find(victim).unwrap().unmet(&facts).first() {
        return testkit::skip(&format!("{victim}: {unmet}"));
    }
    let ground = Ground::new(&[victim]);
    let mut done = false;
    let (finished, _) = ground.run(&mut |event| match event {
        Event::Trial { round: 1, name, .. } if name == victim && !done => {
            done = true;
            shell(&ground.in_namespaces(victim, "kill -9 $(cat /run/hostgap-ovs/N2-1/ovs-vswitchd.pid)"));
        }
        _ => {}
    });
    let error = finished.unwrap_err().to_string();
    let says = "n2: a daemon of the Open vSwitch of hg-ovs-dpdk-direct-n2-1 has ended";
    assert!(error.contains(victim) && error.contains(says), "{error}");
    assert_eq!(linux::ovs::switches().unwrap(), [] as [String; 0]);
}

/// The kernel's part of the switch goes on without it.
#[test]
fn a_race_knows_that_a_daemon_of_a_switch_has_ended() {
    let end = "kill -9 $(cat /run/hostgap-ovs/N2-1/ovs-vswitchd.pid)";
    check("ovs+geneve", end, "n2: a daemon of the Open vSwitch of hg-ovs-geneve-n2-1 has ended");
    assert_eq!(linux::ovs::switches().unwrap(), [] as [String; 0]);
}

/// The link of its pod goes with it, and all connections end.
#[test]
fn a_race_knows_that_the_process_of_a_pod_has_ended() {
    for program in ["pasta", "slirp4netns"] {
        let end = "kill -9 $(cat /run/hostgap-user-net/N2-1-p1/pid)";
        let Some((_, why)) = breaks(program, end) else { continue };
        let says = format!("n2: the process {program} of hg-{program}-n2-1-p1 has ended");
        assert!(why.starts_with("the path changed: ") && why.ends_with(&says), "{why}");
    }
    assert_eq!(linux::user_net::names().unwrap(), [] as [String; 0]);
}

#[test]
fn a_race_knows_that_rules_are_gone() {
    let flush = "ip netns exec N2 nft flush chain ip hg-docker-1 forward";
    check("docker", flush, "n2: the nftables rules have changed");
    check(
        "docker",
        "ip netns exec N2 nft flush map ip hg-ports ports",
        "n2: element { tcp . 8080 } of nftables map ip hg-ports ports is gone",
    );
}

#[test]
fn a_race_knows_that_a_route_is_another() {
    let narrow = "ip -n N1 route replace 10.244.2.0/24 via 192.168.100.2 dev eth0 mtu 1400";
    check(
        "ptp+direct",
        narrow,
        "n1: the route to 10.244.2.0/24 is now another route to 10.244.2.0/24 by 192.168.100.2",
    );
    let rule = "ip -n SERVER rule add priority 7 lookup 254";
    check("bridge+vpc", rule, "server: the policy rule of priority 7 is new");
}

#[test]
fn a_race_knows_that_a_shared_link_is_otherwise() {
    let slow = "tc -n SERVER qdisc add dev eth0 root handle 7: pfifo limit 50";
    check("ipvlan-l2", slow, "server: queueing discipline pfifo of link eth0 is new");
    let other = "ip -n SERVER route del default dev eth0; ip -n SERVER route add default dev eth0 metric 9";
    check("ipvlan-l3", other, "server: the route to 0.0.0.0/0 is gone");
}

#[test]
fn a_race_knows_that_a_link_was_slowed_down() {
    let slow = "tc -n N1 qdisc add dev hgbr1 root handle 7: pfifo limit 50";
    check("bridge+direct", slow, "n1: queueing discipline pfifo of link hgbr1 is new");
}

/// The change comes within a trial, once packets are flowing.
#[test]
fn programs_that_go_under_a_trial_are_missed() {
    let victim = "ebpf+direct";
    let ground = Ground::new(&[victim, "macvlan"]);
    let (finished, race) = std::thread::scope(|scope| {
        let mut done = false;
        ground.run(&mut |event| {
            let Event::Trial { round: 1, name, .. } = event else { return };
            if name == victim && !std::mem::replace(&mut done, true) {
                let commands =
                    ground.in_namespaces(victim, &format!("umount --lazy {}/N1-1", bpf::pins::ROOT));
                let pod = Netns::open(&ground.namespace("ebpf-direct-client")).unwrap();
                let before = sent(&pod);
                scope.spawn(move || {
                    while sent(&pod) == before {
                        std::thread::yield_now();
                    }
                    shell(&commands);
                });
            }
        })
    });
    assert_eq!(finished.unwrap(), Finished::Whole);
    let void = changed(&race);
    assert!(void[0].1.contains("the bpffs with the programs of hg-ebpf-direct-n1-1 is gone"), "{void:?}");
    assert!(race.broke(2).is_some());
}

/// How many packets a pod has sent over its link.
fn sent(pod: &Netns) -> u64 {
    let links = pod.run(|| linux::procfs::Procfs::kernel().link_counters()).unwrap().unwrap();
    links[&IfName::new("eth0").unwrap()].tx_packets
}

#[test]
fn a_path_that_is_put_back_races_on() {
    let victim = "ptp+direct";
    let ground = Ground::new(&[victim, "macvlan"]);
    let (mut done, mut voided) = (false, 0);
    let (finished, race) = ground.run(&mut |event| match event {
        Event::Trial { round: 1, name, .. } if name == victim && !done => {
            done = true;
            shell(&ground.in_namespaces(victim, "ip -n N1 route add 10.244.2.7/32 dev eth0"));
        }
        Event::Voided { name, why: Void::PathChanged { .. } } if name == victim => {
            voided += 1;
            shell(&ground.in_namespaces(victim, "ip -n N1 route del 10.244.2.7/32 dev eth0"));
        }
        _ => {}
    });
    assert_eq!(finished.unwrap(), Finished::Whole);
    assert_eq!((voided, changed(&race).len(), race.broke(2)), (1, 1, None));
    let mut of_it = race.rounds[1].trials.iter().filter(|trial| trial.entrant == 2);
    let void = of_it.find(|trial| matches!(trial.void, Some(Void::PathChanged { .. }))).unwrap();
    let next = of_it.next().expect("the trial is repeated");
    assert_eq!((next.load, matches!(next.void, Some(Void::PathChanged { .. }))), (void.load, false));
}

#[test]
fn without_its_reference_or_its_last_contender_a_race_ends() {
    for (victim, entrant) in [("host", 0), ("ptp+direct", 2)] {
        let ground = Ground::new(&["ptp+direct"]);
        let mut done = false;
        let (finished, race) = ground.run(&mut |event| {
            if matches!(event, Event::Trial { round: 1, name, .. } if name == victim && !done) {
                done = true;
                shell(&ground.in_namespaces(victim, "ip -n N1 route add 203.0.113.0/24 dev eth0"));
            }
        });
        let error = finished.unwrap_err().to_string();
        let slug = lab::slug(victim);
        let says = format!(
            "go on: data path {victim} broke: the path changed: namespace hg-{slug}-n1: \
             the route to 203.0.113.0/24 by link eth0 in table 254 is new"
        );
        assert_eq!(error, says);
        assert_eq!(race.end.clone().unwrap().stopped, Some(format!("could not {error}")));
        // If the last contender broke, the round is complete: the reference ran in it too.
        assert_eq!(race.rounds.len(), 1 + usize::from(entrant == 2));
        assert_eq!(race.broke(entrant).is_some(), entrant == 2);
    }
}

/// It is unknown what a plugin makes. Whatever its namespaces hold after ADD must stay.
#[test]
fn a_race_knows_that_what_a_plugin_made_is_otherwise() {
    let mut ground = Ground::new(&["macvlan"]);
    let file = std::path::absolute("../../scenarios/cni/ptp.conflist").unwrap();
    ground.experiment.candidates.push(plugins(&file));
    let mut done = false;
    let (finished, race) = ground.run(&mut |event| {
        if matches!(event, Event::Trial { round: 1, name, .. } if name == "cni:ptp" && !done) {
            done = true;
            shell(&ground.in_namespaces("cni:ptp", "ip -n SERVER link set eth0 mtu 1400"));
        }
    });
    assert_eq!(finished.unwrap(), Finished::Whole);
    let what = "namespace hg-cni-ptp-server: link eth0 has other properties".to_owned();
    assert_eq!(changed(&race), [("cni:ptp".to_owned(), what)]);
    assert_eq!(race.broke(3).map(|(round, _)| round), Some(1));
}

/// Everything stays as built, and packets use another link than the pod's. Only the counters show it.
#[test]
fn a_race_knows_that_packets_go_past_the_pods_link() {
    let mut ground = Ground::new(&["macvlan"]);
    let dir = ground.root.path().join("plugins");
    std::fs::create_dir(&dir).unwrap();
    // The script calls ptp, as wrapping plugins do, for an interface of its own.
    let script =
        "#!/bin/sh\nsed 's/\"type\":\"aside\"/\"type\":\"ptp\"/' | CNI_IFNAME=aside0 /usr/lib/cni/ptp\n";
    std::fs::write(dir.join("aside"), script).unwrap();
    std::fs::set_permissions(dir.join("aside"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let ptp = std::fs::read_to_string("../../scenarios/cni/ptp.conflist").unwrap();
    std::fs::write(dir.join("aside.conflist"), ptp.replace("\"ptp\"", "\"aside\"")).unwrap();
    ground.plugins = PluginDirs::parse(&format!("{}:{}", dir.display(), PluginDirs::USUAL));
    ground.experiment.candidates.push(plugins(&dir.join("aside.conflist")));
    let (finished, race) = ground.run(&mut |_| {});
    assert_eq!(finished.unwrap(), Finished::Whole);
    let void = changed(&race);
    for (name, what) in &void {
        assert_eq!(name, "cni:aside");
        assert!(
            what.starts_with("namespace hg-cni-aside-client: packets that link eth0 sent: 0, and "),
            "{what}"
        );
    }
    // A machine that stood still for most of a trial sent too few packets to prove it; then it is seen
    // in a later round.
    let (round, why) = race.broke(3).expect("it is seen in one of the rounds");
    let of_it = race.rounds[round as usize].trials.iter().filter(|trial| trial.entrant == 3);
    let void_of_it = of_it.map(|trial| trial.void.is_some()).collect::<Vec<_>>();
    assert_eq!(void_of_it, [true; 3], "it is repeated as often as any void trial");
    assert_eq!(why, format!("the path changed: {}", void.last().unwrap().1));
}

fn plugins(file: &Path) -> Candidate {
    Candidate { cni: Some(file.display().to_string()), required: true, ..Candidate::default() }
}
