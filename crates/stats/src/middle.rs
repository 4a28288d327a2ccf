//! The mean of the middle half of values: what is typical, whatever a few of them are.

/// Values that come in groups, of which any can count several times or not at all.
///
/// The interquartile mean is known almost as precisely as the mean where all values are alike, and a quarter of them
/// may be anything (Tukey 1977 calls it the midmean).
#[derive(Debug, Clone, Default)]
pub struct MiddleHalf {
    /// Value and group, ascending.
    sorted: Vec<(u64, usize)>,
}

impl MiddleHalf {
    /// Each value with the number of its group. `None` is above all values.
    pub fn of(values: impl IntoIterator<Item = (Option<u64>, usize)>) -> MiddleHalf {
        let mut sorted: Vec<(u64, usize)> =
            values.into_iter().map(|(value, group)| (value.unwrap_or(u64::MAX), group)).collect();
        sorted.sort_unstable();
        MiddleHalf { sorted }
    }

    /// How many values there are, each as often as its group counts.
    pub fn count(&self, weights: &[u64]) -> u64 {
        self.sorted.iter().map(|(_, group)| weights[*group]).sum()
    }

    /// The mean of the values between the lower and the upper quarter, of which each is rounded down to whole values;
    /// `None` if there is none, or if one of those is above all values.
    ///
    /// # Panics
    /// A group has no weight.
    pub fn mean(&self, weights: &[u64]) -> Option<f64> {
        let count = self.count(weights);
        let (first, end) = (count / 4, count - count / 4);
        let (mut rank, mut sum) = (0, 0.0);
        for (value, group) in &self.sorted {
            let next = rank + weights[*group];
            let inside = next.min(end).saturating_sub(rank.max(first));
            if inside > 0 && *value == u64::MAX {
                return None;
            }
            sum += *value as f64 * inside as f64;
            rank = next;
        }
        (end > first).then(|| sum / (end - first) as f64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[Option<u64>]) -> Option<f64> {
        MiddleHalf::of(values.iter().map(|value| (*value, 0))).mean(&[1])
    }

    #[test]
    fn a_quarter_at_either_end_does_not_count() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[Some(7)]), Some(7.0));
        assert_eq!(of(&[Some(1), Some(2), Some(4), Some(1000)]), Some(3.0));
        assert_eq!(of(&[Some(1), Some(2), Some(4), None]), Some(3.0));
        assert_eq!(of(&[Some(1), Some(2), None, None]), None);
    }

    proptest! {
        #[test]
        fn weights_repeat_groups(
            values in prop::collection::vec((0_u64..1000, 0_usize..4), 0..40),
            weights in prop::collection::vec(0_u64..4, 4),
        ) {
            let weighed = MiddleHalf::of(values.iter().map(|(value, group)| (Some(*value), *group)));
            let repeated = values.iter().flat_map(|(value, group)| {
                std::iter::repeat_n((Some(*value), 0), weights[*group] as usize)
            });
            let repeated = MiddleHalf::of(repeated);
            prop_assert_eq!(weighed.count(&weights), repeated.count(&[1]));
            prop_assert_eq!(weighed.mean(&weights), repeated.mean(&[1]));
        }
    }
}
