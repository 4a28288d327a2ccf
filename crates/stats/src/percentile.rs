//! The percentiles that are shown, and how many samples each needs.

/// A percentile of latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Percentile {
    /// The median: half of the samples lie above.
    P50,
    /// One sample in 10 lies above.
    P90,
    /// One sample in 20 lies above.
    P95,
    /// One sample in 100 lies above.
    P99,
    /// One sample in 200 lies above.
    P99_5,
    /// One sample in 1000 lies above.
    P99_9,
    /// One sample in 10 000 lies above.
    P99_99,
    /// One sample in 100 000 lies above.
    P99_999,
}

impl Percentile {
    /// The percentiles that every report contains, ascending: the median, then one more nine each. The others appear
    /// only next to published figures that use them.
    pub const LADDER: &[Percentile] = &[
        Percentile::P50,
        Percentile::P90,
        Percentile::P99,
        Percentile::P99_9,
        Percentile::P99_99,
        Percentile::P99_999,
    ];

    /// How many samples must lie beyond a percentile for it to be shown. With ten, the count of samples beyond the true
    /// value has a relative standard error of 1/√10, a third: with fewer, the percentile is the luck of single samples.
    pub const BEYOND_MIN: u64 = 10;

    /// One sample in this many lies above. It is an integer, so that ranks are exact: 0.999 has no exact binary form.
    pub fn one_in(self) -> u64 {
        match self {
            Percentile::P50 => 2,
            Percentile::P90 => 10,
            Percentile::P95 => 20,
            Percentile::P99 => 100,
            Percentile::P99_5 => 200,
            Percentile::P99_9 => 1_000,
            Percentile::P99_99 => 10_000,
            Percentile::P99_999 => 100_000,
        }
    }

    /// The share of samples at or below, 0 to 1.
    pub fn quantile(self) -> f64 {
        1.0 - 1.0 / self.one_in() as f64
    }

    /// As it is written: "p99.9".
    pub fn label(self) -> &'static str {
        match self {
            Percentile::P50 => "p50",
            Percentile::P90 => "p90",
            Percentile::P95 => "p95",
            Percentile::P99 => "p99",
            Percentile::P99_5 => "p99.5",
            Percentile::P99_9 => "p99.9",
            Percentile::P99_99 => "p99.99",
            Percentile::P99_999 => "p99.999",
        }
    }

    /// The rank of the percentile among `count` samples in ascending order, from 1; 0 if there are none. It is the
    /// smallest rank that has its share of the samples at or below it.
    pub fn rank(self, count: u64) -> u64 {
        count - count / self.one_in()
    }

    /// True if [`Percentile::BEYOND_MIN`] of `count` samples lie beyond.
    pub fn is_valid(self, count: u64) -> bool {
        count >= self.samples_needed()
    }

    /// This one, or else the highest of the ladder below it that `count` samples allow; `None` if they allow none.
    pub fn or_lower(self, count: u64) -> Option<Percentile> {
        Percentile::LADDER.iter().rev().copied().find(|lower| *lower <= self && lower.is_valid(count))
    }

    /// The number of samples from which it is shown.
    pub fn samples_needed(self) -> u64 {
        Percentile::BEYOND_MIN * self.one_in()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_valid_from_ten_samples_beyond_on() {
        for percentile in Percentile::LADDER.iter().chain(&[Percentile::P95, Percentile::P99_5]) {
            let needed = percentile.samples_needed();
            for count in needed - 1..needed + 2 * percentile.one_in() {
                let beyond = count - percentile.rank(count);
                assert_eq!(percentile.is_valid(count), beyond >= 10, "{} of {count}", percentile.label());
            }
        }
        assert_eq!(Percentile::P99_999.samples_needed(), 1_000_000);
        assert_eq!(Percentile::P99_5.samples_needed(), 2_000);
    }

    #[test]
    fn the_rank_is_the_smallest_with_its_share() {
        assert_eq!(Percentile::P50.rank(4), 2);
        assert_eq!(Percentile::P50.rank(5), 3);
        assert_eq!(Percentile::P99.rank(1_000), 990);
        assert_eq!(Percentile::P99_9.rank(999), 999);
        assert_eq!(Percentile::P95.rank(100), 95);
        assert_eq!(Percentile::P99_5.rank(1_000), 995);
        assert_eq!(Percentile::P99.rank(0), 0);
    }

    #[test]
    fn few_samples_allow_a_lower_one() {
        assert_eq!(Percentile::P99.or_lower(1_000_000), Some(Percentile::P99));
        assert_eq!(Percentile::P99.or_lower(999), Some(Percentile::P90));
        assert_eq!(Percentile::P99_999.or_lower(20), Some(Percentile::P50));
        assert_eq!(Percentile::P99.or_lower(19), None);
    }

    #[test]
    fn labels_and_quantiles_agree() {
        for percentile in Percentile::LADDER.iter().chain(&[Percentile::P95, Percentile::P99_5]) {
            let percent: f64 = percentile.label()[1..].parse().unwrap();
            assert!((percent / 100.0 - percentile.quantile()).abs() < 1e-12, "{percentile:?}");
        }
    }
}
