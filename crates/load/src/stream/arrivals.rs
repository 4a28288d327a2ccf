//! Which datagrams of a flow have arrived.

/// How far back it is known of each number whether it has arrived: five milliseconds of full packets at 10 Gbit/s.
const WINDOW: u64 = 4096;
const WORD: u64 = u64::BITS as u64;

/// The numbers of a flow that have arrived, as a receiver of IPsec keeps them against replays (RFC 4303, 3.4.3): the
/// highest, and a bit for each in the window below it.
#[derive(Debug, Clone)]
pub(super) struct Arrivals {
    /// The number behind the highest that has arrived.
    next: u64,
    /// The bit of a number is that of its rest modulo the window.
    bits: Box<[u64]>,
}

/// What a datagram is among those of its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    InOrder,
    /// One with a higher number was there before.
    Reordered,
    /// It was there before itself.
    Duplicate,
}

impl Arrivals {
    pub(super) fn new() -> Arrivals {
        Arrivals { next: 0, bits: vec![0; (WINDOW / WORD) as usize].into_boxed_slice() }
    }

    /// Notes a number. Of one from before the window it is not known whether it was there: it counts as reordered.
    pub(super) fn note(&mut self, number: u64) -> Arrival {
        if number >= self.next {
            let first = self.next.max(number.saturating_sub(WINDOW - 1));
            (first..number).for_each(|skipped| self.bits[word(skipped)] &= !bit(skipped));
            self.bits[word(number)] |= bit(number);
            self.next = number.saturating_add(1);
            return Arrival::InOrder;
        }
        if self.next - number > WINDOW {
            return Arrival::Reordered;
        }
        if self.bits[word(number)] & bit(number) != 0 {
            return Arrival::Duplicate;
        }
        self.bits[word(number)] |= bit(number);
        Arrival::Reordered
    }
}

fn word(number: u64) -> usize {
    (number % WINDOW / WORD) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % WORD)
}

#[cfg(test)]
mod tests {
    use super::Arrival::{Duplicate, InOrder, Reordered};
    use super::*;

    #[track_caller]
    fn check(numbers: &[u64], expected: &[Arrival]) {
        let mut arrivals = Arrivals::new();
        let noted: Vec<_> = numbers.iter().map(|number| arrivals.note(*number)).collect();
        assert_eq!(noted, expected);
    }

    #[test]
    fn each_number_arrives_once() {
        check(&[0, 1, 1, 0, 2], &[InOrder, InOrder, Duplicate, Duplicate, InOrder]);
        check(&[3, 1, 3, 1, 0], &[InOrder, Reordered, Duplicate, Duplicate, Reordered]);
    }

    #[test]
    fn the_window_moves_on() {
        check(
            &[5, WINDOW + 5, 6, 5, WINDOW + 4, WINDOW + 6, 6],
            &[InOrder, InOrder, Reordered, Reordered, Reordered, InOrder, Reordered],
        );
        // What was skipped has the bits of numbers that had arrived a window before.
        let mut arrivals = Arrivals::new();
        (0..WINDOW).for_each(|number| assert_eq!(arrivals.note(number), InOrder));
        assert_eq!(arrivals.note(2 * WINDOW - 1), InOrder);
        (WINDOW..2 * WINDOW - 1).for_each(|number| assert_eq!(arrivals.note(number), Reordered));
        (WINDOW..2 * WINDOW).for_each(|number| assert_eq!(arrivals.note(number), Duplicate));
        check(&[u64::MAX, u64::MAX - 1], &[InOrder, Reordered]);
    }
}
