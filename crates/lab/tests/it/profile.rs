//! A race with a profile: functions of a bridge are found where there is a bridge, and nowhere else.

use std::sync::Arc;

use lab::{Home, Race, RaceOptions};
use linux::cpu::{self, Scheduling};
use record::{Candidate, Experiment, Profile, RequestedRate, ServerKind};

/// The record of a race of `bridge+direct` at a rate that any machine sustains.
fn raced() -> record::RaceRecord {
    let root = tempfile::tempdir().unwrap();
    let nginx = std::env::var_os("HOSTGAP_NGINX").map(std::path::PathBuf::from);
    let path = root.path().join("race.jsonl");
    let settings = RaceOptions {
        machines: None,
        guest: None,
        plugins: lab::PluginDirs::default(),
        record: path.clone(),
        nginx,
        own: crate::own("unused"),
        cpus: cpu::allowed().unwrap(),
        scheduling: Scheduling::Normal,
        stop: Arc::default(),
    };
    let candidate = Candidate { path: "bridge+direct".to_owned(), required: true, ..Candidate::default() };
    let mut experiment = Experiment {
        candidates: vec![candidate],
        rates: vec![RequestedRate::OfCapacity(0.1), RequestedRate::OfCapacity(0.3)],
        rounds: 1,
        builds: 1,
        profile: true,
        ..Experiment::default()
    };
    experiment.workload.server = ServerKind::Nginx;
    let facts = linux::features::probe().unwrap();
    let home = Home::at(root.path().join("run"));
    let race = Race::prepare(experiment, settings, &facts, home.clone()).unwrap();
    race.run(&mut |_| {}).unwrap();
    assert_eq!(home.remains().unwrap(), []);
    record::RaceRecord::read(&path).unwrap()
}

/// Samples in which a process is inside a bridge while it sends. Bridges of other tests receive their packets
/// in whatever process was interrupted, outside of a send.
fn sends_through_a_bridge(profile: &Profile) -> u64 {
    let of = |stack: &str| {
        let sends = stack.split(';').skip_while(|frame| !frame.starts_with("tcp_sendmsg"));
        !stack.starts_with("other:") && sends.into_iter().any(|frame| frame.starts_with("br_"))
    };
    profile.stacks.iter().filter(|(stack, _)| of(stack)).map(|(_, samples)| samples).sum()
}

/// Samples of stacks that have a function whose name begins with `begin`.
fn with(profile: &Profile, begin: &str) -> u64 {
    let of =
        |stack: &str| !stack.starts_with("other:") && stack.split(';').any(|frame| frame.starts_with(begin));
    profile.stacks.iter().filter(|(stack, _)| of(stack)).map(|(_, samples)| samples).sum()
}

#[test]
fn functions_of_a_bridge_are_found_where_a_bridge_is() {
    let race = raced();
    let sampled: Vec<(usize, usize)> = race.profiles.iter().map(|p| (p.load, p.entrant)).collect();
    assert_eq!(sampled, [(2, 0), (2, 1), (2, 2)], "all three, at the higher of the rates");
    let [host, again, bridge] = race.profiles.as_slice() else { panic!("three") };
    for profile in [host, again, bridge] {
        assert!(profile.requests > 0 && profile.duration_ns > 0, "{profile:?}");
        assert!(with(profile, "tcp_") > 0, "all of them speak TCP");
        assert!(profile.stacks.iter().any(|(stack, _)| stack == "server;[user]"), "the server is known");
        assert!(profile.stacks.iter().any(|(stack, _)| stack == "client;[user]"), "the client is known");
        // The samples cannot exceed the elapsed time by more than a few at the ends of the slices.
        let all = profile.idle + profile.stacks.iter().map(|(_, samples)| samples).sum::<u64>();
        let due = profile.duration_ns * u64::from(profile.cpus) / profile.period_ns;
        assert!(all <= due + 100, "{all} samples, {due} are due");
    }
    let strays = sends_through_a_bridge(host).max(sends_through_a_bridge(again));
    let through = sends_through_a_bridge(bridge);
    assert!(through > 10 + 4 * strays, "{strays} of the host's, {through} of {:?}", bridge.stacks);
}
