//! The text about a tail, compared with the counters of lost packets.

use record::{Delay, Experiment, RaceRecord, Setting, Side, WorkloadKind};
use report::analyse;

use crate::made::{Plan, Truth};

/// A race in which one request in 2000 of `x` waits for 200 ms after a time-out. The counters show the
/// time-out.
fn lossy() -> RaceRecord {
    Plan::of(7, vec![Truth { lost_one_in: 2_000, ..Truth::of("x", 1.2) }]).race()
}

fn tail(race: &RaceRecord) -> Option<String> {
    analyse(race).candidates[2].rates[0].tail.clone()
}

/// The race with other counters in the trials of `x`.
fn with_counters(retransmits: u64, rto_expiries: u64) -> RaceRecord {
    let mut race = lossy();
    let trials = race.rounds.iter_mut().flat_map(|round| &mut round.trials);
    for trial in trials.filter(|trial| trial.entrant == 2 && trial.counters.retransmits > 0) {
        (trial.counters.retransmits, trial.counters.rto_expiries) = (retransmits, rto_expiries);
    }
    race
}

fn changed(change: impl Fn(&mut Experiment)) -> RaceRecord {
    let mut race = lossy();
    change(&mut race.header.experiment);
    race
}

#[test]
fn time_outs_are_counted_beside_the_samples_that_took_as_long() {
    let text = tail(&lossy()).unwrap();
    let [again, expired, late] =
        [" segments retransmitted, ", " retransmission time-outs; ", " samples took 190 ms"].map(|end| {
            let before = text.split(end).next().unwrap();
            before.rsplit(' ').next().unwrap().parse::<u64>().unwrap_or_else(|_| panic!("{text}"))
        });
    assert!(again > 0 && (again, again) == (expired, late), "the three numbers are equal: {text}");
    assert!(text.ends_with("the counters do not show who lost it"), "{text}");
    assert_eq!(tail(&Plan::of(7, vec![Truth::of("x", 1.2)]).race()), None, "nothing was retransmitted");
}

/// Samples of 200 ms with retransmissions but no time-out. A queue can cause both.
#[test]
fn without_a_time_out_no_packet_is_said_to_be_lost() {
    let text = tail(&with_counters(3, 0)).unwrap();
    assert!(text.contains("retransmitted, no retransmission time-out; "), "{text}");
    assert!(text.contains("these counters do not show why") && !text.contains("lost packet"), "{text}");
}

#[test]
fn more_samples_than_time_outs_have_another_cause_too() {
    let mut race = lossy();
    let trials = race.rounds.iter_mut().flat_map(|round| &mut round.trials);
    for trial in trials.filter(|trial| trial.entrant == 2).skip(1) {
        trial.counters.rto_expiries = 0;
    }
    race.rounds[0].trials.iter_mut().find(|trial| trial.entrant == 2).unwrap().counters.rto_expiries = 1;
    let text = tail(&race).unwrap();
    assert!(
        text.contains("1 retransmission time-out; ") && text.contains("more samples than time-outs"),
        "{text}"
    );
}

/// The time of an object depends on its size, so 200 ms prove nothing.
#[test]
fn downloads_have_their_time_outs_counted_and_no_more() {
    let race = changed(|experiment| experiment.workload.kind = WorkloadKind::Download);
    let text = tail(&race).unwrap();
    assert!(text.ends_with("retransmission time-outs") && !text.contains("190 ms"), "{text}");
    let mut quiet = with_counters(3, 0);
    quiet.header.experiment.workload.kind = WorkloadKind::Download;
    assert_eq!(tail(&quiet), None, "retransmissions are in the counters");
}

#[test]
fn a_wire_that_takes_as_long_itself_makes_no_lost_packets() {
    let delay = |ms: u64| Some(Delay { ns: ms * 1_000_000 });
    let long = changed(|experiment| experiment.underlay.delay = delay(100));
    assert!(!tail(&long).unwrap().contains("190 ms"), "200 ms are a round trip");
    let narrow = changed(|experiment| experiment.underlay.rate = Some("1mbit".parse().unwrap()));
    assert!(!tail(&narrow).unwrap().contains("190 ms"), "its queue is as long");
    let slow_card = changed(|experiment| experiment.underlay.line_rate = Some("1mbit".parse().unwrap()));
    assert!(!tail(&slow_card).unwrap().contains("190 ms"), "the queue before it is longer still");
    let short = changed(|experiment| experiment.underlay.delay = delay(1));
    assert!(tail(&short).unwrap().contains("190 ms"), "a neighbour in the same city");
    // A candidate's own wire counts, and the others' does not.
    let own = changed(|experiment| {
        let text = "schema = 1\nname = \"y\"\n[[candidates]]\npath = \"host\"\nname = \"x\"\n\
                    underlay.to_client.delay = \"200ms\"";
        experiment.candidates = Experiment::from_toml(text).unwrap().candidates;
    });
    assert!(!tail(&own).unwrap().contains("190 ms"), "200 ms are its wire's");
}

#[test]
fn another_minimum_time_out_is_not_200_ms() {
    let mut race = lossy();
    let setting = Setting { knob: "rto_min".to_owned(), value: "10ms".to_owned(), side: Side::Both };
    race.header.entrants[2].settings = vec![setting];
    assert!(!tail(&race).unwrap().contains("190 ms"));
}
