//! A control plane without nodes: etcd and an API server alone, for what only reads and writes objects.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{Programs, files, inside, last_words, run};

/// etcd and an API server in namespaces of their own, the server at 192.0.2.1. They end with this value or its process.
#[derive(Debug)]
pub struct ControlPlane {
    folder: PathBuf,
    programs: Programs,
    keeper: Child,
    answers: BufReader<ChildStdout>,
}

impl ControlPlane {
    /// The port of the API server that kubeconfigs name.
    pub const PORT: u16 = 6443;

    /// Starts both in an empty folder, the API server on [`ControlPlane::PORT`].
    ///
    /// # Errors
    /// A program is missing or ends; what it wrote last is part of the error.
    pub fn start(programs: Programs, folder: &Path) -> Result<Self> {
        files::write_for_control_plane(folder, &programs)?;
        let errors = File::create(folder.join("errors.log")).context("create its log")?;
        let mut keeper = Command::new("unshare");
        keeper
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"])
            .arg(folder.join("control-plane.sh"))
            .arg(folder)
            .env("PATH", programs.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors);
        let mut keeper = keeper.spawn().context("could not start unshare")?;
        let answers = BufReader::new(keeper.stdout.take().context("its output was not piped")?);
        let mut plane = Self { folder: folder.to_owned(), programs, keeper, answers };
        plane.start_api_server(Self::PORT)?;
        Ok(plane)
    }

    /// Starts an API server on a port, after the one before was killed, and waits until it answers.
    ///
    /// # Errors
    /// It ends.
    pub fn start_api_server(&mut self, port: u16) -> Result<()> {
        self.say(&format!("start {port}\n"))
    }

    /// Kills the API server; etcd stays.
    ///
    /// # Errors
    /// The first process has ended.
    pub fn kill_api_server(&mut self) -> Result<()> {
        self.say("stop\n")
    }

    /// Stops the API server in the middle of whatever it does: connections stay, without an answer.
    ///
    /// # Errors
    /// The first process has ended.
    pub fn pause_api_server(&mut self) -> Result<()> {
        self.say("pause\n")
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// The first process has ended.
    pub fn resume_api_server(&mut self) -> Result<()> {
        self.say("resume\n")
    }

    /// Lets etcd forget all revisions before the present one.
    ///
    /// # Errors
    /// etcd refuses.
    pub fn compact(&self) -> Result<()> {
        // Any read answers with the present revision; this one is of the key of one zero byte.
        let answer = self.etcd("range", r#"{"key":"AA=="}"#)?;
        let revision = answer["header"]["revision"].as_str().context("etcd said no revision")?;
        self.etcd("compaction", &format!(r#"{{"revision":"{revision}","physical":true}}"#)).map(drop)
    }

    /// `kubectl` as an administrator, at the API server on a port.
    pub fn kubectl(&self, port: u16) -> Command {
        let mut command = inside(self.keeper.id(), &self.programs, "kubectl");
        command.arg("--kubeconfig").arg(self.folder.join("admin.kubeconfig"));
        command.arg("--server").arg(format!("https://192.0.2.1:{port}"));
        command
    }

    /// Writes a kubeconfig for the account of a token, and returns its path.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn kubeconfig(&self, name: &str, token: &str) -> Result<PathBuf> {
        files::write_kubeconfig(&self.folder, name, token)
    }

    /// The file of its network namespace.
    pub fn network(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.keeper.id()).into()
    }

    /// The ends of the logs of both.
    pub fn last_words(&self) -> String {
        last_words(&self.folder)
    }

    /// A call of etcd's JSON form.
    fn etcd(&self, call: &str, body: &str) -> Result<Value> {
        let mut curl = inside(self.keeper.id(), &self.programs, "curl");
        curl.args(["--silent", "--fail", "--data", body, &format!("http://127.0.0.1:2379/v3/kv/{call}")]);
        serde_json::from_str(&run(&mut curl)?).context("etcd wrote no JSON")
    }

    /// Gives a command to the first process, and waits until it is done.
    fn say(&mut self, command: &str) -> Result<()> {
        let input = self.keeper.stdin.as_mut().context("its input was not piped")?;
        input.write_all(command.as_bytes()).context("the control plane has ended")?;
        let mut line = String::new();
        self.answers.read_line(&mut line).context("could not read what the control plane says")?;
        if line != "done\n" {
            bail!("the control plane ended at {command:?}: {}", self.last_words());
        }
        Ok(())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
