//! Streams and downloads over every data path that this kernel can run. Workloads of requests are tested with
//! the binary, because it is their server.

use std::path::PathBuf;
use std::sync::Arc;

use lab::{Finished, Home, Race, RaceOptions};
use linux::cpu::{self, Scheduling};
use record::{Experiment, Steering, Workload, WorkloadKind};

/// The record of one round of a workload on all data paths.
fn raced(kind: WorkloadKind, ipv6: bool) -> record::RaceRecord {
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
    let body_bytes = match kind {
        WorkloadKind::UdpStream => vec![1200],
        _ => vec![200_000],
    };
    let mut experiment = Experiment {
        rounds: 1,
        builds: 1,
        slice_ms: 50,
        workload: Workload { body_bytes, ipv6, connections: 2, ..Workload::of(kind) },
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
    for (kind, ipv6) in
        [(WorkloadKind::TcpStream, true), (WorkloadKind::UdpStream, false), (WorkloadKind::Download, false)]
    {
        let race = raced(kind, ipv6);
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
