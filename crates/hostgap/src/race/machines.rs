//! A race between two machines: which the server's is, and how it is reached.

use std::sync::Arc;

use ::lab::remote::{Remote, SshAddress, SshCommand};
use ::lab::{LabError, RaceOptions};
use ::linux::{CpuSet, IfName};
use ::record::{Experiment, ServerKind};

use crate::exit::BadInput;
use crate::progress::Progress;

/// A server: what it is, or where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerArg {
    Kind(ServerKind),
    Machine(SshAddress),
}

impl ServerArg {
    /// What the server is, if that is what was given.
    pub(super) fn kind(&self) -> Option<ServerKind> {
        match self {
            ServerArg::Kind(kind) => Some(*kind),
            ServerArg::Machine(_) => None,
        }
    }
}

pub(super) fn server_arg(text: &str) -> Result<ServerArg, String> {
    match text {
        "auto" => Ok(ServerArg::Kind(ServerKind::Auto)),
        "nginx" => Ok(ServerArg::Kind(ServerKind::Nginx)),
        "hostgap" => Ok(ServerArg::Kind(ServerKind::Hostgap)),
        text if text.starts_with(SshAddress::SCHEME) => text.parse().map(ServerArg::Machine),
        _ => Err("auto, nginx, hostgap or ssh://[USER@]HOST[:PORT] is expected".to_owned()),
    }
}

/// How the server's machine is reached and used.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct MachineArgs {
    /// The program that connects to the server's machine, with options of its own.
    #[arg(long, value_name = "COMMAND", default_value = "ssh", hide_default_value = true)]
    ssh: String,
    /// Start hostgap on the server's machine with sudo, which must ask for no password there.
    #[arg(long)]
    sudo: bool,
    /// This machine's link to the server's, where it is not the one that leads to the address by which ssh arrives there.
    #[arg(long, value_name = "LINK")]
    nic: Option<String>,
    /// CPUs of the server's machine, as a list [default: all]. --cpus are then all the client's.
    #[arg(long, value_name = "CPUS")]
    server_cpus: Option<String>,
}

impl MachineArgs {
    /// Takes the server's machine for a race, if there is one.
    pub(super) fn connect(
        &self,
        servers: &[ServerArg],
        experiment: &Experiment,
        settings: &RaceOptions,
        progress: &mut Progress,
    ) -> anyhow::Result<Option<Arc<Remote>>> {
        let mut named = servers.iter().filter_map(|server| match server {
            ServerArg::Machine(address) => Some(address),
            ServerArg::Kind(_) => None,
        });
        let Some(address) = named.next() else {
            self.needs_a_machine()?;
            return Ok(None);
        };
        if let Some(other) = named.next() {
            return Err(
                BadInput(format!("the server is on one machine, and not on {address} and {other}")).into()
            );
        }
        let words: Vec<String> = self.ssh.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return Err(BadInput("--ssh names no program".to_owned()).into());
        }
        let ssh = SshCommand { words, sudo: self.sudo };
        let bad = |error: ::linux::NameError| BadInput(error.to_string());
        let nic = self.nic.as_deref().map(IfName::new).transpose().map_err(bad)?;
        let cpus = self.server_cpus.as_deref().map(str::parse::<CpuSet>).transpose().map_err(bad)?;
        ::lab::remote::possible(experiment)?;
        let tell = &mut |event| progress.tell(&event);
        let how = (cpus, settings.scheduling);
        let remote = Remote::connect(address, &ssh, &settings.own, experiment, how, nic.as_ref(), tell);
        Ok(Some(Arc::new(remote?)))
    }

    /// Options that say something of a machine that is not named are a mistake.
    fn needs_a_machine(&self) -> Result<(), LabError> {
        let said = [
            ("--sudo", self.sudo),
            ("--nic", self.nic.is_some()),
            ("--server-cpus", self.server_cpus.is_some()),
        ];
        let Some((option, _)) = said.into_iter().find(|(_, is_said)| *is_said) else { return Ok(()) };
        let why = "it is about the server's machine, and --server ssh://… names none".to_owned();
        Err(LabError::Experiment { what: option.to_owned(), why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_program_or_on_a_machine() {
        assert_eq!(server_arg("nginx").unwrap().kind(), Some(ServerKind::Nginx));
        let machine = server_arg("ssh://root@b").unwrap();
        assert_eq!((machine.kind(), matches!(machine, ServerArg::Machine(_))), (None, true));
        assert!(server_arg("apache").unwrap_err().contains("ssh://[USER@]HOST[:PORT] is expected"));
    }
}
