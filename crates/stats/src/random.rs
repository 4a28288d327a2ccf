//! Numbers from a seed: xoshiro256++, and the same sequence in every version of this program, so that a race can be
//! run again in its order. The generator is a library's; the shuffle is ours, because a library may change its own.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A sequence of random numbers.
#[derive(Debug, Clone)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The sequence of a seed (spread over the generator's state by SplitMix64, as its authors advise).
    pub fn from_seed(seed: u64) -> Random {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A number from 0 to `bound` − 1, all equally likely.
    ///
    /// # Panics
    ///
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        // Lemire 2019, "Fast random integer generation in an interval": the high half of the product, drawn again
        // while the low half is in the part that would favour some numbers.
        loop {
            let product = u128::from(self.0.next_u64()) * u128::from(bound);
            if product as u64 >= bound.wrapping_neg() % bound {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number from 0 to 1, 1 excluded, with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Brings the items into a random order, all orders equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let pick = self.below(last as u64 + 1) as usize;
            items.swap(last, pick);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_order_for_ever() {
        let mut order: Vec<u32> = (0..10).collect();
        Random::from_seed(42).shuffle(&mut order);
        assert_eq!(order, [5, 3, 1, 0, 9, 6, 4, 7, 2, 8]);
        let mut again: Vec<u32> = (0..10).collect();
        Random::from_seed(43).shuffle(&mut again);
        assert_ne!(again, order);
    }

    #[test]
    fn all_orders_are_equally_likely() {
        let mut random = Random::from_seed(7);
        let mut seen = BTreeMap::new();
        for _ in 0..24_000 {
            let mut items = [0, 1, 2, 3];
            random.shuffle(&mut items);
            *seen.entry(items).or_insert(0_i32) += 1;
        }
        assert_eq!(seen.len(), 24);
        // χ² of 23 degrees of freedom is above 49.7 once in a thousand.
        let chi: f64 = seen.values().map(|count| f64::from(count - 1_000).powi(2) / 1_000.0).sum();
        assert!(chi < 49.7, "χ² is {chi}");
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = Random::from_seed(1);
        assert!((0..1_000).all(|_| random.below(1) == 0));
        assert!((0..1_000).all(|_| random.below(u64::MAX) < u64::MAX));
        let units: Vec<f64> = (0..10_000).map(|_| random.unit()).collect();
        assert!(units.iter().all(|unit| (0.0..1.0).contains(unit)));
        let mean = units.iter().sum::<f64>() / 1e4;
        assert!((mean - 0.5).abs() < 0.015, "the mean is {mean}");
    }
}
