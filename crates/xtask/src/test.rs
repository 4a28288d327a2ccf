//! `cargo xtask test`: all lanes, one ledger, one closing line.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{ScopedJoinHandle, available_parallelism};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::guest::{Guest, Ran, Trouble};
use crate::ledger::{Counts, Ledger, Verdict, count};
use crate::suite::{self, Suite};
use crate::{fuzz, guest, native};

/// How long a fuzzer is run among the tests: enough to meet again what it met before, not to look for more.
const FUZZ_TIME: Duration = Duration::from_secs(15);

/// Which lanes to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// Natively, in the guests, and the fuzzers.
    All,
    /// In the guests alone.
    Guest,
}

/// Which tests to run.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// The crates; none stands for all.
    pub(crate) packages: Vec<String>,
    /// What the test binaries are to filter by; none stands for all.
    pub(crate) filters: Vec<String>,
}

impl Selection {
    /// `PACKAGE... [-- FILTER...]`
    pub(crate) fn parse(arguments: &[String]) -> Self {
        let mut parts = arguments.splitn(2, |argument| argument == "--");
        let mut part = || parts.next().unwrap_or_default().to_vec();
        Self { packages: part(), filters: part() }
    }
}

/// What is left to say when everything has run.
pub(crate) struct Summary {
    counts: Counts,
    /// Something beside a failed test is not as it must be.
    unfit: bool,
}

/// Builds and runs; failing tests are in the summary, not in the error.
pub(crate) fn run(lanes: Lanes, selection: &Selection) -> Result<Summary> {
    let start = Instant::now();
    let suites = suite::build(&selection.packages)?;
    println!("built   {} test binaries ({:.1} s)", suites.len(), start.elapsed().as_secs_f64());
    let mut ledger = Ledger::default();
    let mut lines = Vec::new();
    if lanes == Lanes::All {
        lines.push(native_lane(&suites, selection, &mut ledger)?);
        lines.extend(fuzz_lane(selection, &mut ledger)?);
    }
    let mut troubles = Vec::new();
    for (guest, ran) in guest_lanes(lanes, &suites, selection, &ledger)? {
        let mut counts = Counts::default();
        for (suite, verdicts) in &ran.verdicts {
            ledger.enter_all(suite, verdicts);
            counts += count(verdicts.values());
        }
        if counts != Counts::default() {
            lines.push(lane(guest.lane, counts, ran.time));
        }
        troubles.extend(ran.trouble.map(|trouble| (guest.lane, trouble)));
    }
    Ok(report(&ledger, &lines, &troubles))
}

/// As many guests at the same time as there are processors: an emulated one keeps one of ours busy.
fn guest_lanes(
    lanes: Lanes,
    suites: &[Suite],
    selection: &Selection,
    ledger: &Ledger,
) -> Result<Vec<(&'static Guest, Ran)>> {
    let natively = (lanes == Lanes::All).then_some(ledger);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(guest) = guest::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((guest, guest::run(guest, suites, &selection.filters, natively)?));
        }
        Ok::<_, anyhow::Error>(done)
    };
    let workers = available_parallelism().map_or(1, usize::from).min(guest::ALL.len());
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let join = |thread: ScopedJoinHandle<'_, Result<Vec<_>>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let done: Result<Vec<_>> = running.into_iter().map(join).collect();
        Ok(done?.into_iter().flatten().collect())
    })
}

fn native_lane(suites: &[Suite], selection: &Selection, ledger: &mut Ledger) -> Result<String> {
    let start = Instant::now();
    let logs =
        suites.first().and_then(|suite| suite.binary.parent()?.parent()).context("there are no tests")?;
    let logs = logs.join("test-logs");
    fs::create_dir_all(&logs).with_context(|| format!("could not make {}", logs.display()))?;
    let mut counts = Counts::default();
    for suite in suites {
        let verdicts = native::run(suite, &selection.filters, &logs)?;
        counts += count(verdicts.values());
        ledger.enter_all(&suite.name(), &verdicts);
    }
    if selection.filters.is_empty() {
        let examples = native::doc(&selection.packages)?;
        counts += count(examples.values());
        ledger.enter_all("doc", &examples);
    }
    Ok(lane("native", counts, start.elapsed()))
}

/// The fuzz targets of the chosen crates, unless only some tests are wanted.
fn fuzz_lane(selection: &Selection, ledger: &mut Ledger) -> Result<Option<String>> {
    let start = Instant::now();
    let wanted =
        |package: &str| selection.packages.is_empty() || selection.packages.iter().any(|p| p == package);
    let targets = fuzz::TARGETS.iter().filter(|(_, package)| selection.filters.is_empty() && wanted(package));
    let mut counts = Counts::default();
    for (target, _) in targets {
        let verdict = fuzz_target(target)?;
        counts += count([&verdict].into_iter());
        ledger.enter("fuzz", target, verdict);
    }
    Ok((counts != Counts::default()).then(|| lane("fuzz", counts, start.elapsed())))
}

fn fuzz_target(target: &str) -> Result<Verdict> {
    if let Some(reason) = fuzz::unmet() {
        return Ok(Verdict::Skipped(reason));
    }
    let found = fuzz::feed(target, FUZZ_TIME, |_| {})?;
    println!("{}", found.line);
    Ok(match found.crash {
        None => Verdict::Passed,
        Some(output) => {
            println!("{output}");
            Verdict::Failed
        }
    })
}

fn lane(name: &str, counts: Counts, time: Duration) -> String {
    format!("lane {name}: {counts} ({:.0} s)", time.as_secs_f64())
}

/// Everything but the closing line.
fn report(ledger: &Ledger, lanes: &[String], troubles: &[(&str, Trouble)]) -> Summary {
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
    println!();
    for line in ledger.failed() {
        println!("FAILED {line}");
    }
    for line in ledger.skipped() {
        println!("SKIPPED {line}");
    }
    for (lane, Trouble::NoGuest(reason) | Trouble::Died(reason)) in troubles {
        println!("\n!!! THE LANE {} DID NOT RUN TO ITS END: {reason}\n", lane.to_uppercase());
    }
    for line in lanes {
        println!("{line}");
    }
    let counts = ledger.counts();
    let unfit_for_ci = counts.skipped > 0 || !troubles.is_empty();
    if ci && unfit_for_ci {
        println!("in CI every test must run somewhere, and the guests must boot");
    }
    let died = troubles.iter().any(|(_, trouble)| matches!(trouble, Trouble::Died(_)));
    Summary { counts, unfit: died || (ci && unfit_for_ci) }
}

impl Summary {
    /// Says the closing line, and whether all is well.
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
    fn packages_and_filters_are_told_apart() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let selection = Selection::parse(&words("plan lab -- faults:: --exact"));
        assert_eq!((selection.packages, selection.filters), (words("plan lab"), words("faults:: --exact")));
        let selection = Selection::parse(&[]);
        assert!(selection.packages.is_empty() && selection.filters.is_empty());
    }
}
