//! A candidate's half on a client's machine that does not lead: what was built there, and the client's connections.

use datapath::SocketRole;
use linux::CpuSet;
use linux::cpu::Scheduling;
use linux::features::Facts;
use plan::Unit;

use super::half::StandingHalf;
use crate::built_topology::{BuiltTopology, Staffing};
use crate::candidate::slug;
use crate::cpus::granted;
use crate::limits::client_suffices;
use crate::machine::machine;
use crate::part::{Began, LoadPart, LoadedPart, RequestCounts, monotonic_ns};
use crate::remote::links::way;
use crate::remote::order::Order;
use crate::remote::protocol::{BeginClient, ClientCounterpart, RemoteRequest, Reply};
use crate::server::ServerChoice;
use crate::trial::{Method, Subject, judged, make_ready, run};
use crate::usage::CounterSnapshot;
use crate::{ByRole, LabError, NodeCpus, OwnProgram};

/// What is the same for all halves of a race.
pub(super) struct CallerStaff {
    own: OwnProgram,
    cpus: CpuSet,
    scheduling: Scheduling,
    facts: Facts,
}

impl CallerStaff {
    /// Why this machine cannot have the settings of a client, in words.
    pub(super) fn unmet(&self, order: &Order) -> Result<Vec<String>, LabError> {
        order.unmet(SocketRole::Client, &self.facts)
    }
}

/// Half a topology that stands, whose server stands on another machine.
pub(super) struct Calling {
    built: BuiltTopology,
    method: Method,
    before: Option<CounterSnapshot>,
}

/// Looks at the machine, and at whether it suffices.
pub(super) fn ready(
    own: &OwnProgram,
    begin: BeginClient,
) -> Result<(CallerStaff, ClientCounterpart), LabError> {
    let BeginClient { workload, cpus, scheduling, server } = begin;
    let cpus = granted(cpus, "client")?;
    let scheduling = if linux::cpu::can_realtime() { scheduling } else { Scheduling::Normal };
    client_suffices(&workload, workload.connections)?;
    let called = server.addresses.first().copied();
    let way = way(&[server], called, None, workload.ipv6).map_err(|why| LabError::Experiment {
        what: "a client on this machine".to_owned(),
        why: format!("the server's machine: {why}"),
    })?;
    let nodes = NodeCpus { client: cpus.clone(), server: CpuSet::default() };
    let facts = linux::features::probe()?;
    let counterpart = ClientCounterpart {
        machine: machine(&nodes, scheduling)?,
        facts: facts.clone(),
        link: way.ends.client,
        router: way.router,
    };
    Ok((CallerStaff { own: own.clone(), cpus, scheduling, facts }, counterpart))
}

impl Calling {
    /// Builds it and opens the connections. On failure what was begun is undone.
    pub(super) fn build(order: &Order, staff: &CallerStaff, claim: &Unit) -> Result<Calling, LabError> {
        let cpus = NodeCpus { client: staff.cpus.clone(), server: CpuSet::default() };
        let shape = order.shape(claim.id(), SocketRole::Client, cpus.clone(), &staff.facts)?;
        let staffing = Staffing {
            // None is started here.
            server: ServerChoice::Hostgap(staff.own.clone()),
            scheduling: staff.scheduling,
            connections: order.workload.connections,
            outlives_us: false,
            machines: None,
            plant: None,
            proxies: ByRole::default(),
            workload: order.workload.clone(),
        };
        let dir = claim.dir().join(slug(&order.candidate));
        let mut built = BuiltTopology::build(&order.candidate, shape, &staffing, &dir)?;
        built.open_all(order.workload.connections)?;
        Ok(Calling { built, method: Method::new(cpus, staff.scheduling), before: None })
    }

    /// Sends its part of a slice and waits for the answers.
    fn load(&mut self, part: &LoadPart) -> Result<LoadedPart, LabError> {
        let LoadPart { load, duration, answer, seed, measured } = part;
        let method = Method { answer: *answer, seed: *seed, ..self.method.clone() };
        let began = Began::now();
        let outcome = run(&mut self.built, &method, load, *duration, None);
        let outcome = outcome.map_err(|error| self.built.because_of_the_path(error))?;
        let counts = RequestCounts::of(&outcome);
        let Some(key) = *measured else { return Ok(LoadedPart { counts, began, trial: None }) };
        let before = match self.before.take() {
            Some(before) => before,
            None => Subject::count(&mut self.built)?,
        };
        let trial = judged(&mut self.built, &method, load, (&outcome, &before), 0, key)?;
        Ok(LoadedPart { counts, began, trial: Some(trial) })
    }
}

impl StandingHalf for Calling {
    fn answer(&mut self, request: &RemoteRequest) -> Result<Option<Reply>, LabError> {
        Ok(Some(match request {
            RemoteRequest::Load { part, .. } => Reply::Loaded(Box::new(self.load(part)?)),
            RemoteRequest::Count { .. } => {
                for body_bytes in self.built.workload.body_bytes.clone() {
                    make_ready(&mut self.built, body_bytes)?;
                }
                self.before = Some(Subject::count(&mut self.built)?);
                Reply::Done
            }
            RemoteRequest::Clock { .. } => Reply::Clock(monotonic_ns()),
            RemoteRequest::Check { .. } => Reply::Changed(self.built.changed()?),
            _ => return Ok(None),
        }))
    }

    fn take_down(self) -> Result<Vec<String>, LabError> {
        self.built.take_down()
    }
}
