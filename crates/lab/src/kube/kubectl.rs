//! The program that speaks to a cluster: `kubectl`, with the user's own configuration, credentials and plugins.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::LabError;
use crate::channel::{Channel, silent};
use crate::error::Fault;

/// `kubectl`, and the options with which it finds the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubectl {
    /// Program and options, as `--kubectl` names them: `kubectl --kubeconfig file`.
    pub words: Vec<String>,
    /// The context of its configuration; `None`: the current one.
    pub context: Option<String>,
}

/// How long the cluster may take for an answer.
pub(super) const ANSWER_MAX: &str = "--request-timeout=30s";
/// How often it is looked whether a command has ended.
const LOOKS: Duration = Duration::from_millis(20);
/// Why a command has no result that was interrupted.
pub(super) const INTERRUPTED: &str = "it was interrupted";

/// How long a command may take, and what ends it before.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandLimit<'a> {
    pub(super) time: Duration,
    pub(super) stop: &'a AtomicBool,
}

/// Whether the cluster says that one may not do something; it says the same the next time.
pub(super) fn is_forbidden(why: &str) -> bool {
    why.to_lowercase().contains("forbidden")
}

impl Kubectl {
    /// The cluster, for messages.
    pub(super) fn cluster(&self) -> String {
        match &self.context {
            Some(context) => format!("the cluster of context {context}"),
            None => "the cluster".to_owned(),
        }
    }

    /// An error of the cluster as a whole.
    pub(super) fn failed(&self, why: String) -> LabError {
        let (remedy, fault) = if why.contains("violates PodSecurity") {
            let remedy = "name a namespace that allows privileged pods, or none, so that the race makes one";
            (Some(remedy), Fault::Lack)
        } else if why.contains("cannot ") && is_forbidden(&why) {
            (Some("hostgap race --kube --show-manifests prints the rights that a race needs"), Fault::Lack)
        } else if why.starts_with(&self.not_started()) {
            (Some("install kubectl, or name it with --kubectl"), Fault::Lack)
        } else {
            (None, Fault::Failure)
        };
        LabError::Machine { machine: self.cluster(), why, remedy: remedy.map(str::to_owned), fault }
    }

    /// What stands before the reason why the program could not be started.
    fn not_started(&self) -> String {
        format!("start {}: ", self.words[0])
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        if let Some(context) = &self.context {
            command.arg(format!("--context={context}"));
        }
        // ^C in a terminal is for this process, which has the cluster to put in order.
        command.process_group(0);
        command
    }

    /// A command with the options by which it finds the cluster, as a user types it.
    pub(super) fn typed(&self, args: &[&str]) -> String {
        let context = self.context.as_ref().map(|context| format!("--context={context}"));
        let words = self.words.iter().map(String::as_str).chain(context.as_deref());
        words.chain(args.iter().copied()).collect::<Vec<_>>().join(" ")
    }

    /// What a command prints.
    ///
    /// # Errors
    /// What `kubectl` says, in its words.
    pub(super) fn output(&self, args: &[&str], input: &[u8]) -> Result<String, String> {
        self.succeeded(&self.run(args, input, Stdio::piped(), None)?)
    }

    /// The same within a limit, beyond which it is killed.
    ///
    /// # Errors
    /// Those of [`Kubectl::output`], or that it took too long or was interrupted.
    pub(super) fn output_within(
        &self,
        limit: CommandLimit<'_>,
        args: &[&str],
        input: &[u8],
    ) -> Result<String, String> {
        self.succeeded(&self.run(args, input, Stdio::piped(), Some(limit))?)
    }

    fn succeeded(&self, output: &Output) -> Result<String, String> {
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(if said.is_empty() { format!("{} ended with {}", self.words[0], output.status) } else { said })
    }

    /// Runs a command to its end, or to its limit.
    fn run(
        &self,
        args: &[&str],
        input: &[u8],
        stdout: Stdio,
        limit: Option<CommandLimit<'_>>,
    ) -> Result<Output, String> {
        let failed = |error: std::io::Error| format!("{}{error}", self.not_started());
        let mut command = self.command();
        command.args(args).stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let mut stdin = child.stdin.take().expect("asked for above");
        let input = input.to_vec();
        // It may end before it has read all; then it says why.
        thread::spawn(move || stdin.write_all(&input).ok());
        let (stdout, stderr) = (all_of(child.stdout.take()), all_of(child.stderr.take()));
        let status = match limit {
            Some(limit) => ended_within(limit, &mut child)?,
            None => child.wait().map_err(failed)?,
        };
        let all = |from: Receiver<Vec<u8>>| from.recv().unwrap_or_default();
        Ok(Output { status, stdout: all(stdout), stderr: all(stderr) })
    }

    /// What a program in a pod prints as JSON, whatever its status says besides.
    ///
    /// # Errors
    /// It prints none; what it says instead, in its words. Or it took too long, or was interrupted.
    pub(super) fn printed(&self, limit: CommandLimit<'_>, args: &[&str]) -> Result<Value, String> {
        let output = self.run(args, &[], Stdio::piped(), Some(limit))?;
        serde_json::from_slice(&output.stdout).map_err(|error| {
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            if said.is_empty() { format!("what it prints is no JSON: {error}") } else { said }
        })
    }

    /// An object, or a list of objects.
    ///
    /// # Errors
    /// Those of [`Kubectl::output`], or what it prints is no JSON.
    pub(super) fn get(&self, args: &[&str]) -> Result<Value, String> {
        let text = self.output(&[&["get", "--output=json", ANSWER_MAX], args].concat(), &[])?;
        serde_json::from_str(&text).map_err(|error| format!("read what {} prints: {error}", self.words[0]))
    }

    /// An object; `None`: there is none.
    ///
    /// # Errors
    /// Those of [`Kubectl::get`].
    pub(super) fn find(&self, args: &[&str]) -> Result<Option<Value>, String> {
        let text =
            self.output(&[&["get", "--output=json", "--ignore-not-found", ANSWER_MAX], args].concat(), &[])?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|error| format!("read what {} prints: {error}", self.words[0]))
    }

    /// Creates objects, in their order, and all of them, even if this process is killed meanwhile: a pipe without a
    /// reader would end `kubectl` when it says that it has made the first.
    ///
    /// # Errors
    /// Those of [`Kubectl::output`].
    pub(super) fn create(&self, objects: &[Value]) -> Result<(), String> {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string();
        let created =
            self.run(&["create", "--filename=-", ANSWER_MAX], list.as_bytes(), Stdio::null(), None)?;
        self.succeeded(&created).map(drop)
    }

    /// Starts a conversation with a process in a container: a new one (`exec`), or its first (`attach`).
    ///
    /// # Errors
    /// It cannot be started. That there is no such container is said later.
    pub(super) fn converse(&self, verb: &str, args: &[&str]) -> Result<Channel, String> {
        let mut command = self.command();
        command.args([verb, "--stdin"]).args(args);
        Channel::start(&mut command).map_err(|error| format!("{}{error}", self.not_started()))
    }
}

/// All that comes from a pipe, when it has ended; read by a thread of its own, since a writer waits for its reader.
/// Nothing waits for that thread: a process that has inherited the pipe may hold it open.
fn all_of(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    if let Some(mut pipe) = pipe {
        thread::spawn(move || {
            let mut all = Vec::new();
            // What came before an error is as good as it was.
            let _ = pipe.read_to_end(&mut all);
            // A command beyond its limit has no reader any more.
            let _ = send.send(all);
        });
    }
    receive
}

/// The status of a command that ends within its limit. Another one is killed, with what it has started (plugins, or
/// what a script wraps).
fn ended_within(limit: CommandLimit<'_>, child: &mut Child) -> Result<ExitStatus, String> {
    let until = Instant::now() + limit.time;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status);
        }
        let is_stopped = limit.stop.load(Ordering::Relaxed);
        if is_stopped || Instant::now() > until {
            // It leads a group of its own, and has not been waited for.
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            let _ = child.wait();
            return Err(if is_stopped { INTERRUPTED.to_owned() } else { silent(limit.time) });
        }
        thread::sleep(LOOKS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_beyond_its_limit_is_killed_with_what_it_has_started() {
        let words = ["sh", "-c", "sleep 86394 & echo began; wait"].map(str::to_owned).to_vec();
        let kubectl = Kubectl { words, context: None };
        let limit = CommandLimit { time: Duration::from_secs(1), stop: &AtomicBool::new(false) };
        assert_eq!(kubectl.printed(limit, &[]), Err("it has not answered for 1 s".to_owned()));
        let interrupted = CommandLimit { stop: &AtomicBool::new(true), ..limit };
        assert_eq!(kubectl.output_within(interrupted, &[], &[]), Err(INTERRUPTED.to_owned()));
    }
}
