//! The figures of all pairs with their resamples, and the middles of some of them.

use std::collections::{BTreeMap, BTreeSet};

use record::Statistic;
use stats::{Random, Resamples, median};

use super::{PairsCompared, Raced};
use crate::contrast::Contrast;
use crate::samples::Samples;

/// Which of several figures stands for all.
#[derive(Debug, Clone, Copy)]
pub(super) enum Middle {
    /// The median: between two in the middle it is theirs.
    Between,
    /// The median on the side of the better figures, where the middle lies between two.
    Better,
}

/// By pair, entrant, statistic and units.
#[derive(Default)]
pub(super) struct Figures {
    of: BTreeMap<(usize, usize, usize, usize), Samples>,
    /// The shares of requests that have an answer, by pair, entrant and units.
    answered: BTreeMap<(usize, usize, usize), Samples>,
}

impl Figures {
    pub(super) fn of(compared: &PairsCompared<'_>, seed: u64) -> Figures {
        let widths: BTreeSet<usize> = compared.raced.iter().map(|raced| raced.units).collect();
        let mut figures = Figures::default();
        for units in widths {
            for (pair, entrant, of) in compared.tested() {
                if compared.units(pair, entrant).is_none_or(|own| own < units) {
                    continue;
                }
                let Raced { cells, width, .. } = &compared.raced[pair];
                let rng = &mut Random::from_seed(seed);
                let drawn = Resamples::draw_first(units, *width, Resamples::COUNT, rng);
                let cell = cells.cell(entrant, compared.load);
                let samples = Samples::of(cell, of, &drawn);
                if samples.value.is_some() {
                    figures.of.insert((pair, entrant, of as usize, units), samples);
                }
                let answered = || Samples::answered(cell, &drawn);
                figures.answered.entry((pair, entrant, units)).or_insert_with(answered);
            }
        }
        figures
    }

    /// How many of some pairs have a figure over so many units.
    pub(super) fn count(&self, pairs: &[usize], entrant: usize, of: Statistic, units: usize) -> usize {
        self.having(pairs, entrant, of, units).count()
    }

    /// A middle of the figures of some pairs against one of others'. One that has fewer units, or no
    /// figure, is left out.
    pub(super) fn contrast(
        &self,
        sides: [(&[usize], Middle); 2],
        entrant: usize,
        of: Statistic,
        units: usize,
    ) -> Option<Contrast> {
        let [above, below] = sides.map(|(pairs, middle)| {
            let having = || self.having(pairs, entrant, of, units);
            let figures: Vec<&Samples> =
                having().map(|pair| &self.of[&(pair, entrant, of as usize, units)]).collect();
            let answered: Vec<&Samples> =
                having().map(|pair| &self.answered[&(pair, entrant, units)]).collect();
            let more_is_better = of == Statistic::Throughput;
            (
                Samples::middle(&figures, middle.of(more_is_better)),
                Samples::middle(&answered, middle.of(true)),
            )
        });
        Contrast::of([&above.0, &below.0], [&above.1, &below.1], units)
    }

    fn having(
        &self,
        pairs: &[usize],
        entrant: usize,
        of: Statistic,
        units: usize,
    ) -> impl Iterator<Item = usize> {
        let has = move |pair: &usize| self.of.contains_key(&(*pair, entrant, of as usize, units));
        pairs.iter().copied().filter(has)
    }
}

impl Middle {
    /// Of logarithms, of which there is one at least.
    fn of(self, more_is_better: bool) -> fn(&mut [f64]) -> f64 {
        match (self, more_is_better) {
            (Middle::Between, _) => |figures| median(figures).expect("a group has a figure"),
            (Middle::Better, true) => {
                |figures| *figures.select_nth_unstable_by(figures.len() / 2, f64::total_cmp).1
            }
            (Middle::Better, false) => {
                |figures| *figures.select_nth_unstable_by((figures.len() - 1) / 2, f64::total_cmp).1
            }
        }
    }
}
