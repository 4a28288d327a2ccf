//! What a Rust test binary says: its list of tests, and which of them failed.
//!
//! Verdicts come from the list and from the closing section alone. The line of a single test can be torn apart by
//! whatever the test's children write; the closing section is written in one go when they are gone.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result};

use crate::ledger::Verdict;
use crate::suite::Suite;

/// The name under which a binary's own death is entered.
const DEATH: &str = "(the test binary)";

/// The tests a binary has that `arguments` (filters, `--skip NAME`) select.
///
/// Those marked `#[ignore]` are none: they are roles that other tests start in a process of their own.
pub(crate) fn list(suite: &Suite, arguments: &[String]) -> Result<BTreeMap<String, Verdict>> {
    let names = |extra: &[&str]| -> Result<Vec<String>> {
        let mut command = Command::new(&suite.binary);
        command.args(["--list", "--format", "terse"]).args(extra).args(arguments).current_dir(&suite.folder);
        let output =
            command.output().with_context(|| format!("could not start {}", suite.binary.display()))?;
        Ok(listed(&String::from_utf8_lossy(&output.stdout)))
    };
    let mut tests: BTreeMap<_, _> = names(&[])?.into_iter().map(|name| (name, Verdict::Passed)).collect();
    for role in names(&["--ignored"])? {
        tests.remove(&role);
    }
    Ok(tests)
}

fn listed(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect()
}

/// Every test's verdict, out of the list, what the binary wrote, the list of skips, and its status.
pub(crate) fn judge(
    mut tests: BTreeMap<String, Verdict>,
    output: &str,
    skips: &str,
    status: Option<i32>,
) -> BTreeMap<String, Verdict> {
    let Some(failed) =
        failures(output).filter(|failed| status == Some(if failed.is_empty() { 0 } else { 101 }))
    else {
        // Which tests had run is not known, so none counts as passed.
        return BTreeMap::from([(DEATH.into(), Verdict::Failed)]);
    };
    for (test, reason) in skips.lines().filter_map(skip) {
        // Called on a thread other than the test's own, a skip has no test's name; it counts all the same.
        let test = if tests.contains_key(test) { test.to_owned() } else { format!("(unknown: {test})") };
        tests.insert(test, Verdict::Skipped(reason.to_owned()));
    }
    for test in failed {
        tests.insert(test, Verdict::Failed);
    }
    tests
}

/// The names in the closing section; none of it means that the binary did not come to its end.
fn failures(output: &str) -> Option<Vec<String>> {
    let (before, _) = output.rsplit_once("\ntest result: ")?;
    let Some((_, section)) = before.rsplit_once("\nfailures:\n") else { return Some(Vec::new()) };
    Some(section.lines().filter_map(|line| Some(line.strip_prefix("    ")?.to_owned())).collect())
}

/// `SKIPPED test: reason`; other lines go on with a reason begun before.
fn skip(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("SKIPPED ")?.split_once(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: &str = "\nrunning 2 tests\ntest a::b ... ok\ntest c ... ok\n\n\
                          test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
    const FAILED: &str = "\nrunning 2 tests\ntest a::b ... noise of a child\nFAILED\n\nfailures:\n\n\
                          ---- a::b stdout ----\n    indented\nfailures:\n    not this\n\n\nfailures:\n    a::b\n\n\
                          test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";

    #[track_caller]
    fn check(output: &str, skips: &str, status: Option<i32>, expected: &[(&str, Verdict)]) {
        let tests = ["a::b", "c"].map(|name| (name.to_owned(), Verdict::Passed));
        let found = judge(BTreeMap::from(tests), output, skips, status);
        let expected = expected.iter().map(|(name, verdict)| ((*name).to_owned(), verdict.clone())).collect();
        assert_eq!(found, expected);
    }

    fn skipped(reason: &str) -> Verdict {
        Verdict::Skipped(reason.into())
    }

    #[test]
    fn closing_section_decides() {
        check(PASSED, "", Some(0), &[("a::b", Verdict::Passed), ("c", Verdict::Passed)]);
        check(FAILED, "", Some(101), &[("a::b", Verdict::Failed), ("c", Verdict::Passed)]);
    }

    #[test]
    fn skips_are_no_passes() {
        let skips = "SKIPPED c: no ipvlan: not supported\nmore about it\n";
        check(
            PASSED,
            skips,
            Some(0),
            &[("a::b", Verdict::Passed), ("c", skipped("no ipvlan: not supported"))],
        );
        let expected =
            [("(unknown: a test)", skipped("x")), ("a::b", Verdict::Passed), ("c", Verdict::Passed)];
        check(PASSED, "SKIPPED a test: x\n", Some(0), &expected);
        check(FAILED, "SKIPPED a::b: x\n", Some(101), &[("a::b", Verdict::Failed), ("c", Verdict::Passed)]);
    }

    #[test]
    fn binary_that_died_has_passed_nothing() {
        let death = [(DEATH, Verdict::Failed)];
        check("\nrunning 2 tests\ntest c ... ok\n", "", None, &death);
        check("\nrunning 2 tests\ntest c ... ok\n", "", Some(124), &death);
        check(PASSED, "", Some(101), &death);
        check(FAILED, "", Some(0), &death);
    }

    #[test]
    fn list_has_tests_and_no_benchmarks() {
        assert_eq!(listed("a::b: test\nc: benchmark\n\n"), ["a::b"]);
    }
}
