//! A race between two machines: which the server's is, and how it is reached.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::lab::remote::{LedRace, Remote, SshAddress, SshCommand};
use ::lab::{LabError, OwnProgram, RaceOptions};
use ::linux::cpu::Scheduling;
use ::linux::{CpuSet, IfName};
use ::record::{Experiment, ServerKind};

use crate::doctor::{MachineDiagnoses, MachineSurvey};
use crate::exit::BadInput;
use crate::progress::Progress;
use crate::{report, stop};

use super::{Args, REALTIME, RECORD, finish, fresh_dir, own_program};

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
    /// The machine of the client, where it is not this one (ssh://root@a:22). --server then names the server's.
    #[arg(long, value_name = "ssh://…", value_parser = machine)]
    client: Option<SshAddress>,
    /// The program that connects to other machines, with options of its own.
    #[arg(long, value_name = "COMMAND")]
    ssh: Option<String>,
    /// Start hostgap on other machines with sudo, which must ask for no password there.
    #[arg(long)]
    sudo: bool,
    /// The client's link to the server's machine, where it is not the one that leads to the address by which ssh arrives there.
    #[arg(long, value_name = "LINK")]
    nic: Option<String>,
    /// CPUs of the server's machine, as a list [default: all]. --cpus are then all the client's.
    #[arg(long, value_name = "CPUS")]
    server_cpus: Option<String>,
}

impl MachineArgs {
    /// Takes the server's machine for a race; `None` if asked to stop before.
    pub(super) fn connect(
        &self,
        address: &SshAddress,
        experiment: &Experiment,
        settings: &RaceOptions,
        progress: &mut Progress,
    ) -> anyhow::Result<Option<Arc<Remote>>> {
        let Reached { ssh, nic, server_cpus: cpus } = self.reached(&settings.stop)?;
        let emit = &mut |event| progress.show(&event);
        let how = (cpus, settings.scheduling);
        let remote = Remote::connect(address, &ssh, &settings.own, experiment, how, nic.as_ref(), emit);
        Ok(remote?.map(Arc::new))
    }

    /// What the doctor says of this machine, where the client is, and of the server's; `None` if asked to stop before.
    pub(super) fn examine(
        &self,
        server: &SshAddress,
        own: &OwnProgram,
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<MachineDiagnoses>, BadInput> {
        let ssh = &self.reached(stop)?.ssh;
        Ok(MachineSurvey { ssh, own, stop }.look(&[None, Some(server)]))
    }

    /// The client's machine, where it is not this one.
    pub(super) fn client(&self) -> Option<&SshAddress> {
        self.client.as_ref()
    }

    /// The server's CPUs, on a machine that is not this one.
    pub(super) fn server_cpus(&self) -> Result<Option<CpuSet>, BadInput> {
        cpus(self.server_cpus.as_deref())
    }

    /// The server's machine, if one is named.
    pub(super) fn server_in<'a>(&self, servers: &'a [ServerArg]) -> anyhow::Result<Option<&'a SshAddress>> {
        let mut named = servers.iter().filter_map(|server| match server {
            ServerArg::Machine(address) => Some(address),
            ServerArg::Kind(_) => None,
        });
        let Some(address) = named.next() else { return Ok(None) };
        match named.next() {
            None => Ok(Some(address)),
            Some(other) => {
                let why = format!("the server is on one machine, and not on {address} and {other}");
                Err(BadInput(why).into())
            }
        }
    }

    /// How other machines are reached, until `stop` is set, and used.
    fn reached(&self, stop: &Arc<AtomicBool>) -> Result<Reached, BadInput> {
        let ssh = self.ssh.as_deref().unwrap_or("ssh");
        let words: Vec<String> = ssh.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return Err(BadInput("--ssh names no program".to_owned()));
        }
        let nic = self.nic.as_deref().map(IfName::new).transpose();
        let nic = nic.map_err(|error| BadInput(error.to_string()))?;
        let ssh = SshCommand { words, sudo: self.sudo, stop: Arc::clone(stop) };
        Ok(Reached { ssh, nic, server_cpus: self.server_cpus()? })
    }

    /// Whether --sudo, --nic, --ssh and --server-cpus were given.
    pub(super) fn given(&self) -> [bool; 4] {
        [self.sudo, self.nic.is_some(), self.ssh.is_some(), self.server_cpus.is_some()]
    }
}

/// Races from the client's machine to the server's, neither of which is this one.
pub(super) fn race(client: &SshAddress, experiment: &Experiment, args: &Args) -> anyhow::Result<ExitCode> {
    let machines = &args.machines;
    let refused = |what: &str, why: &str| LabError::Experiment { what: what.to_owned(), why: why.to_owned() };
    let Some(server) = machines.server_in(&args.server)? else {
        return Err(refused("--client", "--server ssh://… names no machine for the server").into());
    };
    if args.show_commands {
        let why = "the plan is made on the client's machine; leave out --client to see that of this machine";
        return Err(refused("--show-commands with --client", why).into());
    }
    let stop = stop::on_signals()?;
    let Reached { ssh, nic, server_cpus } = machines.reached(&stop)?;
    let own = own_program()?;
    let survey = MachineSurvey { ssh: &ssh, own: &own, stop: &stop };
    let dir = fresh_dir(&args.out, &experiment.name)?;
    let race = LedRace {
        client,
        server,
        ssh: &ssh,
        own: &own,
        experiment,
        record: dir.join(RECORD),
        cpus: cpus(args.cpus.as_deref())?,
        server_cpus,
        scheduling: if args.no_realtime { Scheduling::Normal } else { REALTIME },
        nic,
        stop: Arc::clone(&stop),
    };
    let mut progress = Progress::new();
    let mut diagnoses = None;
    let mut examine = || diagnoses = survey.look(&[Some(client), Some(server)]);
    let result = race.run(&mut examine, &mut |event| progress.show(&event));
    progress.finish();
    if let Some(diagnoses) = diagnoses {
        diagnoses.write_beside(&dir.join(RECORD));
    }
    let finished = finish(&dir, result, &mut |summary| report::print(&summary, args.json));
    // This fails, as it should, if something was written there.
    let _ = std::fs::remove_dir(&dir);
    finished
}

/// How other machines are reached and used.
struct Reached {
    ssh: SshCommand,
    nic: Option<IfName>,
    server_cpus: Option<CpuSet>,
}

/// CPUs of another machine.
pub(super) fn cpus(text: Option<&str>) -> Result<Option<CpuSet>, BadInput> {
    let read = text.map(str::parse::<CpuSet>).transpose();
    read.map_err(|error: ::linux::NameError| BadInput(error.to_string()))
}

fn machine(text: &str) -> Result<SshAddress, String> {
    text.parse()
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
