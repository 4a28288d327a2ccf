//! One candidate at every load.

use record::{CpuTime, Measure, RaceRecord, Statistic};
use stats::Percentile;

use super::quantiles::{self, quantiles};
use super::{by_cpu, card_counts, carried, describe, ratio, ratios, reason, stalls, tail};
use crate::past;
use crate::quantities::{CurvePoint, Ratios};
use crate::summary::{Need, Precision, RateSummary};
use verdict::{Cell, Cells, Comparisons, Shortfall, Verdict};

/// ±3 %, the precision that readers may want.
const PRECISION: f64 = 0.03;
/// More builds than is practical.
pub(super) const UNITS_MAX: u32 = 200_000;

/// A candidate at every load of a race.
pub(super) fn rates(
    race: &RaceRecord,
    cells: &Cells<'_>,
    comparisons: &Comparisons,
    entrant: usize,
) -> Vec<RateSummary> {
    (0..race.loads.len()).map(|load| rate(race, cells, comparisons, entrant, load)).collect()
}

fn rate(
    race: &RaceRecord,
    cells: &Cells<'_>,
    comparisons: &Comparisons,
    entrant: usize,
    load: usize,
) -> RateSummary {
    let cell = cells.cell(entrant, load);
    let of = &race.loads[load];
    let judged = comparisons.judged(entrant, load);
    let shortfall = Shortfall::of(race, cells, entrant, load);
    let queued = [entrant, 0].map(|of| Shortfall::of(race, cells, of, load).filter(|short| short.queued));
    let comparable = queued == [None; 2];
    let server = cell.cpu(|trial| trial.server_cpu);
    let client = cell.cpu(|trial| trial.client_cpu);
    let measure = race.header.experiment.workload.kind.measure();
    let done = match measure {
        Measure::Latency => cell.sum(|trial| trial.answered) as f64,
        Measure::Packets | Measure::Frames => cell.sum(|trial| trial.answered_in_time) as f64,
        Measure::Bandwidth => carried::bytes(cell) as f64 / 1e6,
    };
    let closed = of.rate_per_s.is_none() || measure != Measure::Latency;
    let server_us = us_per_request(&server, server.busy_ns(), done);
    // In ticks of 10 ms a trial's time on a CPU may be less than what was spun in it; the sum of all is not.
    let client_spent_ns = client.busy_ns().saturating_sub(cell.sum(|trial| trial.counters.client_spun_ns));
    let client_us = us_per_request(&client, client_spent_ns, done);
    RateSummary {
        body_bytes: of.body_bytes,
        requested_rps: of.rate_per_s,
        of_capacity: of.of_capacity,
        achieved_rps: cell.achieved_rps().filter(|_| measure != Measure::Bandwidth),
        verdict: judged
            .verdict()
            .filter(|verdict| !cell.trials.is_empty() && (comparable || *verdict == Verdict::Reference)),
        verdict_reason: match queued {
            _ if cell.trials.is_empty() => "no trial counts".to_owned(),
            [Some(short), _] => format!("past its capacity: {}", past::shortfall_text(&short)),
            [None, Some(_)] => format!("past the capacity of {}", race.header.entrants[0].name),
            [None, None] => reason::reason(judged, measure, &race.header.entrants[0].name),
        },
        level: judged.tests().first().filter(|_| comparable).map(|test| 1.0 - test.alpha),
        shortfall,
        response_ns: quantiles::counted(cell),
        // Of all requests, also where the response times are without those beside stalls.
        service_ns: quantiles(&cell.service, cell.whole.as_ref().map_or(cell.beyond, |whole| whole.beyond)),
        lag_ns: quantiles(&cell.lag, 0),
        typical_p99_ns: comparisons.own(entrant, load, Statistic::TypicalP99).map(|(ns, _)| ns),
        ratio: if comparable { ratios(comparisons, entrant, load) } else { Ratios::default() },
        rps_ratio: if closed { ratio(comparisons, entrant, load, Statistic::Throughput) } else { None },
        carried: carried::carried(cell),
        frames: carried::frames(cell),
        handshakes: carried::handshakes(cell),
        curve: curve(cell),
        cpu_us_per_request: server_us.zip(client_us).map(|(server, client)| server + client),
        server_cpu_us_per_request: server_us,
        server_softirq_share: softirq_share(&server, server.busy_ns()),
        client_cpu_us_per_request: client_us,
        client_softirq_share: softirq_share(&client, client_spent_ns),
        by_cpu: by_cpu::by_cpu(cell),
        cards: card_counts::counts(race, cell, (cells.part(entrant, load).units, cells.units)),
        trials: cell.trials.len() as u64,
        measured_s: cell.measured_s(),
        void_trials: cell.void.len() as u64,
        missing_slices: cell.missing,
        void_reasons: describe::void_reasons(&cell.void),
        missed: cell.sum(|trial| if closed { trial.missed + trial.unexpected } else { trial.unanswered() }),
        among_unanswered: among_unanswered(comparisons, entrant, load).filter(|_| comparable).collect(),
        connection_errors: cell.sum(|trial| trial.connection_errors),
        unexpected: cell.sum(|trial| trial.unexpected),
        counters: cell.counters(),
        stalls: stalls::stalls(race, cells, entrant, load),
        tail: tail::tail(race, entrant, cell),
        // Where as many go as can, percentiles are not of interest; nor are those of queues.
        needs: if closed || !comparable {
            vec![]
        } else {
            needs(cell, comparisons.part(entrant, load).rounds)
        },
        precision: if comparable { precision(race, comparisons, entrant, load) } else { vec![] },
    }
}

/// The statistics without a ratio for requests that have no answer.
fn among_unanswered(
    comparisons: &Comparisons,
    entrant: usize,
    load: usize,
) -> impl Iterator<Item = &'static str> {
    comparisons.among_unanswered(entrant, load).map(|of| comparisons.label(of))
}

/// Points of the curve, eight a decade of what lies beyond, as long as ten samples do.
fn curve(cell: &Cell<'_>) -> Vec<CurvePoint> {
    let all = vec![1; cell.columns.width()];
    let count = cell.columns.count(&all);
    let quantiles = (0..).map(|step| 1.0 - 10_f64.powf(-f64::from(step) / 8.0));
    quantiles
        .take_while(|quantile| count as f64 * (1.0 - quantile) >= Percentile::BEYOND_MIN as f64)
        .map_while(|quantile| {
            let rank = ((count as f64 * quantile).ceil() as u64).max(1);
            cell.columns.at_rank(rank, &all).map(|ns| CurvePoint { quantile, ns })
        })
        .collect()
}

/// So many nanoseconds of a node's CPUs as microseconds a request; `None` where no clock ran, or
/// no request was answered.
fn us_per_request(cpu: &CpuTime, spent_ns: u64, done: f64) -> Option<f64> {
    (done > 0.0 && cpu.all_ns() > 0).then(|| spent_ns as f64 / done / 1e3)
}

/// The share of softirq in what a node's CPUs spent on requests.
fn softirq_share(cpu: &CpuTime, spent_ns: u64) -> Option<f64> {
    (spent_ns > 0).then(|| (cpu.softirq_ns as f64 / spent_ns as f64).min(1.0))
}

/// What the percentiles that are not shown would need.
fn needs(cell: &Cell<'_>, rounds: usize) -> Vec<Need> {
    let count = cell.response.len() + cell.beyond;
    let need = |percentile: &Percentile| {
        let samples = percentile.samples_needed();
        let share = samples as f64 / count as f64;
        Need {
            percentile: percentile.label(),
            samples,
            measured_s: (count > 0).then(|| share * cell.measured_s()),
            rounds: (count > 0).then(|| (share * rounds as f64).ceil() as u64),
        }
    };
    Percentile::LADDER.iter().filter(|percentile| !percentile.is_valid(count)).map(need).collect()
}

fn precision(race: &RaceRecord, comparisons: &Comparisons, entrant: usize, load: usize) -> Vec<Precision> {
    // A race that ends for what it sees has a forecast instead.
    if entrant == 0 || race.header.experiment.until.is_some() {
        return vec![];
    }
    let part = comparisons.part(entrant, load);
    let rounds = part.rounds as f64;
    let entry = |of: Statistic| {
        let half_width_ln = comparisons.spread(entrant, load, of)?.interval(part.alpha()).half_width_ln();
        let units = part.units as u32;
        let times = stats::units_needed(units, half_width_ln, PRECISION.ln_1p(), UNITS_MAX)
            .map(|needed| f64::from(needed) / f64::from(units));
        let wall_s = race.end.as_ref().map(|end| end.wall_s);
        Some(Precision {
            percentile: comparisons.label(of),
            half_width: half_width_ln.exp_m1(),
            rounds: times.map(|times| (times * rounds).ceil() as u64),
            wall_s: times.zip(wall_s).map(|(times, wall_s)| times * wall_s),
        })
    };
    let closed = comparisons.is_closed(load);
    let wanted: &[Statistic] = if closed {
        &[Statistic::Throughput]
    } else {
        &[Statistic::P50, Statistic::TypicalP99, Statistic::P99]
    };
    wanted.iter().copied().filter_map(entry).collect()
}
