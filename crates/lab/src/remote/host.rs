//! The server's machine, as this side sees it.

use std::net::IpAddr;

use linux::cpu::Scheduling;
use linux::features::Facts;
use linux::{CpuSet, IfName};
use record::{Experiment, Machine, ServerKind};

use super::asked::Asked;
use super::links::{Way, way};
use super::order::Order;
use super::protocol::{Begin, Counterpart, RemoteRequest, Reply};
use super::ssh::{SshAddress, SshCommand};
use crate::channel::Conversation;
use crate::shape::MachineLink;
use crate::traffic::TransferredAmounts;
use crate::usage::Spent;
use crate::{ByRole, Event, LabError, OwnProgram};

/// A machine that builds and serves its half of each topology. Dropping it ends the process
/// there, which undoes everything.
#[derive(Debug)]
pub struct Remote {
    asked: Asked,
    counterpart: Counterpart,
    way: Way,
}

impl Remote {
    /// Connects, copies this program there unless it is there already, and takes the machine for a race; `None` if
    /// asked to stop before. `nic` is the link of this machine that leads there, where it is not the one that leads to
    /// the address by which ssh came in.
    ///
    /// # Errors
    /// [`LabError::Machine`]: it is not reached, is another kind of machine, has a race already, permits too little, or
    /// there is no way to it; or CPUs or a link that were named are not there, or the link does not lead to it.
    pub fn connect(
        address: &SshAddress,
        ssh: &SshCommand,
        own: &OwnProgram,
        experiment: &Experiment,
        (cpus, scheduling): (Option<CpuSet>, Scheduling),
        nic: Option<&IfName>,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Option<Remote>, LabError> {
        let name = address.to_string();
        emit(Event::Connecting { machine: name.clone() });
        let Some(channel) = ssh.start(address, own, "remote")? else { return Ok(None) };
        Remote::over(name, Box::new(channel), experiment, (cpus, scheduling), nic).map(Some)
    }

    /// The same where a conversation with the process there has begun.
    pub(crate) fn over(
        name: String,
        channel: Box<dyn Conversation>,
        experiment: &Experiment,
        (cpus, scheduling): (Option<CpuSet>, Scheduling),
        nic: Option<&IfName>,
    ) -> Result<Remote, LabError> {
        let mut workload = experiment.workload.clone();
        if experiment.candidates.iter().any(|candidate| candidate.plant.is_some()) {
            // As in any race: the same program answers everywhere.
            workload.server = ServerKind::Hostgap;
        }
        let begin = Begin { workload, cpus, scheduling };
        let asked = Asked::new(name, channel);
        let counterpart = match asked.begun(&RemoteRequest::Begin(begin))? {
            Reply::Begun(counterpart) => *counterpart,
            other => return Err(asked.strange(&other)),
        };
        let way = way(&counterpart.links, counterpart.reached_by, nic, experiment.workload.ipv6);
        let way = way.map_err(|why| match nic {
            Some(_) => LabError::not_there(asked.name().to_owned(), why),
            None => asked.failed(why),
        })?;
        Ok(Remote { asked, counterpart, way })
    }

    /// Its address, as the user wrote it.
    pub fn name(&self) -> &str {
        self.asked.name()
    }

    /// What its kernel can do.
    pub fn facts(&self) -> &Facts {
        &self.counterpart.facts
    }

    /// Adds to the facts of this machine those of the other that may matter to a reader of the figures.
    pub(crate) fn describe(&self, machine: &mut Machine) {
        let Counterpart { machine: theirs, cpus, .. } = &self.counterpart;
        machine.server_cpus = cpus.to_string();
        let gibibytes = theirs.memory_bytes as f64 / f64::from(1 << 30);
        let what = format!(
            "{}: Linux {}, {}, {} CPUs, {gibibytes:.0} GiB",
            self.name(),
            theirs.kernel,
            theirs.cpu_model,
            theirs.cpus
        );
        let ours = machine.facts.clone();
        let differ = theirs.facts.iter().filter(|(name, value)| ours.get(*name) != Some(value));
        machine.facts.extend(differ.map(|(name, value)| (format!("server's {name}"), value.clone())));
        machine.facts.insert("server's machine".to_owned(), what);
        for (whose, link) in
            [("client's link", &self.way.ends.client), ("server's link", &self.way.ends.server)]
        {
            machine.facts.insert(whose.to_owned(), format!("{}: {}", link.name, link.card));
        }
        let between = self.way.router.map_or("one Ethernet".to_owned(), |router| format!("router {router}"));
        machine.facts.insert("between the machines".to_owned(), between);
    }

    /// The program that serves there: "nginx/1.22.1".
    pub fn program(&self) -> &str {
        &self.counterpart.server
    }

    /// Whether that is this program.
    pub(crate) fn serves_itself(&self) -> bool {
        self.counterpart.serves_itself
    }

    /// The router between the machines; `None`: they are neighbours on one Ethernet.
    pub fn router(&self) -> Option<IpAddr> {
        self.way.router
    }

    /// The links by which the two machines reach each other.
    pub(super) fn ends(&self) -> &ByRole<MachineLink> {
        &self.way.ends
    }

    /// Its CPUs for the server.
    pub(crate) fn cpus(&self) -> &CpuSet {
        &self.counterpart.cpus
    }

    /// Why it cannot have the settings of its half, in words.
    pub(super) fn unmet(&self, order: &Order) -> Result<Vec<String>, LabError> {
        self.asked.unmet(order)
    }

    /// Builds its half of a topology and starts the server in it.
    pub(super) fn stand(&self, order: Order) -> Result<(), LabError> {
        self.asked.done(&RemoteRequest::Stand(Box::new(order)))
    }

    /// Lets it look at a candidate's counters, before the measured part of a trial.
    pub(super) fn begin_count(&self, candidate: &str) {
        self.asked.tell(&RemoteRequest::Count { candidate: candidate.to_owned() });
    }

    /// Waits until it has.
    pub(super) fn counted(&self, candidate: &str) -> Result<(), LabError> {
        self.asked.told_done(candidate)
    }

    /// What has happened there since.
    pub(crate) fn spent(&self, candidate: &str, work: &TransferredAmounts) -> Result<Spent, LabError> {
        match self.asked.ask(&RemoteRequest::Spent { candidate: candidate.to_owned(), work: *work })? {
            Reply::Spent(spent) => Ok(*spent),
            other => Err(self.asked.strange(&other)),
        }
    }

    /// What has changed of its half since it was built; an error if the server has ended.
    pub(crate) fn check(&self, candidate: &str) -> Result<Option<String>, LabError> {
        match self.asked.ask(&RemoteRequest::Check { candidate: candidate.to_owned() })? {
            Reply::Changed(what) => Ok(what),
            other => Err(self.asked.strange(&other)),
        }
    }

    /// Ends the server and undoes its half, but for what is returned.
    pub(crate) fn take_down(&self, candidate: &str) -> Result<Vec<String>, LabError> {
        self.asked.tell(&RemoteRequest::TakeDown { candidate: candidate.to_owned() });
        self.asked.told_left(candidate)
    }

    /// Ends the process there.
    ///
    /// # Errors
    /// Something could not be undone there.
    pub fn end(&self) -> Result<(), LabError> {
        self.asked.end()
    }
}
