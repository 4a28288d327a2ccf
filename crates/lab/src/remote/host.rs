//! The server's machine, as this side sees it.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use linux::cpu::Scheduling;
use linux::features::Facts;
use linux::{CpuSet, IfName};
use record::{Experiment, Machine, Plant, ServerKind, Workload};

use super::links::{MachineNodes, Way, way};
use super::protocol::{Begin, Counterpart, Failed, Order, RemoteRequest, Reply, Spent};
use super::ssh::{SshAddress, SshCommand};
use crate::channel::{ANSWER_MAX, Conversation, Lost, held};
use crate::traffic::TransferredAmounts;
use crate::{Event, LabError, OwnProgram};

/// A machine that builds and serves its half of each topology. Dropping it ends the process there, which undoes everything.
#[derive(Debug)]
pub struct Remote {
    /// The machine as the user names it, for messages.
    name: String,
    channel: Mutex<Box<dyn Conversation>>,
    counterpart: Counterpart,
    way: Way,
}

impl Remote {
    /// Connects, copies this program there unless it is there already, and takes the machine for a race; `None` if asked to
    /// stop before. `nic` is the link of this machine that leads there, where it is not the one that leads to the address by
    /// which ssh came in.
    ///
    /// # Errors
    /// [`LabError::Machine`]: it is not reached, is another kind of machine, has a race already, permits too little, or there is
    /// no way to it; [`LabError::NotThere`]: CPUs or a link that were named are not there, or the link does not lead to it.
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
    pub(super) fn over(
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
        let counterpart = begun(&name, &*channel, begin)?;
        let way = way(&counterpart.links, counterpart.reached_by, nic, experiment.workload.ipv6);
        let way = way.map_err(|why| match nic {
            Some(_) => LabError::NotThere { machine: name.clone(), why },
            None => LabError::Machine { machine: name.clone(), why, remedy: None },
        })?;
        Ok(Remote { name, channel: Mutex::new(channel), counterpart, way })
    }

    /// Its address, as the user wrote it.
    pub fn name(&self) -> &str {
        &self.name
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
            self.name, theirs.kernel, theirs.cpu_model, theirs.cpus
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
    pub fn server(&self) -> &str {
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

    /// The two machines as nodes of the topology of this number.
    pub fn nodes(&self, number: u16) -> MachineNodes {
        let ends = self.way.ends.clone();
        MachineNodes { clients: vec![ends.client], client: 0, server: ends.server, number }
    }

    /// Builds its half of a topology and starts the server in it.
    pub(crate) fn stand(
        &self,
        candidate: &str,
        path: &str,
        nodes: MachineNodes,
        workload: &Workload,
        plant: Option<Plant>,
    ) -> Result<(), LabError> {
        let order = Order {
            candidate: candidate.to_owned(),
            path: path.to_owned(),
            nodes,
            workload: workload.clone(),
            plant,
        };
        self.done(&RemoteRequest::Stand(Box::new(order)))
    }

    /// Looks at a candidate's counters there, before the measured part of a trial.
    pub(crate) fn count(&self, candidate: &str) -> Result<(), LabError> {
        self.done(&RemoteRequest::Count { candidate: candidate.to_owned() })
    }

    /// What has happened there since.
    pub(crate) fn spent(&self, candidate: &str, work: &TransferredAmounts) -> Result<Spent, LabError> {
        match self.ask(&RemoteRequest::Spent { candidate: candidate.to_owned(), work: *work })? {
            Reply::Spent(spent) => Ok(*spent),
            other => Err(self.strange(&other)),
        }
    }

    /// What has changed of its half since it was built; an error if the server has ended.
    pub(crate) fn check(&self, candidate: &str) -> Result<Option<String>, LabError> {
        match self.ask(&RemoteRequest::Check { candidate: candidate.to_owned() })? {
            Reply::Changed(what) => Ok(what),
            other => Err(self.strange(&other)),
        }
    }

    /// Ends the server and undoes its half.
    pub(crate) fn take_down(&self, candidate: &str) -> Result<(), LabError> {
        self.done(&RemoteRequest::TakeDown { candidate: candidate.to_owned() })
    }

    /// Ends the process there.
    ///
    /// # Errors
    /// Something could not be undone there.
    pub fn end(&self) -> Result<(), LabError> {
        let mut channel = held(&self.channel);
        channel.end().map_err(|why| self.failed(why))
    }

    fn done(&self, request: &RemoteRequest) -> Result<(), LabError> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            other => Err(self.strange(&other)),
        }
    }

    fn ask(&self, request: &RemoteRequest) -> Result<Reply, LabError> {
        let mut channel = held(&self.channel);
        let answered = say(&**channel, request).and_then(|()| hear(&**channel, ANSWER_MAX));
        if let Err(why) = &answered {
            // What it answers later would be taken for the answer to another request.
            *channel = Box::new(Lost(why.clone()));
        }
        answered.map_err(|why| self.failed(why)).and_then(|reply| match reply {
            Reply::Failed(Failed { broken: Some(what), .. }) => {
                let what = format!("on {}: {what}", self.name);
                Err(LabError::Broken { candidate: candidate_of(request), what })
            }
            Reply::Failed(failed) => {
                Err(LabError::Machine { machine: self.name.clone(), why: failed.why, remedy: failed.remedy })
            }
            Reply::NotThere(why) => Err(LabError::NotThere { machine: self.name.clone(), why }),
            reply => Ok(reply),
        })
    }

    fn failed(&self, why: String) -> LabError {
        LabError::Machine { machine: self.name.clone(), why, remedy: None }
    }

    fn strange(&self, reply: &Reply) -> LabError {
        self.failed(format!("its answer does not fit the request: {reply:?}"))
    }
}

/// Whose an error is.
fn candidate_of(request: &RemoteRequest) -> String {
    match request {
        RemoteRequest::Begin(_) => String::new(),
        RemoteRequest::Stand(order) => order.candidate.clone(),
        RemoteRequest::Count { candidate }
        | RemoteRequest::Spent { candidate, .. }
        | RemoteRequest::Check { candidate }
        | RemoteRequest::TakeDown { candidate } => candidate.clone(),
    }
}

/// Asks for the machine.
fn begun(name: &str, channel: &dyn Conversation, begin: Begin) -> Result<Counterpart, LabError> {
    let failed = |why: String, remedy| LabError::Machine { machine: name.to_owned(), why, remedy };
    let asked = say(channel, &RemoteRequest::Begin(begin)).and_then(|()| first_answer(channel));
    match asked.map_err(|why| failed(why, None))? {
        (_, Reply::Begun(counterpart)) => Ok(*counterpart),
        (_, Reply::Failed(why)) => Err(failed(why.why, why.remedy)),
        (_, Reply::NotThere(why)) => Err(LabError::NotThere { machine: name.to_owned(), why }),
        (said, _) => Err(failed(format!("its answer does not fit the request: {said}"), None)),
    }
}

/// The next answer, as it was said and as it is read, past what a shell prints before the program begins.
///
/// # Errors
/// There is none, in words.
pub(super) fn first_answer(channel: &dyn Conversation) -> Result<(String, Reply), String> {
    let mut said = String::new();
    for _ in 0..GREETING_LINES {
        said = channel.hear(ANSWER_MAX)?;
        if let Ok(reply) = serde_json::from_str(&said) {
            return Ok((said, reply));
        }
    }
    Err(format!("it gives no answer to what it is asked, but {said:?}"))
}

/// At most so many lines.
const GREETING_LINES: usize = 50;

fn say(channel: &dyn Conversation, request: &RemoteRequest) -> Result<(), String> {
    channel.say(&serde_json::to_string(request).map_err(|error| error.to_string())?)
}

fn hear(channel: &dyn Conversation, limit: Duration) -> Result<Reply, String> {
    let line = channel.hear(limit)?;
    serde_json::from_str(&line).map_err(|error| format!("it said {line:?}: {error}"))
}
