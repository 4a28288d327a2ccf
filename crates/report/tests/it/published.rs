//! Published figures compared with races of known truth.

use record::{Broken, Metric, Published, RaceRecord, RequestedRate, Void};
use report::{Agreement, PublishedFigure, Summary, analyse};

use crate::made::{Plan, Truth, eventful, flood, published};

fn figure<'a>(summary: &'a Summary, candidate: &str, metric: Metric) -> &'a PublishedFigure {
    let is = |figure: &&PublishedFigure| figure.path == candidate && figure.metric == Some(metric.name());
    summary.published.iter().find(is).unwrap()
}

#[test]
fn each_kind_of_agreement_is_found() {
    let summary = analyse(&eventful());
    let of = |candidate: &str, metric| figure(&summary, candidate, metric).agreement;
    assert_eq!(of("host", Metric::P95), Agreement::Reference);
    assert_eq!(of("bridge+direct", Metric::P95), Agreement::Agrees, "1.2 by rounding, and 1.15 in truth");
    assert_eq!(of("bridge+vxlan", Metric::P95), Agreement::SameDirection, "2.4 and 1.45");
    assert_eq!(of("macvlan", Metric::P95), Agreement::Contradicts, "1.8 and 1.03");
    assert_eq!(of("bridge+vxlan", Metric::Requests), Agreement::Agrees, "0.70 and 0.69");
    let against = figure(&summary, "bridge+direct", Metric::Requests);
    assert_eq!(
        (&*against.against, against.agreement),
        ("bridge+vxlan", Agreement::Agrees),
        "{}",
        against.reason
    );
    assert!((against.ratio.unwrap().value - 1.45 / 1.15).abs() < 0.05, "{:?}", against.ratio);
    let coarse = figure(&summary, "macvlan", Metric::P99);
    assert_eq!(coarse.agreement, Agreement::CannotTell, "1.05 is below the noise: {}", coarse.reason);
    let ahead = summary.published.iter().find(|figure| figure.direction.is_some()).unwrap();
    assert_eq!(ahead.agreement, Agreement::Agrees, "1.15 is less than 1.45: {}", ahead.reason);
    assert!(ahead.reason.starts_with("published < 1, ours × 0.8"), "{}", ahead.reason);
    for (candidate, metric, why) in [
        ("ipvlan-l2", Metric::P95, "cannot run here"),
        ("docker", Metric::P95, "was not in this race"),
        ("bridge+vxlan", Metric::P99_99, "too few samples"),
        ("bridge+vxlan", Metric::Max, "has no interval"),
        ("bridge+vxlan", Metric::CpuSoftirq, "this load was not raced"),
    ] {
        let figure = figure(&summary, candidate, metric);
        assert_eq!(figure.agreement, Agreement::NotComparable, "{candidate} {}", metric.name());
        assert!(figure.reason.contains(why), "{}", figure.reason);
    }
    let counts = &summary.agreements;
    assert_eq!((counts.agree, counts.same_direction, counts.contradict), (4, 1, 1));
    assert_eq!((counts.cannot_tell, counts.not_comparable), (1, 5));
    assert_eq!(counts.obstacles.iter().map(|obstacle| obstacle.figures).sum::<u64>(), 5);
    let sentence = summary.agreement.as_ref().unwrap();
    assert!(
        sentence.starts_with(
            "This run: of 12 published comparisons, 4 agree, 1 has the same direction but another size, 1 contradicts, \
             1 cannot be decided by this run, 5 are not comparable."
        ),
        "{sentence}"
    );
    assert!(sentence.contains("Farthest apart: macvlan p95 with 100 B at 30 %"), "{sentence}");
}

#[test]
fn percentiles_beside_published_ones_are_those_of_the_merged_samples() {
    let race = eventful();
    let summary = analyse(&race);
    let mut samples = vec![];
    let trials = race.rounds.iter().flat_map(|round| &round.trials);
    for trial in trials.filter(|trial| (trial.entrant, trial.load) == (2, 0) && trial.void.is_none()) {
        for (ns, count) in trial.latencies.response.bins() {
            samples.extend(std::iter::repeat_n(*ns, *count as usize));
        }
    }
    samples.sort_unstable();
    let p95 = samples[samples.len() - samples.len() / 20 - 1];
    let figure = figure(&summary, "bridge+direct", Metric::P95);
    assert_eq!(figure.ours, Some(p95 as f64 / 1e6), "in milliseconds, as published");
}

/// On a machine whose builds differ by a fifth, three builds give an interval that contains the published
/// value and almost any other.
#[test]
fn a_race_that_could_not_have_seen_it_agrees_with_nothing() {
    let of = |builds| Plan {
        builds,
        rounds_a_build: 2,
        scatter: (0.2, 0.2),
        ..Plan::of(3, vec![Truth::of("docker", 1.3)])
    };
    let mut race = of(3).race();
    let theirs = Published {
        candidate: "docker".to_owned(),
        metric: Some(Metric::P50),
        value: Some(1.3),
        unit: record::RATIO.to_owned(),
        rate: Some(RequestedRate::OfCapacity(20_000.0 / 66_000.0)),
        ..published().remove(0)
    };
    race.header.experiment.published = vec![theirs];
    let summary = analyse(&race);
    let figure = &summary.published[0];
    let ours = figure.ratio.unwrap();
    assert!(ours.low < 1.3 && 1.3 < ours.high, "their figure lies in our interval: {ours:?}");
    assert_eq!(figure.agreement, Agreement::CannotTell, "{}", figure.reason);
    assert!(figure.reason.contains("this race can only see factors of"), "{}", figure.reason);
    let rounds = figure.rounds_needed.expect("a quieter or longer race would decide");
    assert!(
        rounds > 6 && figure.reason.contains(&format!("about {rounds} rounds would decide it")),
        "{rounds}"
    );

    // This many rounds on this machine decide it.
    let mut longer = of(u32::try_from(rounds / 2 + 1).unwrap()).race();
    longer.header.experiment.published = race.header.experiment.published;
    let longer = analyse(&longer);
    assert_eq!(longer.published[0].agreement, Agreement::Agrees, "{}", longer.published[0].reason);
}

/// A path that takes twice as long, in a closed loop.
#[test]
fn means_and_shares_are_quotients_of_sums() {
    let mut race = Plan { loads: vec![None], ..Plan::of(5, vec![Truth::of("x", 2.0)]) }.race();
    let figure_of = |candidate: &str, metric, value: f64, unit: &str| Published {
        candidate: candidate.to_owned(),
        metric: Some(metric),
        value: Some(value),
        unit: unit.to_owned(),
        rate: None,
        ..published().remove(0)
    };
    race.header.experiment.published = vec![
        figure_of("host", Metric::Mean, 1.0, "s"),
        figure_of("x", Metric::Mean, 2.0, "s"),
        figure_of("host", Metric::CpuSoftirq, 10.0, "%"),
        figure_of("x", Metric::CpuSoftirq, 10.0, "%"),
        figure_of("x", Metric::Bandwidth, 9.0, "Mbit/s"),
        figure_of("host", Metric::Bandwidth, 10.0, "Mbit/s"),
    ];
    let summary = analyse(&race);
    let mean = figure(&summary, "x", Metric::Mean);
    assert_eq!(mean.agreement, Agreement::Agrees, "{}", mean.reason);
    assert!((mean.ratio.unwrap().value - 2.0).abs() < 0.1, "{:?}", mean.ratio);
    // Each request takes twice the time, but there are half as many: the CPUs are equally busy.
    let softirq = figure(&summary, "x", Metric::CpuSoftirq);
    assert_eq!(softirq.agreement, Agreement::Agrees, "{}", softirq.reason);
    assert!(softirq.ours.is_some_and(|percent| (1.0..100.0).contains(&percent)), "{:?}", softirq.ours);
    let bandwidth = figure(&summary, "x", Metric::Bandwidth);
    assert!(bandwidth.reason.contains("this race measured no bandwidth"), "{}", bandwidth.reason);
}

/// A figure may be divided by that of a candidate other than the reference. Then that candidate's own figure
/// has no counterpart, which is not a failure.
#[test]
fn the_candidate_of_against_is_called_the_reference() {
    let mut race =
        Plan { loads: vec![None], ..Plan::of(5, vec![Truth::of("x", 2.0), Truth::of("y", 4.0)]) }.race();
    let of = |candidate: &str, value: f64, against: Option<&str>| Published {
        candidate: candidate.to_owned(),
        metric: Some(Metric::Requests),
        value: Some(value),
        unit: "requests/s".to_owned(),
        rate: None,
        against: against.map(str::to_owned),
        ..published().remove(0)
    };
    race.header.experiment.published = vec![of("x", 200.0, None), of("y", 100.0, Some("x"))];
    let agreements: Vec<Agreement> = analyse(&race).published.iter().map(|figure| figure.agreement).collect();
    assert_eq!(agreements, [Agreement::Reference, Agreement::Agrees]);
}

/// An experiment can declare that it cannot test a figure, whatever it measures.
#[test]
fn what_an_experiment_cannot_say_anything_about_is_not_compared() {
    let mut race = eventful();
    for figure in &mut race.header.experiment.published {
        figure.not_comparable = "no queue here that it could manage".to_owned();
    }
    let summary = analyse(&race);
    let direct = figure(&summary, "bridge+direct", Metric::P95);
    assert_eq!(
        (direct.agreement, &*direct.reason),
        (Agreement::NotComparable, "no queue here that it could manage")
    );
    assert_eq!((summary.agreements.not_comparable, summary.agreements.obstacles.len()), (12, 1));
    let reference = figure(&summary, "host", Metric::P95);
    assert_eq!(reference.agreement, Agreement::Reference, "others may be divided by it");
}

/// The agreement of bridge+direct's p95 and its reason, in a race that was tampered with.
fn direct_p95(tamper: impl Fn(&mut RaceRecord)) -> (Agreement, String) {
    let mut race = eventful();
    tamper(&mut race);
    let summary = analyse(&race);
    let figure = figure(&summary, "bridge+direct", Metric::P95);
    (figure.agreement, figure.reason.clone())
}

/// Everything of an entrant at the slow rate.
fn flooded(race: &mut RaceRecord, entrant: usize) {
    let trials = race.rounds.iter_mut().flat_map(|round| &mut round.trials);
    trials.filter(|trial| (trial.entrant, trial.load) == (entrant, 0)).for_each(flood);
}

#[test]
fn what_the_report_does_not_compare_agrees_with_nothing() {
    assert_eq!(direct_p95(|_| ()).0, Agreement::Agrees);
    let (agreement, why) = direct_p95(|race| {
        race.rounds[3].broken.push(Broken { entrant: 2, why: "the path changed".to_owned() });
        race.rounds.iter_mut().skip(4).for_each(|round| round.trials.retain(|trial| trial.entrant != 2));
    });
    assert_eq!(agreement, Agreement::NotComparable, "{why}");
    assert_eq!(why, "bridge+direct broke, and raced in only some of the rounds");
    for (entrant, name) in [(2, "bridge+direct"), (0, "host")] {
        let (agreement, why) = direct_p95(|race| flooded(race, entrant));
        assert_eq!(agreement, Agreement::NotComparable, "{why}");
        let expected = format!("this load is past the capacity of {name}: 50 % of it was answered in time");
        assert!(why.starts_with(&expected), "{why}");
    }
    let (agreement, why) = direct_p95(|race| {
        let trials = race.rounds.iter_mut().flat_map(|round| &mut round.trials);
        trials
            .filter(|trial| trial.entrant == 1)
            .for_each(|trial| trial.void = Some(Void::ClientBusy { busy_permille: 995 }));
    });
    assert_eq!(agreement, Agreement::NotComparable, "{why}");
    assert_eq!(why, "host has no ratio to itself here, so the noise is not known");
}

/// How many answers come and how busy CPUs are is known of a queue too.
#[test]
fn past_capacity_other_figures_than_times_are_compared() {
    let mut race = eventful();
    flooded(&mut race, 3);
    let at = |candidate: &str, metric, value: f64, unit: &str| Published {
        candidate: candidate.to_owned(),
        metric: Some(metric),
        value: Some(value),
        unit: unit.to_owned(),
        ..published().remove(0)
    };
    race.header.experiment.published = vec![
        at("host", Metric::Requests, 20.0, "requests/s"),
        at("bridge+vxlan", Metric::Requests, 10.0, "requests/s"),
        at("host", Metric::P50, 1.0, "ms"),
        at("bridge+vxlan", Metric::P50, 80.0, "ms"),
    ];
    let summary = analyse(&race);
    let requests = figure(&summary, "bridge+vxlan", Metric::Requests);
    assert_eq!(requests.agreement, Agreement::Agrees, "{}", requests.reason);
    let p50 = figure(&summary, "bridge+vxlan", Metric::P50);
    assert_eq!((p50.agreement, p50.ratio), (Agreement::NotComparable, None), "{}", p50.reason);
}
