//! Counts of cards, added up over the trials that count, with what a request has of them.

use record::{CardCounts, RaceRecord, TrialRecord, WorkloadKind};
use stats::{Random, Resamples, Spread};

use super::measured::of_quotient;
use crate::card_counts::{CardSummary, Counted, CpuCounts};
use verdict::Cell;

/// One minus the level of the intervals.
const ALPHA: f64 = 0.05;

/// `None` where the wire has no cards, or no trial counts.
pub(super) fn counts(
    race: &RaceRecord,
    cell: &Cell<'_>,
    (units, all_units): (usize, usize),
) -> Option<CardSummary> {
    let mut sums = CardCounts::default();
    let mut any = false;
    for counts in cell.trials.iter().filter_map(|trial| trial.cards.as_ref()) {
        sums += counts;
        any = true;
    }
    if !any {
        return None;
    }
    let mut random = Random::from_seed(race.header.seed);
    let resamples = Resamples::draw_first(units, all_units, Resamples::COUNT, &mut random);
    let kind = race.header.experiment.workload.kind;
    let mean = |above: fn(&CardCounts) -> u64, below: &dyn Fn(&TrialRecord, &CardCounts) -> f64| {
        let of = |trial: &TrialRecord| {
            trial.cards.as_ref().map_or((0.0, 0.0), |counts| (above(counts) as f64, below(trial, counts)))
        };
        let Ok(figure) = of_quotient(cell, of, &resamples) else {
            return Counted { value: None, low: None, high: None };
        };
        let spread = Spread::new(figure.value, figure.resampled, cell.units_with(cell, units));
        let interval = spread.map(|spread| spread.interval(ALPHA));
        Counted {
            value: Some(figure.value),
            low: interval.map(|interval| interval.low),
            high: interval.map(|interval| interval.high),
        }
    };
    let per_request = |above| mean(above, &|trial, _| done(trial, kind));
    Some(CardSummary {
        server_interrupts_per_request: per_request(|counts| counts.server_interrupts.values().sum()),
        client_interrupts_per_request: per_request(|counts| counts.client_interrupts.values().sum()),
        net_rx_per_request: per_request(|counts| counts.net_rx.values().sum()),
        packets_per_request: per_request(|counts| counts.packets.values().sum()),
        packets_per_net_rx: mean(|counts| counts.packets.values().sum(), &|_, counts| {
            counts.net_rx.values().sum::<u64>() as f64
        }),
        by_cpu: CpuCounts::of(&sums),
    })
}

/// What a trial did: requests, objects, packets, or megabytes of a stream.
fn done(trial: &TrialRecord, kind: WorkloadKind) -> f64 {
    match (kind, trial.carried) {
        (WorkloadKind::TcpStream, Some(carried)) => carried.bytes as f64 / 1e6,
        (WorkloadKind::UdpStream, Some(_)) => trial.answered_in_time as f64,
        _ => trial.answered as f64,
    }
}
