//! The load by which a race is summed up, and its contenders in order there.
//!
//! Those that are worse than the reference stand in the order of what they cost: last those that are worse by the
//! requests that they leave without an answer, the others each by the greatest of the ratios that are known to be
//! worse. One whose median is better and whose p99 is a hundred times the reference's costs more than one whose median
//! is a twentieth longer.

use std::collections::BTreeSet;

use record::{Load, RaceRecord, Statistic, TrialRecord};
use stats::Interval;

use crate::{Cells, Compared, Comparisons, Judgement, Shortfall, Verdict};

/// The load at which candidates are compared in a summary, and for whom the usual one is too much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedAt {
    /// The load that a race is summed up by: the last load of the first body size that has a rate. Where a service
    /// should not be loaded more, the paths differ most.
    pub main: usize,
    /// The entrants that are past their capacity there.
    pub past: Vec<Past>,
    /// The entrants that were tried there and of which every trial is void, in all of the races.
    pub uncounted: Vec<usize>,
    /// The load at which they are compared: the main one if no entrant is past its capacity or uncounted there, else
    /// the highest lower rate of the same size that all carry, else the closed loop, in which none gets more than it
    /// can carry. Without such a load it is `None` if an entrant is past its capacity, else the main one, without
    /// those that are uncounted.
    pub load: Option<usize>,
}

/// An entrant that is past its capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Past {
    /// In which of several races.
    pub race: usize,
    /// The entrant's index there.
    pub entrant: usize,
}

/// A race with its cells.
type Raced<'a> = (&'a RaceRecord, &'a Cells<'a>);

impl ComparedAt {
    /// Of a race, or of several with the same entrants and loads. `None` before anything was raced.
    pub fn of(races: &[Raced<'_>]) -> Option<ComparedAt> {
        let loads = races.iter().map(|(race, _)| &race.loads).find(|loads| !loads.is_empty())?;
        let main = main_load(loads)?;
        let past_in = |(index, raced): (usize, &Raced<'_>)| {
            let past = compared(*raced).filter(|entrant| is_past(*raced, *entrant, main));
            past.map(|entrant| Past { race: index, entrant }).collect::<Vec<_>>()
        };
        let past: Vec<Past> = races.iter().enumerate().flat_map(past_in).collect();
        // A race that ended before it came to a load says nothing of it, but some race must.
        let entrants: BTreeSet<usize> = races.iter().flat_map(|raced| compared(*raced)).collect();
        let is_counted =
            |entrant: usize, load: usize| races.iter().any(|raced| has_trials(*raced, entrant, load));
        let was_tried =
            |entrant: usize| races.iter().any(|(_, cells)| !void_trials(cells, entrant, main).is_empty());
        let uncounted: Vec<usize> = entrants
            .iter()
            .copied()
            .filter(|entrant| was_tried(*entrant) && !is_counted(*entrant, main))
            .collect();
        let is_carried = |load: usize| {
            entrants.iter().all(|entrant| {
                is_counted(*entrant, load) && races.iter().all(|raced| !is_past(*raced, *entrant, load))
            })
        };
        let load = match (past.as_slice(), uncounted.as_slice()) {
            ([], []) => Some(main),
            ([], _) => lower(loads, main, is_carried, is_carried).or(Some(main)),
            _ => lower(loads, main, is_carried, |_| true),
        };
        Some(ComparedAt { main, past, uncounted, load })
    }
}

fn main_load(loads: &[Load]) -> Option<usize> {
    let body = loads.first()?.body_bytes;
    let of_body = || loads.iter().enumerate().filter(|(_, load)| load.body_bytes == body);
    let rated = of_body().rfind(|(_, load)| load.rate_per_s.is_some());
    rated.or_else(|| of_body().next_back()).map(|(index, _)| index)
}

/// The highest rate below the main load's that is carried, else the closed loop if that will do.
fn lower(
    loads: &[Load],
    main: usize,
    is_carried: impl Fn(usize) -> bool,
    will_do: impl Fn(usize) -> bool,
) -> Option<usize> {
    let body = loads[main].body_bytes;
    let of_body = || loads.iter().enumerate().filter(|(_, load)| load.body_bytes == body);
    let carried = of_body()
        .filter_map(|(index, load)| Some((index, load.rate_per_s?)))
        .filter(|(index, rate)| Some(*rate) < loads[main].rate_per_s && is_carried(*index))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let closed = || of_body().find(|(index, load)| load.rate_per_s.is_none() && will_do(*index));
    carried.map(|(index, _)| index).or_else(|| closed().map(|(index, _)| index))
}

/// All that could run but the control, which is the reference once more, and entrants that broke, which
/// are compared with nothing.
fn compared<'a>((race, cells): Raced<'a>) -> impl Iterator<Item = usize> + 'a {
    let entrants = race.header.entrants.iter().enumerate();
    let able =
        entrants.filter(|(entrant, one)| *entrant != 1 && one.unmet.is_empty() && !cells.broke[*entrant]);
    able.map(|(entrant, _)| entrant)
}

fn has_trials((race, cells): Raced<'_>, entrant: usize, load: usize) -> bool {
    race.loads.len() > load && !cells.cell(entrant, load).trials.is_empty()
}

fn void_trials<'a>(cells: &'a Cells<'_>, entrant: usize, load: usize) -> &'a [&'a TrialRecord] {
    if cells.loads() > load { &cells.cell(entrant, load).void } else { &[] }
}

fn is_past((race, cells): Raced<'_>, entrant: usize, load: usize) -> bool {
    has_trials((race, cells), entrant, load)
        && Shortfall::of(race, cells, entrant, load).is_some_and(|short| short.queued)
}

/// A contender that was judged at a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranked {
    /// Its index among the entrants.
    pub entrant: usize,
    /// The ratio of the load's headline to the reference's ([`Comparisons::headline`]).
    pub ratio: Interval,
    /// The verdict on it against the reference.
    pub verdict: Verdict,
    /// What says the same as the verdict beside the headline: of the tails that do the one with the narrower interval,
    /// since where a few slices of a race were slow, p99 of all of them is anything from twice to a thousand times the
    /// reference's, and that of a typical slice is known. Where neither headline nor tail does, what decided.
    pub tail: Option<(Statistic, Interval)>,
    /// Where the verdict is by requests without an answer: the share of its requests that have
    /// none, and the reference's.
    pub unanswered: Option<[f64; 2]>,
}

/// The contenders that were judged, the best first: those that beat the reference, those that cannot be distinguished
/// from it, those that are worse. The first two are each in the order of their headline's ratio, and those that are
/// worse in the order of what they cost. Who has no verdict has no place.
pub fn ranking(comparisons: &Comparisons, entrants: usize, load: usize) -> Vec<Ranked> {
    let of = comparisons.headline(load);
    let ranked = |entrant: usize| {
        let ratio = comparisons.interval(entrant, load, of)?;
        let judged = comparisons.judged(entrant, load);
        let verdict = judged.verdict()?;
        let tail = tail(judged, verdict, of, |tail| comparisons.interval(entrant, load, tail));
        let unanswered = judged.decisive().and_then(|decisive| match decisive.compared {
            Compared::Figures => None,
            Compared::Answered { shares, .. } => Some(shares.map(|share| 1.0 - share)),
        });
        let ranked = Ranked { entrant, ratio, verdict, tail, unanswered };
        let order = match verdict {
            Verdict::Worse => ranked.cost(judged, of),
            _ if of == Statistic::Throughput => -ratio.value.ln(),
            _ => ratio.value.ln(),
        };
        Some((ranked, order))
    };
    let mut field: Vec<(Ranked, f64)> = (2..entrants).filter_map(ranked).collect();
    field.sort_by(|(a, a_order), (b, b_order)| {
        let [a_lost, b_lost] = [a, b].map(Ranked::lost);
        let place = place(a.verdict).cmp(&place(b.verdict));
        place.then(a_lost.total_cmp(&b_lost)).then(a_order.total_cmp(b_order))
    });
    field.into_iter().map(|(ranked, _)| ranked).collect()
}

impl Ranked {
    /// The share of its requests without an answer, if it is worse by it: that costs more than any answer that is late.
    fn lost(&self) -> f64 {
        match self.unanswered {
            Some([own, _]) if self.verdict == Verdict::Worse => own,
            _ => 0.0,
        }
    }

    /// The greatest of the ratios that are known to be worse, as a distance from 1 in the logarithm.
    fn cost(&self, judged: &Judgement, of: Statistic) -> f64 {
        let headline = (judged.by(of) == Some(self.verdict)).then_some(self.ratio);
        let known = headline.into_iter().chain(self.tail.map(|(_, interval)| interval));
        known.map(|interval| interval.value.ln().abs()).fold(0.0, f64::max)
    }
}

/// See [`Ranked::tail`].
fn tail(
    judged: &Judgement,
    verdict: Verdict,
    headline: Statistic,
    interval: impl Fn(Statistic) -> Option<Interval>,
) -> Option<(Statistic, Interval)> {
    let agrees = |of: &Statistic| judged.by(*of) == Some(verdict);
    let known = |of: Statistic| Some((of, interval(of)?));
    let tails = [Statistic::P99, Statistic::TypicalP99].into_iter();
    tails
        .filter(|of| headline == Statistic::P50 && agrees(of))
        .filter_map(known)
        .min_by(|a, b| a.1.half_width_ln().total_cmp(&b.1.half_width_ln()))
        .or_else(|| {
            let decisive =
                judged.decisive().filter(|decisive| decisive.of != headline && !agrees(&headline))?;
            known(decisive.of)
        })
}

fn place(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Better => 0,
        Verdict::Reference | Verdict::Indistinguishable => 1,
        Verdict::Worse => 2,
    }
}
