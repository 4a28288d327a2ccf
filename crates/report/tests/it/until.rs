//! Races that end early. A generated race is played build by build, and candidates that have left are visited
//! no more.

use record::{Broken, Experiment, Leaving, RaceRecord};
use report::{ComparisonExit, StopReason, Style, Summary, Verdict, analyse, html, table};
use stats::Level;

use crate::made::{Plan, Truth, flood};

/// The most builds of a race.
const BUILDS: u32 = 27;

fn plan(seed: u64, contenders: Vec<Truth>) -> Plan {
    let loads = vec![None, Some(20_000.0)];
    Plan { builds: BUILDS, rounds_a_build: 2, samples: 150, loads, ..Plan::of(seed, contenders) }
}

/// The trials of a plan that a race with `until` would make.
fn played(plan: &Plan, until: &str) -> RaceRecord {
    played_from(plan.race(), plan.rounds_a_build as usize, until)
}

/// Those trials of a whole race.
fn played_from(whole: RaceRecord, rounds: usize, until: &str) -> RaceRecord {
    let mut race = RaceRecord { rounds: vec![], end: None, ..whole.clone() };
    race.header.experiment.until = Some(until.parse().expect("a precision"));
    race.header.experiment.published.clear();
    for build in whole.rounds.chunks(rounds) {
        let undecided = verdict::undecided(&race);
        if undecided.is_empty() {
            break;
        }
        for mut round in build.iter().cloned() {
            round.trials.retain(|trial| match trial.entrant {
                0 | 1 => undecided.iter().any(|(_, load)| *load == trial.load),
                entrant => undecided.contains(&(entrant, trial.load)),
            });
            race.rounds.push(round);
        }
        race.looks.extend(verdict::look(&race));
    }
    if !verdict::undecided(&race).is_empty() {
        race.looks.push(verdict::last_look(&race));
    }
    race.end = whole.end;
    race
}

fn comparison<'a>(summary: &'a Summary, name: &str, load: usize) -> &'a ComparisonExit {
    let of = &summary.until.as_ref().expect("the race has `until`").comparisons;
    of.iter().find(|one| one.candidate == name && one.load == load).expect(name)
}

/// They are at the level of the comparisons, also where a figure stands alone.
#[test]
fn whiskers_of_a_sweep_have_the_level_that_the_looks_left() {
    let asked = "schema = 1\nname = \"x\"\nsweep = { over = \"rate\", values = [10000, 20000] }";
    let experiment = Experiment::from_toml(asked).unwrap().swept();
    let loads = vec![Some(10_000.0), Some(20_000.0)];
    let mut whole = Plan { loads, ..plan(3, vec![Truth::of("docker", 1.5)]) }.race();
    whole.header.experiment = Experiment { rounds: whole.header.experiment.rounds, ..experiment };
    whole.loads.iter_mut().for_each(|load| load.of_capacity = None);
    let page = html::page(&analyse(&played_from(whole, 2, "3%")));
    let (_, sweep) = page.split_once("id=\"sweep\"").unwrap();
    let (sweep, _) = sweep.split_once("</section>").unwrap();
    assert!(sweep.contains("Whiskers are 9") && !sweep.contains("hiskers are 95\u{202f}%"), "{sweep}");
    assert!(!sweep.contains("hiskers are 95 %"), "{sweep}");
}

/// As the verdict's reason has them.
#[test]
fn the_method_names_what_is_tested_first() {
    let said = |until: &str| html::page(&analyse(&played(&plan(3, vec![Truth::of("docker", 1.5)]), until)));
    let usual = "is tested first, then that of a typical slice, then p50; in a closed loop";
    assert!(said("3%").contains(&format!("p99 {usual}")));
    assert!(said("req/s:3%").contains(&format!("p99 {usual}")));
    let named = ", which the race was to know, is tested first, then p99, then that of a typical slice";
    assert!(said("p99.9:5%").contains(&format!("p99.9{named}, then p50")));
    assert!(said("p50:5%").contains(&format!("p50{named};")));
}

fn against_the_schema(summary: &Summary) -> Vec<String> {
    let schema = serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let result = serde_json::to_value(summary).unwrap();
    validator.iter_errors(&result).map(|error| format!("{error} at {}", error.instance_path())).collect()
}

#[test]
fn who_differs_leaves_early_and_who_does_not_when_it_is_known() {
    let contenders = vec![Truth::of("slow", 1.8), Truth::of("same", 1.0)];
    let race = played(&Plan { samples: 500, ..plan(3, contenders) }, "10%");
    let summary = analyse(&race);
    let until = summary.until.as_ref().unwrap();
    assert_eq!((until.ended, until.statistic), (StopReason::Settled, None));
    for load in [0, 1] {
        let (slow, same) = (comparison(&summary, "slow", load), comparison(&summary, "same", load));
        assert_eq!((slow.why, same.why), (Leaving::Different, Leaving::Precise), "{slow:?} {same:?}");
        assert!(slow.builds < same.builds || same.builds == 6, "{slow:?} {same:?}");
        assert!(same.half_width.unwrap() <= 0.1 && same.half_width_in_a_minute.is_none(), "{same:?}");
        let verdicts: Vec<_> =
            summary.candidates.iter().map(|candidate| candidate.rates[load].verdict.unwrap()).collect();
        assert_eq!(verdicts[2..], [Verdict::Worse, Verdict::Indistinguishable]);
        // The ratio covers the builds that the candidate raced in, at the level at which it left.
        assert!((same.level - (1.0 - 0.05 * Level::Last.share())).abs() < 1e-12 && slow.level > same.level);
    }
    assert!(summary.progress.builds < BUILDS && summary.progress.rounds_missing == 0);
    assert_eq!(against_the_schema(&summary), Vec::<String>::new());
    let text = table(&summary, Style { colour: false, width: 120 });
    for words in [
        "Until known to ±10 %",
        "every comparison was settled",
        "found to differ: slow",
        "known to ±10 %: same",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(!text.contains("For ±3 % at every candidate") && !text.contains("are at 95 %"), "{text}");
    let page = html::page(&summary);
    assert!(page.contains("every comparison was settled"));
    let least = format!("{:.2}", 100.0 * comparison(&summary, "same", 0).level);
    let levels = format!("{} to ", least.trim_end_matches('0'));
    for words in ["÷ host (", "Intervals are ", "Whiskers are "] {
        assert!(page.contains(&format!("{words}{levels}")), "{words}{levels} in {page}");
    }
    assert!(!page.contains("÷ host (95 %)"));
    crate::verdicts::assert_compared_alike(&race);
}

#[test]
fn a_record_gives_the_decisions_again_that_the_race_made() {
    let contenders = vec![Truth::of("slow", 1.15), Truth::of("same", 1.0), Truth::of("fast", 0.9)];
    let race = played(&plan(4, contenders), "p50:2%");
    assert!(race.looks.len() > 2, "{:?}", race.looks);
    for (index, look) in race.looks.iter().enumerate() {
        let mut before = RaceRecord { end: None, looks: race.looks[..index].to_vec(), ..race.clone() };
        before.rounds.truncate(look.rounds as usize);
        let again = verdict::look(&before).unwrap_or_else(|| verdict::last_look(&before));
        assert_eq!(&again, look);
    }
    // What a look found is also the verdict at the end, with the same figures.
    let summary = analyse(&race);
    for look in &race.looks {
        for left in look.left.iter().filter(|left| left.why == Leaving::Different) {
            let rate = &summary.candidates[left.entrant].rates[left.load];
            assert_ne!(rate.verdict, Some(Verdict::Indistinguishable), "{left:?}");
            assert!(rate.verdict_reason.starts_with("p50 decides"), "{}", rate.verdict_reason);
        }
    }
}

#[test]
fn what_is_undecided_has_a_forecast() {
    let wild = Plan { scatter: (0.2, 0.1), ..plan(5, vec![Truth::of("same", 1.0)]) };
    let race = played(&wild, "p99:1%");
    let summary = analyse(&race);
    let until = summary.until.as_ref().unwrap();
    assert_eq!((until.ended, until.statistic), (StopReason::Budget, Some("p99")));
    let (closed, rated) = (comparison(&summary, "same", 0), comparison(&summary, "same", 1));
    assert_eq!((closed.why, closed.builds, closed.statistic), (Leaving::NotAsked, 4, None));
    assert_eq!((rated.why, rated.builds), (Leaving::Ended, BUILDS));
    // A build of the plan takes 28 s, so two more fit into a minute.
    let (now, then) = (rated.half_width.unwrap(), rated.half_width_in_a_minute.unwrap());
    let expected = now.ln_1p() * (27.0_f64 / 29.0).sqrt();
    assert!(then < now && (then.ln_1p() / expected - 1.0).abs() < 0.02, "±{now} becomes ±{then}");
    assert!(rated.needed_s.unwrap() > 600.0, "{rated:?}");
    assert_eq!(against_the_schema(&summary), Vec::<String>::new());
    let text = table(&summary, Style { colour: false, width: 120 });
    for words in [
        "Until p99 to ±1 %",
        "with 1 comparison undecided",
        "not asked, left at the first look",
        "another minute",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn the_floor_of_the_statistic_that_was_asked_is_shown() {
    let contenders = vec![Truth::of("slow", 1.3)];
    let many = Plan { samples: 600, ..plan(6, contenders) };
    let race = played(&many, "p99.9:20%");
    let summary = analyse(&race);
    let named = summary.noise[1].named_floor.expect("p99.9 has a floor");
    assert!(named.statistic == "p99.9" && named.floor > 0.0 && summary.noise[0].named_floor.is_none());
    let text = table(&summary, Style { colour: false, width: 140 });
    assert!(text.contains("the host against itself over all builds: p99.9 "), "{text}");
    assert!(
        summary.candidates[2].rates[1].verdict_reason.contains("p99.9"),
        "{:?}",
        summary.candidates[2].rates[1]
    );
}

/// The contender left at the first look, and the control stands in the table with an interval at another level.
#[test]
fn the_level_of_the_control_is_said_too() {
    let plan = Plan { loads: vec![None], ..plan(8, vec![Truth::of("slow", 2.0)]) };
    let summary = analyse(&played(&plan, "5%"));
    assert_eq!(comparison(&summary, "slow", 0).why, Leaving::Different);
    let page = html::page(&summary);
    assert!(page.contains("÷ host (96.67 to 99.58 %)"), "{page}");
}

#[test]
fn without_contenders_it_is_the_control_that_is_to_be_known() {
    let summary = analyse(&played(&Plan { samples: 500, ..plan(7, vec![]) }, "10%"));
    let until = summary.until.as_ref().unwrap();
    assert_eq!(until.comparisons.len(), 2);
    assert!(until.comparisons.iter().all(|one| one.candidate == "host again" && one.why == Leaving::Precise));
}

/// The only interval of such a race is the one of the test, and no other level is said beside it.
#[test]
fn a_single_test_has_the_interval_of_the_table() {
    let plan = Plan { loads: vec![None], ..plan(8, vec![Truth::of("same", 1.0)]) };
    let text = table(&analyse(&played(&plan, "5%")), Style { colour: false, width: 120 });
    assert!(
        text.contains("the host against itself over all builds: req/s ±")
            && !text.contains("interval contains 1"),
        "{text}"
    );
}

#[test]
fn where_all_contenders_broke_nobody_is_left() {
    let wild = Plan { scatter: (0.2, 0.1), ..plan(5, vec![Truth::of("docker", 1.0)]) };
    let mut race = played(&wild, "p99:1%");
    race.rounds.truncate(9);
    race.looks.retain(|look| look.rounds <= 9);
    race.rounds[8].broken = vec![Broken { entrant: 2, why: "it answers no more".to_owned() }];
    assert_eq!(verdict::undecided(&race), []);
    let summary = analyse(&race);
    assert_eq!(summary.until.as_ref().unwrap().ended, StopReason::Budget);
    let text = table(&summary, Style { colour: false, width: 120 });
    assert!(text.contains("no candidate is left") && !text.contains("settled"), "{text}");
    race.end = None;
    assert_eq!(analyse(&race).until.unwrap().ended, StopReason::Unfinished);
}

/// Its queues differ from the host's times from the first look on, and no ratio of them is ever given.
#[test]
fn what_is_past_capacity_is_not_found_to_differ() {
    let plan = plan(12, vec![Truth::of("docker", 1.3), Truth::of("same", 1.0)]);
    let mut whole = plan.race();
    let trials = whole.rounds.iter_mut().flat_map(|round| &mut round.trials);
    trials.filter(|trial| (trial.entrant, trial.load) == (2, 1)).for_each(flood);
    let mut race = played_from(whole, plan.rounds_a_build as usize, "10%");
    let docker = comparison(&analyse(&race), "docker", 1).clone();
    assert_eq!((docker.why, docker.builds, docker.half_width), (Leaving::NotAsked, 4, None));
    // In an older record such a rate left for the difference of the queues.
    for look in &mut race.looks {
        for left in look.left.iter_mut().filter(|left| (left.entrant, left.load) == (2, 1)) {
            left.why = Leaving::Different;
        }
    }
    let summary = analyse(&race);
    assert_eq!(comparison(&summary, "docker", 1).half_width, None);
    let text = table(&summary, Style { colour: false, width: 160 });
    let rate = "docker (100 B at 30 % (20.0k/s))";
    assert!(text.contains(&format!("past capacity, so not compared: {rate}")), "{text}");
    assert!(!text.contains(&format!("{rate} after")), "{text}");
    assert_eq!(against_the_schema(&summary), Vec::<String>::new());
}

/// Its threads poll beside the others' work, so it has no verdict to wait for.
#[test]
fn what_is_not_ranked_does_not_keep_a_race_running() {
    let plan = plan(12, vec![Truth::of("polls", 1.0), Truth::of("same", 1.0)]);
    let mut whole = plan.race();
    whole.header.entrants[2].crowded = true;
    let summary = analyse(&played_from(whole, plan.rounds_a_build as usize, "2%"));
    for load in [0, 1] {
        let polls = comparison(&summary, "polls", load);
        assert_eq!((polls.why, polls.builds), (Leaving::NotAsked, 4));
    }
    assert!(comparison(&summary, "same", 1).builds > 4, "{:?}", summary.until);
    assert_eq!(against_the_schema(&summary), Vec::<String>::new());
}

/// Everything together: equals that leave early, the control, and verdicts by both rules.
#[test]
fn equals_are_seldom_called_different_by_races_that_look() {
    let (mut called, mut control, races) = (0, 0, 16);
    for seed in 0..races {
        let loads = vec![Some(20_000.0)];
        let equals = vec![Truth::of("same", 1.0), Truth::of("same too", 1.0)];
        let quick =
            Plan { samples: 60, builds: 15, scatter: (0.02, 0.02), loads, ..plan(100 + seed, equals) };
        let summary = analyse(&played(&quick, "p50:3%"));
        let differs =
            |entrant: usize| summary.candidates[entrant].rates[0].verdict != Some(Verdict::Indistinguishable);
        called += u32::from(differs(2)) + u32::from(differs(3));
        control += u32::from(differs(1));
    }
    // With true shares of 2 % and 3 %, more have a probability of less than 1 in 100. `stats` simulates the
    // shares themselves with many more races.
    assert!(called <= 3 && control <= 3, "{called} of {} equals and {control} controls differ", 2 * races);
}

#[test]
fn what_slices_are_too_short_for_is_not_promised() {
    let of = |samples: u64, until: &str| {
        let plan = Plan { samples, ..plan(9, vec![Truth::of("slow", 1.1)]) };
        let summary = analyse(&played(&plan, until));
        (table(&summary, Style { colour: false, width: 160 }), html::page(&summary))
    };
    let (text, page) = of(500, "typical-p99:5%");
    let why = "typical p99 takes slices of 1000 requests, and these have 500: more slices do not help, longer ones do \
               (slice_ms); p99 × host 1.";
    assert!(text.contains(why) && page.contains(why), "{text}");
    assert!(
        page.contains("takes slices of 1\u{202f}000 requests") && page.contains("<h2>p50 and p99 relative")
    );
    assert!(!page.contains("typical p99 is the mean") && !text.contains("typical p99 ×"), "{text}");
    let (text, _) = of(30, "p99.9:5%");
    assert!(text.contains("p99.9 takes 10000 requests, and there are 1620; p99 × host "), "{text}");
    let (text, page) = of(1_500, "typical-p99:5%");
    assert!(text.contains("typical p99 × host") && page.contains("typical p99 is the mean"), "{text}");
    assert!(
        page.contains("<h2>p50, typical p99 and p99 relative") && !text.contains("takes slices"),
        "{text}"
    );
}
