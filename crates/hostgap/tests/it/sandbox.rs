//! Runs the binary with a `/run` of its own, and examines what it leaves there.
//!
//! Each test has a mount namespace in which `/run` is an empty tmpfs. Named namespaces and hostgap's own
//! directory lie there, so a test neither sees nor touches what others have on this machine, and whatever a
//! failed test leaves disappears with it.

use std::io::{BufRead, BufReader, PipeWriter};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use linux::process::kill_in;
use linux::{Netns, NetnsPath};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// One test at a time: the machine has few CPUs, and a race uses all of them.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What a test runs the binary in: a `/run` of its own and a directory for its results, while no other test has one.
pub(crate) struct Sandbox {
    own: OwnRun,
    dir: tempfile::TempDir,
    _exclusive: MutexGuard<'static, ()>,
}

/// A mount namespace in which `/run` is empty at first.
pub(crate) struct OwnRun {
    keeper: Child,
    /// The keeper reads from it, and ends when it is closed, even if the test dies.
    _lifeline: ChildStdin,
}

/// Waits until no other test has one, and makes it.
pub(crate) fn sandbox() -> Sandbox {
    let exclusive = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Sandbox { own: own_run(), dir: tempfile::tempdir().unwrap(), _exclusive: exclusive }
}

/// Another `/run`, as another machine has.
pub(crate) fn own_run() -> OwnRun {
    let mut keeper = Command::new("unshare")
        .args(["--mount", "sh", "-c", "mount -t tmpfs none /run && echo ready && exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "a mount namespace with a /run of its own takes root");
    let lifeline = keeper.stdin.take().unwrap();
    OwnRun { keeper, _lifeline: lifeline }
}

impl std::ops::Deref for Sandbox {
    type Target = OwnRun;

    fn deref(&self) -> &OwnRun {
        &self.own
    }
}

impl Sandbox {
    /// The directory for `--out`, removed after the test.
    pub(crate) fn out(&self) -> &Path {
        self.dir.path()
    }

    /// Runs the binary to its end.
    pub(crate) fn hostgap(&self, args: &[&str]) -> Output {
        self.command(HOSTGAP).args(args).output().unwrap()
    }

    pub(crate) fn start_race(&self, args: &[&str]) -> Child {
        self.race(args).spawn().unwrap()
    }

    pub(crate) fn run_race(&self, args: &[&str]) -> Output {
        self.race(args).output().unwrap()
    }

    fn race(&self, args: &[&str]) -> Command {
        let mut command = self.command(HOSTGAP);
        command.args(["race", "--out"]).arg(self.out()).args(args);
        command
    }

    /// The only record in the directory.
    pub(crate) fn record(&self) -> PathBuf {
        let mut records = self.records();
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }

    /// All records in the directory.
    pub(crate) fn records(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.out()).unwrap();
        let records = entries.map(|entry| entry.unwrap().path().join("race.jsonl"));
        records.filter(|path| path.exists()).collect()
    }

    /// Waits until a race has a finished round in its record. Before the first race on another kernel, that
    /// kernel and its emulator are fetched. Fails with the end of its record if the race ends before.
    #[track_caller]
    pub(crate) fn until_a_round_is_done(&self) {
        let (mut looks, mut has_run) = (0_u32, false);
        until_within(Duration::from_secs(600), "a round is written down", || {
            looks += 1;
            let is_done = self.has_line("{\"round\":{").is_some();
            // All processes of the machine are looked through for it. One that fails at its start is gone soon.
            if !is_done && (looks < 100 || looks.is_multiple_of(100)) {
                let runs = self.processes().iter().any(|line| line.contains(&format!("{HOSTGAP} race ")));
                if has_run && !runs && self.has_line("{\"round\":{").is_none() {
                    panic!("the race ended before a round was done: {:?}", self.has_line("{\"end\":{"));
                }
                has_run |= runs;
            }
            is_done
        });
    }

    /// A line of a record with this part.
    fn has_line(&self, part: &str) -> Option<String> {
        let texts = self.records().into_iter().map(|path| std::fs::read_to_string(path).unwrap());
        let lines = texts.map(|text| text.lines().find(|line| line.contains(part)).map(str::to_owned));
        lines.flatten().next()
    }
}

#[test]
#[should_panic(expected = "the race ended before a round was done")]
fn a_race_that_ends_before_its_first_round_is_not_waited_for() {
    let sandbox = sandbox();
    // More than the host answers, which a race finds out by asking it.
    let mut race = sandbox.start_race(&["--paths", "macvlan", "--rate", "9M"]);
    sandbox.until_a_round_is_done();
    race.wait().unwrap();
}

impl OwnRun {
    /// A program with this `/run`. The spawned process becomes the program itself.
    pub(crate) fn command(&self, program: &str) -> Command {
        self.entered(None, program)
    }

    /// The same in a named network namespace of the test's.
    pub(crate) fn command_in(&self, netns: &str, program: &str) -> Command {
        self.entered(Some(format!("--net=/run/netns/{netns}")), program)
    }

    fn entered(&self, netns: Option<String>, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.keeper.id())).args(netns).arg("--").arg(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The names of the network namespaces in its `/run/netns`, sorted.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        self.names("netns")
    }

    /// The only namespace whose name ends with `end`.
    #[track_caller]
    pub(crate) fn namespace(&self, end: &str) -> String {
        let mut names = self.namespaces();
        names.retain(|name| name.ends_with(end));
        assert_eq!(names.len(), 1, "{end}: {names:?}");
        names.remove(0)
    }

    /// The directories of owners.
    pub(crate) fn owners(&self) -> Vec<String> {
        let mut names = self.names("hostgap/lab");
        names.retain(|name| !name.ends_with(".lock"));
        names
    }

    /// A path below this `/run`, as seen from the test.
    pub(crate) fn in_run(&self, under: &str) -> PathBuf {
        format!("/proc/{}/root/run/{under}", self.keeper.id()).into()
    }

    fn names(&self, under: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.in_run(under)) else { return Vec::new() };
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The command lines of all processes that see this `/run`.
    pub(crate) fn processes(&self) -> Vec<String> {
        self.pids().into_iter().map(|(_, line)| line).collect()
    }

    /// The same, with the processes' numbers.
    pub(crate) fn pids(&self) -> Vec<(u32, String)> {
        let ours = mount_namespace(self.keeper.id()).unwrap();
        let pids = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
        let of_ours =
            pids.filter(|pid| *pid != self.keeper.id() && mount_namespace(*pid).as_ref() == Some(&ours));
        of_ours.filter_map(|pid| Some((pid, command_line(pid)?))).collect()
    }

    /// The command lines of servers.
    pub(crate) fn servers(&self) -> Vec<String> {
        let mut lines = self.processes();
        lines.retain(|line| line.contains("/run/hostgap/lab/") || line.contains("serve --listen"));
        lines
    }

    /// Fails if anything is left.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        let nothing: Vec<String> = Vec::new();
        assert_eq!(self.namespaces(), nothing);
        assert_eq!(self.owners(), nothing);
        // A child of a killed race that was just starting, such as `nginx -v`, ends by itself a moment later.
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline && !self.processes().is_empty() {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(self.processes(), nothing);
    }
}

impl Drop for OwnRun {
    fn drop(&mut self) {
        // A process left by a failed test would keep its namespaces alive. What `ip netns exec` started has a mount
        // namespace of its own.
        let named = self.namespaces().into_iter().filter_map(|name| {
            let path = NetnsPath::new(self.in_run("netns").join(name).display().to_string()).ok()?;
            Netns::open_path(&path).ok()
        });
        let _ = kill_in(&named.collect::<Vec<_>>());
        // Held open: the number of a namespace that is gone is given to the next one, which another test makes.
        let held = std::fs::File::open(format!("/proc/{}/ns/mnt", self.keeper.id()));
        let ours = mount_namespace(self.keeper.id()).filter(|_| held.is_ok());
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            // A process is held before it is looked at, for the same reason.
            let process = pid.and_then(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)));
            let is_ours =
                |pid: &Pid| ours.is_some() && mount_namespace(pid.as_raw_pid().unsigned_abs()) == ours;
            if let Some((_, process)) = process.filter(|(pid, _)| is_ours(pid)) {
                let _ = pidfd_send_signal(&process, Signal::KILL);
            }
        }
        let _ = self.keeper.wait();
    }
}

pub(crate) const HOSTGAP: &str = env!("CARGO_BIN_EXE_hostgap");
/// The program that container runtimes start.
pub(crate) const PLUGIN: &str = env!("CARGO_BIN_EXE_hostgap-cni");

fn mount_namespace(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

fn command_line(pid: u32) -> Option<String> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    (!line.is_empty()).then(|| line.replace('\0', " "))
}

/// Sends a signal to a process that may have ended.
pub(crate) fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let _ = kill_process(pid, signal);
}

/// Waits up to a minute until the condition holds.
#[track_caller]
pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(Duration::from_secs(60), what, holds);
}

#[track_caller]
pub(crate) fn until_within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !holds() {
        assert!(Instant::now() < deadline, "waited for {patience:?} until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Fails unless the exit code is as expected, stderr contains `says`, and a failure has exactly one message.
/// Returns stderr.
#[track_caller]
pub(crate) fn check(output: &Output, code: i32, says: &str) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{}: {text}", output.status);
    assert!(text.contains(says), "{says:?} is not in: {text}");
    assert!(!text.contains("panicked"), "{text}");
    // A message is a line that begins with our name or with clap's prefix.
    let messages = text.lines().filter(|line| line.starts_with("hostgap: ") || line.starts_with("error: "));
    assert_eq!(messages.count(), usize::from(code != 0 && code != 130), "{text}");
    text
}

/// Fails unless a race ran to its end. On a busy machine all its trials may be void, for which it has an exit
/// code of its own. That is no failure.
#[track_caller]
pub(crate) fn check_race(output: &Output, says: &str) {
    let text = stderr(output);
    let void =
        output.status.code() == Some(3) && text.contains("not valid: ") && !text.contains(" broke in round ");
    assert!(output.status.success() || void, "{text}");
    assert!(text.contains(says), "{says:?} is not in: {text}");
    assert!(!text.contains("panicked"), "{text}");
}

/// A pipe whose reader has gone: `| head -1` after its first line, `| grep -q` after its first find.
pub(crate) fn unheard() -> PipeWriter {
    std::io::pipe().unwrap().1
}

/// Runs a program, which must succeed.
#[track_caller]
pub(crate) fn text(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    // The command may be a script of hundreds of lines, and what it complains of is looked for first.
    assert!(output.status.success(), "{}\n{command:?}: {}", stderr(&output), output.status);
    stdout(&output)
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
pub(crate) fn json(output: &Output) -> serde_json::Value {
    let text = stdout(output);
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error} in {text:?}, stderr: {}", stderr(output)))
}

/// As the daemons are that a shown command starts in a node, whose test fails before it ends them.
#[test]
fn what_runs_in_a_namespace_ends_with_its_sandbox() {
    let sandbox = sandbox();
    let start = "ip netns add hgt-left; ip netns exec hgt-left sh -c 'setsid sleep 86398 >&- 2>&- & echo $!'";
    let pid: u32 = text(sandbox.command("sh").args(["-e", "-c", start])).trim().parse().unwrap();
    assert_ne!(mount_namespace(pid), mount_namespace(sandbox.keeper.id()));
    assert!(sandbox.processes().is_empty());
    drop(sandbox);
    until("it has ended", || mount_namespace(pid).is_none());
}
