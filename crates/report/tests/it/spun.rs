//! What the generator waited without sleeping is no part of what requests cost.

use record::{CpuTime, TrialRecord};
use report::analyse;

use crate::made::{Plan, Truth};

/// CPU time comes in ticks, so that in a trial it may be less than what was spun. It is not in all of them together.
#[test]
fn it_is_taken_off_once_for_all_trials() {
    let mut race = Plan { loads: vec![Some(20_000.0)], ..Plan::of(5, vec![Truth::of("other", 1.0)]) }.race();
    for round in &mut race.rounds {
        let busy_ns = if round.round % 2 == 0 { 90_000_000 } else { 110_000_000 };
        for trial in &mut round.trials {
            let softirq_ns = 1_250_000;
            let user_ns = busy_ns - softirq_ns;
            trial.client_cpu = CpuTime { user_ns, softirq_ns, idle_ns: 10_000_000, ..CpuTime::default() };
            trial.counters.client_spun_ns = 95_000_000;
        }
    }
    let trials: Vec<&TrialRecord> =
        race.rounds.iter().flat_map(|round| &round.trials).filter(|trial| trial.entrant == 2).collect();
    let sum = |of: fn(&TrialRecord) -> u64| trials.iter().map(|trial| of(trial)).sum::<u64>() as f64;
    let left_ns = sum(|trial| trial.client_cpu.busy_ns()) - sum(|trial| trial.counters.client_spun_ns);
    let expected = left_ns / sum(|trial| trial.answered) / 1e3;
    let rate = &analyse(&race).candidates[2].rates[0];
    let [client, all, server] =
        [rate.client_cpu_us_per_request, rate.cpu_us_per_request, rate.server_cpu_us_per_request]
            .map(|figure| figure.expect("a clock ran"));
    assert!(expected > 0.0 && (client / expected - 1.0).abs() < 1e-9, "{client} and not {expected}");
    assert!((all - client - server).abs() < 1e-9);
    // The share is one of the same time: drawn beside it, what was spun may be in neither.
    let share = rate.client_softirq_share.expect("requests cost something");
    let softirq_us = sum(|trial| trial.client_cpu.softirq_ns) / sum(|trial| trial.answered) / 1e3;
    assert!((share * client / softirq_us - 1.0).abs() < 1e-9, "{share} of {client} is not {softirq_us}");
}
