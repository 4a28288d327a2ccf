//! A list of plugins, called as a runtime calls them: in order at ADD and CHECK, backwards at DEL, each with the result
//! that is due. Ours runs in this process, the others are Debian's or scripts.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Output, Stdio};

use cni::{AddResult, Call, Command, Conflist, Failure, Request};
use serde_json::{Value, json};
use testkit::skip;

use crate::scene::Scene;

/// Where Debian's package containernetworking-plugins has them (1.1.1, which speak 1.0.0).
const DEBIANS: &str = "/usr/lib/cni";
const OWN: &str = "hostgap";

/// A network of several plugins on the scene's node.
pub(crate) struct Chain<'s> {
    scene: &'s Scene,
    plugins: Vec<(String, Request)>,
    scripts: tempfile::TempDir,
}

/// Whether Debian's plugins are installed; if not, the calling test is recorded as skipped.
pub(crate) fn has_debians() -> bool {
    let is_there = Path::new(DEBIANS).join("portmap").exists();
    if !is_there {
        skip(&format!("the plugins of {DEBIANS} are missing; they are in containernetworking-plugins"));
    }
    is_there
}

impl<'s> Chain<'s> {
    /// The plugins of a list; `offered` is what the runtime has for their capabilities.
    pub(crate) fn new(scene: &'s Scene, plugins: &[Value], offered: &Value) -> Chain<'s> {
        let list = json!({ "cniVersion": "1.0.0", "name": "pods", "plugins": plugins });
        let list = Conflist::parse(&list.to_string()).unwrap();
        let offered = offered.as_object().unwrap();
        let request = |plugin: &cni::Plugin| Request::new(plugin.conf.clone(), &list, offered.clone());
        let plugins = list.plugins.iter().map(|plugin| (plugin.kind.clone(), request(plugin))).collect();
        Chain { scene, plugins, scripts: tempfile::tempdir().unwrap() }
    }

    /// A file of the scripts' directory, `$HERE` in a script.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.scripts.path().join(name)
    }

    /// A script that acts as the plugin of this name.
    pub(crate) fn script(&self, name: &str, body: &str) {
        let path = self.file(name);
        fs::write(&path, format!("#!/bin/sh\nHERE={}\n{body}\n", self.scripts.path().display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// ADD of all; the result, or which plugin failed and why. As with libcni, those behind it are not called, and to
    /// call DEL is the caller's.
    pub(crate) fn try_add(&self, container: &str) -> Result<AddResult, String> {
        let mut previous = None;
        for (kind, request) in &self.plugins {
            let input = request.after(previous.as_ref());
            let result = self
                .call(Command::Add, container, kind, &input)
                .and_then(|printed| AddResult::read(&printed).map_err(|error| error.to_string()));
            previous = Some(result.map_err(|why| format!("{kind}: {why}"))?);
        }
        Ok(previous.unwrap())
    }

    #[track_caller]
    pub(crate) fn add(&self, container: &str) -> AddResult {
        self.try_add(container).unwrap_or_else(|why| panic!("ADD of {container}: {why}"))
    }

    /// CHECK of all but one that judges wrongly.
    #[track_caller]
    pub(crate) fn check_without(&self, left_out: &str, container: &str, result: &AddResult) {
        for (kind, request) in self.plugins.iter().filter(|(kind, _)| kind != left_out) {
            let checked = self.call(Command::Check, container, kind, &request.after(Some(result)));
            assert_eq!(checked, Ok(String::new()), "CHECK of {kind}");
        }
    }

    #[track_caller]
    pub(crate) fn check(&self, container: &str, result: &AddResult) {
        self.check_without("", container, result);
    }

    /// DEL of all, which must work. After an ADD that failed there is no result.
    #[track_caller]
    pub(crate) fn del(&self, container: &str, result: Option<&AddResult>) {
        for (kind, request) in self.plugins.iter().rev() {
            let deleted = self.call(Command::Del, container, kind, &request.after(result));
            assert_eq!(deleted, Ok(String::new()), "DEL of {kind}");
        }
    }

    /// What a plugin printed, or why it failed.
    fn call(&self, command: Command, container: &str, kind: &str, input: &Request) -> Result<String, String> {
        let call = self.environment(command, container);
        if kind == OWN {
            let variables = call.environment();
            let variables: Vec<(&str, &str)> =
                variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let input = serde_json::to_value(input).unwrap();
            let reply = self.scene.call_with(&variables, &input);
            let printed = reply.printed.map(|printed| printed.to_string()).unwrap_or_default();
            return if reply.is_success { Ok(printed) } else { Err(complaint(&printed)) };
        }
        let output = self.start(&call, kind, input).wait_with_output().unwrap();
        let Output { status, stdout, stderr } = output;
        let printed = String::from_utf8(stdout).unwrap();
        match status.code() {
            Some(0) => Ok(printed),
            Some(_) => Err(complaint(&printed) + &String::from_utf8(stderr).unwrap()),
            None => Err(format!("it ended by {status}")),
        }
    }

    /// Starts the ADD of a plugin behind ours without waiting for its end.
    pub(crate) fn start_add(&self, container: &str, kind: &str, previous: &AddResult) -> Child {
        let (kind, request) = self.plugins.iter().find(|(name, _)| name == kind).unwrap();
        self.start(&self.environment(Command::Add, container), kind, &request.after(Some(previous)))
    }

    /// ADD of ours alone, as far as a chain comes before the plugin behind it answers.
    #[track_caller]
    pub(crate) fn add_own(&self, container: &str) -> AddResult {
        let (kind, request) = self.plugins.iter().find(|(name, _)| name == OWN).unwrap();
        AddResult::read(&self.call(Command::Add, container, kind, request).unwrap()).unwrap()
    }

    fn environment(&self, command: Command, container: &str) -> Call {
        // After its container a runtime may have no path of the namespace any more.
        let netns = self.scene.netns(container);
        let netns = if Path::new(&netns).exists() { netns } else { String::new() };
        Call {
            command,
            container_id: container.to_owned(),
            netns,
            ifname: "eth0".to_owned(),
            args: String::new(),
            path: format!("{}:{DEBIANS}", self.scripts.path().display()),
        }
    }

    fn start(&self, call: &Call, kind: &str, input: &Request) -> Child {
        let script = self.file(kind);
        let mut program = Program::new(if script.exists() { script } else { Path::new(DEBIANS).join(kind) });
        program.envs(call.environment());
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let node = self.scene.world.open("node");
        let mut child = node.run(|| program.spawn()).unwrap().unwrap();
        // A script need not read it.
        let _ = child.stdin.take().unwrap().write_all(input.to_string().as_bytes());
        child
    }
}

/// The error object in words, or what was printed instead.
fn complaint(printed: &str) -> String {
    Failure::read(printed).map_or_else(|| printed.to_owned(), |failure| failure.to_string())
}
