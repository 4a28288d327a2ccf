//! The options, and which of them can be combined.

/// The most options of a search: each has to be visited alone, and to be separated from all others by a few blocks.
pub const OPTIONS_MAX: usize = 32;

/// The most arms of a block beside its incumbent. All of them exist at once.
pub(super) const ARMS_MAX: usize = 12;

/// Options by the factor (the knob) that they are values of. No value of a factor is the incumbent's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    factor_of: Vec<usize>,
    /// Options that are never in force together.
    apart: Vec<(usize, usize)>,
}

/// Options in force together, at most one of each factor, ascending. The empty set is the incumbent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Arm(Vec<usize>);

impl Space {
    /// A space whose factor `i` has `values[i]` values. Options are numbered from 0, the first factor's first.
    ///
    /// # Panics
    ///
    /// If there is no option, more than [`OPTIONS_MAX`], or a factor without a value.
    pub fn new(values: &[usize]) -> Space {
        assert!(
            !values.is_empty() && values.iter().all(|values| *values > 0),
            "nothing to search: {values:?}"
        );
        let factor_of: Vec<usize> = values
            .iter()
            .enumerate()
            .flat_map(|(factor, values)| std::iter::repeat_n(factor, *values))
            .collect();
        assert!(factor_of.len() <= OPTIONS_MAX, "{} options", factor_of.len());
        Space { factor_of, apart: Vec::new() }
    }

    /// The same without arms that have both options of one of these pairs.
    #[must_use]
    pub fn apart(self, pairs: Vec<(usize, usize)>) -> Space {
        Space { apart: pairs, ..self }
    }

    /// Whether an option can be in force beside these, which are of other factors.
    pub(super) fn goes_with(&self, option: usize, others: &[usize]) -> bool {
        let is_apart = |other: &usize| {
            self.apart.iter().any(|(a, b)| (*a, *b) == (option, *other) || (*a, *b) == (*other, option))
        };
        !others.iter().any(is_apart)
    }

    /// How many options there are.
    pub fn options(&self) -> usize {
        self.factor_of.len()
    }

    /// How many factors there are.
    pub fn factors(&self) -> usize {
        self.factor_of.last().map_or(0, |last| last + 1)
    }

    pub(super) fn factor_of(&self, option: usize) -> usize {
        self.factor_of[option]
    }

    /// The options of a factor.
    pub(super) fn values_of(&self, factor: usize) -> Vec<usize> {
        (0..self.options()).filter(|option| self.factor_of[*option] == factor).collect()
    }

    /// Whether all combinations can race in one block.
    pub(super) fn fits_a_block(&self) -> bool {
        let of = |factor: usize| self.values_of(factor).len() + 1;
        (0..self.factors()).map(of).fold(1_usize, usize::saturating_mul) - 1 <= ARMS_MAX
    }

    /// All combinations but the incumbent.
    pub(super) fn all_arms(&self) -> Vec<Arm> {
        let mut arms = vec![Arm::default()];
        for factor in 0..self.factors() {
            let more: Vec<Arm> = arms
                .iter()
                .flat_map(|arm| {
                    let goes = |option: &usize| self.goes_with(*option, arm.options());
                    self.values_of(factor).into_iter().filter(goes).map(|option| arm.with(option))
                })
                .collect();
            arms.extend(more);
        }
        arms.retain(|arm| !arm.is_incumbent());
        arms.sort_by_key(|arm| (arm.options().len(), arm.clone()));
        arms
    }
}

impl Arm {
    /// These options, each of another factor.
    pub fn of(options: impl IntoIterator<Item = usize>) -> Arm {
        let mut options: Vec<usize> = options.into_iter().collect();
        options.sort_unstable();
        options.dedup();
        Arm(options)
    }

    /// The numbers of its options, ascending.
    pub fn options(&self) -> &[usize] {
        &self.0
    }

    /// Whether it is the incumbent: no option is in force.
    pub fn is_incumbent(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an option is in force.
    pub fn holds(&self, option: usize) -> bool {
        self.0.contains(&option)
    }

    /// This arm with one more option.
    #[must_use]
    pub fn with(&self, option: usize) -> Arm {
        Arm::of(self.0.iter().copied().chain([option]))
    }

    /// This arm without one of its options.
    #[must_use]
    pub fn without(&self, option: usize) -> Arm {
        Arm::of(self.0.iter().copied().filter(|other| *other != option))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_combinations_are_made_where_they_fit() {
        let space = Space::new(&[2, 1]);
        assert_eq!((space.options(), space.factors()), (3, 2));
        let arms: Vec<Vec<usize>> = space.all_arms().iter().map(|arm| arm.options().to_vec()).collect();
        assert_eq!(arms, [vec![0], vec![1], vec![2], vec![0, 2], vec![1, 2]]);
        assert!(
            space.fits_a_block() && Space::new(&[12]).fits_a_block() && Space::new(&[1, 1, 2]).fits_a_block()
        );
        assert!(!Space::new(&[13]).fits_a_block() && !Space::new(&[1; 4]).fits_a_block());
    }

    #[test]
    fn options_that_contradict_each_other_are_in_no_arm_together() {
        let space = Space::new(&[2, 1, 1]).apart(vec![(0, 2), (3, 2)]);
        let arms: Vec<Vec<usize>> = space.all_arms().iter().map(|arm| arm.options().to_vec()).collect();
        assert_eq!(arms, [vec![0], vec![1], vec![2], vec![3], vec![0, 3], vec![1, 2], vec![1, 3]]);
    }

    #[test]
    fn arms_are_sets() {
        let arm = Arm::of([5, 2, 5]);
        assert_eq!(arm.options(), [2, 5]);
        assert_eq!(arm.with(3).without(2), Arm::of([3, 5]));
        assert!(arm.holds(5) && !arm.holds(3) && Arm::default().is_incumbent());
    }
}
