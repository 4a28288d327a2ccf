//! Searches against servers that are arithmetic.

use std::io;

use super::*;
use crate::slo::Limit;
use crate::{Protocol, RunVerdict};

const FULL: Duration = Duration::from_secs(10);

/// A run against a server that answers in a millisecond, up to `most_per_s` requests per second.
fn ran(run: &Run, most_per_s: f64) -> CheckedRun {
    let rate_per_s = run.schedule.rate_per_s();
    let mut outcome = Outcome::new(rate_per_s, Protocol::Http);
    outcome.duration = run.duration;
    let of = |per_s: f64| (per_s * run.duration.as_secs_f64()) as u64;
    outcome.intended = of(rate_per_s.unwrap_or(most_per_s));
    outcome.sent = outcome.intended;
    outcome.answered = outcome.intended.min(of(most_per_s));
    outcome.sent_in_schedule = outcome.answered;
    outcome.response.record_n(1_000_000, outcome.answered).unwrap();
    let verdict = RunVerdict { checks: Vec::new(), strict: false, independent: None };
    CheckedRun { schedule: run.schedule, outcome, verdict }
}

/// Searches with a p99 below 2 ms; the result, and what each run was for.
fn search(
    stop: &AtomicBool,
    server: impl FnMut(SearchStep, &Run) -> Result<CheckedRun, LoadError>,
) -> (Result<RateSearchResult, LoadError>, Vec<SearchStep>) {
    search_with(WhenBusy::Wait, stop, server)
}

fn search_with(
    when_busy: WhenBusy,
    stop: &AtomicBool,
    mut server: impl FnMut(SearchStep, &Run) -> Result<CheckedRun, LoadError>,
) -> (Result<RateSearchResult, LoadError>, Vec<SearchStep>) {
    let run = Run { when_busy, ..Run::new(Schedule::Constant { rate_per_s: 1.0 }, FULL) };
    let slo = Slo::new(vec![Limit::new(99.0, 2_000_000).unwrap()]);
    let (mut steps, mut emitted) = (Vec::new(), 0);
    let mut measure = |step, run: &Run| {
        assert_eq!(run.duration, if step == SearchStep::Confirmation { FULL } else { FULL / STEP_PART });
        steps.push(step);
        server(step, run)
    };
    let mut emit = |_: &TriedRate| emitted += 1;
    let search = RateSearch { run: &run, slo: &slo, stop, measure: &mut measure, emit: &mut emit };
    let found = search.find();
    if let Ok(found) = &found {
        assert_eq!(found.tried.len(), emitted);
    }
    (found, steps)
}

#[test]
fn the_highest_rate_is_found_to_the_precision_and_confirmed() {
    for most_per_s in [50.0, 12_345.0] {
        let (found, steps) = search(&AtomicBool::new(false), |_, run| Ok(ran(run, most_per_s)));
        let found = found.unwrap();
        let rate_per_s = found.best.unwrap().schedule.rate_per_s().unwrap();
        // A thousandth of the requests may be unsent.
        assert!(rate_per_s <= most_per_s * 1.002 && rate_per_s > most_per_s * (1.0 - 2.0 * PRECISION));
        assert_eq!((steps[0], *steps.last().unwrap()), (SearchStep::ClosedLoop, SearchStep::Confirmation));
        assert!(found.ended.is_none() && found.tried.last().unwrap().broken.is_none());
    }
}

#[test]
fn connections_that_are_added_carry_more_than_those_of_the_closed_loop() {
    for most_per_s in [50.0, 101.0, 5_000.0] {
        let (found, _) = search_with(WhenBusy::Grow, &AtomicBool::new(false), |step, run| {
            Ok(ran(run, if step == SearchStep::ClosedLoop { 100.0 } else { most_per_s }))
        });
        let rate_per_s = found.unwrap().best.unwrap().schedule.rate_per_s().unwrap();
        assert!(
            rate_per_s <= most_per_s * 1.002 && rate_per_s > most_per_s * (1.0 - 2.0 * PRECISION),
            "{rate_per_s} of {most_per_s}"
        );
    }
}

#[test]
fn a_rate_that_only_short_runs_hold_is_not_found() {
    let (found, steps) = search(&AtomicBool::new(false), |step, run| {
        Ok(ran(run, if step == SearchStep::Confirmation { 1.0 } else { 1_000.0 }))
    });
    let found = found.unwrap();
    assert!(matches!(found.ended, Some(SearchFailure::Unconfirmed)) && found.best.is_none());
    assert!(matches!(found.last_broken(), Some(SloMiss::Unsent { .. })));
    let confirmations = steps.iter().filter(|step| **step == SearchStep::Confirmation).count();
    assert_eq!(confirmations, CONFIRMATIONS as usize);
}

#[test]
fn a_server_that_is_far_slower_after_a_while_has_the_rate_that_it_keeps() {
    for slower in [970.0, 700.0, 400.0] {
        let (found, steps) = search(&AtomicBool::new(false), |step, run| {
            Ok(ran(run, if step == SearchStep::Confirmation { slower } else { 1_000.0 }))
        });
        let found = found.unwrap();
        let rate_per_s = found.best.unwrap().schedule.rate_per_s().unwrap();
        assert!(
            rate_per_s <= slower * 1.002 && rate_per_s > slower * (1.0 - 2.0 * PRECISION),
            "{rate_per_s}"
        );
        assert!(found.ended.is_none());
        let confirmations = steps.iter().filter(|step| **step == SearchStep::Confirmation).count();
        assert!(confirmations <= CONFIRMATIONS as usize, "{confirmations}");
    }
}

#[test]
fn a_server_that_keeps_no_rate_has_none() {
    // It is fast in the closed loop, and slow at any rate.
    let (found, _) = search(&AtomicBool::new(false), |_, run| {
        let mut ran = ran(run, 1_000.0);
        ran.outcome.response.reset();
        ran.outcome.response.record_n(5_000_000, ran.outcome.answered).unwrap();
        Ok(ran)
    });
    let found = found.unwrap();
    assert!(matches!(found.ended, Some(SearchFailure::NoRate)));
    assert!(matches!(found.last_broken(), Some(SloMiss::Slow { percentile: 99.0, .. })));
}

#[test]
fn a_server_without_an_expected_answer_ends_the_search() {
    let (found, steps) = search(&AtomicBool::new(false), |_, run| {
        let mut ran = ran(run, 1_000.0);
        ran.outcome.answered = 0;
        Ok(ran)
    });
    assert!(matches!(found.unwrap().ended, Some(SearchFailure::Dead(_))));
    assert_eq!(steps, [SearchStep::ClosedLoop]);
}

#[test]
fn a_server_that_disappears_is_a_result_once_it_was_loaded() {
    let gone = |after: usize| {
        let mut runs = 0;
        let server = move |_, run: &Run| {
            runs += 1;
            let address = crate::Address::Tcp(([127, 0, 0, 1], 1).into());
            let refused = LoadError::Connect { address, why: io::ErrorKind::ConnectionRefused.into() };
            if runs > after { Err(refused) } else { Ok(ran(run, 1_000.0)) }
        };
        search(&AtomicBool::new(false), server).0
    };
    assert!(gone(1).is_err());
    assert!(matches!(gone(2).unwrap().ended, Some(SearchFailure::Gone(_))));
}

#[test]
fn a_stopped_search_has_found_nothing() {
    let (found, steps) = search(&AtomicBool::new(true), |_, run| Ok(ran(run, 1_000.0)));
    let found = found.unwrap();
    assert!(found.best.is_none() && found.ended.is_none() && found.tried.is_empty());
    assert_eq!(steps, [SearchStep::ClosedLoop]);
}
