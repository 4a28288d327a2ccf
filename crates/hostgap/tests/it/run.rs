//! Running the binary, and looking at what it leaves.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// One race at a time: they would wait for each other anyway, and tests that look at what is left must not see
/// another test's namespaces.
static TURN: Mutex<()> = Mutex::new(());

/// A test's turn, with a directory for its results.
pub(crate) struct Turn {
    _turn: MutexGuard<'static, ()>,
    dir: tempfile::TempDir,
}

/// Takes the turn; what an earlier test's crash left is cleaned first.
pub(crate) fn turn() -> Turn {
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let turn = Turn { _turn: turn, dir };
    assert!(turn.hostgap(&["clean"]).status.success());
    turn
}

impl Turn {
    /// The directory for `--out`.
    pub(crate) fn out(&self) -> &Path {
        self.dir.path()
    }

    /// Runs to the end.
    pub(crate) fn hostgap(&self, args: &[&str]) -> Output {
        hostgap(args).output().unwrap()
    }

    /// Starts a race of a few short rounds with more arguments.
    pub(crate) fn start_race(&self, args: &[&str]) -> Child {
        let mut command = self.race(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// A race with more arguments, to the end.
    pub(crate) fn run_race(&self, args: &[&str]) -> Output {
        self.race(args).output().unwrap()
    }

    fn race(&self, args: &[&str]) -> Command {
        let mut command = hostgap(&["race", "--out"]);
        command.arg(self.out()).args(args);
        command
    }

    /// The only record in the directory.
    pub(crate) fn record(&self) -> PathBuf {
        let mut records: Vec<PathBuf> = std::fs::read_dir(self.out())
            .unwrap()
            .map(|entry| entry.unwrap().path().join("race.jsonl"))
            .filter(|path| path.exists())
            .collect();
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }
}

/// The binary with arguments.
pub(crate) fn hostgap(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hostgap"));
    command.args(args);
    command
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "waited for a minute until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The namespaces that any hostgap has on this machine.
pub(crate) fn namespaces() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("hg-")).collect()
}

/// The directories that any hostgap has on this machine.
pub(crate) fn homes() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/run/hostgap") else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
}

/// Processes whose command line names a file of ours.
pub(crate) fn servers() -> Vec<String> {
    let mut servers = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path().join("cmdline");
        let Ok(line) = std::fs::read_to_string(&path) else { continue };
        if line.contains("/run/hostgap/") {
            servers.push(line.replace('\0', " "));
        }
    }
    servers
}

/// Fails if anything of any hostgap is left on the machine.
#[track_caller]
pub(crate) fn assert_nothing_left() {
    assert_eq!(namespaces(), Vec::<String>::new());
    assert_eq!(homes(), Vec::<PathBuf>::new());
    assert_eq!(servers(), Vec::<String>::new());
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Standard output as text.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}
