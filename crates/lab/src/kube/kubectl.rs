//! The program that speaks to a cluster: `kubectl`, with the user's own configuration, credentials and plugins.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::LabError;
use crate::channel::Channel;

/// `kubectl`, and the options with which it finds the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubectl {
    /// Program and options, as `--kubectl` names them: `kubectl --kubeconfig file`.
    pub words: Vec<String>,
    /// The context of its configuration; `None`: the current one.
    pub context: Option<String>,
}

/// How long the cluster may take for an answer.
const ANSWER_MAX: &str = "--request-timeout=30s";

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
        let remedy = if why.contains("violates PodSecurity") {
            Some("name a namespace that allows privileged pods, or none, so that the race makes one")
        } else if why.contains("cannot ") && why.to_lowercase().contains("forbidden") {
            Some("hostgap race --kube --show-manifests prints the rights that a race needs")
        } else {
            None
        };
        LabError::Machine { machine: self.cluster(), why, remedy: remedy.map(str::to_owned) }
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

    /// What a command prints.
    ///
    /// # Errors
    /// What `kubectl` says, in its words.
    pub(super) fn output(&self, args: &[&str], input: &[u8]) -> Result<String, String> {
        self.run(args, input, Stdio::piped())
    }

    /// Runs a command to its end; what it prints, if that comes here.
    fn run(&self, args: &[&str], input: &[u8], stdout: Stdio) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("start {}: {error}", self.words[0]);
        let mut command = self.command();
        command.args(args).stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let mut stdin = child.stdin.take().expect("asked for above");
        // It may end before it has read all; then it says why.
        let output = std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input).ok());
            child.wait_with_output()
        });
        let output = output.map_err(failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(if said.is_empty() { format!("{} ended with {}", self.words[0], output.status) } else { said })
    }

    /// What a program in a pod prints as JSON, whatever its status says besides.
    ///
    /// # Errors
    /// It prints none; what it says instead, in its words.
    pub(super) fn printed(&self, args: &[&str]) -> Result<Value, String> {
        let mut command = self.command();
        let output = command.args(args).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("start {}: {error}", self.words[0]))?;
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

    /// Creates objects, in their order, and all of them, even if this process is killed meanwhile: a pipe without a reader
    /// would end `kubectl` when it says that it has made the first.
    ///
    /// # Errors
    /// Those of [`Kubectl::output`].
    pub(super) fn create(&self, objects: &[Value]) -> Result<(), String> {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string();
        self.run(&["create", "--filename=-", ANSWER_MAX], list.as_bytes(), Stdio::null()).map(drop)
    }

    /// Starts a conversation with a process in a container: a new one (`exec`), or its first (`attach`).
    ///
    /// # Errors
    /// It cannot be started. That there is no such container is said later.
    pub(super) fn converse(&self, verb: &str, args: &[&str]) -> Result<Channel, String> {
        let mut command = self.command();
        command.args([verb, "--stdin"]).args(args);
        Channel::start(&mut command).map_err(|error| format!("start {}: {error}", self.words[0]))
    }
}
