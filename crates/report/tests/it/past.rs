//! Races at rates that some of their candidates cannot carry.

use record::{Histogram, RaceRecord};
use report::{Style, analyse, html, table};

use crate::made::{Plan, Truth, flood};

/// A closed loop, a rate that all carry, and one at which those named get more than they can answer.
fn race(loads: Vec<Option<f64>>, past: &[(usize, usize)]) -> RaceRecord {
    let contenders = vec![Truth::of("docker", 3.0), Truth::of("macvlan", 1.1)];
    let mut race = Plan { loads, samples: 1_000, ..Plan::of(11, contenders) }.race();
    let trials = race.rounds.iter_mut().flat_map(|round| &mut round.trials);
    trials.filter(|trial| past.contains(&(trial.entrant, trial.load))).for_each(flood);
    race
}

const LOADS: [Option<f64>; 3] = [None, Some(20_000.0), Some(40_000.0)];

#[test]
fn the_sentence_compares_at_the_highest_rate_that_all_carry() {
    let summary = analyse(&race(LOADS.to_vec(), &[(2, 2)]));
    let verdict = &summary.verdict;
    let (past, rest) = verdict.split_once(". ").expect(verdict);
    let expected = "100 B at 61 % (40.0k/s) is past the capacity of docker (answered 20.0k/s in time, ";
    assert!(past.starts_with(expected) && past.contains("k/s in the closed loop)"), "{verdict}");
    assert!(past.ends_with("whose latencies there are those of growing queues"), "{verdict}");
    let expected =
        "At the highest rate that all carry, 100 B at 30 % (20.0k/s): macvlan is nearest to host, p50 ";
    assert!(rest.starts_with(expected) && rest.contains("docker costs most, p50 +2"), "{verdict}");
    assert!(!verdict.contains('×'), "no ratio of queues: {verdict}");
    let reasons = summary.candidates.iter().map(|of| of.rates[2].verdict_reason.as_str());
    let warned: Vec<bool> = reasons.map(|reason| reason.starts_with("past its capacity: 50 % of")).collect();
    assert_eq!(warned, [false, false, true, false]);
    let page = html::page(&summary);
    assert!(page.contains("is past the capacity of docker") && page.contains("past its capacity: 50 % of"));
    let text = table(&summary, Style { colour: false, width: 140 });
    assert!(text.contains("docker: 50 % of the rate was answered in time"), "{text}");
    let (_, above) = text.split_once("(40.0k/s)").expect(&text);
    let row = above.lines().find(|line| line.trim_start().starts_with("docker")).expect(above);
    assert!(row.ends_with("past capacity") && row.contains(" – "), "no ratio of queues: {row}");
    let docker = &summary.candidates[2].rates;
    assert!(docker[1].ratio.p50.is_some() && docker[2].ratio == report::Ratios::default());
    assert!(docker[1].verdict.is_some() && docker[2].verdict.is_none());
    assert!(docker[2].needs.is_empty() && docker[2].precision.is_empty());
}

#[test]
fn without_such_a_rate_capacities_are_compared() {
    let verdict = analyse(&race(LOADS.to_vec(), &[(2, 1), (2, 2), (3, 2)])).verdict;
    assert!(
        verdict.contains("past the capacity of docker (") && verdict.contains(" and macvlan ("),
        "{verdict}"
    );
    let expected =
        "No rate of this race was carried by all; by their capacity, 100 B, closed loop: macvlan is";
    assert!(verdict.contains(expected) && verdict.contains("docker costs most, req/s −6"), "{verdict}");
}

#[test]
fn a_reference_past_its_capacity_and_no_closed_loop_compare_nothing() {
    let summary = analyse(&race(vec![Some(90_000.0)], &[(0, 0), (1, 0), (2, 0), (3, 0)]));
    let verdict = &summary.verdict;
    assert!(verdict.contains("past the capacity of host (answered 45.0k/s in time), docker ("), "{verdict}");
    assert!(!verdict.contains("host again") && verdict.ends_with("so nothing is compared"), "{verdict}");
    let flooded = analyse(&race(vec![Some(90_000.0)], &[(0, 0)]));
    let docker = &flooded.candidates[2].rates[0];
    assert_eq!((docker.verdict_reason.as_str(), docker.ratio.p50), ("past the capacity of host", None));
    assert_eq!(docker.verdict, None);
    assert!(html::page(&flooded).contains("reference past its capacity"));
}

#[test]
fn a_rate_that_all_carry_is_spoken_of_as_ever() {
    let verdict = analyse(&race(LOADS.to_vec(), &[])).verdict;
    assert!(verdict.starts_with("100 B at 61 % (40.0k/s): macvlan is nearest to host"), "{verdict}");
}

/// On a long wire a tenth of a slice's requests are under way at its end, and lost ones leave no queue.
#[test]
fn requests_under_way_or_lost_are_no_queue() {
    let mut race = race(vec![Some(2_000.0)], &[]);
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials) {
        trial.answered_in_time = trial.intended * 93 / 100;
        let mut slow = Histogram::empty_hdr();
        (0..trial.intended).for_each(|place| slow.record(40_000_000 + 100 * place).expect("below an hour"));
        trial.latencies.response = Histogram::from(&slow);
    }
    race.header.experiment.workload.connections = 100;
    let (wide, text) = (analyse(&race), |summary| table(summary, Style { colour: false, width: 140 }));
    assert!(
        wide.verdict.starts_with("100 B at 3 % (2.00k/s): ") && !text(&wide).contains("answered in time")
    );
    race.header.experiment.workload.connections = 10;
    let lost = analyse(&race);
    assert!(lost.verdict.starts_with("100 B at 3 % (2.00k/s): "), "{}", lost.verdict);
    let text = text(&lost);
    assert!(text.contains("docker: 93 % of the rate was answered in time\n"), "{text}");
}

/// A tenth of a candidate's slices each had a queue: the p99 over all slices says no more than that there were some.
#[test]
fn the_sentence_names_the_tail_that_is_known() {
    let contenders = vec![Truth::of("docker", 1.5), Truth::of("macvlan", 1.1)];
    let mut race = Plan { loads: vec![Some(20_000.0)], samples: 2_000, ..Plan::of(40, contenders) }.race();
    for round in race.rounds.iter_mut().step_by(10) {
        for trial in round.trials.iter_mut().filter(|trial| trial.entrant == 2) {
            let mut queued = Histogram::empty_hdr();
            (0..trial.intended)
                .for_each(|place| queued.record(50_000 + 20_000 * place).expect("below an hour"));
            trial.latencies.response = Histogram::from(&queued);
        }
    }
    let verdict = analyse(&race).verdict;
    let (_, costs) = verdict.split_once("docker costs most, p50 +").expect(&verdict);
    assert!(costs.contains(", typical p99 "), "{verdict}");
    assert!(!costs.contains(", p99 "), "{verdict}");
}

/// A lossy path: no request waits in a queue, and more than a tenth has no answer.
#[test]
fn many_lost_requests_are_no_queue() {
    let mut race = race(vec![Some(2_000.0)], &[]);
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials).filter(|trial| trial.entrant == 2)
    {
        let lost = trial.intended * 15 / 100;
        trial.answered_in_time = trial.intended - lost;
        (trial.missed, trial.missed_age_max_ns) = (lost, 1_500_000_000);
        let mut answered = Histogram::empty_hdr();
        (0..trial.intended - lost).for_each(|place| answered.record(50_000 + place).expect("below an hour"));
        trial.latencies.response = Histogram::from(&answered);
    }
    let summary = analyse(&race);
    assert!(summary.verdict.starts_with("100 B at 3 % (2.00k/s): "), "{}", summary.verdict);
    let text = table(&summary, Style { colour: false, width: 140 });
    assert!(text.contains("docker: 85 % of the rate was answered in time\n"), "{text}");
}

/// A rate of which no trial counts, or one above that which was too much, is none that all carry.
#[test]
fn only_a_lower_rate_with_trials_is_compared_at() {
    let loads = vec![None, Some(20_000.0), Some(60_000.0), Some(40_000.0)];
    let mut uncounted = race(loads.clone(), &[(2, 3)]);
    for trial in uncounted.rounds.iter_mut().flat_map(|round| &mut round.trials) {
        if trial.load == 1 && trial.entrant == 3 {
            trial.void = Some(record::Void::ClientBusy { busy_permille: 990 });
        }
    }
    for race in [uncounted, race(loads, &[(2, 3), (2, 1)])] {
        let verdict = analyse(&race).verdict;
        assert!(verdict.contains("No rate of this race was carried by all; by their capacity"), "{verdict}");
    }
}
