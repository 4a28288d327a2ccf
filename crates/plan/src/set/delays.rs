//! How long a card delays its interrupts: a driver may change other numbers of it together with one.
//!
//! `mlx5e_ethtool_set_coalesce` (drivers/net/ethernet/mellanox/mlx5/core/en_ethtool.c) gives microseconds and packets
//! the driver's defaults whenever the adaptive mode begins or ends.

use std::collections::BTreeMap;

use linux::ethtool::Delay;

use super::queues::others;
use super::register::At;
use crate::error::StepError;

pub(super) type Delays = BTreeMap<Delay, u32>;

pub(super) fn read(at: &At<'_>) -> Result<Delays, StepError> {
    Ok(at.opened.ethtool()?.read_delays(at.name())?)
}

/// The delays of a card at three times.
pub(super) struct OfCard<'a> {
    /// As they were before the step.
    pub(super) were: &'a Delays,
    /// As the step left them; `None`: nothing was read back.
    pub(super) left: Option<&'a Delays>,
    /// As undo finds them.
    pub(super) found: &'a Delays,
}

impl OfCard<'_> {
    /// Puts back what the driver has changed, when the number of the step itself is back: first who chooses, since that
    /// may change the others again. True if anything had to be written.
    pub(super) fn put_back(&self, at: &At<'_>) -> Result<bool, StepError> {
        let mut written = false;
        for of_switches in [true, false] {
            let mut missing = self.missing(&read(at)?);
            missing.retain(|delay, _| delay.adaptive().is_none() == of_switches);
            if !missing.is_empty() {
                at.opened.ethtool()?.write_delays(at.name(), &missing)?;
                written = true;
            }
        }
        Ok(written)
    }

    /// What is to be written where these are the delays now. What another program has set since the step
    /// stays. Where the driver chooses, a number is its own: it changes by itself, and some refuse
    /// another (`virtnet_set_coalesce` in drivers/net/virtio_net.c).
    fn missing(&self, now: &Delays) -> Delays {
        let is_on = |delays: &Delays, delay: Delay| {
            delay.adaptive().is_some_and(|switch| delays.get(&switch).is_some_and(|on| *on != 0))
        };
        let target = |(delay, were): (&Delay, &u32)| {
            if is_on(now, *delay) {
                return None;
            }
            let left = self.left.filter(|_| !is_on(self.found, *delay)).and_then(|left| left.get(delay));
            let target = *others(were, left, self.found.get(delay)).unwrap_or(were);
            now.get(delay).is_some_and(|now| *now != target).then_some((*delay, target))
        };
        self.were.iter().filter_map(target).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Switch, microseconds and packets of either direction.
    fn delays(rx: [u32; 3], tx: [u32; 3]) -> Delays {
        let of = |delays: [Delay; 3], values| delays.into_iter().zip(values);
        of([Delay::AdaptiveRx, Delay::RxUsecs, Delay::RxFrames], rx)
            .chain(of([Delay::AdaptiveTx, Delay::TxUsecs, Delay::TxFrames], tx))
            .collect()
    }

    /// What is written by a driver that does as mlx5, once the step's own number is back.
    fn missing(were: &Delays, left: Option<&Delays>, found: &Delays, now: &Delays) -> Vec<(Delay, u32)> {
        OfCard { were, left, found }.missing(now).into_iter().collect()
    }

    #[test]
    fn what_a_driver_reset_with_its_mode_comes_back() {
        let were = delays([0, 64, 128], [0, 16, 32]);
        let left = delays([1, 8, 64], [0, 16, 32]);
        let chosen = delays([1, 32, 64], [0, 16, 32]);
        let now = delays([0, 8, 128], [0, 16, 32]);
        let expected = [(Delay::RxUsecs, 64)];
        for (left, found) in [(Some(&left), &left), (Some(&left), &chosen), (None, &chosen)] {
            assert_eq!(missing(&were, left, found, &now), expected);
        }
        assert_eq!(missing(&were, Some(&left), &left, &were), []);
    }

    #[test]
    fn what_the_driver_chooses_is_left_to_it() {
        let were = delays([1, 8, 64], [0, 16, 32]);
        let left = delays([0, 3, 3], [0, 3, 32]);
        let now = delays([1, 9, 9], [0, 3, 32]);
        assert_eq!(missing(&were, Some(&left), &left, &now), [(Delay::TxUsecs, 16)]);
    }

    #[test]
    fn what_another_program_has_set_since_stays() {
        let were = delays([0, 64, 128], [0, 16, 32]);
        let left = delays([1, 8, 64], [0, 16, 32]);
        let found = delays([1, 8, 64], [0, 50, 32]);
        let now = delays([0, 8, 64], [0, 50, 32]);
        assert_eq!(missing(&were, Some(&left), &found, &now), [(Delay::RxUsecs, 64), (Delay::RxFrames, 128)]);
    }

    #[test]
    fn a_mode_that_went_along_is_switched_back() {
        let were = delays([0, 64, 128], [0, 16, 32]);
        let both = delays([1, 8, 64], [1, 8, 64]);
        let now = delays([0, 64, 128], [1, 8, 64]);
        assert_eq!(missing(&were, Some(&both), &both, &now), [(Delay::AdaptiveTx, 0)]);
    }
}
