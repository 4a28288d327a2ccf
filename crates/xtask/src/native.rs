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

/// Blocks of code in these are shown, and not run.
const OTHER_LANGUAGES: [&str; 4] = ["text", "toml", "json", "sh"];
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
    let with_examples = with_examples(packages)?;
    if with_examples.is_empty() {
        return Ok(Vec::new());
    }
    let mut command = cargo();
    command.args(["test", "--quiet", "--doc"]).current_dir(root()).stdin(Stdio::null());
    select(&mut command, &with_examples);
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

/// Those of the packages, or of all, that have examples. rustdoc reads a crate as long as the compiler does, to find none.
fn with_examples(packages: &[String]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates")).context("could not list the crates")? {
        let folder = entry?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if (packages.is_empty() || packages.contains(&name)) && has_example(&folder.join("src"))? {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

fn has_example(folder: &Path) -> Result<bool> {
    for entry in fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))? {
        let path = entry?.path();
        let has = match path.extension() {
            None => path.is_dir() && has_example(&path)?,
            Some(extension) => extension == "rs" && opens_example(&fs::read_to_string(&path)?),
        };
        if has {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a doc comment opens a block of code that is no other language's.
fn opens_example(source: &str) -> bool {
    let mut is_inside = false;
    source.lines().filter_map(doc_fence).any(|language| {
        is_inside = !is_inside;
        is_inside && !OTHER_LANGUAGES.contains(&language)
    })
}

/// What stands behind the fence of a block of code in a doc comment.
fn doc_fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    comment.trim_start().strip_prefix("```").map(str::trim)
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
    fn examples_are_told_from_other_blocks() {
        assert!(opens_example("/// A\n/// ```\n/// let a = 1;\n/// ```\nfn a() {}"));
        assert!(opens_example("//! ```should_panic\n//! panic!();\n//! ```"));
        assert!(opens_example("    /// ```text\n    /// a\n    /// ```\n    /// ```no_run\n"));
        assert!(!opens_example("//! ```text\n//! a -> b\n//! ```\nlet fence = \"```\";"));
    }

    #[test]
    fn what_hangs_is_ended() {
        let start = Instant::now();
        let status = bounded(Path::new("sleep"), Duration::from_secs(1)).arg("600").status().unwrap();
        assert_eq!(status.code(), Some(124));
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
