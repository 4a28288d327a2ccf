//! Races at rates that some of their candidates cannot carry.

use record::{Histogram, RaceRecord, TrialRecord, Void};
use report::{Style, analyse, html, table};

use crate::made::{Plan, Truth, flood, queue};

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

/// Their queues differ by much, and that is no unequal treatment.
#[test]
fn queues_of_the_host_are_no_noise() {
    let mut race = race(vec![Some(20_000.0), Some(90_000.0)], &[(0, 1)]);
    let trials = race.rounds.iter_mut().flat_map(|round| &mut round.trials);
    trials.filter(|trial| (trial.entrant, trial.load) == (1, 1)).for_each(|trial| queue(trial, 0.2));
    let summary = analyse(&race);
    let (carried, past) = (&summary.noise[0], &summary.noise[1]);
    assert!(carried.p99_floor.is_some() && carried.verdict.is_some());
    assert_eq!((past.p50_floor, past.p99_floor, past.typical_p99_floor), (None, None, None));
    assert_eq!((&past.ratio, past.verdict), (&report::Ratios::default(), None));
    assert!(!summary.notes.iter().any(|note| note.contains("differs from itself")), "{:?}", summary.notes);
    let text = table(&summary, Style { colour: false, width: 140 });
    assert_eq!(text.matches("Noise, the host against itself").count(), 1, "{text}");
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

/// One slice of thirty lacked a tenth.
#[test]
fn less_than_all_is_not_all() {
    let mut race = race(LOADS.to_vec(), &[]);
    queue(of_docker(&mut race).nth(7).expect("one a round"), 0.9);
    let text = shown(&race);
    assert!(text.contains("docker: 99.7 % of the rate was answered in time; in 1 of 30 slices"), "{text}");
}

/// A rate of which no trial counts, or one above that which was too much, is none that all carry.
#[test]
fn only_a_lower_rate_with_trials_is_compared_at() {
    let loads = vec![None, Some(20_000.0), Some(60_000.0), Some(40_000.0)];
    let mut uncounted = race(loads.clone(), &[(2, 3)]);
    for trial in uncounted.rounds.iter_mut().flat_map(|round| &mut round.trials) {
        if trial.load == 1 && trial.entrant == 3 {
            trial.void = Some(Void::ClientBusy { busy_permille: 990 });
        }
    }
    for race in [uncounted, race(loads, &[(2, 3), (2, 1)])] {
        let verdict = analyse(&race).verdict;
        assert!(verdict.contains("No rate of this race was carried by all; by their capacity"), "{verdict}");
    }
}

/// Docker's trials at the highest rate, in the order in which they ran.
fn of_docker(race: &mut RaceRecord) -> impl Iterator<Item = &mut TrialRecord> {
    let trials = race.rounds.iter_mut().flat_map(|round| &mut round.trials);
    trials.filter(|trial| (trial.entrant, trial.load) == (2, 2))
}

fn shown(race: &RaceRecord) -> String {
    table(&analyse(race), Style { colour: false, width: 140 })
}

/// As a socket that reads 200,000 junk datagrams a second beside nginx was seen: in five slices of 24 it was behind.
#[test]
fn bad_slices_of_a_rate_that_is_carried_are_its_tail() {
    let mut race = race(LOADS.to_vec(), &[]);
    race.rounds.truncate(24);
    for (nth, share) in [(7, 0.578), (9, 0.678), (11, 0.399), (14, 0.876), (21, 0.899)] {
        queue(of_docker(&mut race).nth(nth).expect("one a round"), share);
    }
    let summary = analyse(&race);
    let verdict = &summary.verdict;
    assert!(verdict.starts_with("100 B at 61 % (40.0k/s): macvlan is nearest to host, p50 +"), "{verdict}");
    assert!(verdict.contains("docker costs most, "), "{verdict}");
    let docker = &summary.candidates[2].rates[2];
    let p50 = docker.ratio.p50.expect("most slices compare the paths");
    assert!((2.7..3.5).contains(&p50.value), "the median is that of slices without a queue: {p50:?}");
    assert!(docker.ratio.p99.is_some_and(|p99| p99.value > 50.0), "users waited: {:?}", docker.ratio.p99);
    assert_eq!(docker.verdict, Some(report::Verdict::Worse));
    let remark =
        "93 % of the rate was answered in time; in 5 of 24 slices a queue grew, and the tail is theirs";
    assert!(shown(&race).contains(&format!("docker: {remark}\n")), "{}", shown(&race));
    assert!(html::page(&summary).contains(remark));
}

#[test]
fn a_rate_is_past_capacity_where_queues_grew_in_half_of_the_slices() {
    for (queues, is_past) in [(1, false), (8, false), (14, false), (15, true), (16, true), (30, true)] {
        let mut race = race(LOADS.to_vec(), &[]);
        of_docker(&mut race).take(queues).for_each(flood);
        let docker = &analyse(&race).candidates[2].rates[2];
        assert_eq!(docker.is_past_capacity(), is_past, "{queues} of 30");
        assert_eq!(
            (docker.verdict.is_none(), docker.ratio.p50.is_none()),
            (is_past, is_past),
            "{queues} of 30"
        );
        let text = shown(&race);
        let said =
            if queues == 30 { "those of a growing queue" } else { &format!("in {queues} of 30 slices") };
        assert!(text.contains(said), "{queues}: {text}");
    }
}

/// A slice of fifteen requests has no median; thirty of them together have.
#[test]
fn slices_of_a_few_requests_are_judged_together() {
    let plan = Plan { loads: vec![Some(150.0)], samples: 15, ..Plan::of(11, vec![Truth::of("docker", 3.0)]) };
    let mut race = plan.race();
    race.header.experiment.workload.connections = 1;
    let trials = race.rounds.iter_mut().flat_map(|round| &mut round.trials);
    trials.filter(|trial| trial.entrant == 2).for_each(flood);
    let docker = &analyse(&race).candidates[2].rates[0];
    assert!(docker.is_past_capacity(), "{}", docker.verdict_reason);
}

/// Each trial that matches is void, and so are its two repeats.
fn void_each_time(race: &mut RaceRecord, entrant: usize, load: usize) {
    for round in &mut race.rounds {
        let place = round.trials.iter().position(|trial| (trial.entrant, trial.load) == (entrant, load));
        let place = place.expect("it races");
        round.trials[place].void = Some(Void::ClientBusy { busy_permille: 995 });
        let again = round.trials[place].clone();
        round.trials.splice(place..place, [again.clone(), again]);
    }
}

#[test]
fn who_has_no_trial_that_counts_is_named_and_compared_at_a_lower_rate() {
    let mut race = race(LOADS.to_vec(), &[]);
    void_each_time(&mut race, 2, 2);
    let verdict = analyse(&race).verdict;
    let expected = "100 B at 61 % (40.0k/s): no trial of docker counts, all are void. At the highest rate that all \
                    carry, 100 B at 30 % (20.0k/s): macvlan is nearest";
    assert!(verdict.starts_with(expected) && verdict.contains("docker costs most, p50 +"), "{verdict}");
    let text = shown(&race);
    let expected = "Void trials, repeated: docker 90. Void each time, so missing: docker 30 slices.";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn without_a_lower_rate_who_has_no_trial_is_named_beside_the_others() {
    let mut race = race(vec![Some(40_000.0)], &[]);
    void_each_time(&mut race, 2, 0);
    let verdict = analyse(&race).verdict;
    assert!(verdict.starts_with("100 B at 61 % (40.0k/s): macvlan is nearest to host"), "{verdict}");
    assert!(verdict.ends_with("; docker is not compared: no trial counts"), "{verdict}");
    let mut broken = race.clone();
    void_each_time(&mut race, 3, 0);
    assert_eq!(analyse(&race).verdict, "nothing can be said yet: no trial counts");
    broken.rounds[3].broken.push(record::Broken { entrant: 3, why: "it died".to_owned() });
    broken.rounds[4..].iter_mut().for_each(|round| round.trials.retain(|trial| trial.entrant != 3));
    let verdict = analyse(&broken).verdict;
    let reasons = verdict.strip_prefix("nothing can be said yet: docker: no trial counts; macvlan: ");
    assert!(reasons.is_some_and(|reason| !reason.contains("docker")), "{verdict}");
}

/// Reasons stand beside the names of those for whom they hold, each once.
#[test]
fn who_is_not_compared_is_named_by_reason() {
    let names = ["a", "b", "c", "d"];
    let contenders = names.iter().map(|name| Truth::of(name, 1.5)).collect();
    let mut race = Plan { loads: vec![Some(40_000.0)], ..Plan::of(5, contenders) }.race();
    void_each_time(&mut race, 2, 0);
    void_each_time(&mut race, 4, 0);
    let of_b = |trial: &&mut TrialRecord| trial.entrant == 3;
    race.rounds.iter_mut().flat_map(|round| &mut round.trials).filter(of_b).for_each(|trial| {
        trial.answered_in_time = 0;
        trial.intended = 1;
    });
    let verdict = analyse(&race).verdict;
    assert!(verdict.contains("; a and c are not compared: no trial counts"), "{verdict}");
    assert_eq!(verdict.matches("no trial counts").count(), 1, "{verdict}");
}

#[test]
fn a_repeat_that_counts_leaves_no_slice_missing() {
    let mut race = race(LOADS.to_vec(), &[]);
    let round = &mut race.rounds[3];
    let place = round.trials.iter().position(|trial| (trial.entrant, trial.load) == (2, 2));
    let again = round.trials[place.expect("it races")].clone();
    let void = TrialRecord { void: Some(Void::ClientBusy { busy_permille: 995 }), ..again };
    round.trials.insert(place.expect("it races"), void);
    assert!(shown(&race).contains("Void trials, repeated: docker 1.\n"), "{}", shown(&race));
}

#[test]
fn who_has_no_precision_is_not_among_every_candidate() {
    let text = shown(&race(LOADS.to_vec(), &[(2, 2)]));
    let (_, past) = text.split_once("100 B at 61 % (40.0k/s)\n").expect(&text);
    let (carried, _) = text.split_once("100 B at 61 % (40.0k/s)\n").expect(&text);
    assert!(past.contains("For ±3 % at every candidate but docker: p50 "), "{text}");
    assert!(carried.contains("For ±3 % at every candidate: p50 "), "{text}");
}

#[test]
fn a_percentile_that_one_candidate_lacks_is_said_to_be_without_it() {
    let mut race = race(LOADS.to_vec(), &[]);
    // Of so few requests a slice has no p99.
    for trial in of_docker(&mut race) {
        let mut fewer = Histogram::empty_hdr();
        (0..900).for_each(|place| fewer.record(150_000 + 100 * place).expect("below an hour"));
        (trial.intended, trial.sent, trial.answered, trial.answered_in_time) = (900, 900, 900, 900);
        trial.duration_ns = trial.duration_ns * 9 / 10;
        trial.latencies.response = Histogram::from(&fewer);
    }
    let text = shown(&race);
    let line = text.lines().rfind(|line| line.contains("For ±3 %")).expect(&text);
    assert!(line.starts_with("  For ±3 % at every candidate: p50 "), "{line}");
    let (typical, rest) = line.split_once(", typical p99 ").expect(line).1.split_once(',').expect(line);
    assert!(typical.ends_with(" without docker"), "{line}");
    assert!(rest.starts_with(" p99 ") && !rest.contains("without"), "{line}");
}
