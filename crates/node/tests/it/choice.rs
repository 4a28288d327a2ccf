//! What is shipped of a race, by races whose truth is known.

use node::choice::{Choice, Fate, NoChoice, choose};
use record::{Broken, End, RaceRecord, Setting, Side};

use crate::lost::lose_where;
use crate::made::{Plan, Truth, eventful, flood};

/// The contenders by name with what became of them, in the order of the choice.
fn fates<'a>(race: &'a RaceRecord, choice: &Choice) -> Vec<(&'a str, Fate)> {
    let of = |one: &node::choice::Considered| (&*race.header.entrants[one.entrant].name, one.fate.clone());
    choice.contenders.iter().map(of).collect()
}

fn race(seed: u64, contenders: &[(&'static str, f64)]) -> RaceRecord {
    Plan::of(seed, contenders.iter().map(|(name, factor)| Truth::of(name, *factor)).collect()).race()
}

#[track_caller]
fn assert_not_shipped(fate: &Fate, says: &str) {
    let Fate::NotShipped(why) = fate else { panic!("{fate:?}") };
    assert!(why.contains(says), "{why}");
}

#[test]
fn the_best_that_the_plugin_makes_is_chosen() {
    let race = eventful();
    let choice = choose(&race).unwrap();
    assert_eq!((choice.path.name, choice.mtu, choice.had_routes, choice.load), ("macvlan", None, false, 1));
    let fates = fates(&race, &choice);
    assert_eq!(fates[..2], [("macvlan", Fate::Chosen), ("bridge+direct", Fate::Beaten)]);
    let [(vxlan, tunnel), (ipvlan, unmet)] = &fates[2..] else { panic!("{fates:?}") };
    assert_eq!((*vxlan, *ipvlan), ("bridge+vxlan", "ipvlan-l2"));
    assert_not_shipped(tunnel, "it needs a tunnel between nodes (vxlan)");
    assert_not_shipped(unmet, "it could not run in the race: ipvlan links not available");
}

#[test]
fn what_cannot_be_distinguished_goes_by_the_order_of_the_report() {
    let race = race(5, &[("ptp+direct", 1.1), ("ebpf+direct", 1.1), ("bridge+direct", 1.6)]);
    let choice = choose(&race).unwrap();
    let fates = fates(&race, &choice);
    assert_eq!([&fates[0].1, &fates[1].1, &fates[2].1], [&Fate::Chosen, &Fate::WithinNoise, &Fate::Beaten]);
    assert_eq!(fates[2].0, "bridge+direct");
    // By the ratio that the report shows.
    let summary = |name: &str| race.header.entrants.iter().position(|one| one.name == name).unwrap();
    assert_eq!(choice.contenders[0].entrant, summary(fates[0].0));
    assert!(choice.had_routes && choice.path.name == fates[0].0.split('+').next().unwrap());
}

/// The median is better, but one request in thirty is late by 200 ms: the tail decides, as it does against the host.
#[test]
fn a_better_median_does_not_make_up_for_a_worse_tail() {
    let lossy = Truth { lost_one_in: 30, ..Truth::of("ptp+direct", 1.1) };
    let race = Plan::of(6, vec![lossy, Truth::of("bridge+direct", 1.3)]).race();
    let choice = choose(&race).unwrap();
    assert_eq!(fates(&race, &choice), [("bridge+direct", Fate::Chosen), ("ptp+direct", Fate::Beaten)]);
}

/// The fastest leaves requests without an answer. If all of them were lost on one build, too little is known of it.
#[test]
fn what_loses_requests_is_not_chosen() {
    let contenders = vec![Truth::of("ptp+direct", 0.8), Truth::of("bridge+direct", 1.2)];
    let whole = Plan { samples: 2_000, ..Plan::of(6, contenders) }.race();
    let mut race = whole.clone();
    lose_where(&mut race, |_, trial| trial.entrant == 2, 0.02);
    let choice = choose(&race).unwrap();
    assert_eq!(fates(&race, &choice), [("bridge+direct", Fate::Chosen), ("ptp+direct", Fate::Beaten)]);
    let mut race = whole;
    lose_where(&mut race, |build, trial| trial.entrant == 2 && build == 4, 0.3);
    let choice = choose(&race).unwrap();
    let fates = fates(&race, &choice);
    assert_eq!(fates[0], ("bridge+direct", Fate::Chosen));
    assert_not_shipped(&fates[1].1, "it was not judged at this load");
}

/// Of a queue that grows until the end of a slice, only its length is known. What carries the highest rate that all
/// carry best is chosen; where there is no such rate, nothing is.
#[test]
fn a_rate_past_a_capacity_decides_nothing() {
    let contenders = vec![Truth::of("ptp+direct", 1.1), Truth::of("bridge+direct", 1.6)];
    let plan =
        Plan { loads: vec![Some(20_000.0), Some(40_000.0)], samples: 1_000, ..Plan::of(11, contenders) };
    let mut race = plan.race();
    let flooded = |race: &mut RaceRecord, load: usize| {
        let trials = race.rounds.iter_mut().flat_map(|round| &mut round.trials);
        trials.filter(|trial| (trial.entrant, trial.load) == (2, load)).for_each(flood);
    };
    flooded(&mut race, 1);
    let choice = choose(&race).unwrap();
    assert_eq!((choice.load, choice.compared_at.main, choice.compared_at.past.len()), (0, 1, 1));
    assert_eq!(fates(&race, &choice), [("ptp+direct", Fate::Chosen), ("bridge+direct", Fate::Beaten)]);
    let mut broke = race.clone();
    broke.rounds[20].broken = vec![Broken { entrant: 2, why: "no packet took it".to_owned() }];
    let choice = choose(&broke).unwrap();
    assert_eq!((choice.load, choice.compared_at.past.len()), (1, 0), "who broke is compared with nothing");
    flooded(&mut race, 0);
    assert_eq!(choose(&race).unwrap_err(), NoChoice::PastCapacity);
}

#[test]
fn the_mtu_comes_along_and_other_settings_do_not() {
    let mut race = race(7, &[("bridge+direct", 1.1), ("ptp+direct", 1.4), ("docker", 1.0)]);
    let setting = |knob: &str, value: &str, side| Setting { knob: knob.into(), value: value.into(), side };
    race.header.entrants[2].settings = vec![setting("mtu", "9001", Side::Both)];
    race.header.entrants[2].mtu = Some(9001);
    let choice = choose(&race).unwrap();
    assert_eq!((choice.path.name, choice.mtu), ("bridge", Some(9001)));
    assert_not_shipped(&fates(&race, &choice)[0].1, "the plugin has no attach docker");
    for other in [setting("tcp_sack", "0", Side::Both), setting("mtu", "9001", Side::Server)] {
        race.header.entrants[2].settings = vec![other];
        let choice = choose(&race).unwrap();
        assert_eq!((choice.path.name, choice.mtu), ("ptp", None));
        let fates = fates(&race, &choice);
        let (_, fate) = fates.iter().find(|(name, _)| *name == "bridge+direct").unwrap();
        assert_not_shipped(fate, "is no key of a network's configuration");
    }
}

#[test]
fn a_race_that_is_no_ground_for_a_choice_is_refused() {
    let whole = race(8, &[("bridge+direct", 1.1)]);
    let with = |change: &dyn Fn(&mut RaceRecord)| {
        let mut race = whole.clone();
        change(&mut race);
        choose(&race).unwrap_err()
    };
    assert_eq!(with(&|race| race.end = None), NoChoice::CutOff);
    let stopped = with(&|race| race.end = Some(End { wall_s: 1.0, stopped: Some("SIGINT".to_owned()) }));
    assert_eq!(stopped, NoChoice::Stopped("SIGINT".to_owned()));
    assert_eq!(with(&|race| drop(race.rounds.remove(3))), NoChoice::Incomplete);
    let one = with(&|race| {
        race.rounds.truncate(1);
        race.header.experiment.rounds = 1;
    });
    assert!(matches!(one, NoChoice::NotCompared(_)), "{one}");
    let broke = with(&|race| {
        race.rounds[2].broken = vec![Broken { entrant: 2, why: "no packet took it".to_owned() }];
    });
    assert!(matches!(broke, NoChoice::NotCompared(_)), "{broke}");
    let none = choose(&race(9, &[("docker", 1.1), ("bridge+vxlan", 1.2)])).unwrap_err().to_string();
    assert!(
        none.contains("docker: the plugin has no attach docker; bridge+vxlan: it needs a tunnel"),
        "{none}"
    );
}
