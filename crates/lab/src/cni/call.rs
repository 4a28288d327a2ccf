//! One call of one plugin: where it runs, its input and its output.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::cni::{Call, Command, Failure, Request};
use linux::process::Spawn;
use linux::view::{Own, View};
use linux::{IfName, Netns, NetnsName};
use serde::{Deserialize, Serialize};

use super::pins;

/// Which pod a plugin connects to what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Subject {
    /// The namespace of the pod's node, in which plugins run.
    pub(super) node: NetnsName,
    /// The pod's namespace; its name is the container's id as well.
    pub(super) pod: NetnsName,
    /// What the pod's interface shall be called.
    pub(super) ifname: IfName,
    /// Directories of plugins, with colons.
    pub(super) cni_path: String,
}

/// How long a plugin may take. Waiting for IPv6 addresses takes those of the CNI project up to ten seconds.
const LIMIT: Duration = Duration::from_secs(30);
/// The longest output that is read, in bytes.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Where plugins and the programs that they call keep state: a name for the directory in which that is the candidate's
/// own, the directory, and what of the machine's own must not be seen there.
const STATE: [(&str, &str, &[&str]); 3] = [
    ("run", "/run", &["cni", "xtables.lock", "hostgap", "hostgap-bpf"]),
    ("var-lib", "/var/lib", &["cni"]),
    ("var-log", "/var/log", &["cni"]),
];

impl Subject {
    /// The pod's namespace as plugins know it.
    pub(super) fn netns_path(&self) -> String {
        format!("/run/netns/{}", self.pod)
    }

    /// A call's environment. There are no arguments of a user.
    pub(super) fn environment(&self, command: Command) -> [(&'static str, String); 6] {
        let call = Call {
            command,
            container_id: self.pod.to_string(),
            netns: self.netns_path(),
            ifname: self.ifname.to_string(),
            args: String::new(),
            path: self.cni_path.clone(),
        };
        call.environment()
    }

    /// Calls a plugin and waits; what it printed, or why it failed, in words. `dir` is the directory of this node's
    /// state, where what was said to the plugin and by it lies too.
    pub(super) fn call(
        &self,
        command: Command,
        program: &Path,
        request: &Request,
        dir: &Path,
    ) -> Result<String, String> {
        let [input, output, log] = ["conf", "result", "log"].map(|name| dir.join(name));
        let failed = |what: &str, path: &Path| {
            let path = path.display().to_string();
            let what = what.to_owned();
            move |error: std::io::Error| format!("could not {what} {path}: {error}")
        };
        for (name, _, _) in STATE {
            let state = dir.join(name).join("cni");
            fs::create_dir_all(&state).map_err(failed("create", &state))?;
        }
        fs::write(&input, request.to_string()).map_err(failed("write", &input))?;
        fs::write(&log, "").map_err(failed("write", &log))?;

        let environment = self.environment(command).map(|(name, value)| (name.to_owned(), value));
        let mut environment = Vec::from(environment);
        // Shells and compilers of rules write there, and all else is read-only.
        environment.push(("TMPDIR".to_owned(), "/run/cni".to_owned()));
        let netns = Netns::open(&self.node).map_err(|error| format!("could not {error}"))?;
        let view = self.view(dir).map_err(failed("create directories in", dir))?;
        let spawn = Spawn {
            env: environment,
            netns: Some(netns),
            input: Some(input),
            output: Some(output.clone()),
            log: Some(log.clone()),
            view: Some(view),
            // Whatever it starts ends with it: a lease that is renewed for a pod that is gone would be a trace.
            new_pid_namespace: true,
            ..Spawn::new(program)
        };
        let mut child = spawn.start().map_err(|error| format!("could not {error}"))?;
        let status = child.wait_for(LIMIT).map_err(|error| format!("could not {error}"))?;
        let printed = beginning(&output).map_err(failed("read", &output))?;
        let logged = beginning(&log).map_err(failed("read", &log))?;
        match status {
            Some(status) if status.success() => Ok(printed),
            Some(status) => Err(complaint(&printed, &logged, &status.to_string())),
            // Dropping the child kills it.
            None => Err(format!("it did not end within {} s", LIMIT.as_secs())),
        }
    }

    fn view(&self, dir: &Path) -> std::io::Result<View> {
        let mut own = Vec::from(STATE.map(|(name, at, hidden)| Own::new(at, dir.join(name), hidden)));
        // In /run, so it is mounted after that.
        own.extend(pins::view(&self.node, &dir.join(STATE[0].0))?);
        Ok(View { own, ..View::default() })
    }
}

fn beginning(path: &PathBuf) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Why a plugin failed: its error object, or else whatever it said.
fn complaint(printed: &str, log: &str, status: &str) -> String {
    if let Some(failure) = Failure::read(printed) {
        return failure.to_string();
    }
    match [printed, log].map(str::trim).into_iter().find(|said| !said.is_empty()) {
        Some(said) => format!("it ended with {status}: {}", ending(said)),
        None => format!("it ended with {status} and said nothing"),
    }
}

/// How much of a program's output an error quotes, in characters.
const QUOTED_CHARS: usize = 300;

/// The last lines, where the reason is.
fn ending(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines[lines.len().saturating_sub(3)..].join(" | ");
    let chars = text.chars().count();
    text.chars().skip(chars.saturating_sub(QUOTED_CHARS)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_object_is_quoted_whole_and_anything_else_by_its_end() {
        let status = "exit status: 1";
        assert_eq!(complaint(r#"{"code":11,"msg":"no range"}"#, "noise", status), "no range (code 11)");
        assert_eq!(complaint(r#"{"code":7}"#, "", status), r#"it ended with exit status: 1: {"code":7}"#);
        assert_eq!(complaint("", "a\nb\n\nc\nd\n", status), "it ended with exit status: 1: b | c | d");
        assert_eq!(complaint(" ", "", status), "it ended with exit status: 1 and said nothing");
    }
}
