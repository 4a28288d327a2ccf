//! How the other machine is reached: the system's ssh, with the user's own configuration, keys and jump hosts.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::error::Fault;
use crate::{LabError, OwnProgram};

/// A machine behind ssh: `ssh://[USER@]HOST[:PORT]`. The host may be a name of the user's ssh configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshAddress {
    /// `None`: as ssh is configured.
    pub user: Option<String>,
    /// A name or an address.
    pub host: String,
    /// `None`: as ssh is configured.
    pub port: Option<u16>,
}

impl SshAddress {
    /// What every address begins with.
    pub const SCHEME: &str = "ssh://";
}

impl FromStr for SshAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<SshAddress, String> {
        let wrong =
            |why: &str| format!("{text:?} is no machine: {why}; ssh://[USER@]HOST[:PORT] is expected");
        let rest =
            text.strip_prefix(SshAddress::SCHEME).ok_or_else(|| wrong("it does not begin with ssh://"))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => (Some(user.to_owned()), rest),
            None => (None, rest),
        };
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, after)) => {
                (host, Some(after.strip_prefix(':').ok_or_else(|| wrong("a port follows ] and a colon"))?))
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let port = port
            .map(|port| port.parse::<NonZero<u16>>().map_err(|_| wrong(&format!("{port:?} is no port"))))
            .transpose()?;
        // ssh takes what begins with a hyphen for an option.
        let is_sound = |part: &str| {
            !part.is_empty()
                && !part.starts_with('-')
                && !part.contains(|sign: char| sign.is_whitespace() || sign == '/')
        };
        if !is_sound(host) {
            return Err(wrong(&format!("{host:?} is no host")));
        }
        if user.as_deref().is_some_and(|user| !is_sound(user) || user.contains(':')) {
            return Err(wrong("the user's name is none"));
        }
        Ok(SshAddress { user, host: host.to_owned(), port: port.map(NonZero::get) })
    }
}

impl fmt::Display for SshAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SshAddress::SCHEME)?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// The program that connects, and how the other machine's root is reached.
#[derive(Debug, Clone)]
pub struct SshCommand {
    /// Program and options, as `--ssh` names them: `ssh -F file`.
    pub words: Vec<String>,
    /// The program is started there by `sudo -n`.
    pub sudo: bool,
    /// Set from outside to give up reaching a machine.
    pub stop: Arc<AtomicBool>,
}

/// Options for any ssh: no question that would wait for an answer, and an end within half a minute where
/// the machine is gone.
const OPTIONS: [&str; 9] = [
    "-T",
    "-oBatchMode=yes",
    "-oConnectTimeout=15",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=5",
    "-oControlMaster=no",
    "-oControlPath=none",
    "-oClearAllForwardings=yes",
    "-oRemoteCommand=none",
];

impl SshCommand {
    /// A command on the other machine, by its own `/bin/sh`, whatever the user's shell is.
    fn remote(&self, address: &SshAddress, script: &str) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args(OPTIONS);
        if let Some(user) = &address.user {
            command.args(["-l", user]);
        }
        if let Some(port) = address.port {
            command.args(["-p", &port.to_string()]);
        }
        let quoted = script.replace('\'', r"'\''");
        command.arg("--").arg(&address.host).arg(format!("exec /bin/sh -c '{quoted}'"));
        command
    }

    /// Starts this program there, with these arguments; `None` if asked to stop before.
    ///
    /// # Errors
    /// [`LabError::Machine`].
    pub(crate) fn start(
        &self,
        address: &SshAddress,
        own: &OwnProgram,
        arguments: &str,
    ) -> Result<Option<Channel>, LabError> {
        let failed = |Unreached { why, fault }: Unreached| LabError::Machine {
            machine: address.to_string(),
            why,
            remedy: None,
            fault,
        };
        let Some(program) = self.program(address, &own.program).map_err(failed)? else { return Ok(None) };
        // sudo keeps no environment.
        let script = format!("exec {program} {arguments} --connection \"${{SSH_CONNECTION:-}}\"");
        let started = Channel::start(&mut self.remote(address, &script));
        started.map(Some).map_err(|error| failed(self.not_started(&error)))
    }

    /// What this program prints there with these arguments; `None` if asked to stop before it has ended. It may end
    /// with the status `also` instead of 0.
    ///
    /// # Errors
    /// In words: the machine is not reached, or the program ended with another status.
    pub fn printed(
        &self,
        address: &SshAddress,
        own: &OwnProgram,
        arguments: &str,
        also: u8,
    ) -> Result<Option<String>, String> {
        let printed = self.program(address, &own.program).and_then(|program| {
            let Some(program) = program else { return Ok(None) };
            let script = format!("{program} {arguments} || test $? -eq {also}");
            self.output(self.remote(address, &script).stdin(Stdio::null()))
        });
        printed.map_err(|unreached| unreached.why)
    }

    /// How a shell there runs this program, which is copied there unless it is there already. `None` if
    /// asked to stop meanwhile.
    ///
    /// # Errors
    /// With what to try.
    fn program(&self, address: &SshAddress, own: &Path) -> Result<Option<String>, Unreached> {
        let program = RemoteProgram::of(own)?;
        let mut question = self.remote(address, &program.question());
        let Some(found) = self.output(question.stdin(Stdio::null()))? else { return Ok(None) };
        // A shell may greet before.
        match found.lines().last().unwrap_or_default().trim() {
            HAS => {}
            there if there == here() => {
                if self.copy(address, own, &program)?.is_none() {
                    return Ok(None);
                }
            }
            there => {
                let why = format!(
                    "it is {there}, and this program is for {}: run one that is built for it, or choose another machine",
                    here()
                );
                return Err(Unreached { why, fault: Fault::Lack });
            }
        }
        let sudo = if self.sudo { "sudo -n -- " } else { "" };
        Ok(Some(format!("{sudo}\"{}\"", program.path)))
    }

    fn copy(
        &self,
        address: &SshAddress,
        own: &Path,
        program: &RemoteProgram,
    ) -> Result<Option<()>, Unreached> {
        let file = File::open(own).map_err(|error| format!("read {}: {error}", own.display()))?;
        Ok(self.output(self.remote(address, &program.receipt()).stdin(file))?.map(drop))
    }

    /// What a command prints; `None` if asked to stop before it has ended. It is in a process group of its own, so that
    /// ^C in a terminal reaches this process alone, which then ends it.
    fn output(&self, command: &mut Command) -> Result<Option<String>, Unreached> {
        use std::os::unix::process::CommandExt;
        let name = &self.words[0];
        let failed = |error: io::Error| self.not_started(&error);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let stdout = read_aside(child.stdout.take().expect("asked for above")).map_err(failed)?;
        let stderr = read_aside(child.stderr.take().expect("asked for above")).map_err(failed)?;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|error| format!("wait for {name}: {error}"))? {
                break status;
            }
            if self.stop.load(Ordering::Relaxed) {
                // What has arrived there of a program goes with the connection.
                let _ = child.kill();
                let _ = child.wait();
                return Ok(None);
            }
            thread::sleep(LOOKS);
        };
        let [stdout, stderr] = [stdout, stderr].map(|read| read.join().unwrap_or_default());
        if status.success() {
            return Ok(Some(stdout));
        }
        let said = stderr.trim().replace('\n', "; ");
        Err(Unreached::from(if said.is_empty() { format!("{name} ended with {status}") } else { said }))
    }

    /// Why the program that connects could not be started.
    fn not_started(&self, error: &io::Error) -> Unreached {
        let fault = if error.kind() == io::ErrorKind::NotFound { Fault::Lack } else { Fault::Failure };
        Unreached { why: format!("start {}: {error}", self.words[0]), fault }
    }
}

/// Why a machine is not reached, or cannot run this program.
struct Unreached {
    /// In words, with what to try.
    why: String,
    fault: Fault,
}

impl From<String> for Unreached {
    fn from(why: String) -> Unreached {
        Unreached { why, fault: Fault::Failure }
    }
}

/// How often it is looked whether a command has ended, and whether to stop.
const LOOKS: Duration = Duration::from_millis(10);

/// Reads to the end, in a thread of its own.
fn read_aside(mut from: impl Read + Send + 'static) -> io::Result<JoinHandle<String>> {
    let read = move || {
        let mut bytes = Vec::new();
        // What has come before an error is as good as the rest.
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    thread::Builder::new().name("output".to_owned()).spawn(read)
}

/// What the other machine says if the program is there.
const HAS: &str = "has it";

/// Kernel and processor as `uname -sm` prints them.
fn here() -> String {
    let uname = rustix::system::uname();
    format!("{} {}", uname.sysname().to_string_lossy(), uname.machine().to_string_lossy())
}

/// The program's file on the other machine, named by its content.
struct RemoteProgram {
    path: String,
    bytes: u64,
}

impl RemoteProgram {
    fn of(own: &Path) -> Result<RemoteProgram, String> {
        let content = std::fs::read(own).map_err(|error| format!("read {}: {error}", own.display()))?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &content);
        let hash: String = digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let path = format!("${{XDG_CACHE_HOME:-$HOME/.cache}}/hostgap/remote/{hash}");
        Ok(RemoteProgram { path, bytes: content.len() as u64 })
    }

    /// Says [`HAS`], or what machine it is.
    fn question(&self) -> String {
        let RemoteProgram { path, bytes } = self;
        // It is in use again, and not old.
        format!(
            "file=\"{path}\"; if test -x \"$file\" && test $(wc -c <\"$file\") -eq {bytes}; then touch \"$file\"; \
             echo {HAS}; else uname -sm; fi"
        )
    }

    /// Takes the program from the input, whole or not at all; copies that were not used for a week go.
    fn receipt(&self) -> String {
        let RemoteProgram { path, bytes } = self;
        format!(
            "set -e; umask 077; file=\"{path}\"; dir=\"${{file%/*}}\"; mkdir -p \"$dir\"; \
             find \"$dir\" -type f -mtime +7 -exec rm -f {{}} +; part=\"$file.$$\"; \
             trap 'rm -f \"$part\"' EXIT; cat >\"$part\"; test $(wc -c <\"$part\") -eq {bytes} || \
             {{ echo 'only a part of the program arrived' >&2; exit 1; }}; chmod 700 \"$part\"; mv \"$part\" \"$file\""
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in ["ssh://b", "ssh://root@b:2222", "ssh://[fd00::2]:22", "ssh://ops@10.0.0.2"] {
            let address: SshAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        let address: SshAddress = "ssh://root@[fd00::2]:22/".parse().unwrap();
        assert_eq!(
            (address.user.as_deref(), address.host.as_str(), address.port),
            (Some("root"), "fd00::2", Some(22))
        );
    }

    #[test]
    fn what_ssh_would_take_for_an_option_is_no_machine() {
        let wrong = |text: &str| text.parse::<SshAddress>().unwrap_err();
        assert!(wrong("ssh://-oProxyCommand=x").contains("is no host"));
        assert!(
            wrong("ssh://-x@b").contains("user's name") && wrong("ssh://a:secret@b").contains("user's name")
        );
        assert!(wrong("ssh://[fd00::2]22").contains("follows ]") && wrong("ssh://b:0").contains("no port"));
        assert!(wrong("b").contains("does not begin with ssh://"));
        assert!(wrong("ssh://b:twenty").contains("\"twenty\" is no port"));
        assert!(wrong("ssh://a b").contains("is no host") && wrong("ssh://").contains("is no host"));
    }
}
