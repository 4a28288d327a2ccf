//! The native lane: every test on this machine's own kernel, each in a separate process.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::lane::{FinishedTest, Lane};
use crate::ledger::TestOutcome;
use crate::libtest::{self, Test};
use crate::suite::{TestKind, select};
use crate::{cargo, root};

/// For one test. The longest takes two minutes on a quiet machine.
const TEST_TIME_MAX: Duration = Duration::from_secs(900);

/// Runs the tests in order, as many at a time as there are processors. The logs of failed tests stay in
/// `logs`.
pub(crate) fn run(tests: &[Test<'_>], lane: &Lane<'_>, logs: &Path) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            lane.enter(test, run_alone(test, logs)?);
        }
        Ok(())
    };
    let workers = available_parallelism().map_or(1, usize::from);
    let ended: Vec<thread::Result<Result<()>>> = thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    // However it ended, other lanes must not wait for it any longer.
    lane.close();
    let resumed = |ended: thread::Result<_>| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    ended.into_iter().try_for_each(resumed)
}

fn run_alone(test: &Test<'_>, logs: &Path) -> Result<FinishedTest> {
    let Test { suite, name } = test;
    let stem = test.full_name().replace([' ', ':'], "-");
    let (log, skips) = (logs.join(format!("{stem}.log")), logs.join(format!("{stem}.skips")));
    fs::write(&skips, "").with_context(|| format!("could not write {}", skips.display()))?;
    let file = File::create(&log).with_context(|| format!("could not write {}", log.display()))?;

    let start = Instant::now();
    let mut command = match suite.kind {
        TestKind::Unit => bounded(&suite.binary, TEST_TIME_MAX),
        TestKind::Integration => with_own_run(&suite.binary, TEST_TIME_MAX)?,
    };
    command.args(["--exact", name]).current_dir(&suite.folder);
    command.env("HOSTGAP_SKIPS", &skips).env("CARGO_MANIFEST_DIR", &suite.folder);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().with_context(|| format!("could not start {command:?}"))?;
    let time = start.elapsed();

    let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let verdict = libtest::verdict(status.code(), &output, &fs::read_to_string(&skips)?);
    if verdict != TestOutcome::Failed {
        // Otherwise the logs of thousands of passed tests would remain.
        fs::remove_file(&log)?;
    }
    fs::remove_file(&skips)?;
    let ending = libtest::ending(status.code(), time, TEST_TIME_MAX);
    Ok(FinishedTest { verdict, time, output: format!("{output}{ending}") })
}

/// Runs the examples in doc comments, which only rustdoc can build. Returns a verdict for each example.
pub(crate) fn doc(packages: &[String]) -> Result<Vec<(String, TestOutcome)>> {
    let mut command = cargo();
    command.args(["test", "--quiet", "--doc"]).current_dir(root()).stdin(Stdio::null());
    select(&mut command, packages);
    let output = command.output().context("could not start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let passed: usize = text.lines().filter_map(doc_passes).sum();
    let mut verdicts: Vec<_> =
        (1..=passed).map(|number| (format!("example {number}"), TestOutcome::Passed)).collect();
    if !output.status.success() {
        verdicts.push(("(some)".into(), TestOutcome::Failed));
        println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(verdicts)
}

/// `test result: ok. 3 passed; …`
fn doc_passes(line: &str) -> Option<usize> {
    let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
    rest.split_once(" passed")?.0.parse().ok()
}

/// A command that ends with this process or after `time`, with all its children.
pub(crate) fn bounded(program: &Path, time: Duration) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--", "timeout", "--kill-after=10"]);
    command.arg(time.as_secs().to_string()).arg(program);
    command
}

/// The same in a mount namespace with an empty `/run`. Named namespaces, pins and races that a test leaves
/// there disappear with its last process, even if it was killed, and two test runs do not interfere. Without
/// root, it uses the real `/run`.
fn with_own_run(program: &Path, time: Duration) -> Result<Command> {
    if !is_root()? {
        return Ok(bounded(program, time));
    }
    let mut command = bounded(Path::new("unshare"), time);
    command.args(["--mount", "sh", "-c", "mount -t tmpfs none /run && exec \"$0\" \"$@\""]).arg(program);
    Ok(command)
}

/// Whether tests can make namespaces here.
pub(crate) fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self").context("could not look at /proc/self")?.uid() == 0)
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
