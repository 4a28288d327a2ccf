//! A race between machines: which the server's is and which the clients', and how they are reached.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::lab::led::LedRace;
use ::lab::remote::{Machines, Remote, SshAddress, SshCommand};
use ::lab::{LabError, OwnProgram, RaceOptions};
use ::linux::cpu::Scheduling;
use ::linux::{CpuSet, IfName};
use ::record::{Experiment, ServerKind};

use crate::doctor::{MachineDiagnoses, MachineSurvey};
use crate::exit::BadInput;
use crate::own_program::own_program;
use crate::progress::Progress;
use crate::{report, stop};

use super::{Args, REALTIME, RECORD, finish, fresh_dir};

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

/// Where a client is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ClientArg {
    Here,
    Machine(SshAddress),
}

fn client_arg(text: &str) -> Result<ClientArg, String> {
    match text {
        "here" => Ok(ClientArg::Here),
        text => text.parse().map(ClientArg::Machine),
    }
}

/// How other machines are reached and used.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct MachineArgs {
    /// The machine of the client, where it is not this one (ssh://root@a:22); --server then names the server's. Given
    /// again, the clients share connections and rates; `here` is this machine.
    #[arg(long = "client", value_name = "here|ssh://…", value_parser = client_arg)]
    clients: Vec<ClientArg>,
    /// The program that connects to other machines, with options of its own.
    #[arg(long, value_name = "COMMAND")]
    ssh: Option<String>,
    /// Start hostgap on other machines with sudo, which must ask for no password there.
    #[arg(long)]
    sudo: bool,
    /// The client's link to the server's machine, where it is not the one that leads to the address by
    /// which ssh arrives there.
    #[arg(long, value_name = "LINK")]
    nic: Option<String>,
    /// CPUs of the server's machine, as a list [default: all]. --cpus are then all the client's, on each
    /// machine that has one.
    #[arg(long, value_name = "CPUS")]
    server_cpus: Option<String>,
}

impl MachineArgs {
    /// Takes the server's machine and those of further clients for a race; `None` if asked to stop before.
    pub(super) fn connect(
        &self,
        address: &SshAddress,
        client_cpus: Option<CpuSet>,
        experiment: &Experiment,
        options: &RaceOptions,
        progress: &mut Progress,
    ) -> anyhow::Result<Option<Arc<Machines>>> {
        let Reached { ssh, nic, server_cpus } = self.reached(&options.stop)?;
        let emit = &mut |event| progress.show(&event);
        let how = (server_cpus, options.scheduling);
        let remote = Remote::connect(address, &ssh, &options.own, experiment, how, nic.as_ref(), emit);
        let Some(server) = remote? else { return Ok(None) };
        let machines = Machines::with_server(server, &options.stop);
        let how = (client_cpus, options.scheduling);
        let all = machines.connect_clients(&self.others(), &ssh, &options.own, experiment, how, emit);
        Ok(all?.map(Arc::new))
    }

    /// What the doctor says of this machine, where a client is, of those of further clients, and of the server's;
    /// `None` if asked to stop before.
    pub(super) fn examine(
        &self,
        server: &SshAddress,
        own: &OwnProgram,
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<MachineDiagnoses>, BadInput> {
        let ssh = &self.reached(stop)?.ssh;
        let others = self.others().into_iter().map(Some);
        let all: Vec<Option<&SshAddress>> =
            std::iter::once(None).chain(others).chain([Some(server)]).collect();
        Ok(MachineSurvey { ssh, own, stop }.look(&all))
    }

    /// Whether it is said where clients are.
    pub(super) fn has_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    /// How many machines have a client.
    pub(super) fn clients(&self) -> usize {
        self.clients.len().max(1)
    }

    /// The machine of the client that leads, where it is not this one: the first.
    pub(super) fn leading(&self) -> Option<&SshAddress> {
        if self.clients.contains(&ClientArg::Here) { None } else { self.addresses().next() }
    }

    /// The machines of the clients that do not lead.
    fn others(&self) -> Vec<&SshAddress> {
        self.addresses().skip(usize::from(self.leading().is_some())).collect()
    }

    fn addresses(&self) -> impl Iterator<Item = &SshAddress> {
        self.clients.iter().filter_map(|client| match client {
            ClientArg::Here => None,
            ClientArg::Machine(address) => Some(address),
        })
    }

    /// Refuses a machine that is named twice, and clients of a server that is on no machine of its own.
    pub(super) fn check_clients(&self, servers: &[ServerArg]) -> anyhow::Result<()> {
        if self.clients.is_empty() {
            return Ok(());
        }
        let refused = |why: String| LabError::Experiment { what: "--client".to_owned(), why };
        let Some(server) = self.server_in(servers)? else {
            return Err(refused("--server ssh://… names no machine for the server".to_owned()).into());
        };
        let here = self.clients.iter().filter(|client| **client == ClientArg::Here).count();
        if here > 1 {
            return Err(refused("here is this machine, and named twice".to_owned()).into());
        }
        let all: Vec<&SshAddress> = self.addresses().chain([server]).collect();
        let twice = all.iter().enumerate().find(|(at, machine)| all[..*at].contains(machine));
        match twice {
            Some((_, machine)) => {
                let why = format!(
                    "{machine} is named twice; client and server have a machine each, and so has each client"
                );
                Err(refused(why).into())
            }
            None => Ok(()),
        }
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

/// Races from the clients' machines to the server's, none of which is this one.
pub(super) fn race(client: &SshAddress, experiment: &Experiment, args: &Args) -> anyhow::Result<ExitCode> {
    let machines = &args.machines;
    let Some(server) = machines.server_in(&args.server)? else {
        unreachable!("clients on machines are refused without one for the server");
    };
    if args.show_commands {
        let why = "the plan is made on the client's machine; leave out --client to see that of this machine";
        let what = "--show-commands with --client".to_owned();
        return Err(LabError::Experiment { what, why: why.to_owned() }.into());
    }
    let stop = stop::on_signals()?;
    let Reached { ssh, nic, server_cpus } = machines.reached(&stop)?;
    let own = own_program()?;
    let survey = MachineSurvey { ssh: &ssh, own: &own, stop: &stop };
    let dir = fresh_dir(&args.out, &experiment.name)?;
    let clients = machines.others();
    let race = LedRace {
        client,
        clients: &clients,
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
    let all: Vec<Option<&SshAddress>> =
        std::iter::once(client).chain(clients.iter().copied()).chain([server]).map(Some).collect();
    let mut examine = || diagnoses = survey.look(&all);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_client_leads_unless_one_is_here() {
        let machines = |clients: &[&str]| MachineArgs {
            clients: clients.iter().map(|text| client_arg(text).unwrap()).collect(),
            ssh: None,
            sudo: false,
            nic: None,
            server_cpus: None,
        };
        let shown = |clients: &[&str]| {
            let machines = machines(clients);
            let others: Vec<String> = machines.others().iter().map(ToString::to_string).collect();
            (machines.leading().map(ToString::to_string), others.join(" "), machines.clients())
        };
        assert_eq!(shown(&[]), (None, String::new(), 1));
        assert_eq!(shown(&["ssh://a"]), (Some("ssh://a".to_owned()), String::new(), 1));
        assert_eq!(shown(&["ssh://a", "ssh://c"]), (Some("ssh://a".to_owned()), "ssh://c".to_owned(), 2));
        assert_eq!(shown(&["ssh://a", "here", "ssh://c"]), (None, "ssh://a ssh://c".to_owned(), 3));
        let server = [server_arg("ssh://b").unwrap()];
        let refused = |clients: &[&str]| machines(clients).check_clients(&server).unwrap_err().to_string();
        machines(&["here", "ssh://c"]).check_clients(&server).unwrap();
        assert!(refused(&["ssh://a", "ssh://a"]).contains("ssh://a is named twice"));
        assert!(refused(&["ssh://a", "ssh://b"]).contains("ssh://b is named twice"));
        assert!(refused(&["here", "here"]).contains("here is this machine"));
        assert!(client_arg("there").unwrap_err().contains("does not begin with ssh://"));
    }

    #[test]
    fn a_server_is_a_program_or_on_a_machine() {
        assert_eq!(server_arg("nginx").unwrap().kind(), Some(ServerKind::Nginx));
        let machine = server_arg("ssh://root@b").unwrap();
        assert_eq!((machine.kind(), matches!(machine, ServerArg::Machine(_))), (None, true));
        assert!(server_arg("apache").unwrap_err().contains("ssh://[USER@]HOST[:PORT] is expected"));
    }
}
