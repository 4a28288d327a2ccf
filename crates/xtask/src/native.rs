//! The native lane: every test binary on this machine's own kernel.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::ledger::{Counts, Verdict, count};
use crate::libtest;
use crate::suite::{Suite, select};
use crate::{cargo, root};

/// Bounds a binary that hangs; those that race take a quarter of an hour on a busy machine.
const TIME_MAX: Duration = Duration::from_secs(1800);
/// More threads make tests that build namespaces wait for the kernel's one lock on them.
const THREADS_MAX: usize = 4;

/// Runs one binary; its output goes to a log, shown only if something failed.
pub(crate) fn run(suite: &Suite, filters: &[String], logs: &Path) -> Result<BTreeMap<String, Verdict>> {
    let start = Instant::now();
    let tests = libtest::list(suite, filters)?;
    let stem = suite.name().replace(' ', "-");
    let (log, skips) = (logs.join(format!("{stem}.log")), logs.join(format!("{stem}.skips")));
    fs::write(&skips, "").with_context(|| format!("could not write {}", skips.display()))?;
    let file = File::create(&log).with_context(|| format!("could not write {}", log.display()))?;

    let threads = available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let mut command = bounded(&suite.binary, TIME_MAX);
    command.arg(format!("--test-threads={threads}")).args(filters).current_dir(&suite.folder);
    command.env("HOSTGAP_SKIPS", &skips).env("CARGO_MANIFEST_DIR", &suite.folder);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().with_context(|| format!("could not start {command:?}"))?;

    let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let verdicts = libtest::judge(tests, &output, &fs::read_to_string(&skips)?, status.code());
    let counts = show("native", &suite.name(), &verdicts, start.elapsed());
    if counts.failed > 0 {
        println!("{output}{status}");
    }
    Ok(verdicts)
}

/// Runs the examples in doc comments, which only rustdoc can build.
pub(crate) fn doc(packages: &[String]) -> Result<BTreeMap<String, Verdict>> {
    let start = Instant::now();
    let mut command = cargo();
    command.args(["test", "--quiet", "--doc"]).current_dir(root()).stdin(Stdio::null());
    select(&mut command, packages);
    let output = command.output().context("could not start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut verdicts = BTreeMap::new();
    let passed: usize = text.lines().filter_map(doc_passes).sum();
    for number in 1..=passed {
        verdicts.insert(format!("example {number}"), Verdict::Passed);
    }
    if !output.status.success() {
        verdicts.insert("(some)".into(), Verdict::Failed);
        println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    show("native", "doc comments", &verdicts, start.elapsed());
    Ok(verdicts)
}

/// `test result: ok. 3 passed; …`
fn doc_passes(line: &str) -> Option<usize> {
    let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
    rest.split_once(" passed")?.0.parse().ok()
}

/// A program that ends with us and with all of its children after a time.
pub(crate) fn bounded(program: &Path, time: Duration) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--", "timeout", "--kill-after=10"]);
    command.arg(time.as_secs().to_string()).arg(program);
    command
}

/// Prints a binary's line.
pub(crate) fn show(lane: &str, suite: &str, verdicts: &BTreeMap<String, Verdict>, time: Duration) -> Counts {
    let counts = count(verdicts.values());
    println!("{lane:<7} {suite:<18} {counts} ({:.1} s)", time.as_secs_f64());
    for (test, verdict) in verdicts {
        if let Verdict::Failed = verdict {
            println!("        FAILED {test}");
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_of_examples_are_counted() {
        assert_eq!(doc_passes("test result: ok. 3 passed; 0 failed; 0 ignored"), Some(3));
        assert_eq!(doc_passes("test result: FAILED. 2 passed; 1 failed"), Some(2));
        assert_eq!(doc_passes("running 3 tests"), None);
    }

    #[test]
    fn what_hangs_is_ended() {
        let start = Instant::now();
        let status = bounded(Path::new("sleep"), Duration::from_secs(1)).arg("600").status().unwrap();
        assert_eq!(status.code(), Some(124));
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
