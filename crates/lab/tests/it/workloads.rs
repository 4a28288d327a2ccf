//! Streams and downloads over every data path that this kernel can run. Workloads of requests are tested with
//! the binary, because it is their server.

use std::path::PathBuf;
use std::sync::Arc;

use lab::{Finished, Home, Race, RaceOptions};
use linux::cpu::{self, Scheduling};
use record::{Experiment, Steering, Workload, WorkloadKind};

/// The record of one round of a workload on all data paths.
fn raced(kind: WorkloadKind, body_bytes: u32, ipv6: bool) -> record::RaceRecord {
    let root = tempfile::tempdir().unwrap();
    let home = Home::at(root.path().join("run"));
    let path = root.path().join("race.jsonl");
    let settings = RaceOptions {
        machines: None,
        plugins: lab::PluginDirs::default(),
        guest: None,
        record: path.clone(),
        nginx: std::env::var_os("HOSTGAP_NGINX").map(PathBuf::from),
        // These workloads do not need the executable.
        own: crate::own("/bin/false"),
        cpus: cpu::allowed().unwrap(),
        scheduling: Scheduling::Normal,
        stop: Arc::default(),
    };
    let mut experiment = Experiment {
        rounds: 1,
        builds: 1,
        slice_ms: 50,
        workload: Workload { body_bytes: vec![body_bytes], ipv6, connections: 2, ..Workload::of(kind) },
        ..Experiment::default()
    };
    experiment.underlay.steering = Steering::Sender;
    let facts = linux::features::probe().unwrap();
    let race = Race::prepare(experiment, settings, &facts, home.clone()).unwrap();
    assert_eq!(race.run(&mut |_| {}).unwrap(), Finished::Whole);
    assert_eq!(home.remains().unwrap(), []);
    record::RaceRecord::read(&path).unwrap()
}

#[test]
fn every_data_path_carries_streams_and_downloads() {
    for (kind, bytes, ipv6) in [
        (WorkloadKind::TcpStream, 200_000, true),
        (WorkloadKind::UdpStream, 1200, false),
        (WorkloadKind::Download, 200_000, false),
    ] {
        let race = raced(kind, bytes, ipv6);
        assert_eq!(race.header.machine.facts.get("fragments"), None);
        assert!(race.capacities.is_empty());
        let trials = &race.rounds[0].trials;
        assert_eq!(crate::path::changed(&race), [], "{kind:?}");
        assert_eq!(race.rounds[0].broken, [], "{kind:?}");
        for (index, entrant) in race.header.entrants.iter().enumerate() {
            let of_it: Vec<_> = trials.iter().filter(|trial| trial.entrant == index).collect();
            assert_eq!(of_it.is_empty(), !entrant.unmet.is_empty(), "{kind:?} {}", entrant.name);
            for trial in of_it.into_iter().filter(|trial| trial.void.is_none()) {
                let carried = trial.carried.unwrap();
                assert!(carried.bytes > 0, "{kind:?} {}: {trial:?}", entrant.name);
                assert_eq!(carried.packets.is_some(), kind == WorkloadKind::UdpStream);
                if kind == WorkloadKind::Download {
                    assert_eq!((trial.answered, carried.bytes), (10, 10 * 200_000));
                }
            }
        }
    }
}

/// It is said before the first packet which paths cut datagrams; all of them put them together again.
#[test]
fn datagrams_larger_than_a_packet_arrive_whole_and_are_named() {
    for (ipv6, wrapped, bytes) in [(false, 1450, 1472), (true, 1430, 1452)] {
        let race = raced(WorkloadKind::UdpStream, bytes, ipv6);
        let said = &race.header.machine.facts["fragments"];
        let group = said.split("; ").find(|group| group.ends_with(&format!(" in packets of {wrapped}")));
        let group = group.unwrap_or_else(|| panic!("{said}"));
        assert!(group.contains("bridge+vxlan, ") && group.contains(&format!(": {bytes} bytes in")), "{said}");
        assert!(
            !said.contains("host") && !said.contains("docker"),
            "a whole packet is said to be cut: {said}"
        );
        assert_eq!(race.rounds[0].broken, []);
        for trial in race.rounds[0].trials.iter().filter(|trial| trial.void.is_none()) {
            let carried = trial.carried.unwrap();
            let name = &race.header.entrants[trial.entrant].name;
            assert!(carried.packets.is_some_and(|packets| packets.received > 0), "{name}: {trial:?}");
            assert_eq!(carried.bytes % u64::from(bytes), 0, "{name}: datagrams arrived in part");
        }
    }
}
