//! Races in which a witness left time out: which figures are of all requests, and which of those that count.

use record::{Histogram, Metric, RaceRecord, Stall, TrialRecord, Witnessed};
use report::{PublishedFigure, RateSummary, analyse};

use crate::made::{Plan, Truth};

const SENT: u64 = 1_000;
const AGE_NS: u64 = 1_520_000_000;

/// Answers, each slower than the one before.
fn answers(count: u64) -> Histogram {
    let mut times = Histogram::empty_hdr();
    (0..count).for_each(|place| times.record(50_000 + 100 * place).expect("below an hour"));
    Histogram::from(&times)
}

/// Of the requests of a trial so many count and the others lay beside stalls; of both some have no answer.
fn watch(trial: &mut TrialRecord, counted: u64, [lost, lost_beside]: [u64; 2]) {
    let missed = lost + lost_beside;
    (trial.intended, trial.sent, trial.missed) = (SENT, SENT, missed);
    (trial.answered, trial.answered_in_time) = (SENT - missed, SENT - missed);
    trial.missed_age_max_ns = if missed > 0 { AGE_NS } else { 0 };
    trial.latencies.response = answers(SENT - missed);
    trial.latencies.service = answers(SENT - missed);
    let left_out_ns = trial.duration_ns * (SENT - counted) / SENT;
    let response = answers(counted - lost);
    trial.witnessed = Some(Witnessed { intended: counted, response, left_out_ns, stalls: vec![] });
}

/// A race of which one candidate loses requests in each trial, or in the first alone.
fn race(counted: u64, lost: [u64; 2], always: bool) -> RaceRecord {
    let plan = Plan { samples: SENT, ..Plan::of(13, vec![Truth::of("bridge+vxlan", 1.0)]) };
    let mut race = plan.race();
    for round in &mut race.rounds {
        for trial in &mut round.trials {
            let loses = trial.entrant == 2 && (always || round.round == 0);
            watch(trial, counted, if loses { lost } else { [0, 0] });
        }
    }
    race
}

fn rate(race: &RaceRecord) -> RateSummary {
    analyse(race).candidates[2].rates[0].clone()
}

#[test]
fn what_a_percentile_takes_is_said_in_time_with_what_is_left_out() {
    let rate = rate(&race(SENT / 2, [0, 0], true));
    let need = rate.needs.last().expect("p99.999 takes more");
    let (measured_s, rounds) = (need.measured_s.expect("it is known"), need.rounds.expect("it is known"));
    let slice_s = rate.measured_s / rate.trials as f64;
    assert!(
        (rounds as f64 * slice_s - measured_s).abs() < 1.5 * slice_s,
        "{rounds} × {slice_s} s, {measured_s} s"
    );
}

#[test]
fn a_stall_that_several_signs_saw_is_counted_once() {
    let mut race = race(900, [0, 0], true);
    let late = Stall { cpu: 0, from_ns: 9_000, to_ns: 14_000, late_ns: 4_000, stolen_ns: 0, blocked_ns: 0 };
    let stolen = Stall { from_ns: 8_000, late_ns: 0, stolen_ns: 4_000, ..late };
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials) {
        trial.witnessed.as_mut().unwrap().stalls = vec![late, stolen, Stall { cpu: 1, ..late }];
    }
    let rate = rate(&race);
    let stalls = rate.stalls.expect("it was watched");
    let expected = (2 * rate.trials, 6_000, 11_000 * rate.trials);
    assert_eq!((stalls.stalls, stalls.longest_ns, stalls.total_ns), expected);
}

#[test]
fn service_times_are_of_all_requests() {
    let rate = rate(&race(900, [0, 20], true));
    let whole = rate.stalls.expect("it was watched").response_ns;
    assert_eq!((rate.service_ns.count, whole.count), (30 * SENT, 30 * SENT));
    // Two of a hundred have no answer.
    assert_eq!((rate.service_ns.p99, whole.p99), (None, None));
    assert!(rate.response_ns.p99.is_some() && rate.response_ns.count == 30 * 900);
    // None of those that count: the others are requests without an answer all the same.
    assert_eq!(rate.missed, 30 * 20);
}

#[test]
fn the_greatest_of_all_is_no_less_than_that_of_those_that_count() {
    let greatest = |lost: [u64; 2]| {
        let race = race(900, lost, false);
        let rate = rate(&race);
        let summary = analyse(&race);
        let is = |of: &&PublishedFigure| of.path == "bridge+vxlan" && of.metric == Some(Metric::Max.name());
        let published = summary.published.iter().find(is);
        let ours_ms = published.expect("it is compared").ours.expect("it is known");
        let [counted, whole] = [rate.response_ns, rate.stalls.expect("it was watched").response_ns]
            .map(|times| times.max.unwrap());
        assert_eq!((ours_ms * 1e6).round() as u64, counted);
        (counted, whole)
    };
    assert_eq!(greatest([1, 0]), (AGE_NS, AGE_NS));
    let (counted, whole) = greatest([0, 1]);
    assert!(counted < 1_000_000 && whole == AGE_NS, "{counted} of {whole}");
}

/// There no request ranks above the answers, and what was not answered as expected is counted all the same.
#[test]
fn in_a_closed_loop_unexpected_answers_are_no_expected_ones() {
    let plan = Plan { loads: vec![None], ..Plan::of(13, vec![Truth::of("x", 1.0)]) };
    let mut race = plan.race();
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials).filter(|trial| trial.entrant == 2)
    {
        (trial.unexpected, trial.missed) = (5, 2);
    }
    let rate = rate(&race);
    assert_eq!((rate.missed, rate.unexpected, rate.response_ns.count), (30 * 7, 30 * 5, 30 * 600));
}
