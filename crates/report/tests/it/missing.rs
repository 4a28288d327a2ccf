//! Races in which slices of a candidate stayed void.

use record::{RaceRecord, Statistic, Void};
use verdict::{Cells, Comparisons, ResamplingUnits};

use crate::made::{Plan, Truth};

/// A race of a candidate that is like the host, whose slices in some rounds are void. In these the machine did half of
/// its work.
fn drifted(is_slow: impl Fn(usize) -> bool) -> RaceRecord {
    let mut race = Plan {
        loads: vec![None],
        builds: 12,
        rounds_a_build: 2,
        ..Plan::of(5, vec![Truth::of("docker", 1.0)])
    }
    .race();
    for (number, round) in race.rounds.iter_mut().enumerate().filter(|(number, _)| is_slow(*number)) {
        for trial in &mut round.trials {
            trial.answered_in_time /= 2;
            trial.void = (trial.entrant == 2).then_some(Void::Stolen { steal_permille: 40 + number as u32 });
        }
    }
    race
}

/// The ratio of requests per second.
fn ratio(race: &RaceRecord) -> f64 {
    let cells = Cells::of(race, &ResamplingUnits::of(race));
    let spread = Comparisons::of(&cells, 1).spread(2, 0, Statistic::Throughput).expect("there is a ratio");
    spread.interval(0.05).value
}

#[test]
fn rounds_that_a_candidate_lacks_do_not_count_for_the_host_either() {
    let whole = ratio(&drifted(|_| false));
    // The second round of each of the last builds, and all of the last three builds.
    for is_slow in [|number: usize| number >= 12 && number % 2 == 1, |number: usize| number >= 18] {
        let value = ratio(&drifted(is_slow));
        assert!((value / whole).ln().abs() < 0.03, "{value}, and {whole} without the drift");
    }
}
