//! Frames meet every filter that this kernel has, and none is lost.

use std::sync::Arc;

use lab::{Finished, Home, LabError, Race, RaceOptions};
use linux::cpu::{self, Scheduling};
use record::{
    Candidate, Experiment, Flood, PacketFilter, RaceRecord, Steering, Void, Workload, WorkloadKind,
};

fn experiment(sizes: &[u32], slice_ms: u32, rounds: u32) -> Experiment {
    Experiment {
        rounds,
        builds: 1,
        slice_ms,
        warmup_ms: 5,
        workload: Workload { body_bytes: sizes.to_vec(), ..Workload::of(WorkloadKind::Packets) },
        ..Experiment::default()
    }
}

/// Its record; `None` where this kernel makes no frames. Nothing is left of it.
fn raced(experiment: Experiment) -> Option<RaceRecord> {
    let root = tempfile::tempdir().unwrap();
    let home = Home::at(root.path().join("run"));
    let path = root.path().join("race.jsonl");
    let settings = RaceOptions {
        machines: None,
        plugins: lab::PluginDirs::default(),
        guest: None,
        record: path.clone(),
        nginx: None,
        // Frames do not need the executable.
        own: crate::own("/bin/false"),
        cpus: cpu::allowed().unwrap(),
        scheduling: Scheduling::Normal,
        stop: Arc::default(),
    };
    let facts = linux::features::probe().unwrap();
    let race = match Race::prepare(experiment, settings, &facts, home.clone()) {
        Err(LabError::Experiment { what, why }) if what == "packets" => {
            assert!(why.contains("it can from Linux 5.18"), "{why}");
            testkit::skip("this kernel makes no live frames (Linux 5.18)");
            return None;
        }
        race => race.unwrap(),
    };
    assert_eq!(race.run(&mut |_| {}).unwrap(), Finished::Whole);
    assert_eq!(home.remains().unwrap(), []);
    Some(RaceRecord::read(&path).unwrap())
}

#[test]
fn every_filter_judges_every_frame_of_every_size() {
    let Some(race) = raced(experiment(&[60, 590, 1514], 20, 1)) else { return };
    let round = &race.rounds[0];
    assert_eq!(round.broken, []);
    assert_eq!(race.header.entrants.len(), PacketFilter::ALL.len() + 1);
    for (index, entrant) in race.header.entrants.iter().enumerate() {
        let able = entrant.unmet.is_empty();
        assert!(able || entrant.unmet[0].contains("Linux 6.6"), "{entrant:?}");
        let trials = round.trials.iter().filter(|trial| trial.entrant == index);
        let (mut counted, name) = (0, &entrant.name);
        for trial in trials {
            let frames = trial.frames.unwrap();
            // Other programs and the hypervisor may void a trial, but no frame may get lost.
            assert!(!matches!(trial.void, Some(Void::FramesLost { .. })), "{name}: {trial:?}");
            assert_eq!(
                (frames.made, trial.sent, trial.answered),
                (frames.judged, frames.made, frames.made),
                "{name}"
            );
            let sent_on = name == "xdp-tx" || name == "xdp-redirect";
            assert_eq!(frames.sunk, if sent_on { frames.made } else { 0 }, "{name}");
            assert!(
                frames.made > 0 && frames.alone == frames.made && frames.alone_cpu_ns > 0,
                "{name}: {frames:?}"
            );
            assert_eq!(trial.duration_ns, frames.net_ns());
            counted += 1;
        }
        assert!(if able { counted >= 3 } else { counted == 0 }, "{name}: {counted} trials");
    }
    let commands = |name: &str| {
        let entrant = race.header.entrants.iter().find(|entrant| entrant.name == name).unwrap();
        entrant.commands.join("\n")
    };
    assert!(commands("nft-raw").contains("counter drop") && commands("xdp-redirect").contains("onward"));
    assert!(commands("host").contains("gro on") && !commands("host").contains("nft"));
}

#[test]
fn a_flood_meets_the_filter_of_its_candidate_and_leaves_others_in_peace() {
    let filters: Vec<PacketFilter> = PacketFilter::ALL
        .into_iter()
        .filter(|filter| {
            !matches!(filter, PacketFilter::XdpTx | PacketFilter::XdpRedirect | PacketFilter::XdpPass)
        })
        .collect();
    let flooded = filters.iter().map(|filter| Candidate {
        path: "host".to_owned(),
        filter: Some(*filter),
        ..Candidate::default()
    });
    let mut asked = Experiment {
        candidates: flooded.collect(),
        flood: Some(Flood { packets_per_s: 20_000, bytes: 64 }),
        workload: Workload {
            body_bytes: vec![20_000],
            connections: 2,
            ..Workload::of(WorkloadKind::TcpStream)
        },
        ..experiment(&[], 50, 1)
    };
    // To choose another, requests would be served by the executable.
    asked.underlay.steering = Steering::Sender;
    asked.validate().unwrap();
    let Some(race) = raced(asked) else { return };
    let round = &race.rounds[0];
    assert_eq!(round.broken, []);
    let mut seen = Vec::new();
    for trial in &round.trials {
        let entrant = &race.header.entrants[trial.entrant];
        let Some(junk) = trial.junk else {
            assert!(entrant.name.starts_with("host"), "{entrant:?}");
            continue;
        };
        // Beside a stream the link is full now and then. On a busy machine there may be no CPU for the flood.
        let met = junk.sent > 0 && junk.filtered > 0 && junk.cpu_ns > 0;
        assert!(trial.frames.is_none() && (met || trial.void.is_some()), "{}: {trial:?}", entrant.name);
        assert!(trial.void.is_some() || trial.carried.unwrap().bytes > 0, "{}: {trial:?}", entrant.name);
        assert!(entrant.stands_for.contains("; flood: "), "{entrant:?}");
        seen.push(entrant.name.clone());
    }
    let able = |filter: &&PacketFilter| {
        race.header.entrants.iter().any(|one| one.name == filter.name() && one.unmet.is_empty())
    };
    let mut expected: Vec<_> = filters.iter().filter(able).map(|filter| filter.name().to_owned()).collect();
    expected.sort();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, expected);
    let raw = race.header.entrants.iter().find(|entrant| entrant.name == "nft-raw").unwrap();
    assert!(raw.commands.join("\n").contains("udp dport 9 counter drop"), "{raw:?}");
}
