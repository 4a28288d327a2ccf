//! The course of a race, and the contents of its rows.

use record::{RaceRecord, Void};
use report::{Quantity, Timeline, TimelineRow, analyse, html, json};

use crate::made::{Plan, Truth};

fn race() -> RaceRecord {
    let contenders = vec![Truth::of("docker", 1.5), Truth { lost_one_in: 500, ..Truth::of("macvlan", 1.0) }];
    let mut race =
        Plan { loads: vec![Some(20_000.0), None], samples: 2_000, ..Plan::of(9, contenders) }.race();
    // In the fourth round a trial of docker is void and is repeated.
    let round = &mut race.rounds[3];
    let place = round.trials.iter().position(|trial| (trial.entrant, trial.load) == (2, 0)).unwrap();
    let mut void = round.trials[place].clone();
    void.void = Some(Void::ClientBusy { busy_permille: 990 });
    round.trials.insert(place, void);
    race
}

fn timeline(race: &RaceRecord) -> Timeline {
    analyse(race).timeline.expect("rounds follow one another")
}

fn row(timeline: &Timeline, load: usize, quantity: Quantity) -> &TimelineRow {
    let found = timeline.loads[load].iter().find(|row| row.quantity == quantity);
    found.unwrap_or_else(|| panic!("no {quantity:?} in {:?}", timeline.loads[load]))
}

#[test]
fn every_round_has_what_its_trials_reached() {
    let race = race();
    let timeline = timeline(&race);
    assert_eq!((timeline.rounds, timeline.steps()), (30, 30));
    assert_eq!(timeline.builds, [5, 10, 15, 20, 25]);
    let p99 = row(&timeline, 0, Quantity::Percentile("p99"));
    let [host, docker] = [0, 2].map(|entrant| &p99.series[entrant]);
    assert!(
        host.iter().zip(docker).filter(|(host, docker)| docker > host).count() > 25,
        "docker is half as fast"
    );
    let rate = row(&timeline, 0, Quantity::Rate("req/s"));
    assert!(rate.series.iter().flatten().all(|rate| (rate.unwrap() - 20_000.0).abs() < 20.0));
    let closed = row(&timeline, 1, Quantity::Rate("req/s"));
    assert!(closed.series[2][0].unwrap() < closed.series[0][0].unwrap() * 0.8, "{closed:?}");
}

#[test]
fn rounds_lie_at_their_minutes_where_the_record_has_them() {
    let mut race = race();
    let ends = timeline(&race).ends_s.expect("every round has its end");
    assert_eq!((ends[0], ends[29]), (21.0, 7.0 * 30.0 + 14.0 * 6.0));
    assert!(html::page(&analyse(&race)).contains("minutes since the start of the race"));
    race.rounds[4].ended_s = None;
    let unknown = timeline(&race).ends_s;
    race.rounds[4].ended_s = Some(1.0);
    assert_eq!([unknown, timeline(&race).ends_s], [None, None]);
    assert!(!html::page(&analyse(&race)).contains("minutes since the start of the race"));
}

#[test]
fn what_the_machine_took_has_rows() {
    let mut race = race();
    assert!(timeline(&race).loads[0].iter().all(|row| row.quantity != Quantity::Stolen));
    race.rounds[2].trials[0].client_cpu.steal_ns = 5_000_000;
    race.rounds[2].trials[0].counters.client_runqueue_ns = 3_000_000;
    let (entrant, load) = (race.rounds[2].trials[0].entrant, race.rounds[2].trials[0].load);
    let timeline = timeline(&race);
    assert_eq!(row(&timeline, load, Quantity::Stolen).series[entrant][2], Some(5e6));
    assert_eq!(row(&timeline, load, Quantity::Starved).series[entrant][2], Some(3e6));
}

#[test]
fn void_trials_are_counted_where_they_ran_and_what_counts_nothing_has_no_row() {
    let timeline = timeline(&race());
    let void = row(&timeline, 0, Quantity::Void);
    let counted: Vec<_> = void
        .series
        .iter()
        .enumerate()
        .flat_map(|(entrant, series)| {
            series.iter().enumerate().map(move |(round, value)| (entrant, round, *value))
        })
        .filter(|(_, _, value)| *value != Some(0.0))
        .collect();
    assert_eq!(counted, [(2, 3, Some(1.0))]);
    assert!(timeline.loads[1].iter().all(|row| row.quantity != Quantity::Void), "none at that load");
    let lost = row(&timeline, 0, Quantity::Retransmits);
    assert!(
        lost.series[3].iter().flatten().sum::<f64>() > 0.0
            && lost.series[0].iter().all(|value| *value == Some(0.0))
    );
    assert!(timeline.loads[0].iter().all(|row| row.quantity != Quantity::Drops));
}

#[test]
fn a_trial_too_short_for_its_p99_is_followed_by_what_it_has() {
    let plan = Plan { samples: 200, ..Plan::of(4, vec![Truth::of("docker", 1.5)]) };
    let timeline = timeline(&plan.race());
    let quantities: Vec<Quantity> = timeline.loads[0].iter().map(|row| row.quantity).collect();
    assert_eq!(quantities, [Quantity::Rate("req/s"), Quantity::Percentile("p90")]);
}

#[test]
fn rounds_that_are_missing_leave_a_gap_and_long_races_are_put_together() {
    let mut race = race();
    race.rounds.retain(|round| round.round != 7);
    let short = timeline(&race);
    let p99 = row(&short, 0, Quantity::Percentile("p99"));
    assert!(p99.series.iter().all(|series| series[7].is_none() && series[8].is_some()));

    let plan =
        Plan { builds: 10, rounds_a_build: 21, samples: 30, ..Plan::of(4, vec![Truth::of("docker", 1.5)]) };
    let mut race = plan.race();
    race.rounds
        .iter_mut()
        .flat_map(|round| &mut round.trials)
        .for_each(|trial| trial.counters.retransmits = 1);
    let long = timeline(&race);
    assert_eq!((long.rounds, long.rounds_a_step, long.steps()), (210, 3, 70));
    let sent_again = row(&long, 0, Quantity::Retransmits);
    assert!(sent_again.series.iter().flatten().all(|sum| *sum == Some(3.0)), "the sum of three rounds");
    assert!(html::page(&analyse(&race)).contains("A point stands for 3 rounds"));
}

#[test]
fn one_round_has_no_course() {
    let mut race = race();
    race.rounds.truncate(1);
    let summary = analyse(&race);
    assert_eq!(summary.timeline, None);
    assert!(!html::page(&summary).contains("timeline"));
}

/// No race has so many rounds, but a file may say anything.
#[test]
fn a_forged_number_of_a_round_is_no_course() {
    let mut race = race();
    race.rounds.last_mut().unwrap().round = u32::MAX;
    assert_eq!(analyse(&race).timeline, None);
}

#[test]
fn the_page_has_a_row_a_quantity_and_the_figures_of_all_rounds() {
    let summary = analyse(&race());
    let page = html::page(&summary);
    let section = page.split_once("id=\"timeline\"").unwrap().1.split_once("</section>").unwrap().0;
    let first = section.split_once("</svg>").unwrap().0;
    for name in [">req/s</text>", ">p99 in µs</text>", ">void trials</text>", ">retransmits</text>"] {
        assert!(first.contains(name), "{name}");
    }
    assert_eq!(first.matches("class=\"build\"").count(), 5 * summary.timeline.unwrap().loads[0].len());
    let lines = first.split("class=\"line\" d=\"").skip(1).map(|rest| rest.split_once('"').unwrap().0);
    let whole: Vec<usize> =
        lines.map(|data| data.split([' ', 'L']).count() / 2).filter(|points| *points == 30).collect();
    assert!(whole.len() >= 4 * 2, "four data paths in each row: {whole:?}");
    let tables = section.split_once("<details").unwrap().1.split_once("</details>").unwrap().0;
    assert!(tables.contains("<th scope=\"row\">30</th>") && tables.contains(">host again</th>"));
    // The JSON leaves the timeline out, because the record has the trials.
    assert!(!json(&analyse(&race())).contains("timeline"));
}
