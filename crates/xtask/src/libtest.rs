//! Parses the output of a Rust test binary: its list of tests, and the result of a single test.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::ledger::TestOutcome;
use crate::suite::{Suite, TestKind};

/// One test of a binary.
#[derive(Clone, Debug)]
pub(crate) struct Test<'a> {
    pub(crate) suite: &'a Suite,
    /// Its path in the binary: `faults::apply_may_fail`.
    pub(crate) name: String,
}

impl Test<'_> {
    /// Crate, binary and test: `plan it faults::apply_may_fail`.
    pub(crate) fn full_name(&self) -> String {
        format!("{} {}", self.suite.name(), self.name)
    }
}

/// The program `hostgap` that the integration tests among these start; `None` if there are none.
pub(crate) fn program(tests: &[Test<'_>]) -> Option<PathBuf> {
    let of_program = |suite: &Suite| suite.package == "hostgap" && suite.kind == TestKind::Integration;
    let suite = tests.iter().map(|test| test.suite).find(|suite| of_program(suite))?;
    // Cargo puts tests into the folder `deps` beside it.
    Some(suite.binary.parent()?.parent()?.join("hostgap"))
}

/// The tests of a binary that `filters` select. Without filters, all of them.
///
/// Tests marked `#[ignore]` are left out. They are roles that other tests start in a process of their own.
pub(crate) fn list<'a>(suite: &'a Suite, filters: &[String]) -> Result<Vec<Test<'a>>> {
    let names = |extra: &[&str]| -> Result<Vec<String>> {
        let mut command = Command::new(&suite.binary);
        command.args(["--list", "--format", "terse"]).args(extra).args(filters).current_dir(&suite.folder);
        let output =
            command.output().with_context(|| format!("could not start {}", suite.binary.display()))?;
        if !output.status.success() {
            bail!("{} does not list its tests: {}", suite.binary.display(), output.status);
        }
        Ok(listed(&String::from_utf8_lossy(&output.stdout)))
    };
    let roles = names(&["--ignored"])?;
    let tests = names(&[])?.into_iter().filter(|name| !roles.contains(name));
    Ok(tests.map(|name| Test { suite, name }).collect())
}

fn listed(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect()
}

/// The verdict on a test that ran alone, from the binary's exit status, its output, and the list of skips.
pub(crate) fn verdict(status: Option<i32>, output: &str, skips: &str) -> TestOutcome {
    // A binary that ran no test succeeds too.
    if status != Some(0) || !output.contains("\ntest result: ok. 1 passed") {
        return TestOutcome::Failed;
    }
    skips.lines().find_map(skip).map_or(TestOutcome::Passed, |reason| TestOutcome::Skipped(reason.to_owned()))
}

/// How a test ended that ran under `timeout`, which exits with 124 when the time is up, and with 137 if it
/// then had to kill the test.
pub(crate) fn ending(status: Option<i32>, time: Duration, limit: Duration) -> String {
    match status {
        Some(124) => format!("exceeded its limit of {} s", limit.as_secs()),
        Some(137) if time >= limit => format!("exceeded its limit of {} s and was killed", limit.as_secs()),
        Some(code) => format!("exit status {code}"),
        None => "ended by a signal".to_owned(),
    }
}

/// `SKIPPED test: reason`. Other lines continue the reason before them.
fn skip(line: &str) -> Option<&str> {
    Some(line.strip_prefix("SKIPPED ")?.split_once(": ")?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: &str = "\nrunning 1 test\ntest a::b ... noise of a child\nok\n\n\
                          test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out\n";
    const NOTHING: &str = "\nrunning 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored\n";

    #[test]
    fn passes_only_what_ran_and_ended_well() {
        assert_eq!(verdict(Some(0), PASSED, ""), TestOutcome::Passed);
        assert_eq!(verdict(Some(0), NOTHING, ""), TestOutcome::Failed);
        assert_eq!(verdict(Some(101), PASSED, ""), TestOutcome::Failed);
        assert_eq!(verdict(Some(124), "\nrunning 1 test\n", ""), TestOutcome::Failed, "out of time");
        assert_eq!(verdict(None, PASSED, ""), TestOutcome::Failed, "killed by a signal");
    }

    #[test]
    fn a_test_that_took_too_long_says_so() {
        let ended = |status, seconds| ending(status, Duration::from_secs(seconds), Duration::from_secs(900));
        assert_eq!(ended(Some(124), 900), "exceeded its limit of 900 s");
        assert_eq!(ended(Some(137), 910), "exceeded its limit of 900 s and was killed");
        assert_eq!(ended(Some(137), 5), "exit status 137");
        assert_eq!(ended(Some(101), 5), "exit status 101");
        assert_eq!(ended(None, 5), "ended by a signal");
    }

    #[test]
    fn a_skip_is_no_pass_and_no_excuse() {
        let skips = "SKIPPED c: no ipvlan: not supported\nmore about it\nSKIPPED c: no netkit\n";
        assert_eq!(verdict(Some(0), PASSED, skips), TestOutcome::Skipped("no ipvlan: not supported".into()));
        assert_eq!(verdict(Some(101), PASSED, skips), TestOutcome::Failed);
    }

    #[test]
    fn list_has_tests_and_no_benchmarks() {
        assert_eq!(listed("a::b: test\nc: benchmark\n\n"), ["a::b"]);
    }
}
