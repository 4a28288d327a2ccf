//! The lines of a sweep out of the cells that a race has: of loads, or of candidates that know their place.

use record::{Load, Over, RaceRecord, Statistic, Sweep};
use verdict::Comparisons;

use super::unit;
use crate::sweep::{self, SweepSummary, SweptChart, SweptFigure, SweptLevel, SweptLine, SweptPoint};

/// Rates that were written as the same share are the same to this.
const SAME: f64 = 1e-6;

/// The results of a sweep; `None` without one, or if this hostgap does not know its values.
pub(super) fn swept(race: &RaceRecord, comparisons: &Comparisons) -> Option<SweepSummary> {
    let sweep = race.header.experiment.sweep.as_ref()?;
    let places = sweep.places().ok()?;
    let curves = Curves { race, comparisons, sweep, places };
    let charts = if sweep.over.is_load() { curves.over_loads() } else { curves.over_candidates() };
    Some(SweepSummary {
        over: sweep.over.to_string(),
        unit: sweep::unit(sweep.unit()),
        axis: sweep.unit(),
        charts,
    })
}

/// A record's cells and the axis that they are laid on.
struct Curves<'a> {
    race: &'a RaceRecord,
    comparisons: &'a Comparisons,
    sweep: &'a Sweep,
    places: Vec<f64>,
}

/// What the loads of a chart have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Common {
    body_bytes: Option<u32>,
    requested_rps: Option<f64>,
    of_capacity: Option<f64>,
    closed: bool,
}

impl Curves<'_> {
    /// A chart for each size, or for each rate, whichever is not swept.
    fn over_loads(&self) -> Vec<SweptChart> {
        let mut groups: Vec<(Common, Vec<(f64, usize)>)> = vec![];
        for (index, load) in self.race.loads.iter().enumerate() {
            let Some(value) = self.place(load) else { continue };
            let common = self.common(load, index);
            match groups.iter_mut().find(|(other, _)| *other == common) {
                Some((_, loads)) => loads.push((value, index)),
                None => groups.push((common, vec![(value, index)])),
            }
        }
        let mut charts = vec![];
        for (common, mut loads) in groups {
            loads.sort_by(|a, b| a.0.total_cmp(&b.0));
            for of in drawn(common.closed) {
                let line = |entrant: usize| {
                    let cells = loads.iter().map(|(value, load)| (*value, entrant, *load));
                    SweptLine { name: self.name(entrant), points: self.points(cells, *of) }
                };
                let lines: Vec<SweptLine> = (0..self.race.header.entrants.len()).map(line).collect();
                if is_worth_drawing(*of, &lines) {
                    charts.push(self.chart(common, *of, lines, vec![]));
                }
            }
        }
        charts
    }

    /// A chart for each load.
    fn over_candidates(&self) -> Vec<SweptChart> {
        let lines = self.lines_of_candidates();
        let mut charts = vec![];
        for (index, load) in self.race.loads.iter().enumerate() {
            let closed = self.comparisons.is_closed(index);
            let common = Common {
                body_bytes: Some(load.body_bytes),
                requested_rps: load.rate_per_s,
                of_capacity: load.of_capacity,
                closed,
            };
            for of in drawn(closed) {
                let line = |(name, cells): &(String, Vec<(f64, usize)>)| {
                    let cells = cells.iter().map(|(value, entrant)| (*value, *entrant, index));
                    SweptLine { name: name.clone(), points: self.points(cells, *of) }
                };
                let level = |entrant: usize| {
                    let figure = self.figure(entrant, index, *of)?;
                    Some(SweptLevel { candidate: self.name(entrant), figure })
                };
                let levels = (0..self.race.header.entrants.len().min(2)).filter_map(level).collect();
                let drawn: Vec<SweptLine> = lines.iter().map(line).collect();
                if is_worth_drawing(*of, &drawn) {
                    charts.push(self.chart(common, *of, drawn, levels));
                }
            }
        }
        charts
    }

    /// The candidates of each line, by ascending value; lines are in the order of the experiment.
    fn lines_of_candidates(&self) -> Vec<(String, Vec<(f64, usize)>)> {
        let mut lines: Vec<(String, Vec<(f64, usize)>)> = vec![];
        for candidate in &self.race.header.experiment.candidates {
            let Some(swept) = &candidate.swept else { continue };
            let title = candidate.title();
            let value =
                self.sweep.values.iter().position(|value| *value == swept.at).map(|at| self.places[at]);
            let entrant = self.race.header.entrants.iter().position(|entrant| entrant.name == title);
            let (Some(value), Some(entrant)) = (value, entrant) else { continue };
            match lines.iter_mut().find(|(name, _)| *name == swept.line) {
                Some((_, cells)) => cells.push((value, entrant)),
                None => lines.push((swept.line.clone(), vec![(value, entrant)])),
            }
        }
        for (_, cells) in &mut lines {
            cells.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        lines
    }

    /// The place of a load on the axis; `None` for a load outside the sweep, such as the closed loop beside rates.
    fn place(&self, load: &Load) -> Option<f64> {
        let wanted = match self.sweep.over {
            Over::BodyBytes => f64::from(load.body_bytes),
            // A record has the share and the resulting rate; the axis shows the value that was requested.
            _ => load.of_capacity.map(|share| share * 100.0).or(load.rate_per_s)?,
        };
        self.places.iter().copied().find(|place| (place - wanted).abs() <= SAME * wanted.abs())
    }

    fn common(&self, load: &Load, index: usize) -> Common {
        let closed = self.comparisons.is_closed(index);
        match self.sweep.over {
            Over::BodyBytes => Common {
                body_bytes: None,
                requested_rps: load.rate_per_s.filter(|_| load.of_capacity.is_none()),
                of_capacity: load.of_capacity,
                closed,
            },
            _ => Common { body_bytes: Some(load.body_bytes), requested_rps: None, of_capacity: None, closed },
        }
    }

    fn chart(
        &self,
        common: Common,
        of: Statistic,
        lines: Vec<SweptLine>,
        levels: Vec<SweptLevel>,
    ) -> SweptChart {
        let Common { body_bytes, requested_rps, of_capacity, .. } = common;
        let statistic = self.comparisons.label(of);
        let (unit, _) = unit(of, self.race.header.experiment.workload.kind.measure());
        let lines = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
        SweptChart { body_bytes, requested_rps, of_capacity, statistic, unit, lines, levels }
    }

    fn points(&self, cells: impl Iterator<Item = (f64, usize, usize)>, of: Statistic) -> Vec<SweptPoint> {
        let point = |(value, index, load)| {
            let figure = self.figure(index, load, of)?;
            Some(SweptPoint { candidate: self.name(index), index, value, figure })
        };
        cells.filter_map(point).collect()
    }

    /// A statistic in the unit in which it is shown.
    fn figure(&self, entrant: usize, load: usize, of: Statistic) -> Option<SweptFigure> {
        let (estimate, interval) = self.comparisons.own(entrant, load, of)?;
        let (_, factor) = unit(of, self.race.header.experiment.workload.kind.measure());
        let end = |end: fn(&stats::Interval) -> f64| interval.as_ref().map(|interval| end(interval) * factor);
        Some(SweptFigure { estimate: estimate * factor, low: end(|of| of.low), high: end(|of| of.high) })
    }

    fn name(&self, entrant: usize) -> String {
        self.race.header.entrants[entrant].name.clone()
    }
}

/// What a sweep is drawn of: tails, then medians; where as many go as can, how many went.
fn drawn(closed: bool) -> &'static [Statistic] {
    if closed { &[Statistic::Throughput] } else { &[Statistic::P99, Statistic::TypicalP99, Statistic::P50] }
}

/// Slices of few requests have no typical p99, whatever counts of them: then there is nothing to say of it.
fn is_worth_drawing(of: Statistic, lines: &[SweptLine]) -> bool {
    of != Statistic::TypicalP99 || lines.iter().any(|line| !line.points.is_empty())
}
