//! Published figures beside ours.
//!
//! What is compared is the ratio to the reference at the same load: theirs to the figure that they published for the
//! reference, ours to our reference, with its interval.

use std::collections::BTreeMap;

use record::{Metric, Published, Race, Rate};
use stats::{Random, Resamples, Spread};

use super::compare::noise_floor;
use super::merged::Cells;
use super::ours::Ours;
use crate::figures;
use crate::published::{Agreement, PublishedFigure};
use crate::summary::Ratio;

/// What our figures are taken from.
struct Source<'a> {
    race: &'a Race,
    cells: &'a Cells<'a>,
    resamples: Resamples,
    /// Computed once for each candidate, load and metric.
    known: BTreeMap<(usize, usize, Metric), Result<Ours, String>>,
}

/// All figures that the experiment brought, in its order.
pub(super) fn figures(race: &Race, cells: &Cells<'_>) -> Vec<PublishedFigure> {
    // The same resamples as everywhere in the report.
    let mut random = Random::from_seed(race.header.seed);
    let resamples = Resamples::draw(cells.units, Resamples::COUNT, &mut random);
    let mut source = Source { race, cells, resamples, known: BTreeMap::new() };
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
            unit: figure.unit.clone(),
            source: figure.source.clone(),
            setting: figure.setting.clone(),
            load: load.filter(|_| figure.metric.is_some()),
            ours: None,
            against: against.clone(),
            published_ratio: None,
            ratio: None,
            agreement: Agreement::Shown,
            reason: String::new(),
        };
        let Some(metric) = figure.metric else { return beside };
        let entrants = [self.entrant(&figure.candidate), self.entrant(&against)];
        let is_divisor = figure.candidate == against || divides(figure, all);
        if !is_divisor {
            beside.published_ratio = published_ratio(figure, &against, all);
        }
        if let (Ok(entrant), Some(load)) = (&entrants[0], load) {
            let known = self.known(*entrant, load, metric).as_ref().ok();
            beside.ours = known.zip(figure.scale()).map(|(ours, scale)| ours.value / scale);
        }
        if let ([Ok(entrant), Ok(against)], Some(load), false) = (&entrants, load, is_divisor) {
            beside.ratio = self.ratio([*entrant, *against], load, metric).map(|spread| ratio(&spread));
        }
        (beside.agreement, beside.reason) = if is_divisor {
            (Agreement::Reference, "others are divided by it".to_owned())
        } else {
            match self.obstacle(&beside, entrants, metric) {
                Some(why) => (Agreement::NotComparable, why),
                None => self.judged(&beside, metric),
            }
        };
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
        let Some(load) = beside.load else { return Some("no such load was raced".to_owned()) };
        if beside.published_ratio.is_none() {
            return Some(format!(
                "no figure of {} to divide it by is published for this load",
                beside.against
            ));
        }
        for entrant in entrants {
            let name = self.race.header.entrants[entrant].name.clone();
            if let Err(why) = self.known(entrant, load, metric) {
                return Some(format!("{why}, {name}"));
            }
        }
        beside.ratio.is_none().then(|| Ours::without_interval(metric, self.cells.units))
    }

    /// Both ratios are there.
    fn judged(&mut self, beside: &PublishedFigure, metric: Metric) -> (Agreement, String) {
        let (Some(theirs), Some(ours), Some(load)) = (beside.published_ratio, beside.ratio, beside.load)
        else {
            return (Agreement::NotComparable, "a ratio is missing".to_owned());
        };
        // Against the control: what the race cannot tell from nothing.
        let floor = self.ratio([1, 0], load, metric).map_or(0.0, |spread| noise_floor(&spread));
        (agreement(&theirs, &ours, floor), told(&theirs, &ours, floor))
    }

    fn known(&mut self, entrant: usize, load: usize, metric: Metric) -> &Result<Ours, String> {
        let (cells, resamples) = (self.cells, &self.resamples);
        self.known
            .entry((entrant, load, metric))
            .or_insert_with(|| Ours::of(cells.cell(entrant, load), metric, resamples))
    }

    /// The ratio of our figures of two candidates.
    fn ratio(&mut self, entrants: [usize; 2], load: usize, metric: Metric) -> Option<Spread> {
        for entrant in entrants {
            let _computed = self.known(entrant, load, metric);
        }
        let of = |entrant: usize| self.known.get(&(entrant, load, metric))?.as_ref().ok();
        let [above, below] = entrants.map(of);
        let (above, below) = (above?, below?);
        let resampled =
            above.resampled.iter().zip(&below.resampled).map(|(above, below)| Some((*above)? / (*below)?));
        Spread::new(above.value / below.value, resampled, self.cells.units)
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
                    Some(Rate::OfCapacity(share)) => load.of_capacity == Some(share),
                    Some(Rate::PerSecond(rate)) => {
                        load.of_capacity.is_none() && load.rate_per_s == Some(rate)
                    }
                }
        })
    }
}

/// The published figure ÷ that of another candidate in the same place, and between what the two can lie before they are
/// rounded. What was published as a ratio is one.
fn published_ratio(figure: &Published, against: &str, all: &[Published]) -> Option<Ratio> {
    let open = figure.rounded_to.unwrap_or(0.0) / 2.0;
    if figure.is_ratio() {
        return valid(Ratio { value: figure.value, low: figure.value - open, high: figure.value + open });
    }
    let is_below =
        |other: &&Published| other.candidate == against && !other.is_ratio() && same_place(other, figure);
    let below = all.iter().find(is_below)?;
    let in_base = |of: &Published| {
        let scale = of.scale().unwrap_or(1.0);
        (of.value * scale, of.rounded_to.unwrap_or(0.0) / 2.0 * scale)
    };
    let ((above, above_open), (below, below_open)) = (in_base(figure), in_base(below));
    let low = (above - above_open) / (below + below_open);
    let high = (above + above_open) / (below - below_open);
    valid(Ratio { value: above / below, low, high })
}

/// Whether a figure is there for others to be divided by, and is itself divided by nothing.
fn divides(figure: &Published, all: &[Published]) -> bool {
    let by_it = |other: &Published| {
        other.against.as_ref() == Some(&figure.candidate) && !other.is_ratio() && same_place(other, figure)
    };
    figure.against.is_none() && all.iter().any(by_it)
}

/// Whether two figures are of the same load and kind, by the same author.
fn same_place(one: &Published, other: &Published) -> bool {
    let of = |figure: &Published| (figure.metric, figure.rate, figure.body_bytes);
    of(one) == of(other) && one.source == other.source
}

/// A ratio that has a logarithm, all of it.
fn valid(ratio: Ratio) -> Option<Ratio> {
    let parts = [ratio.value, ratio.low, ratio.high];
    parts.iter().all(|part| part.is_finite() && *part > 0.0).then_some(ratio)
}

fn ratio(spread: &Spread) -> Ratio {
    let interval = spread.interval(0.05);
    Ratio { value: interval.value, low: interval.low, high: interval.high }
}

/// How a published ratio and ours stand to each other. `floor` is what ours must differ by to be more than noise, in
/// the logarithm.
fn agreement(theirs: &Ratio, ours: &Ratio, floor: f64) -> Agreement {
    let meet = theirs.low <= ours.high && ours.low <= theirs.high;
    let near = meet || (theirs.value / ours.value).ln().abs() <= floor;
    let ours_way = if ours.value.ln().abs() <= floor { 0 } else { way(ours) };
    match (near, way(theirs), ours_way) {
        // An interval that holds the published difference and none at all says nothing about it.
        (true, -1 | 1, 0) => Agreement::Undecided,
        (true, _, _) => Agreement::Agrees,
        (false, -1, -1) | (false, 1, 1) => Agreement::SameDirection,
        (false, _, _) => Agreement::Contradicts,
    }
}

/// 1: above 1, −1: below, 0: it may be 1.
fn way(ratio: &Ratio) -> i8 {
    i8::from(ratio.low > 1.0) - i8::from(ratio.high < 1.0)
}

fn told(theirs: &Ratio, ours: &Ratio, floor: f64) -> String {
    let mut text = format!("published × {}", figures::trimmed(theirs.value, 2));
    if theirs.low < theirs.high {
        text.push_str(&format!(" ({:.2} to {:.2} by rounding)", theirs.low, theirs.high));
    }
    text.push_str(&format!(", ours × {:.2} ({:.2} to {:.2})", ours.value, ours.low, ours.high));
    if floor > 0.0 {
        text.push_str(&format!(", noise ±{}", figures::percent(floor.exp_m1())));
    }
    text
}

/// How many of the comparisons agree, and the largest disagreements. `None` where nothing comparable was published.
pub(super) fn sentence(race: &Race, figures: &[PublishedFigure]) -> Option<String> {
    let comparisons: Vec<&PublishedFigure> = figures.iter().filter(|figure| figure.is_comparison()).collect();
    if comparisons.is_empty() {
        return None;
    }
    let count = |of| comparisons.iter().filter(|figure| figure.agreement == of).count() as u64;
    let verb = |count: u64, one: &'static str, more: &'static str| {
        format!("{count} {}", if count == 1 { one } else { more })
    };
    let mut text = format!(
        "Of {}: {}, {}, {}",
        figures::counted(comparisons.len() as u64, "published comparison"),
        verb(count(Agreement::Agrees), "agrees", "agree"),
        verb(
            count(Agreement::SameDirection),
            "has the same direction and another size",
            "have the same direction and another size"
        ),
        verb(count(Agreement::Contradicts), "contradicts", "contradict"),
    );
    match count(Agreement::Undecided) {
        0 => {}
        open => text.push_str(&format!(", {}", verb(open, "is undecided", "are undecided"))),
    }
    match count(Agreement::NotComparable) {
        0 => {}
        not => text.push_str(&format!(", {} be made here", verb(not, "cannot", "cannot"))),
    }
    text.push('.');
    let largest = largest(race, &comparisons);
    if !largest.is_empty() {
        text.push_str(&format!(" Farthest apart: {}.", largest.join("; ")));
    }
    Some(text)
}

/// The disagreements that are farthest apart.
const LARGEST: usize = 3;

fn largest(race: &Race, comparisons: &[&PublishedFigure]) -> Vec<String> {
    let apart = |figure: &&PublishedFigure| {
        let disagrees = matches!(figure.agreement, Agreement::SameDirection | Agreement::Contradicts);
        let (theirs, ours) = (figure.published_ratio?, figure.ratio?);
        disagrees.then(|| (theirs.value / ours.value).ln().abs())
    };
    let mut far: Vec<(f64, &PublishedFigure)> =
        comparisons.iter().filter_map(|figure| Some((apart(figure)?, *figure))).collect();
    far.sort_by(|a, b| b.0.total_cmp(&a.0));
    far.truncate(LARGEST);
    far.iter()
        .map(|(_, figure)| {
            let load = figure.load.map_or_else(String::new, |load| {
                format!(" with {}", figures::load(&super::load(race, &race.loads[load])))
            });
            let (metric, reason) = (figure.metric.unwrap_or_default(), &figure.reason);
            format!("{} {metric}{load}, {reason}", figure.path)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(theirs: [f64; 3], ours: [f64; 3], floor: f64, expected: Agreement) {
        let [theirs, ours] = [theirs, ours].map(|[value, low, high]| Ratio { value, low, high });
        assert_eq!(agreement(&theirs, &ours, floor), expected);
    }

    #[test]
    fn ratios_agree_within_the_interval_or_the_noise() {
        check([1.4, 1.4, 1.4], [1.3, 1.2, 1.5], 0.0, Agreement::Agrees);
        check([1.4, 1.18, 1.67], [1.1, 1.05, 1.2], 0.0, Agreement::Agrees);
        check([1.4, 1.4, 1.4], [1.3, 1.28, 1.32], 0.08, Agreement::Agrees);
        check([1.4, 1.4, 1.4], [1.3, 1.28, 1.32], 0.02, Agreement::SameDirection);
    }

    #[test]
    fn what_may_be_anything_agrees_with_nothing() {
        check([1.8, 1.6, 2.0], [2.2, 0.2, 35.0], 0.0, Agreement::Undecided);
        check([1.2, 1.2, 1.2], [1.1, 1.05, 1.15], 0.4, Agreement::Undecided);
        // Nor is there a difference in theirs.
        check([1.0, 0.9, 1.1], [1.05, 0.95, 1.15], 0.0, Agreement::Agrees);
    }

    #[test]
    fn ratios_on_one_side_have_one_direction() {
        check([2.0, 1.8, 2.2], [1.2, 1.1, 1.3], 0.01, Agreement::SameDirection);
        check([0.5, 0.5, 0.5], [0.8, 0.7, 0.9], 0.01, Agreement::SameDirection);
        check([0.5, 0.5, 0.5], [1.2, 1.1, 1.3], 0.01, Agreement::Contradicts);
    }

    #[test]
    fn a_difference_against_none_contradicts() {
        // We find none where they found one, and the other way round.
        check([1.5, 1.4, 1.6], [1.01, 0.97, 1.05], 0.01, Agreement::Contradicts);
        check([1.5, 1.4, 1.6], [1.04, 1.03, 1.05], 0.05, Agreement::Contradicts);
        check([1.0, 0.97, 1.03], [1.2, 1.1, 1.3], 0.01, Agreement::Contradicts);
    }

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
        assert_eq!(published_ratio(&all[1], "nobody", &all), None);
        assert_eq!(published_ratio(&all[2], "host", &all), None, "it may be nothing at all");
    }
}
