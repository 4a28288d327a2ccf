//! A thinned record of a run in the order of sending, for questions that a histogram cannot answer.

/// The most samples that are kept of a thread.
const SAMPLES_MAX: usize = 4096;

/// A thinned record of one thread's run, in the order of sending: every `every`-th request that it sent.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Of how many requests one is kept: a power of two.
    pub every: u64,
    /// The first request, the one `every` later, and so on; at most 4096.
    pub samples: Vec<Sample>,
}

/// The times of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// sent − sent of the request of this thread before it, in nanoseconds; 0 for the first.
    pub gap_ns: u64,
    /// received − intended, in nanoseconds; `None`: not answered as expected.
    pub response_ns: Option<u64>,
}

impl Series {
    /// Allocates room for all samples in advance.
    pub(crate) fn new() -> Series {
        Series { every: 1, samples: Vec::with_capacity(SAMPLES_MAX) }
    }

    /// The requests that a thread sends arrive here one after the other, counted from 0. Those that it drops or never
    /// sends have no number.
    pub(crate) fn sent(&mut self, number: u64, gap_ns: u64) {
        if !self.is_kept(number) {
            return;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.thin();
            if !self.is_kept(number) {
                return;
            }
        }
        self.samples.push(Sample { gap_ns, response_ns: None });
    }

    pub(crate) fn answered(&mut self, number: u64, response_ns: u64) {
        if self.is_kept(number)
            && let Some(sample) = self.samples.get_mut((number / self.every) as usize)
        {
            sample.response_ns = Some(response_ns);
        }
    }

    fn is_kept(&self, number: u64) -> bool {
        number & (self.every - 1) == 0
    }

    /// Forgets every second sample.
    fn thin(&mut self) {
        for index in 0..SAMPLES_MAX / 2 {
            self.samples[index] = self.samples[2 * index];
        }
        self.samples.truncate(SAMPLES_MAX / 2);
        self.every *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_evenly_spread_and_in_order() {
        let mut series = Series::new();
        for number in 0..100_000 {
            series.sent(number, number + 1);
            // Answers come later, and one in ten never.
            if let Some(earlier) = number.checked_sub(50)
                && earlier % 10 != 0
            {
                series.answered(earlier, earlier + 2);
            }
        }
        assert_eq!(series.every, 32);
        assert_eq!(series.samples.len(), 3125);
        for (index, sample) in series.samples.iter().enumerate() {
            let number = index as u64 * series.every;
            assert_eq!(sample.gap_ns, number + 1);
            let answered = number < 99_950 && !number.is_multiple_of(10);
            assert_eq!(sample.response_ns, answered.then_some(number + 2), "{number}");
        }
    }
}
