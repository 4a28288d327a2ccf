use record::{Candidate, Histogram, RaceRecord, Stack, StackWait, Statistic, Void};
use report::{Style, Summary, Verdict, analyse, table};
use stats::Random;
use verdict::{Cells, Comparisons, ResamplingUnits};

use crate::made::{Plan, Truth, eventful};

fn verdict(summary: &Summary, name: &str, load: usize) -> Option<Verdict> {
    let candidate = summary.candidates.iter().find(|candidate| candidate.name == name).expect(name);
    candidate.rates[load].verdict
}

/// The share of each candidate's verdicts that are as expected, over races of many seeds.
fn shares<const N: usize>(
    seeds: u64,
    names: [&str; N],
    expected: Verdict,
    plan: impl Fn(u64) -> Plan,
) -> [f64; N] {
    let summaries: Vec<Summary> = (0..seeds).map(|seed| analyse(&plan(seed).race())).collect();
    names.map(|name| {
        let hits = summaries.iter().filter(|summary| verdict(summary, name, 0) == Some(expected));
        hits.count() as f64 / seeds as f64
    })
}

/// A plan with few samples, because many races are made of it.
fn quick(seed: u64, factor: f64) -> Plan {
    let scatter = (0.03, 0.02);
    Plan { samples: 70, rounds_a_build: 3, scatter, ..Plan::of(seed, vec![Truth::of("x", factor)]) }
}

#[test]
fn what_does_not_differ_is_seldom_said_to_differ() {
    let [x, control] = shares(24, ["x", "host again"], Verdict::Indistinguishable, |seed| quick(seed, 1.0));
    assert!(x >= 0.95, "only {x} of all races between equals find no difference");
    // The control is judged by its interval alone, and may fail as often as an interval may.
    assert!(control >= 0.87, "only {control} of all controls show no difference");
}

#[test]
fn what_differs_is_found_with_its_sign() {
    let [worse] = shares(10, ["x"], Verdict::Worse, |seed| quick(seed, 1.3));
    let [better] = shares(10, ["x"], Verdict::Better, |seed| quick(seed, 0.75));
    assert!(worse >= 0.9 && better >= 0.9, "{worse} and {better}");
}

/// A server that spins, or one behind a switch in user space, is slower at the tail and at the median, and runs under
/// another scheduling policy or not.
#[test]
fn a_tail_under_another_scheduling_policy_has_no_verdict() {
    let judged = |scheduling: &str, cpu_us: Option<u32>, wait: StackWait, carried: bool| {
        let mut race = Plan::of(3, vec![Truth::of("x", 1.4)]).race();
        race.header.machine.facts.insert("scheduling".to_owned(), scheduling.to_owned());
        race.header.entrants[2].carried = carried;
        let stack = Stack { wait, ..Stack::default() };
        let spinning =
            Candidate { name: Some("x".to_owned()), stack, path: "host".to_owned(), ..Candidate::default() };
        race.header.experiment.candidates = vec![spinning];
        race.header.experiment.workload.cpu_us = cpu_us;
        let summary = analyse(&race);
        let cells = Cells::of(&race, &ResamplingUnits::of(&race));
        let tested = Comparisons::of(&cells, 3).judged(2, 0).tests().iter().map(|test| test.of).collect();
        let noted = summary.notes.iter().any(|note| note.contains("no verdict is by its p99: x"));
        assert_eq!(verdict(&summary, "x", 0), Some(Verdict::Worse));
        (tested, noted)
    };
    let all = vec![Statistic::P99, Statistic::P50];
    let fifo = "SCHED_FIFO 10 for client and server";
    for (wait, carried) in [(StackWait::Spin, false), (StackWait::Sleep, true)] {
        assert_eq!(judged(fifo, None, wait, carried), (vec![Statistic::P50], true));
        assert_eq!(judged(fifo, Some(20), wait, carried), (all.clone(), false));
        assert_eq!(judged("normal", None, wait, carried), (all.clone(), false));
    }
    assert_eq!(judged(fifo, None, StackWait::Sleep, false), (all, false));
}

/// Its switches poll on CPUs of client and server.
#[test]
fn what_shares_cpus_with_threads_that_poll_has_no_verdict() {
    let mut race = Plan::of(3, vec![Truth::of("x", 3.0), Truth::of("y", 3.0)]).race();
    race.header.entrants[2].crowded = true;
    let summary = analyse(&race);
    assert_eq!((verdict(&summary, "x", 0), verdict(&summary, "y", 0)), (None, Some(Verdict::Worse)));
    let x = summary.candidates.iter().find(|candidate| candidate.name == "x").unwrap();
    assert!(x.rates[0].verdict_reason.contains("poll"), "{}", x.rates[0].verdict_reason);
}

#[test]
fn a_difference_smaller_than_the_control_is_noise() {
    // The control is 8 % off. Its cause can also explain the contender's 5 %, however narrow the contender's
    // interval is.
    let plan = |control_factor| Plan {
        control_factor,
        scatter: (0.0, 0.0),
        ..Plan::of(3, vec![Truth::of("x", 1.05)])
    };
    let honest = analyse(&plan(1.0).race());
    assert_eq!(verdict(&honest, "x", 0), Some(Verdict::Worse));
    assert!(!honest.notes.iter().any(|note| note.contains("differs from itself")), "{:?}", honest.notes);
    let off = analyse(&plan(1.08).race());
    assert_eq!(verdict(&off, "x", 0), Some(Verdict::Indistinguishable));
    assert_eq!(off.noise[0].verdict, Some(Verdict::Worse));
    assert!(off.noise[0].p50_floor.unwrap() > 0.07);
    assert!(off.notes.iter().any(|note| note.contains("differs from itself")), "{:?}", off.notes);
}

/// One slice in twelve, whoever's it is, has answers that take twenty times as long.
fn with_slow_slices(mut race: RaceRecord) -> RaceRecord {
    let mut random = Random::from_seed(7);
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials) {
        if random.unit() >= 1.0 / 12.0 {
            continue;
        }
        let response = &trial.latencies.response;
        let (mut slow, mut below) = (Histogram::empty_hdr(), 0);
        for (ns, count) in response.bins() {
            below += count;
            let is_tail = below * 100 > response.count() * 96;
            slow.record_n(if is_tail { ns * 20 } else { *ns }, *count).unwrap();
        }
        trial.latencies.response = Histogram::from(&slow);
    }
    race
}

#[test]
fn what_every_slice_has_is_found_beside_a_few_slow_ones() {
    let plan = Plan { samples: 1_500, ..Plan::of(11, vec![Truth::of("x", 1.15)]) };
    let summary = analyse(&with_slow_slices(plan.race()));
    let [x, control] = [2, 1].map(|candidate: usize| &summary.candidates[candidate].rates[0]);
    let (typical, all) = (x.ratio.typical_p99.unwrap(), x.ratio.p99.unwrap());
    assert!(typical.low > 1.0 && (typical.low..typical.high).contains(&1.15), "{typical:?}");
    assert!((all.high / all.low).ln() > 3.0 * (typical.high / typical.low).ln(), "{all:?} {typical:?}");
    let floors = &summary.noise[0];
    assert!(floors.typical_p99_floor < floors.p99_floor.map(|floor| floor / 3.0), "{floors:?}");
    assert_eq!(control.verdict, Some(Verdict::Indistinguishable), "{}", control.verdict_reason);
    // Slices with fewer than a thousand requests have no p99, and none is typical.
    let few = analyse(&Plan::of(11, vec![Truth::of("x", 1.15)]).race());
    assert!(few.candidates[2].rates[0].typical_p99_ns.is_none());
    assert!(few.candidates[2].rates[0].ratio.typical_p99.is_none());
    assert!(few.candidates[2].rates[0].ratio.p99.is_some());
}

/// The host is visited more often than the others, so it may lack less.
#[test]
fn what_a_table_lacks_begins_with_what_needs_least() {
    let plan = Plan { samples: 1_500, rounds_a_build: 1, ..Plan::of(11, vec![Truth::of("x", 1.15)]) };
    let mut summary = analyse(&plan.race());
    let host = &mut summary.candidates[0].rates[0];
    assert_eq!(host.needs.remove(0).percentile, "p99.9");
    host.typical_p99_ns = host.response_ns.p99.map(|ns| ns as f64);
    let text = table(&summary, Style { colour: false, width: 140 });
    let line = text.lines().find_map(|line| line.strip_prefix("  Not enough samples: ")).expect(&text);
    let lacking: Vec<&str> = line.split(", ").filter_map(|part| part.split(" needs ").next()).collect();
    assert_eq!(lacking, ["p99.9", "p99.99", "p99.999", "typical p99"], "{line}");
    assert!(line.ends_with("typical p99 needs 8 slices of a candidate."), "{line}");
}

#[test]
fn void_trials_are_in_no_sum() {
    let clean = Plan::of(5, vec![Truth::of("x", 1.1)]).race();
    let mut spoiled = clean.clone();
    for round in &mut spoiled.rounds {
        let mut void = round.trials[0].clone();
        void.void = Some(Void::Stolen { steal_permille: 80 });
        void.answered *= 1_000;
        round.trials.insert(0, void);
    }
    let (clean, spoiled) = (analyse(&clean), analyse(&spoiled));
    assert_eq!((clean.progress.void_trials, spoiled.progress.void_trials), (0, 30));
    let why: Vec<_> = spoiled.progress.void_reasons.iter().map(|why| (why.trials, &*why.reason)).collect();
    assert_eq!(why, [(30, "the hypervisor took up to 8 % of the CPU time")]);
    let mut void_trials = 0;
    for (before, after) in clean.candidates.iter().zip(&spoiled.candidates) {
        let (before, after) = (&before.rates[0], &after.rates[0]);
        assert_eq!(before.response_ns, after.response_ns);
        assert_eq!((before.ratio, before.achieved_rps), (after.ratio, after.achieved_rps));
        assert_eq!((before.cpu_us_per_request, before.trials), (after.cpu_us_per_request, after.trials));
        void_trials += after.void_trials;
        assert_eq!(after.void_reasons.iter().map(|reason| reason.trials).sum::<u64>(), after.void_trials);
    }
    assert_eq!(void_trials, 30);
}

#[test]
fn a_percentile_needs_ten_samples_beyond_it() {
    // 30 rounds of 34 requests: 1020 samples are enough for p99, and far too few for p99.9.
    let plan = Plan { samples: 34, ..Plan::of(1, vec![Truth::of("x", 1.2)]) };
    let summary = analyse(&plan.race());
    let rate = &summary.candidates[2].rates[0];
    assert_eq!(rate.response_ns.count, 1_020);
    assert!(rate.response_ns.p99.is_some() && rate.response_ns.p99_9.is_none() && rate.ratio.p99_9.is_none());
    let needs: Vec<_> = rate.needs.iter().map(|need| (need.percentile, need.samples, need.rounds)).collect();
    let expected = [
        ("p99.9", 10_000, Some(295)),
        ("p99.99", 100_000, Some(2_942)),
        ("p99.999", 1_000_000, Some(29_412)),
    ];
    assert_eq!(needs, expected);
    let measured_s = rate.needs[0].measured_s.unwrap();
    assert!((measured_s - 0.5).abs() < 0.01, "10 000 requests at 20 000 a second are {measured_s} s");
    assert!(rate.curve.last().unwrap().quantile <= 0.991);
}

#[test]
fn the_figures_are_those_of_the_merged_samples() {
    let race = Plan::of(9, vec![Truth::of("x", 1.2)]).race();
    let summary = analyse(&race);
    for (entrant, candidate) in summary.candidates.iter().enumerate() {
        let mut samples = vec![];
        for trial in
            race.rounds.iter().flat_map(|round| &round.trials).filter(|trial| trial.entrant == entrant)
        {
            for (value, count) in trial.latencies.response.bins() {
                samples.extend(std::iter::repeat_n(*value, *count as usize));
            }
        }
        samples.sort_unstable();
        let response = candidate.rates[0].response_ns;
        assert_eq!(response.count, samples.len() as u64);
        assert_eq!(response.p50, Some(samples[samples.len().div_ceil(2) - 1]));
        assert_eq!(response.p99, Some(samples[samples.len() - samples.len() / 100 - 1]));
        assert_eq!(response.max, samples.last().copied());
    }
}

#[test]
fn requests_without_an_answer_are_slower_than_all() {
    let mut race = Plan::of(2, vec![Truth::of("x", 1.0)]).race();
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials).filter(|trial| trial.entrant == 2)
    {
        (trial.intended, trial.missed, trial.missed_age_max_ns) = (trial.intended + 13, 13, 900_000_000);
    }
    let rate = analyse(&race).candidates[2].rates[0].clone();
    // 13 of 613 rank above all answers. That is two in a hundred, so p99 is among them and unknown.
    assert_eq!((rate.missed, rate.response_ns.count), (390, 18_390));
    assert!(rate.response_ns.p90.is_some() && rate.response_ns.p99.is_none() && rate.ratio.p99.is_none());
    assert_eq!(rate.response_ns.max, Some(900_000_000));
    assert!(rate.needs.iter().all(|need| need.percentile != "p99"));
}

#[test]
fn too_little_is_said_to_be_too_little() {
    let one_build = Plan { builds: 1, ..Plan::of(4, vec![Truth::of("x", 1.5)]) };
    let summary = analyse(&one_build.race());
    assert_eq!(verdict(&summary, "x", 0), Some(Verdict::Worse));
    assert!(summary.notes.iter().any(|note| note.contains("one build")), "{:?}", summary.notes);
    let one_round = Plan { rounds_a_build: 1, ..one_build };
    let summary = analyse(&one_round.race());
    assert_eq!((verdict(&summary, "x", 0), summary.candidates[2].rates[0].ratio.p50), (None, None));
    assert_eq!(summary.verdict, "nothing can be said yet: a single round gives no interval");
    let nothing = RaceRecord { rounds: vec![], loads: vec![], end: None, ..one_round.race() };
    assert_eq!(analyse(&nothing).verdict, "nothing has been raced yet");
    let without_contender = Plan::of(4, vec![Truth { unmet: Some("no"), ..Truth::of("x", 1.0) }]);
    assert_eq!(analyse(&without_contender.race()).verdict, "only host could run here");
}

#[test]
fn the_sentence_names_the_nearest_and_the_farthest() {
    let sentence = analyse(&eventful()).verdict;
    assert!(sentence.starts_with("100 B at 50 % (33.0k/s): macvlan is nearest to host, p50 +"), "{sentence}");
    assert!(sentence.contains("; bridge+vxlan costs most, p50 +4"), "{sentence}");
    let level = vec![Truth::of("a", 1.0), Truth::of("b", 1.2), Truth::of("c", 1.6)];
    let sentence = analyse(&Plan::of(6, level).race()).verdict;
    assert!(sentence.contains(": a cannot be distinguished from host (p50 known to ±"), "{sentence}");
    assert!(sentence.contains("; c costs most, p50 +6") && !sentence.contains("b "), "{sentence}");
    let ahead = analyse(&Plan::of(6, vec![Truth::of("a", 0.8), Truth::of("b", 1.2)]).race()).verdict;
    assert!(
        ahead.contains(": a beats host, a by p50 −2") && ahead.contains("; b costs most, p50 +"),
        "{ahead}"
    );
}

#[test]
fn as_many_as_go_is_judged_by_throughput() {
    let summary = analyse(&eventful());
    let vxlan = &summary.candidates[3];
    let (ratio, closed) = (vxlan.capacity_ratio.unwrap(), &vxlan.rates[2]);
    assert!((ratio.value - 1.0 / 1.45).abs() < 0.03 && ratio.low < ratio.value && ratio.value < ratio.high);
    assert_eq!((closed.rps_ratio, closed.verdict), (Some(ratio), Some(Verdict::Worse)));
    assert_eq!(vxlan.capacity_rps, closed.achieved_rps);
    assert!(summary.candidates[0].capacity_rps.is_some() && summary.candidates[0].capacity_ratio.is_none());
}

/// A candidate that broke has fewer builds than the reference, so it is not compared.
#[test]
fn a_candidate_that_broke_is_reported_and_not_compared() {
    let mut race = eventful();
    let broken = race.rounds[3].round;
    let why = "the path changed: namespace hg-x-n1: link hgp1 is gone".to_owned();
    race.rounds[3].broken.push(record::Broken { entrant: 2, why: why.clone() });
    for round in &mut race.rounds {
        let before = round.round <= broken;
        round.trials.retain(|trial| trial.entrant != 2 || before);
    }
    let before = analyse(&eventful());
    assert!(before.candidates[2].rates[1].verdict.is_some() && before.candidates[2].broke.is_none());
    let summary = analyse(&race);
    let candidate = &summary.candidates[2];
    let broke = candidate.broke.clone().unwrap();
    assert_eq!((broke.round, broke.why), (broken + 1, why.clone()));
    for rate in &candidate.rates {
        assert_eq!((rate.verdict, rate.ratio, rate.rps_ratio), (None, report::Ratios::default(), None));
        assert!(rate.trials > 0 && rate.response_ns.p50.is_some(), "its results until then are reported");
    }
    // All others are judged as before.
    assert_eq!(summary.candidates[3].rates[1].verdict, before.candidates[3].rates[1].verdict);
    let note = format!("{} broke in round {} and left the race: {why}", candidate.name, broken + 1);
    assert!(summary.notes.contains(&note), "{:?}", summary.notes);
    assert!(!summary.verdict.contains(&candidate.name), "{}", summary.verdict);
    let schema = serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let shown = serde_json::to_value(&summary).unwrap();
    let valid = jsonschema::validate(&schema, &shown);
    assert!(valid.is_ok(), "{valid:?}");
    let page = report::html::page(&summary);
    assert!(page.contains("broke during the race") && page.contains("link hgp1 is gone"));
}

/// With the reference in the other's place, the comparison of two candidates is the report's.
#[track_caller]
pub(crate) fn assert_compared_alike(race: &RaceRecord) {
    let units = ResamplingUnits::of(race);
    let cells = Cells::of(race, &units);
    let comparisons = Comparisons::of(&cells, race.header.seed);
    let racing =
        race.header.entrants.iter().enumerate().skip(2).filter(|(_, entrant)| entrant.unmet.is_empty());
    for (entrant, _) in racing {
        for load in 0..race.loads.len() {
            let against_reference = comparisons.judged_against(&cells, [entrant, 0], load);
            assert!(!against_reference.tests().is_empty());
            assert_eq!(against_reference, *comparisons.judged(entrant, load), "{entrant} at {load}");
        }
    }
}

#[test]
fn two_candidates_are_compared_as_each_is_with_the_reference() {
    let race = eventful();
    assert_compared_alike(&race);
    let units = ResamplingUnits::of(&race);
    let cells = Cells::of(&race, &units);
    let comparisons = Comparisons::of(&cells, race.header.seed);
    let verdict = |pair: [usize; 2]| comparisons.judged_against(&cells, pair, 1).verdict();
    let (direct, vxlan) = (2, 3);
    assert_eq!(
        (verdict([vxlan, direct]), verdict([direct, vxlan])),
        (Some(Verdict::Worse), Some(Verdict::Better))
    );
    assert_eq!(verdict([direct, direct]), Some(Verdict::Indistinguishable));
}

/// Two builds that differ say so little at 99 % that the ends of an interval are astronomical.
#[test]
fn an_interval_that_says_nothing_has_no_figures() {
    let wide = Plan::of(1, vec![Truth::of("x", 1.1)]);
    let summary = analyse(&Plan { builds: 2, rounds_a_build: 1, scatter: (0.3, 0.01), ..wide }.race());
    let x = &summary.candidates[2].rates[0];
    assert_eq!(x.verdict, Some(Verdict::Indistinguishable), "{}", x.verdict_reason);
    assert!(x.verdict_reason.contains("(unresolved at 9"), "{}", x.verdict_reason);
    assert!(!x.verdict_reason.contains("(0.000 to"), "{}", x.verdict_reason);
    assert!(summary.verdict.contains(" known to ×"), "{}", summary.verdict);
}

/// What "known to ±x %", or "known to ×x either way", says of contenders that cannot be distinguished.
fn known_to(sentence: &str) -> f64 {
    let (_, known) = sentence.split_once(" known to ").expect(sentence);
    let figure = |text: &str| text.parse::<f64>().expect(sentence);
    if let Some(factor) = known.strip_prefix('×') {
        return figure(factor.split_once(" either way").expect(sentence).0) - 1.0;
    }
    figure(known.strip_prefix('±').and_then(|known| known.split_once(" %")).expect(sentence).0) / 100.0
}

/// A contender is within what the race says that it can see, whatever its own interval at 95 % is.
#[test]
fn the_sentence_knows_a_median_no_better_than_the_test_did() {
    let mut undecided = 0;
    for (seed, control_factor) in (0..12).zip([1.0, 1.35, 1.1].into_iter().cycle()) {
        let plan = Plan { control_factor, ..quick(seed, 0.86) };
        let summary = analyse(&plan.race());
        if verdict(&summary, "x", 0) != Some(Verdict::Indistinguishable) {
            continue;
        }
        undecided += 1;
        let known = known_to(&summary.verdict);
        let x = summary.candidates[2].rates[0].ratio.p50.expect("thirty slices");
        let off = x.value.ln().abs().exp_m1();
        // Two digits are shown.
        assert!(off <= known + 0.005, "{off} of what is {}", summary.verdict);
        let floor = summary.noise[0].p50_floor.expect("a control");
        assert!(known >= floor - 0.005, "{known} is less than the noise of {floor}");
    }
    assert!(undecided >= 4, "the noise of a control that is 35 % off hides 14 %");
}

#[test]
fn the_noise_is_shown_with_the_level_that_verdicts_take() {
    let text = table(&analyse(&eventful()), Style { colour: false, width: 140 });
    // Two rates with two tests each, p99 and p50, and a closed loop with one.
    let expected = "Less than that is indistinguishable; so is a ratio whose 99 % interval contains 1 (the table's are at 95 %).";
    assert_eq!(text.matches(expected).count(), 3, "{text}");
}

/// Its median is 0.4 of the host's, and of a hundred requests three take a hundred times as long.
#[test]
fn what_decided_says_who_costs_most() {
    let mut race = Plan::of(6, vec![Truth::of("a", 1.15), Truth::of("b", 0.4)]).race();
    let trials = race.rounds.iter_mut().flat_map(|round| &mut round.trials);
    for trial in trials.filter(|trial| trial.entrant == 3) {
        let (mut slow, mut below) = (Histogram::empty_hdr(), 0);
        for (ns, count) in trial.latencies.response.bins() {
            below += count;
            let is_tail = below * 100 > trial.latencies.response.count() * 97;
            slow.record_n(if is_tail { ns * 100 } else { *ns }, *count).unwrap();
        }
        trial.latencies.response = Histogram::from(&slow);
    }
    let sentence = analyse(&race).verdict;
    let (a, b) = sentence.split_once("; b costs most, p99 ×").expect(&sentence);
    assert!(a.contains("a is nearest to host, p50 +1"), "{sentence}");
    assert!(b.contains(", but p50 −6"), "what is better does not decide: {sentence}");
}
