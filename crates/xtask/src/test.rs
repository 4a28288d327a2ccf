//! `cargo xtask test`: all lanes at the same time, one ledger, one closing line.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{ScopedJoinHandle, available_parallelism};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::guest::{self, Guest, Trouble, When};
use crate::lane::Lane;
use crate::ledger::{Counts, Ledger, TestOutcome};
use crate::libtest::{self, Test};
use crate::suite::{self, Suite};
use crate::{fuzz, native};

/// How long each fuzzer runs among the tests: enough to repeat known inputs, but not to search for new ones.
const FUZZ_TIME: Duration = Duration::from_secs(4);

/// Which lanes to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// The native lane, the guests and the fuzzers.
    All,
    /// On this machine's own kernel alone.
    Native,
    /// In the guests alone.
    Guest,
}

/// Which tests to run.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// The crates. None means all.
    pub(crate) packages: Vec<String>,
    /// The filters for the test binaries. None means all tests.
    pub(crate) filters: Vec<String>,
}

impl Selection {
    /// Parses `PACKAGE... [-- FILTER...]`.
    pub(crate) fn parse(arguments: &[String]) -> Self {
        let mut parts = arguments.splitn(2, |argument| argument == "--");
        let mut part = || parts.next().unwrap_or_default().to_vec();
        Self { packages: part(), filters: part() }
    }

    /// Whether all tests are selected.
    fn is_whole(&self) -> bool {
        self.packages.is_empty() && self.filters.is_empty()
    }
}

/// The lines to print when all lanes have ended.
pub(crate) struct TestSummary {
    counts: Counts,
    /// Something other than a test failed.
    unfit: bool,
}

/// The lines and troubles of all lanes.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    troubles: Vec<(&'static str, Trouble)>,
    /// Tests that failed beside others and passed alone.
    unsteady: Vec<String>,
}

/// Builds and runs the tests. Failed tests are in the summary, not in the error.
pub(crate) fn run(lanes: Lanes, selection: &Selection) -> Result<TestSummary> {
    let start = Instant::now();
    let suites = suite::build(&selection.packages)?;
    println!("built   {} test binaries ({:.1} s)", suites.len(), start.elapsed().as_secs_f64());
    let mut tests = Vec::new();
    for suite in &suites {
        tests.extend(libtest::list(suite, &selection.filters)?);
    }
    if tests.is_empty() {
        bail!("no test is called so: {}", selection.filters.join(" "));
    }
    let unfit = if selection.is_whole() { guest::lines_without_tests(&tests) } else { Vec::new() };
    if !unfit.is_empty() {
        bail!("no test is called as these lines of guest/lanes.rs say: {}", unfit.join(", "));
    }
    tests.sort_by_key(order);
    let ledger = Mutex::new(Ledger::default());
    let report = match lanes {
        Lanes::All => all_lanes(&suites, &tests, selection, &ledger)?,
        Lanes::Native => native_lane(&suites, &tests, &ledger)?,
        Lanes::Guest => guest_lanes(&tests, None, &ledger)?,
    };
    Ok(summary(&ledger.into_inner().unwrap_or_else(PoisonError::into_inner), &report))
}

/// Tests whose skips a guest waits for come first, then those that mostly wait for the kernel and leave processors to
/// others, then those of the longest suite, and unit tests last.
fn order(test: &Test<'_>) -> (bool, bool, bool, bool) {
    let awaited = guest::ALL.iter().any(|guest| guest.when(test) == When::Skipped);
    let integration = test.suite.kind == suite::TestKind::Integration;
    let package = &test.suite.package;
    (!awaited, package != "plan", package != "hostgap", !integration)
}

/// Runs all lanes at the same time: a race waits for its rounds, and a guest keeps its processor busy.
fn all_lanes(
    suites: &[Suite],
    tests: &[Test<'_>],
    selection: &Selection,
    ledger: &Mutex<Ledger>,
) -> Result<Report> {
    let logs = logs(suites)?;
    let native = native::Queue::new(tests, ledger, &logs)?.with_second_runs();
    let (mut report, fuzzed) = std::thread::scope(|scope| {
        let tested = scope.spawn(|| native.run());
        let fuzzed = scope.spawn(|| fuzz_lane(selection, ledger));
        let report = guest_lanes(tests, Some(&native), ledger)?;
        join(tested)?;
        anyhow::Ok((report, join(fuzzed)?))
    })?;
    report.unsteady = native.run_failed_alone()?;
    native.run_skipped_alone(ledger)?;
    report.lines.splice(0..0, native.lane.lines().into_iter().chain(fuzzed));
    Ok(report)
}

fn native_lane(suites: &[Suite], tests: &[Test<'_>], ledger: &Mutex<Ledger>) -> Result<Report> {
    let logs = logs(suites)?;
    let native = native::Queue::new(tests, ledger, &logs)?;
    native.run()?;
    Ok(Report { lines: native.lane.lines(), ..Report::default() })
}

fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The folder for the logs of failed tests, beside the build.
fn logs(suites: &[Suite]) -> Result<PathBuf> {
    let built = suites.first().and_then(|suite| suite.binary.parent()?.parent());
    let logs = built.context("there are no tests")?.join("test-logs");
    fs::create_dir_all(&logs).with_context(|| format!("could not make {}", logs.display()))?;
    Ok(logs)
}

/// Runs as many guests at the same time as there are processors, because an emulated one keeps a processor
/// busy. A thread that has no more guests to run helps the native lane.
fn guest_lanes(
    tests: &[Test<'_>],
    native: Option<&native::Queue<'_>>,
    ledger: &Mutex<Ledger>,
) -> Result<Report> {
    let next = AtomicUsize::new(0);
    let after_native = if native.is_some() && native::is_root()? { libtest::program(tests) } else { None };
    let work = || {
        let mut report = Report::default();
        while let Some(guest) = guest::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            let tests = of_guest(guest, tests, native.map(|native| &native.lane), ledger);
            let lane = Lane::new(guest.lane, &tests, ledger);
            let trouble = guest::run(guest, &tests, &lane, after_native.as_deref())?;
            report.troubles.extend(trouble.map(|trouble| (guest.lane, trouble)));
            report.lines.extend(lane.lines());
        }
        native.map_or(Ok(()), native::Queue::work)?;
        Ok::<_, anyhow::Error>(report)
    };
    let workers = available_parallelism().map_or(1, usize::from).min(guest::ALL.len());
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let mut whole = Report::default();
        for report in running.into_iter().map(join) {
            let report = report?;
            whole.lines.extend(report.lines);
            whole.troubles.extend(report.troubles);
        }
        Ok(whole)
    })
}

/// The tests for a guest, once the skips of the native lane are known.
fn of_guest<'a>(
    guest: &Guest,
    tests: &[Test<'a>],
    native: Option<&Lane<'_>>,
    ledger: &Mutex<Ledger>,
) -> Vec<Test<'a>> {
    let of = |when: When| tests.iter().filter(move |test| guest.when(test) == when).cloned();
    let mut awaited: Vec<Test<'a>> = of(When::Skipped).collect();
    if let Some(native) = native {
        native.wait_for(&awaited);
        let ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
        // What failed and will run once more, alone, may be found then to be one that cannot run here.
        awaited.retain(|test| !ledger.has_run(&test.suite.name(), &test.name));
    }
    let mut tests: Vec<Test<'a>> = of(When::Always).chain(awaited).collect();
    tests.sort_by_key(Test::full_name);
    tests
}

/// Builds and feeds the fuzz targets of the selected crates. Returns the lane's line; none if a filter selects
/// single tests.
fn fuzz_lane(selection: &Selection, ledger: &Mutex<Ledger>) -> Result<Option<String>> {
    let wanted =
        |package: &str| selection.packages.is_empty() || selection.packages.iter().any(|p| p == package);
    let targets: Vec<&str> =
        fuzz::TARGETS.iter().filter(|(_, package)| wanted(package)).map(|(target, _)| *target).collect();
    if !selection.filters.is_empty() || targets.is_empty() {
        return Ok(None);
    }
    let start = Instant::now();
    let verdicts = fuzz_targets(&targets)?;
    let counts = crate::ledger::count(verdicts.iter().map(|(_, verdict)| verdict));
    let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
    verdicts.into_iter().for_each(|(test, verdict)| ledger.enter("fuzz", &test, verdict));
    Ok(Some(format!("lane fuzz: {counts} ({:.0} s)", start.elapsed().as_secs_f64())))
}

fn fuzz_targets(targets: &[&str]) -> Result<Vec<(String, TestOutcome)>> {
    if let Some(reason) = fuzz::unmet() {
        let skipped = |target: &&str| ((*target).to_owned(), TestOutcome::Skipped(reason.clone()));
        return Ok(targets.iter().map(skipped).collect());
    }
    let built = fuzz::build(targets, fuzz::Profile::Dev)?.into_iter();
    built.map(|(target, binary)| Ok((target.clone(), fuzz_target(&target, &binary)?))).collect()
}

fn fuzz_target(target: &str, binary: &Path) -> Result<TestOutcome> {
    let found = fuzz::feed(target, binary, FUZZ_TIME, |_| {})?;
    println!("{}", found.line);
    Ok(match found.crash {
        None => TestOutcome::Passed,
        Some(output) => {
            println!("{output}");
            TestOutcome::Failed
        }
    })
}

/// The summary without the closing line.
fn summary(ledger: &Ledger, Report { lines, troubles, unsteady }: &Report) -> TestSummary {
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
    println!();
    for line in ledger.failed() {
        println!("FAILED {line}");
    }
    for test in unsteady {
        println!("UNSTEADY {test}: it failed beside other tests (above) and passed alone; find out why");
    }
    for line in ledger.skipped() {
        println!("SKIPPED {line}");
    }
    for (lane, Trouble::NoGuest(reason) | Trouble::Died(reason)) in troubles {
        println!("\n!!! THE LANE {} DID NOT RUN TO ITS END: {reason}\n", lane.to_uppercase());
    }
    for line in lines {
        println!("{line}");
    }
    let counts = ledger.counts();
    let unfit_for_ci = counts.skipped > 0 || !troubles.is_empty();
    if ci && unfit_for_ci {
        println!("in CI every test must run somewhere, and the guests must boot");
    }
    let died = troubles.iter().any(|(_, trouble)| matches!(trouble, Trouble::Died(_)));
    TestSummary { counts, unfit: died || (ci && unfit_for_ci) }
}

impl TestSummary {
    /// Prints the closing line, and returns whether all tests passed.
    pub(crate) fn close(self) -> Result<()> {
        println!("{}", self.counts);
        if self.counts.failed > 0 || self.unfit {
            bail!("the tests did not pass");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_and_filters_are_distinguished() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let selection = Selection::parse(&words("plan lab -- faults:: --exact"));
        assert_eq!((selection.packages, selection.filters), (words("plan lab"), words("faults:: --exact")));
        let selection = Selection::parse(&[]);
        assert!(selection.packages.is_empty() && selection.filters.is_empty());
    }
}
