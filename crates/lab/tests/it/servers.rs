//! Servers that lose what they are asked for, that stop, or that go on.

use lab::{Event, Finished, LabError};
use record::{ServerKind, Void, Workload, WorkloadKind};
use testkit::shell;

use crate::path::Ground;

/// Its server has lost what it is asked for.
#[test]
fn a_candidate_without_its_downloads_leaves_the_race_which_goes_on() {
    let mut ground = Ground::new(&["ptp+direct", "macvlan"]);
    ground.experiment.rates = Vec::new();
    let workload =
        Workload { body_bytes: vec![100_000], connections: 2, ..Workload::of(WorkloadKind::Download) };
    ground.experiment.workload = Workload { server: ServerKind::Nginx, objects: Some(4), ..workload };
    let objects = "-path '*/ptp-direct/*' -path '*/objects/100000'";
    let lose = format!("test $(find {0} {objects} -print -delete | wc -l) = 1", ground.root.path().display());
    let (mut done, mut broke) = (false, Vec::new());
    let (finished, race) = ground.run(&mut |event| match event {
        Event::Trial { round: 1, name, .. } if name == "ptp+direct" && !done => {
            done = true;
            shell(&lose);
        }
        Event::Broke { name, round, why } => broke.push((name.clone(), *round, why.clone())),
        _ => {}
    });
    assert_eq!(finished.unwrap(), Finished::Whole);
    let [(name, 1, why)] = broke.as_slice() else { panic!("{broke:?}") };
    assert!(name == "ptp+direct" && why.starts_with("could not "), "{name}: {why}");
    let last = race.rounds.last().unwrap();
    assert!(last.round == 3 && last.trials.iter().all(|trial| trial.answered > 0), "{last:?}");
}

/// Runs shell commands before the second round's trial of the host, with its server's processes stopped, and others
/// after the first trial that gave no answers. The race, and how many trials gave none.
fn race_with_a_stopped_server(then: &str) -> (Result<Finished, LabError>, usize) {
    let ground = Ground::new(&["macvlan"]);
    let servers = "$(ip netns pids N2)";
    let (mut stopped, mut unanswered) = (false, 0);
    let (finished, race) = ground.run(&mut |event| match event {
        Event::Trial { round: 1, name, .. } if name == "host" && !stopped => {
            stopped = true;
            shell(&ground.in_namespaces("host", &format!("kill -STOP {servers}")));
        }
        Event::Voided { why: Void::Unanswered { .. }, .. } => {
            unanswered += 1;
            shell(&ground.in_namespaces("host", &then.replace("SERVERS", servers)));
        }
        _ => {}
    });
    let in_record = race.rounds.iter().flat_map(|round| &round.trials);
    let in_record = in_record.filter(|trial| matches!(trial.void, Some(Void::Unanswered { .. }))).count();
    assert!(finished.is_err() || in_record == unanswered, "{in_record} {unanswered}");
    (finished, unanswered)
}

#[test]
fn a_server_that_answers_again_breaks_nothing() {
    let (finished, unanswered) = race_with_a_stopped_server("kill -CONT SERVERS");
    assert_eq!(finished.unwrap(), Finished::Whole);
    assert!(unanswered > 0);
}

#[test]
fn a_host_that_answers_no_more_ends_the_race() {
    let (finished, unanswered) = race_with_a_stopped_server("true");
    let error = finished.unwrap_err().to_string();
    assert!(error.contains("got no valid answer"), "{error}");
    // What the machine voids between them is tried again too, and ends nothing.
    assert!(unanswered >= 3, "{unanswered}");
}
