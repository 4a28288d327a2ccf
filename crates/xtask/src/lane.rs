//! One of the lanes that run at the same time: which of its tests have ended, and how long they took.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::ledger::{Counts, Ledger, TestOutcome, count};
use crate::libtest::Test;

/// Tests that take longer are listed at the end, to show where the time goes.
const SLOW: Duration = Duration::from_secs(20);

/// How a test went.
#[derive(Debug)]
pub(crate) struct FinishedTest {
    pub(crate) verdict: TestOutcome,
    pub(crate) time: Duration,
    /// The output of the test binary, shown if the test failed.
    pub(crate) output: String,
}

/// A lane and its tests.
pub(crate) struct Lane<'a> {
    name: &'static str,
    start: Instant,
    ledger: &'a Mutex<Ledger>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The tests of each suite that have not ended.
    open: BTreeMap<String, BTreeSet<String>>,
    /// The counts and total time of each suite's tests that have ended.
    suites: BTreeMap<String, (Counts, Duration)>,
    /// The open tests that nobody waits for, because they run once more when everything else has ended.
    postponed: BTreeSet<String>,
    slow: Vec<(Duration, String)>,
    closed: bool,
}

impl<'a> Lane<'a> {
    pub(crate) fn new(name: &'static str, tests: &[Test<'_>], ledger: &'a Mutex<Ledger>) -> Self {
        let mut state = State::default();
        for test in tests {
            state.open.entry(test.suite.name()).or_default().insert(test.name.clone());
        }
        Self { name, start: Instant::now(), ledger, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Records the result of a test. Prints a failure at once, and a line for its suite after the suite's
    /// last test.
    pub(crate) fn enter(&self, test: &Test<'_>, ended: FinishedTest) {
        let suite = test.suite.name();
        if ended.verdict == TestOutcome::Failed {
            self.print_failure(test, &ended);
        }
        let FinishedTest { verdict, time, output: _ } = ended;
        let mut state = self.state();
        let (counts, total) = state.suites.entry(suite.clone()).or_default();
        *counts += count([&verdict].into_iter());
        *total += time;
        let (counts, total) = (*counts, *total);
        if time >= SLOW {
            state.slow.push((time, test.full_name()));
        }
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).enter(&suite, &test.name, verdict);
        let open = state.open.entry(suite.clone()).or_default();
        open.remove(&test.name);
        if open.is_empty() {
            println!("{:<7} {suite:<18} {counts} ({:.1} s)", self.name, total.as_secs_f64());
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Prints a failure that is not the last word on its test. Nobody waits for it any longer.
    pub(crate) fn postpone(&self, test: &Test<'_>, ended: &FinishedTest) {
        self.print_failure(test, ended);
        self.state().postponed.insert(test.full_name());
        self.changed.notify_all();
        println!("{:<7} {} runs once more, alone, after all others", self.name, test.full_name());
    }

    fn print_failure(&self, test: &Test<'_>, FinishedTest { output, time, .. }: &FinishedTest) {
        println!("{output}\n{:<7} FAILED {} ({:.1} s)", self.name, test.full_name(), time.as_secs_f64());
    }

    /// Waits until these tests have ended or are postponed, or the lane as a whole has ended.
    pub(crate) fn wait_for(&self, tests: &[Test<'_>]) {
        let is_open = |state: &State, test: &Test<'_>| {
            let is_open = state.open.get(&test.suite.name()).is_some_and(|open| open.contains(&test.name));
            is_open && !state.postponed.contains(&test.full_name())
        };
        let mut state = self.state();
        while !state.closed && tests.iter().any(|test| is_open(&state, test)) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Marks the lane as closed: no more tests will end in it.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// The lane's lines for the end: counts and time, then slow tests. Empty if no test ended in it.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut state = self.state();
        let mut counts = Counts::default();
        state.suites.values().for_each(|(of, _)| counts += *of);
        if counts == Counts::default() {
            return Vec::new();
        }
        let time = self.start.elapsed().as_secs_f64();
        let mut lines = vec![format!("lane {}: {counts} ({time:.0} s)", self.name)];
        state.slow.sort();
        let slow = state.slow.iter().rev();
        lines.extend(slow.map(|(time, test)| format!("  {:4.0} s  {test}", time.as_secs_f64())));
        lines
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Suite, TestKind};

    fn ended(verdict: TestOutcome, seconds: u64) -> FinishedTest {
        FinishedTest { verdict, time: Duration::from_secs(seconds), output: String::new() }
    }

    #[test]
    fn who_waits_goes_on_when_its_tests_have_ended() {
        let suite = Suite {
            package: "plan".into(),
            kind: TestKind::Integration,
            binary: "/t/it-1".into(),
            folder: "/".into(),
        };
        let tests = ["a", "b", "c"].map(|name| Test { suite: &suite, name: name.into() });
        let ledger = Mutex::new(Ledger::default());
        let lane = Lane::new("native", &tests, &ledger);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lane.wait_for(&tests[..1]));
            lane.enter(&tests[0], ended(TestOutcome::Skipped("no ipvlan".into()), 25));
            waiting.join().unwrap();
            let waiting = scope.spawn(|| lane.wait_for(&tests[..2]));
            lane.postpone(&tests[1], &ended(TestOutcome::Failed, 1));
            waiting.join().unwrap();
            let waiting = scope.spawn(|| lane.wait_for(&tests));
            lane.close();
            waiting.join().unwrap();
        });
        let lines = lane.lines();
        assert!(lines[0].starts_with("lane native: 0 passed, 0 failed, 1 skipped"), "{lines:?}");
        assert_eq!(lines[1..], ["    25 s  plan it a"]);
        assert!(Lane::new("old", &tests, &ledger).lines().is_empty());
    }
}
