//! The outcome of every test, over all lanes in which it ran.

use std::collections::BTreeMap;

/// The outcome of a test. Of two lanes' verdicts the greater counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TestOutcome {
    /// It could not run, for this reason.
    Skipped(String),
    Passed,
    Failed,
}

/// Every test once, by suite and name.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    tests: BTreeMap<(String, String), TestOutcome>,
}

/// How many tests had each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Ledger {
    /// Enters a verdict. A pass in one lane makes up for a skip in another, and a failure anywhere stays.
    pub(crate) fn enter(&mut self, suite: &str, test: &str, verdict: TestOutcome) {
        let slot = self.tests.entry((suite.to_owned(), test.to_owned())).or_insert_with(|| verdict.clone());
        if verdict > *slot {
            *slot = verdict;
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        count(self.tests.values())
    }

    /// Whether a test could not run in any lane so far.
    pub(crate) fn is_skipped(&self, suite: &str, test: &str) -> bool {
        let verdict = self.tests.get(&(suite.to_owned(), test.to_owned()));
        matches!(verdict, Some(TestOutcome::Skipped(_)))
    }

    /// Whether a test passed or failed in a lane so far.
    pub(crate) fn has_run(&self, suite: &str, test: &str) -> bool {
        let verdict = self.tests.get(&(suite.to_owned(), test.to_owned()));
        matches!(verdict, Some(TestOutcome::Passed | TestOutcome::Failed))
    }

    /// The tests that ran in no lane, as lines.
    pub(crate) fn skipped(&self) -> Vec<String> {
        self.lines(|verdict| match verdict {
            TestOutcome::Skipped(reason) => Some(format!(": {reason}")),
            TestOutcome::Passed | TestOutcome::Failed => None,
        })
    }

    /// The tests that failed, as lines.
    pub(crate) fn failed(&self) -> Vec<String> {
        self.lines(|verdict| (*verdict == TestOutcome::Failed).then(String::new))
    }

    fn lines(&self, tail: impl Fn(&TestOutcome) -> Option<String>) -> Vec<String> {
        let lines = self.tests.iter();
        lines
            .filter_map(|((suite, test), verdict)| Some(format!("{suite} {test}{}", tail(verdict)?)))
            .collect()
    }
}

pub(crate) fn count<'a>(verdicts: impl Iterator<Item = &'a TestOutcome>) -> Counts {
    let mut counts = Counts::default();
    for verdict in verdicts {
        match verdict {
            TestOutcome::Skipped(_) => counts.skipped += 1,
            TestOutcome::Passed => counts.passed += 1,
            TestOutcome::Failed => counts.failed += 1,
        }
    }
    counts
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped() -> TestOutcome {
        TestOutcome::Skipped("no ipvlan".into())
    }

    #[track_caller]
    fn check(native: &TestOutcome, guest: &TestOutcome, expected: (usize, usize, usize)) {
        for (first, second) in [(native, guest), (guest, native)] {
            let mut ledger = Ledger::default();
            ledger.enter("plan it", "a", first.clone());
            ledger.enter("plan it", "a", second.clone());
            let counts = ledger.counts();
            assert_eq!((counts.passed, counts.failed, counts.skipped), expected);
        }
    }

    #[test]
    fn lanes_are_one_verdict() {
        check(&skipped(), &TestOutcome::Passed, (1, 0, 0));
        check(&skipped(), &TestOutcome::Failed, (0, 1, 0));
        check(&skipped(), &skipped(), (0, 0, 1));
        check(&TestOutcome::Passed, &TestOutcome::Failed, (0, 1, 0));
        check(&TestOutcome::Passed, &TestOutcome::Passed, (1, 0, 0));
    }

    #[test]
    fn reasons_and_failures_are_listed() {
        let mut ledger = Ledger::default();
        ledger.enter("plan it", "a", skipped());
        ledger.enter("plan it", "b", TestOutcome::Failed);
        assert_eq!(ledger.skipped(), ["plan it a: no ipvlan"]);
        assert_eq!(ledger.failed(), ["plan it b"]);
        assert_eq!(ledger.counts().to_string(), "0 passed, 1 failed, 1 skipped");
    }
}
