//! The rate of a closed loop, by the times between the answers of each connection.
//!
//! Answers within a time, divided by that time, are too few where connections are the limit: each begins with a request
//! and brings its first answer one response time later. And they come in steps: where an answer takes a ninth of the
//! time or a little less, nine fit. So each connection is looked at from its first answer to the first one after the
//! schedule's end. A renewal process that is stopped like that gives its mean interval without bias (Wald's equation;
//! W. Feller, *An Introduction to Probability Theory and Its Applications*, vol. 2, 1971, XI and XII.2).

/// The whole intervals between answers on the connections of a closed loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Intervals {
    /// How many connections there were.
    pub connections: u64,
    /// How many intervals, on all of them.
    pub count: u64,
    /// How long those were, added up, in nanoseconds. A connection whose answers stopped waits
    /// until the schedule's end.
    pub time_ns: u64,
}

impl Intervals {
    /// Answers per second on all connections together; `None` if no connection had two.
    pub fn answers_per_s(&self) -> Option<f64> {
        let mean_s = self.time_ns as f64 / self.count as f64 / 1e9;
        (self.count > 0 && self.time_ns > 0).then(|| self.connections as f64 / mean_s)
    }

    pub(crate) fn add(&mut self, other: Intervals) {
        self.connections += other.connections;
        self.count += other.count;
        self.time_ns += other.time_ns;
    }
}

/// When the answers of a connection came, in nanoseconds of [`linux::clock`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AnswerTimes {
    first_ns: u64,
    last_ns: u64,
    answers: u64,
}

impl AnswerTimes {
    pub(crate) fn note(&mut self, now_ns: u64) {
        if self.answers == 0 {
            self.first_ns = now_ns;
        }
        self.last_ns = now_ns;
        self.answers += 1;
    }

    /// The intervals of a connection that was asked from `start_ns` to `end_ns`, and whose last answer was waited for.
    pub(crate) fn intervals(&self, start_ns: u64, end_ns: u64) -> Intervals {
        let from_ns = if self.answers == 0 { start_ns } else { self.first_ns };
        let time_ns = self.last_ns.max(end_ns).saturating_sub(from_ns);
        Intervals { connections: 1, count: self.answers.saturating_sub(1), time_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// What connections give within a time, each with the instants of its answers.
    fn of(end_ns: u64, connections: impl IntoIterator<Item = Vec<u64>>) -> Intervals {
        let mut all = Intervals::default();
        for answers in connections {
            let mut times = AnswerTimes::default();
            answers.into_iter().for_each(|at_ns| times.note(at_ns));
            all.add(times.intervals(0, end_ns));
        }
        all
    }

    /// The instants of answers that take so long each, to the first one after the end.
    fn every(took_ns: u64, end_ns: u64) -> Vec<u64> {
        (1..=end_ns.div_ceil(took_ns)).map(|answer| answer * took_ns).collect()
    }

    #[test]
    fn a_long_way_counts_by_its_length_and_not_by_what_fits() {
        for took_ms in [10, 30, 81, 89] {
            let found = of(800 * MS, (0..32).map(|_| every(took_ms * MS, 800 * MS)));
            let wanted = 32e3 / took_ms as f64;
            assert!((found.answers_per_s().unwrap() / wanted - 1.0).abs() < 1e-9, "{took_ms}: {found:?}");
        }
    }

    #[test]
    fn a_server_that_answers_in_turn_gives_its_own_rate() {
        // An answer a millisecond, for each of four connections in turn.
        let turns = |connection: u64| (0..=25).map(move |turn| (turn * 4 + connection + 1) * MS).collect();
        let found = of(100 * MS, (0..4).map(turns));
        assert!((found.answers_per_s().unwrap() - 1000.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn who_is_silent_is_no_fast_connection() {
        let silent = of(100 * MS, [every(10 * MS, 100 * MS), vec![]]);
        assert_eq!(silent, Intervals { connections: 2, count: 9, time_ns: 190 * MS });
        // It answered once and then no more.
        let stopped = of(100 * MS, [vec![10 * MS]]);
        assert_eq!(stopped, Intervals { connections: 1, count: 0, time_ns: 90 * MS });
        assert_eq!((stopped.answers_per_s(), of(100 * MS, [vec![]]).answers_per_s()), (None, None));
    }
}
