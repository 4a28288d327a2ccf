//! Requests without an answer, in the record of a race that was made.

use record::{Histogram, RaceRecord, TrialRecord};

/// Some of a trial's requests are never answered: the slowest of them.
fn lose(trial: &mut TrialRecord, lost: u64) {
    let mut answered = Histogram::empty_hdr();
    let mut left = trial.intended - lost;
    for (ns, count) in trial.latencies.response.bins() {
        answered.record_n(*ns, left.min(*count)).expect("below an hour");
        left -= left.min(*count);
    }
    (trial.missed, trial.missed_age_max_ns) = (lost, 1_500_000_000);
    (trial.answered, trial.answered_in_time) = (trial.intended - lost, trial.intended - lost);
    trial.latencies.response = Histogram::from(&answered);
}

/// The same of the trials of a build for which `is` holds, with a share of each one's requests.
pub(crate) fn lose_where(race: &mut RaceRecord, is: impl Fn(u32, &TrialRecord) -> bool, share: f64) {
    for round in &mut race.rounds {
        let build = round.build;
        for trial in round.trials.iter_mut().filter(|trial| is(build, trial)) {
            lose(trial, (trial.intended as f64 * share) as u64);
        }
    }
}
