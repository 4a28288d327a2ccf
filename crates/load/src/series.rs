//! A thinned record of a run in the order of sending, for questions that a histogram cannot answer.

/// The most samples that are kept of a thread.
const SAMPLES_MAX: usize = 4096;

/// A thinned record of one thread's run, in the order of sending: every `every`-th request of the thread.
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

    /// The requests of a thread arrive here one after the other, counted from 0.
    pub(crate) fn sent(&mut self, ordinal: u64, gap_ns: u64) {
        if !self.is_kept(ordinal) {
            return;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.thin();
            if !self.is_kept(ordinal) {
                return;
            }
        }
        self.samples.push(Sample { gap_ns, response_ns: None });
    }

    pub(crate) fn answered(&mut self, ordinal: u64, response_ns: u64) {
        if self.is_kept(ordinal)
            && let Some(sample) = self.samples.get_mut((ordinal / self.every) as usize)
        {
            sample.response_ns = Some(response_ns);
        }
    }

    fn is_kept(&self, ordinal: u64) -> bool {
        ordinal & (self.every - 1) == 0
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
        for ordinal in 0..100_000 {
            series.sent(ordinal, ordinal + 1);
            // Answers come later, and one in ten never.
            if let Some(earlier) = ordinal.checked_sub(50)
                && earlier % 10 != 0
            {
                series.answered(earlier, earlier + 2);
            }
        }
        assert_eq!(series.every, 32);
        assert_eq!(series.samples.len(), 3125);
        for (index, sample) in series.samples.iter().enumerate() {
            let ordinal = index as u64 * series.every;
            assert_eq!(sample.gap_ns, ordinal + 1);
            let answered = ordinal < 99_950 && !ordinal.is_multiple_of(10);
            assert_eq!(sample.response_ns, answered.then_some(ordinal + 2), "{ordinal}");
        }
    }
}
