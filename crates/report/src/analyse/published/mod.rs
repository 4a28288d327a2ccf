//! Compares published figures with ours.
//!
//! Both sides are ratios to the reference at one load: the published figure to the figure published for the reference,
//! ours to our reference, with its interval. [`rule`] defines agreement.

mod counts;
mod rule;

use std::collections::BTreeMap;

use record::{Metric, Published, RaceRecord, RequestedRate};
use stats::{Random, Resamples, Spread};
use verdict::{Cells, Participation, Shortfall, noise_floor};

use super::measured::OurFigure;
use super::rates::UNITS_MAX;
use crate::figures;
use crate::published::{Agreement, Agreements, PublishedFigure, side};
use crate::quantities::Ratio;

/// What our figures are taken from.
struct Source<'a> {
    race: &'a RaceRecord,
    cells: &'a Cells<'a>,
    /// The same as everywhere in the report, by the number of units.
    resamples: BTreeMap<usize, Resamples>,
    /// Computed once for each candidate, load, metric and number of units.
    known: BTreeMap<(usize, usize, Metric, usize), Result<OurFigure, String>>,
}

/// The comparison of a race with the figures of its experiment.
pub(super) struct Compared {
    /// In the experiment's order.
    pub(super) figures: Vec<PublishedFigure>,
    pub(super) agreements: Agreements,
    /// `None` without comparable published figures.
    pub(super) sentence: Option<String>,
}

/// Compares all published figures of the experiment.
pub(super) fn compared(race: &RaceRecord, cells: &Cells<'_>) -> Compared {
    let figures = figures(race, cells);
    Compared { agreements: counts::agreements(&figures), sentence: counts::sentence(race, &figures), figures }
}

fn figures(race: &RaceRecord, cells: &Cells<'_>) -> Vec<PublishedFigure> {
    let mut source = Source { race, cells, resamples: BTreeMap::new(), known: BTreeMap::new() };
    let all = &race.header.experiment.published;
    all.iter().map(|figure| source.beside(figure, all)).collect()
}

impl Source<'_> {
    fn beside(&mut self, figure: &Published, all: &[Published]) -> PublishedFigure {
        let load = self.load(figure);
        let reference = &self.race.header.entrants[0].name;
        let against = figure.against.as_ref().unwrap_or(reference).clone();
        let mut beside = PublishedFigure {
            path: figure.candidate.clone(),
            what: figure.what.clone(),
            metric: figure.metric.map(Metric::name),
            value: figure.value,
            direction: figure.direction,
            unit: figure.unit.clone(),
            source: figure.source.clone(),
            place: figure.place.clone(),
            key: figure.key.clone(),
            setting: figure.setting.clone(),
            load: load.filter(|_| figure.metric.is_some()),
            ours: None,
            against: against.clone(),
            published_ratio: None,
            ratio: None,
            agreement: Agreement::Shown,
            reason: String::new(),
            brief: String::new(),
            rounds_needed: None,
        };
        let Some(metric) = figure.metric else { return beside };
        let entrants = [self.entrant(&figure.candidate), self.entrant(&against)];
        let is_divisor = figure.candidate == against || divides(figure, all);
        if !is_divisor {
            beside.published_ratio = published_ratio(figure, &against, all);
        }
        if let (Ok(entrant), Some(load)) = (&entrants[0], load) {
            let units = self.cells.part(*entrant, load).units;
            let known = self.known(*entrant, load, metric, units).as_ref().ok();
            beside.ours = known.zip(figure.scale()).map(|(ours, scale)| ours.value / scale);
        }
        if let ([Ok(entrant), Ok(against)], Some(load), false) = (&entrants, load, is_divisor)
            && [entrant, against].iter().all(|one| self.incomparable(**one, load, metric).is_none())
        {
            beside.ratio = self.ratio([*entrant, *against], load, metric);
        }
        if is_divisor {
            beside.agreement = Agreement::Reference;
            beside.reason = "the others are divided by it".to_owned();
        } else if !figure.not_comparable.is_empty() {
            (beside.agreement, beside.reason) = (Agreement::NotComparable, figure.not_comparable.clone());
        } else if let Some(why) = self.obstacle(&beside, entrants, metric) {
            (beside.agreement, beside.reason) = (Agreement::NotComparable, why);
        } else {
            self.judge(&mut beside, metric);
        }
        beside
    }

    /// Why the two ratios cannot be compared, if they cannot.
    fn obstacle(
        &mut self,
        beside: &PublishedFigure,
        entrants: [Result<usize, String>; 2],
        metric: Metric,
    ) -> Option<String> {
        let entrants: Vec<usize> = match entrants.into_iter().collect() {
            Ok(entrants) => entrants,
            Err(why) => return Some(why),
        };
        let Some(load) = beside.load else { return Some("this load was not raced".to_owned()) };
        if beside.published_ratio.is_none() && beside.direction.is_none() {
            return Some(format!(
                "no figure of {} is published for this load to divide it by",
                beside.against
            ));
        }
        for entrant in &entrants {
            if let Some(why) = self.incomparable(*entrant, load, metric) {
                return Some(why);
            }
        }
        for entrant in entrants {
            let name = self.race.header.entrants[entrant].name.clone();
            let units = self.cells.part(entrant, load).units;
            if let Err(why) = self.known(entrant, load, metric, units) {
                return Some(format!("{why}, {name}"));
            }
        }
        if beside.ratio.is_none() {
            return Some(OurFigure::without_interval(metric, self.cells.units));
        }
        // A ratio without its noise says nothing: any difference would be one.
        self.floor(load, metric).is_none().then(|| {
            format!(
                "{} has no ratio to itself here, so the noise is not known",
                self.race.header.entrants[0].name
            )
        })
    }

    /// Why no figure of a candidate can be compared, or none of its latencies, as everywhere in the report.
    fn incomparable(&self, entrant: usize, load: usize, metric: Metric) -> Option<String> {
        let name = &self.race.header.entrants[entrant].name;
        if self.cells.broke[entrant] {
            return Some(format!("{name} broke, and raced in only some of the rounds"));
        }
        let short = Shortfall::of(self.race, self.cells, entrant, load).filter(|short| short.queued);
        let waits = short.filter(|_| is_of_times(metric))?;
        Some(format!(
            "this load is past the capacity of {name}: {} of it was answered in time, and the latencies are those of a \
             growing queue",
            figures::percent(waits.in_time)
        ))
    }

    /// What the control is off by in the logarithm; `None` without a control, or if it has no such figure.
    fn floor(&mut self, load: usize, metric: Metric) -> Option<f64> {
        if self.cells.entrants < 2 || self.cells.broke[0] || self.cells.broke[1] {
            return None;
        }
        self.spread([1, 0], load, metric).map(|spread| noise_floor(&spread))
    }

    /// Both ratios are there, or a direction and ours.
    fn judge(&mut self, beside: &mut PublishedFigure, metric: Metric) {
        let (Some(ratio), Some(load)) = (beside.ratio, beside.load) else { return };
        let Some(floor) = self.floor(load, metric) else { return };
        let ours = rule::OurRatio { ratio: &ratio, floor };
        let judged = match (beside.direction, beside.published_ratio) {
            (Some(direction), _) => rule::direction(direction, ours),
            (None, Some(theirs)) => rule::size(&theirs, ours),
            (None, None) => return,
        };
        let wanted = judged.resolution_wanted;
        beside.rounds_needed = wanted.and_then(|wanted| self.rounds_needed(ours.resolution(), wanted));
        beside.brief = judged.why;
        if let Some(rounds) = beside.rounds_needed {
            beside.brief.push_str(&format!("; about {rounds} rounds would decide it"));
        }
        beside.reason = ratios_and_noise(beside, &ratio, floor);
        if !beside.brief.is_empty() {
            beside.reason.push_str(&format!(": {}", beside.brief));
        }
        beside.agreement = judged.agreement;
    }

    /// The rounds, on proportionally more builds, that would give a resolution; `None` if it is already reached, or
    /// takes an impractical number.
    fn rounds_needed(&self, resolution: f64, wanted: f64) -> Option<u64> {
        let units = u32::try_from(self.cells.units).ok().filter(|units| *units >= 2)?;
        let needed =
            stats::units_needed(units, resolution, wanted, UNITS_MAX).filter(|needed| *needed > units)?;
        let rounds = self.race.rounds.len() as f64 * f64::from(needed) / f64::from(units);
        Some(rounds.ceil() as u64)
    }

    fn known(
        &mut self,
        entrant: usize,
        load: usize,
        metric: Metric,
        units: usize,
    ) -> &Result<OurFigure, String> {
        let (cells, seed) = (self.cells, self.race.header.seed);
        let resamples = self.resamples.entry(units).or_insert_with(|| {
            Resamples::draw_first(units, cells.units, Resamples::COUNT, &mut Random::from_seed(seed))
        });
        self.known
            .entry((entrant, load, metric, units))
            .or_insert_with(|| OurFigure::of(cells.cell(entrant, load), metric, resamples))
    }

    /// The ratio of our figures of two candidates.
    fn ratio(&mut self, entrants: [usize; 2], load: usize, metric: Metric) -> Option<Ratio> {
        let spread = self.spread(entrants, load, metric)?;
        let alphas = entrants.map(|entrant| self.cells.part(entrant, load)).map(Participation::alpha);
        let interval = spread.interval(alphas[0].min(alphas[1]));
        Some(Ratio { value: interval.value, low: interval.low, high: interval.high })
    }

    /// The scatter of that ratio, over the units that both have.
    fn spread(&mut self, entrants: [usize; 2], load: usize, metric: Metric) -> Option<Spread> {
        let units = entrants.map(|entrant| self.cells.part(entrant, load).units);
        let units = units[0].min(units[1]);
        for entrant in entrants {
            let _computed = self.known(entrant, load, metric, units);
        }
        let of = |entrant: usize| self.known.get(&(entrant, load, metric, units))?.as_ref().ok();
        let [above, below] = entrants.map(of);
        let (above, below) = (above?, below?);
        let resampled =
            above.resampled.iter().zip(&below.resampled).map(|(above, below)| Some((*above)? / (*below)?));
        let [own, other] = entrants.map(|entrant| self.cells.cell(entrant, load));
        Spread::new(above.value / below.value, resampled, own.units_with(other, units))
    }

    /// The place of a candidate that raced; otherwise why it is not there.
    fn entrant(&self, name: &str) -> Result<usize, String> {
        let entrants = &self.race.header.entrants;
        let Some(place) = entrants.iter().position(|entrant| entrant.name == name) else {
            return Err(format!("{name} was not in this race"));
        };
        match entrants[place].unmet.as_slice() {
            [] => Ok(place),
            unmet => Err(format!("{name} cannot run here: {}", unmet.join("; "))),
        }
    }

    /// The load of ours that a figure belongs to.
    fn load(&self, figure: &Published) -> Option<usize> {
        let loads = &self.race.loads;
        let body_bytes = figure.body_bytes.or_else(|| loads.first().map(|load| load.body_bytes))?;
        loads.iter().position(|load| {
            load.body_bytes == body_bytes
                && match figure.rate {
                    None => load.rate_per_s.is_none(),
                    Some(RequestedRate::OfCapacity(share)) => load.of_capacity == Some(share),
                    Some(RequestedRate::PerSecond(rate)) => {
                        load.of_capacity.is_none() && load.rate_per_s == Some(rate)
                    }
                }
        })
    }
}

/// Whether a metric is of response times, which a queue makes as long as the load lasts.
fn is_of_times(metric: Metric) -> bool {
    match metric {
        Metric::P50
        | Metric::P90
        | Metric::P95
        | Metric::P99
        | Metric::P99_5
        | Metric::P99_9
        | Metric::P99_99
        | Metric::P99_999
        | Metric::Max
        | Metric::Mean => true,
        Metric::Requests
        | Metric::Bandwidth
        | Metric::Packets
        | Metric::Loss
        | Metric::CpuSoftirq
        | Metric::CpuSoftirqMax => false,
    }
}

/// The published figure ÷ that of another candidate in the same place, and between what the two can lie before they are
/// rounded. What was published as a ratio is one.
fn published_ratio(figure: &Published, against: &str, all: &[Published]) -> Option<Ratio> {
    let value = figure.value?;
    let open = figure.rounded_to.unwrap_or(0.0) / 2.0;
    if figure.is_ratio() {
        return valid(Ratio { value, low: value - open, high: value + open });
    }
    let is_below =
        |other: &&Published| other.candidate == against && is_divisible(other) && same_place(other, figure);
    let below = all.iter().find(is_below)?;
    let in_base = |of: &Published| {
        let scale = of.scale().unwrap_or(1.0);
        Some((of.value? * scale, of.rounded_to.unwrap_or(0.0) / 2.0 * scale))
    };
    let ((above, above_open), (below, below_open)) = (in_base(figure)?, in_base(below)?);
    let low = (above - above_open) / (below + below_open);
    let high = (above + above_open) / (below - below_open);
    valid(Ratio { value: above / below, low, high })
}

/// Whether a figure only serves as a divisor of others.
fn divides(figure: &Published, all: &[Published]) -> bool {
    let by_it = |other: &Published| {
        other.against.as_ref() == Some(&figure.candidate) && is_divisible(other) && same_place(other, figure)
    };
    figure.against.is_none() && is_divisible(figure) && all.iter().any(by_it)
}

/// Whether it is a figure of one candidate, and not a ratio of two or no more than its direction.
fn is_divisible(figure: &Published) -> bool {
    !figure.is_ratio() && figure.direction.is_none()
}

/// Whether two figures are of the same load and kind, by the same author.
fn same_place(one: &Published, other: &Published) -> bool {
    let of = |figure: &Published| (figure.metric, figure.rate, figure.body_bytes);
    of(one) == of(other) && one.source == other.source
}

/// The ratio, if all of it has a logarithm.
fn valid(ratio: Ratio) -> Option<Ratio> {
    let parts = [ratio.value, ratio.low, ratio.high];
    parts.iter().all(|part| part.is_finite() && *part > 0.0).then_some(ratio)
}

/// The two ratios and the noise.
fn ratios_and_noise(beside: &PublishedFigure, ours: &Ratio, floor: f64) -> String {
    let mut text = match (beside.direction, beside.published_ratio) {
        (Some(direction), _) => format!("published {}", side(direction)),
        (None, Some(theirs)) if format!("{:.2}", theirs.low) != format!("{:.2}", theirs.high) => format!(
            "published × {} ({:.2} to {:.2} by rounding)",
            figures::trimmed(theirs.value, 2),
            theirs.low,
            theirs.high
        ),
        (None, theirs) => {
            format!("published × {}", figures::trimmed(theirs.map_or(f64::NAN, |theirs| theirs.value), 2))
        }
    };
    text.push_str(&format!(", ours × {:.2} ({:.2} to {:.2})", ours.value, ours.low, ours.high));
    text.push_str(&format!(", noise {}", figures::noise(floor.exp_m1())));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(candidate: &str, value: f64) -> Published {
        let figure = serde_json::json!({
            "path": candidate, "value": value, "metric": "p95", "unit": "ms", "rounded_to": 0.1, "source": "x"
        });
        serde_json::from_value(figure).unwrap()
    }

    #[test]
    fn rounding_leaves_a_published_ratio_open() {
        let all = [figure("host", 0.5), figure("a", 0.7), figure("b", 0.01)];
        let ratio = published_ratio(&all[1], "host", &all).unwrap();
        assert!((ratio.value - 1.4).abs() < 1e-9, "{ratio:?}");
        assert!(
            (ratio.low - 0.65 / 0.55).abs() < 1e-9 && (ratio.high - 0.75 / 0.45).abs() < 1e-9,
            "{ratio:?}"
        );
        assert_eq!(published_ratio(&all[1], "absent", &all), None);
        assert_eq!(published_ratio(&all[2], "host", &all), None, "it may be nothing at all");
    }
}
