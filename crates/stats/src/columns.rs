//! Histograms side by side, merged with any weights in no time: the inner loop of the bootstrap.

use std::collections::BTreeMap;

use crate::Percentile;

/// A histogram as its recorded values alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sparse<'a> {
    /// Values with their counts, each value once.
    pub bins: &'a [(u64, u64)],
    /// Samples above every value, of which no more is known: requests that were never answered.
    pub beyond: u64,
}

/// Several histograms over the union of their values. A quantile of any weighted merge is a binary search over the
/// running counts, without computing the merge.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    values: Vec<u64>,
    /// Running counts, one row a value, one column a histogram.
    running: Vec<u64>,
    /// All samples of a column, those beyond included.
    totals: Vec<u64>,
}

impl Columns {
    /// Puts histograms side by side.
    pub fn new(histograms: &[Sparse<'_>]) -> Columns {
        let width = histograms.len();
        let mut rows: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (column, histogram) in histograms.iter().enumerate() {
            for (value, count) in histogram.bins {
                rows.entry(*value).or_insert_with(|| vec![0; width])[column] += count;
            }
        }
        let mut sums = vec![0; width];
        let mut running = Vec::with_capacity(rows.len() * width);
        for row in rows.values() {
            sums.iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
            running.extend_from_slice(&sums);
        }
        let totals = sums.iter().zip(histograms).map(|(sum, histogram)| sum + histogram.beyond).collect();
        Columns { values: rows.into_keys().collect(), running, totals }
    }

    /// How many histograms there are.
    pub fn width(&self) -> usize {
        self.totals.len()
    }

    /// The samples of a merge in which each histogram counts `weights` times.
    pub fn count(&self, weights: &[u64]) -> u64 {
        weigh(&self.totals, weights)
    }

    /// Those of them that have a value, so that they do not lie beyond.
    pub fn count_within(&self, weights: &[u64]) -> u64 {
        self.values.len().checked_sub(1).map_or(0, |last| weigh(self.row(last), weights))
    }

    /// A percentile of that merge; `None` if it has no sample, or if the percentile lies among the samples beyond the
    /// range. Does not check that there are enough samples: [`Percentile::is_valid`] does.
    pub fn percentile(&self, percentile: Percentile, weights: &[u64]) -> Option<u64> {
        self.at_rank(percentile.rank(self.count(weights)), weights)
    }

    /// The value of a rank in that merge, from 1.
    pub fn at_rank(&self, rank: u64, weights: &[u64]) -> Option<u64> {
        if rank == 0 {
            return None;
        }
        let (mut low, mut high) = (0, self.values.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if weigh(self.row(middle), weights) < rank { low = middle + 1 } else { high = middle }
        }
        self.values.get(low).copied()
    }

    fn row(&self, index: usize) -> &[u64] {
        &self.running[index * self.width()..(index + 1) * self.width()]
    }
}

/// The sum of the counts, each multiplied by its weight.
fn weigh(counts: &[u64], weights: &[u64]) -> u64 {
    assert_eq!(counts.len(), weights.len(), "one weight a histogram");
    counts.iter().zip(weights).map(|(count, weight)| count * weight).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_lies_beyond_is_above_everything() {
        let bins = [(10, 60), (20, 30)];
        let columns = Columns::new(&[Sparse { bins: &bins, beyond: 10 }]);
        assert_eq!((columns.count(&[1]), columns.count_within(&[1])), (100, 90));
        assert_eq!(columns.percentile(Percentile::P50, &[1]), Some(10));
        assert_eq!(columns.percentile(Percentile::P90, &[1]), Some(20));
        assert_eq!(columns.percentile(Percentile::P99, &[1]), None);
    }

    #[test]
    fn nothing_has_no_percentile() {
        assert_eq!(Columns::new(&[]).percentile(Percentile::P50, &[]), None);
        let empty = Columns::new(&[Sparse::default(), Sparse::default()]);
        assert_eq!(empty.count_within(&[1, 1]), 0);
        assert_eq!((empty.width(), empty.percentile(Percentile::P50, &[1, 1])), (2, None));
        let columns = Columns::new(&[Sparse { bins: &[(3, 1)], beyond: 0 }]);
        assert_eq!(columns.percentile(Percentile::P50, &[0]), None);
    }

    proptest! {
        #[test]
        fn a_merge_is_the_sorted_samples(
            histograms in prop::collection::vec(prop::collection::vec((0_u64..50, 0_u64..9), 0..20), 1..6),
            weights in prop::collection::vec(0_u64..4, 6),
        ) {
            let sparse: Vec<Sparse<'_>> = histograms.iter().map(|bins| Sparse { bins, beyond: 0 }).collect();
            let weights = &weights[..histograms.len()];
            let mut samples = vec![];
            for (bins, weight) in histograms.iter().zip(weights) {
                for (value, count) in bins {
                    samples.extend(std::iter::repeat_n(*value, (count * weight) as usize));
                }
            }
            samples.sort_unstable();
            let columns = Columns::new(&sparse);
            prop_assert_eq!(columns.count(weights), samples.len() as u64);
            for percentile in Percentile::LADDER {
                let expected = percentile.rank(samples.len() as u64).checked_sub(1).map(|index| samples[index as usize]);
                prop_assert_eq!(columns.percentile(*percentile, weights), expected);
            }
        }
    }
}
