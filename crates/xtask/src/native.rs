//! The native lane: every test on this machine's own kernel, each in a separate process.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::lane::{FinishedTest, Lane};
use crate::ledger::{Ledger, TestOutcome};
use crate::libtest::{self, Test};
use crate::suite::TestKind;
use crate::temporary::TemporaryFolders;

/// For one test. The longest takes six to eight minutes beside the others, and a busy machine is several times slower.
pub(crate) const TEST_TIME_MAX: Duration = Duration::from_secs(2700);

/// So many failed tests run once more, alone. More of them are no accident of a busy machine.
const SECOND_RUNS_MAX: usize = 3;

/// The tests of the lane, in order, for any number of threads to take one after the other.
pub(crate) struct Queue<'a> {
    tests: &'a [Test<'a>],
    next: AtomicUsize,
    /// Where tests make their temporary files.
    temporary: TemporaryFolders,
    pub(crate) lane: Lane<'a>,
    /// Where the logs of failed tests stay.
    logs: &'a Path,
    /// Tests that failed beside others and have not ended: [`Queue::run_failed_alone`] has the last word on them.
    failed: Mutex<Vec<&'a Test<'a>>>,
    second_runs_max: usize,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(tests: &'a [Test<'a>], ledger: &'a Mutex<Ledger>, logs: &'a Path) -> Result<Self> {
        let lane = Lane::new("native", tests, ledger);
        let (next, temporary) = (AtomicUsize::new(0), TemporaryFolders::new()?);
        Ok(Self { tests, next, temporary, lane, logs, failed: Mutex::default(), second_runs_max: 0 })
    }

    /// The same, with a second run for tests that fail beside others.
    pub(crate) fn with_second_runs(self) -> Self {
        Self { second_runs_max: SECOND_RUNS_MAX, ..self }
    }

    /// Runs half as many tests again as there are processors, until none is left: most of them wait for a third of
    /// their time, for rounds of a race or for timers.
    pub(crate) fn run(&self) -> Result<()> {
        let processors = available_parallelism().map_or(1, usize::from);
        let workers = processors + processors.div_ceil(2);
        let ended: Vec<thread::Result<Result<()>>> = thread::scope(|scope| {
            let running: Vec<_> = (0..workers).map(|_| scope.spawn(|| self.work())).collect();
            running.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        // However it ended, other lanes must not wait for it any longer.
        self.lane.close();
        let resumed =
            |ended: thread::Result<_>| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended.into_iter().try_for_each(resumed)
    }

    /// Runs tests one after the other until none is left.
    pub(crate) fn work(&self) -> Result<()> {
        while let Some(test) = self.tests.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let ended = self.run_test(test)?;
            if ended.verdict == TestOutcome::Failed && self.is_given_a_second_run(test) {
                self.lane.postpone(test, &ended);
            } else {
                self.lane.enter(test, ended);
            }
        }
        Ok(())
    }

    fn is_given_a_second_run(&self, test: &'a Test<'a>) -> bool {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = failed.len() < self.second_runs_max;
        if has_room {
            failed.push(test);
        }
        has_room
    }

    /// Runs each test that failed beside others once more, with nothing beside it. Those that pass now are returned: a
    /// fault of the test or of the program that shows only on a busy machine.
    pub(crate) fn run_failed_alone(&self) -> Result<Vec<String>> {
        let failed = std::mem::take(&mut *self.failed.lock().unwrap_or_else(PoisonError::into_inner));
        let mut unsteady = Vec::new();
        for test in failed {
            let ended = self.run_test(test)?;
            if ended.verdict != TestOutcome::Failed {
                unsteady.push(test.full_name());
            }
            self.lane.enter(test, ended);
        }
        Ok(unsteady)
    }

    /// Runs each test once more that no lane could run. What cannot run here says so in a moment; a test that needs a
    /// quiet machine may have one now.
    pub(crate) fn run_skipped_alone(&self, ledger: &Mutex<Ledger>) -> Result<()> {
        let ledger = || ledger.lock().unwrap_or_else(PoisonError::into_inner);
        for test in self.tests {
            let suite = test.suite.name();
            if ledger().is_skipped(&suite, &test.name) {
                let ended = self.run_test(test)?;
                ledger().enter(&suite, &test.name, ended.verdict);
            }
        }
        Ok(())
    }

    fn run_test(&self, test: &Test<'_>) -> Result<FinishedTest> {
        let Test { suite, name } = test;
        let stem = test.full_name().replace([' ', ':'], "-");
        let (log, skips) = (self.logs.join(format!("{stem}.log")), self.logs.join(format!("{stem}.skips")));
        fs::write(&skips, "").with_context(|| format!("could not write {}", skips.display()))?;
        let file = File::create(&log).with_context(|| format!("could not write {}", log.display()))?;

        let temporary = self.temporary.make()?;
        let start = Instant::now();
        let mut command = match suite.kind {
            TestKind::Unit => bounded(&suite.binary, TEST_TIME_MAX),
            TestKind::Integration => with_own_run(&suite.binary, TEST_TIME_MAX)?,
        };
        command.args(["--exact", name]).current_dir(&suite.folder);
        command.env("HOSTGAP_SKIPS", &skips).env("CARGO_MANIFEST_DIR", &suite.folder);
        command.env("TMPDIR", temporary.path());
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::suite::Suite;

    #[test]
    fn what_hangs_is_ended() {
        let start = Instant::now();
        let status = bounded(Path::new("sleep"), Duration::from_secs(1)).arg("600").status().unwrap();
        assert_eq!(status.code(), Some(124));
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_test_that_fails_or_cannot_run_beside_others_runs_once_more_alone() {
        let folder = tempfile::tempdir().unwrap();
        let suite = |name: &str, script: &str| {
            let binary = folder.path().join(name);
            fs::write(&binary, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
            Suite { package: name.into(), kind: TestKind::Unit, binary, folder: folder.path().into() }
        };
        let suites = [
            suite("once", "rm first 2>/dev/null && exit 101; printf '\\ntest result: ok. 1 passed'"),
            suite("always", "exit 101"),
            suite(
                "quiet",
                "rm busy 2>/dev/null && echo 'SKIPPED a: it is too busy' >>$HOSTGAP_SKIPS; \
                 printf '\\ntest result: ok. 1 passed'",
            ),
        ];
        let tests = suites.each_ref().map(|suite| Test { suite, name: "a".into() });
        let run = |second: bool| {
            ["first", "busy"].iter().for_each(|name| fs::write(folder.path().join(name), "").unwrap());
            let ledger = Mutex::default();
            let queue = Queue::new(&tests, &ledger, folder.path()).unwrap();
            let queue = if second { queue.with_second_runs() } else { queue };
            queue.run().unwrap();
            let unsteady = queue.run_failed_alone().unwrap();
            assert_eq!(ledger.lock().unwrap().skipped(), ["quiet unit a: it is too busy"]);
            queue.run_skipped_alone(&ledger).unwrap();
            let ledger = ledger.lock().unwrap();
            assert!(ledger.skipped().is_empty());
            (unsteady, ledger.failed())
        };
        assert_eq!(run(false), (vec![], vec!["always unit a".into(), "once unit a".into()]));
        assert_eq!(run(true), (vec!["once unit a".into()], vec!["always unit a".into()]));
    }

    #[test]
    fn temporary_files_go_with_a_killed_test() {
        let (folder, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let binary = folder.path().join("killed");
        let script = format!(
            "#!/bin/sh\necho $TMPDIR >{}/where; touch $TMPDIR/left; kill -9 $$\n",
            logs.path().display()
        );
        fs::write(&binary, script).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        let kind = TestKind::Unit;
        let suite = Suite { package: "killed".into(), kind, binary, folder: folder.path().into() };
        let tests = [Test { suite: &suite, name: "a".into() }];
        let ledger = Mutex::default();
        let queue = Queue::new(&tests, &ledger, logs.path()).unwrap();
        queue.run().unwrap();
        let place = fs::read_to_string(logs.path().join("where")).unwrap();
        let place = Path::new(place.trim());
        assert!(!place.exists() && place.parent().unwrap().exists(), "{}", place.display());
        drop(queue);
        assert!(!place.parent().unwrap().exists(), "{}", place.display());
    }
}
