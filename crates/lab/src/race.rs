//! The race: builds, rounds, trials, in shuffled order, written down round by round.

mod arena;
mod builds;
mod contest;
mod entrants;
mod fragments;
mod goal;
mod loads;
mod rounds;
mod runners;
mod topologies;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use linux::CpuSet;
use linux::cpu::Scheduling;
use linux::features::Facts;
use plan::Unit;
use record::{Experiment, Line, ServerKind, WorkloadKind, Writer};

use self::topologies::Topologies;
use crate::candidate::{Contender, field};
use crate::cards::Cards;
use crate::cni::PluginDirs;
use crate::exclusive::{at_once, in_turn};
use crate::home::Home;
use crate::limits::{answers_suffice, connections};
use crate::program::OwnProgram;
use crate::proving::{MachineUse, prove};
use crate::proxy::{self, ProxyProgram};
use crate::remote::{self, Machines};
use crate::server::ServerChoice;
use crate::steering::choose;
use crate::steering_choice::Chosen;
use crate::trial::Method;
use crate::witness::witness;
use crate::{Event, LabError, NodeCpus, Shape, Wires, late, possible, profile};

pub(crate) use arena::{Arena, LastBuild};
pub(crate) use builds::UnderWay;
pub(crate) use contest::Contest;
pub(crate) use loads::requested_rates;
pub use rounds::host_visits;
pub(crate) use rounds::valid_trial;
pub(crate) use runners::Runner;

/// The first entrants are the reference and its control, without which there is no race.
pub(crate) const CONTENDERS_FROM: usize = 2;

/// What a race needs beside its experiment.
#[derive(Debug, Clone)]
pub struct RaceOptions {
    /// The record file to write; it must not exist yet.
    pub record: PathBuf,
    /// The nginx to use, where not the one in `PATH`.
    pub nginx: Option<PathBuf>,
    /// This program, which serves where nginx does not.
    pub own: OwnProgram,
    /// Where CNI plugins are searched.
    pub plugins: PluginDirs,
    /// CPUs that the race may use.
    pub cpus: CpuSet,
    /// Policy of the threads of client and server.
    pub scheduling: Scheduling,
    /// The machine that serves, and those with clients beside this one; `None`: this one does both, and its
    /// CPUs are shared out.
    pub machines: Option<Arc<Machines>>,
    /// What virtual machine this is, if it is one of ours.
    pub guest: Option<String>,
    /// Set from outside to end the race after the running trial.
    pub stop: Arc<AtomicBool>,
}

/// A race that is ready to run.
#[derive(Debug)]
pub struct Race {
    pub(crate) experiment: Experiment,
    pub(crate) options: RaceOptions,
    pub(crate) home: Home,
    contenders: Vec<Contender>,
    pub(crate) server: ServerChoice,
    /// The programs of the contenders' proxies.
    proxies: Vec<ProxyProgram>,
    /// The cards of the contenders' wires.
    cards: Cards,
    pub(crate) method: Method,
    pub(crate) seed: u64,
    /// Why candidates have fewer connections than asked for.
    fewer_connections: Option<String>,
    /// Chosen before the first trial.
    steered: bool,
}

/// How a race ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// After its last round.
    Whole,
    /// Before, because it was asked to stop.
    Stopped,
}

impl Race {
    /// Checks everything that can be checked before the first change.
    pub fn prepare(
        experiment: Experiment,
        options: RaceOptions,
        facts: &Facts,
        home: Home,
    ) -> Result<Race, LabError> {
        Wires::of(&experiment.underlay).possible(facts)?;
        let machines = options.machines.clone();
        machines.iter().try_for_each(|all| remote::possible(&experiment, all.clients()))?;
        let mut contenders = field(&experiment, facts, &options.plugins)?;
        let whose = match (&options.guest, experiment.underlay.card) {
            (None, _) => MachineUse::Shared,
            (Some(_), None) => MachineUse::Ours,
            (Some(_), Some(_)) => MachineUse::OursWithCards,
        };
        if machines.is_none() {
            prove(&mut contenders, facts, whose)?;
        }
        possible::relays::leave_out(&mut contenders, &experiment.workload)?;
        possible::datagrams::leave_out(&mut contenders, &experiment.underlay, &experiment.workload)?;
        possible::wires::leave_out(&mut contenders, &experiment.underlay, facts)?;
        possible::proxies::leave_out(&mut contenders, options.nginx.as_deref(), facts)?;
        possible::packets::leave_out(&mut contenders)?;
        possible::verbs::leave_out(&mut contenders, options.guest.is_some())?;
        possible::cards::leave_out(&mut contenders, &experiment)?;
        if let Some(wire) = Cards::of(&experiment, options.guest.is_some(), 1)?.of_contender(0) {
            possible::prove_on_cards(&mut contenders, &wire, &home)?;
        }
        if let Some(machines) = &machines {
            possible::machines::leave_out(&mut contenders, machines, &experiment.workload, facts)?;
        }
        let racing = contenders.iter().filter(|contender| contender.races()).count();
        Race::of(experiment, options, home, contenders, racing)
    }

    /// The same of contenders that were proven, of which so many stand at the same time.
    pub(crate) fn of(
        mut experiment: Experiment,
        options: RaceOptions,
        home: Home,
        contenders: Vec<Contender>,
        racing: usize,
    ) -> Result<Race, LabError> {
        if contenders.iter().any(|contender| contender.plant.is_some() || !contender.stack.is_usual()) {
            // The same program answers everywhere, or the programs would be compared too.
            experiment.workload.server = ServerKind::Hostgap;
        }
        let server = server(&experiment, &options)?;
        let proxies = proxy::programs(&contenders, options.nginx.as_deref())?;
        let cpus = match &options.machines {
            None => {
                let polls = contenders.iter().any(|contender| contender.races() && contender.polls());
                NodeCpus::split_beside(&options.cpus, polls, experiment.placement)
            }
            // The server's are another machine's.
            Some(_) => NodeCpus { client: options.cpus.clone(), server: CpuSet::default() },
        };
        let method = Method {
            warmup: Duration::from_millis(experiment.warmup_ms.into()),
            slice: Duration::from_millis(experiment.slice_ms.into()),
            ..Method::new(cpus, options.scheduling)
        };
        let runners = contenders.iter().filter(|contender| contender.races());
        let own: Vec<u32> = runners.filter_map(|contender| contender.connections).collect();
        // On two machines one stands at a time.
        let standing = if options.machines.is_some() { racing.min(1) } else { racing };
        let clients = options.machines.as_ref().map_or(1, |machines| machines.clients());
        let granted = connections(&experiment, standing, &own, clients)?;
        experiment.workload.connections = granted.connections;
        if options.machines.as_ref().is_none_or(|machines| machines.server().serves_itself()) {
            answers_suffice(&experiment, &server)?;
        }
        if experiment.profile {
            profile::possible(&method.cpus)?;
        }
        if experiment.why_late {
            late::possible(experiment.workload.kind, &method.cpus.all())?;
        }
        let seed = experiment.seed.unwrap_or_else(fresh_seed);
        let fewer_connections = granted.fewer;
        let steered = false;
        let running = contenders.iter().filter(|contender| contender.races()).count();
        let cards = Cards::of(&experiment, options.guest.is_some(), running)?;
        let mut race = Race {
            experiment,
            options,
            home,
            contenders,
            server,
            proxies,
            cards,
            method: Method { seed, ..method },
            seed,
            fewer_connections,
            steered,
        };
        race.leave_out_groups()?;
        // Settings may have no place in this arrangement.
        race.entrants()?;
        Ok(race)
    }

    /// Says of contenders that cannot do the workload why; an error where one is required. Where connections are made
    /// within a trial, it is many threads that make them, and none of those is in a control group of a data path.
    fn leave_out_groups(&mut self) -> Result<(), LabError> {
        let makes_connections = self.experiment.workload.kind.makes_connections();
        for at in 0..self.contenders.len() {
            let contender = &self.contenders[at];
            if !makes_connections && contender.proxy.is_empty() {
                continue;
            }
            if !contender.races() && self.options.machines.is_some() {
                continue;
            }
            let topology = self.planned(contender)?;
            if topology.groups().client.is_none() {
                continue;
            }
            let other =
                if makes_connections { "this workload makes its own" } else { "a proxy makes others" };
            let why =
                format!("it passes on what connections say that were made in its control group, and {other}");
            self.contenders[at].cannot([why])?;
        }
        Ok(())
    }

    /// Runs it. Whatever happens, what was built is taken down and finished rounds are in the record file. Waits for
    /// the end of another race on this machine, unless the server has a machine of its own.
    ///
    /// # Errors
    /// [`LabError::Busy`]: it does not wait. Others say what could not be built, raced or taken down.
    pub fn run(self, emit: &mut dyn FnMut(Event)) -> Result<Finished, LabError> {
        let (home, stop) = (self.home.clone(), Arc::clone(&self.options.stop));
        if self.options.machines.is_some() {
            // The other machine is held already. A race from there to here would wait for that one, and
            // this one for it.
            return at_once(&home, emit, |claim, emit| self.recorded(claim, emit));
        }
        let ran = in_turn(&home, &stop, emit, |claim, emit| self.recorded(claim, emit))?;
        Ok(ran.unwrap_or(Finished::Stopped))
    }

    /// Races with a record file around it.
    fn recorded(self, claim: &Unit, emit: &mut dyn FnMut(Event)) -> Result<Finished, LabError> {
        let mut writer = Writer::create(&self.options.record)?;
        emit(Event::Recording { path: self.options.record.clone() });
        for contender in self.contenders.iter().filter(|contender| !contender.races()) {
            emit(Event::CannotRun { name: contender.name.clone(), reasons: contender.unmet.clone() });
        }
        let started = Instant::now();
        let result = self.race(claim, &mut writer, emit);
        concluded(writer, started, result)
    }

    /// Decides what must be decided before the race, writes it down, and races.
    fn race(
        mut self,
        claim: &Unit,
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Finished, LabError> {
        // Two machines work on what they receive as they are set up.
        let chosen = self.options.machines.is_none().then(|| self.steer(claim)).transpose()?;
        let several = self.options.machines.as_ref().is_some_and(|machines| machines.clients() > 1);
        let watching = match several {
            true => Err("none: of several clients' machines none is watched".to_owned()),
            false => witness(&self.experiment, &self.method.cpus.all()),
        };
        let mut header = self.header()?;
        if let Some(chosen) = &chosen {
            header.machine.facts.insert("receive steering".to_owned(), chosen.describe());
        }
        if let Err(why) = &watching {
            header.machine.facts.insert("witness of stalls".to_owned(), why.clone());
        }
        self.method.witness = watching.ok();
        if !self.proxies.is_empty() {
            header.machine.facts.insert("proxies".to_owned(), proxy::describe(&self.proxies));
        }
        if let Some(guest) = &self.options.guest {
            header.machine.facts.insert("virtual machine".to_owned(), guest.clone());
        }
        if let Some(cards) = self.cards.describe(&self.experiment)? {
            header.machine.facts.insert("cards".to_owned(), cards);
        }
        if let Some(why) = self.crowded() {
            header.machine.facts.insert("switches".to_owned(), why.clone());
            emit(Event::Crowded { why });
        } else if let Some(cores) = self.cores_of_switches() {
            header.machine.facts.insert("switches".to_owned(), cores);
        }
        if let Some(why) = self.fragments(&header.entrants) {
            header.machine.facts.insert("fragments".to_owned(), why.clone());
            emit(Event::Fragments { why });
        }
        if let Some(fewer) = &self.fewer_connections {
            header.machine.facts.insert("connections".to_owned(), fewer.clone());
        }
        writer.append(&Line::Header(Box::new(header.clone())))?;
        chosen.into_iter().for_each(|chosen| emit(Event::Steering { chosen }));
        let mut contest = Contest {
            arena: Topologies { race: &self, claim },
            experiment: &self.experiment,
            method: self.method.clone(),
            seed: self.seed,
            stop: &self.options.stop,
        };
        contest.builds(&header, writer, emit)
    }

    /// Decides whose CPUs work on received packets.
    pub(crate) fn steer(&mut self, claim: &Unit) -> Result<Chosen, LabError> {
        if self.experiment.workload.kind == WorkloadKind::Packets {
            return Ok(Chosen { steered: false, why: "the CPU that makes frames judges them".to_owned() });
        }
        let shape = |name: &str, steered| Shape {
            prefix: format!("hg-{}-{name}", claim.id()),
            steered,
            // It is the nodes' CPUs that are asked about.
            wires: Wires::default(),
            ..self.shape(&self.contenders[0], None)
        };
        let trying = self.staffing(&self.contenders[0]).trying();
        let (steering, connections) = (self.experiment.underlay.steering, trying.workload.connections);
        let chosen = choose(steering, connections, &self.method, &trying, claim.dir(), shape)?;
        self.steered = chosen.steered;
        Ok(chosen)
    }
}

/// The server program on this machine. Where the server has a machine of its own, it is chosen there.
fn server(experiment: &Experiment, options: &RaceOptions) -> Result<ServerChoice, LabError> {
    match &options.machines {
        None => ServerChoice::of(&experiment.workload, options.nginx.as_deref(), &options.own),
        Some(_) => Ok(ServerChoice::Hostgap(options.own.clone())),
    }
}

/// Ends the record of a race that has run since `started`, with what became of it. Reports the first error: the
/// other follows from it.
pub(crate) fn concluded(
    writer: Writer,
    started: Instant,
    result: Result<Finished, LabError>,
) -> Result<Finished, LabError> {
    let stopped = match &result {
        Ok(Finished::Whole) => None,
        Ok(Finished::Stopped) => Some("it was interrupted".to_owned()),
        Err(error) => Some(format!("could not {error}")),
    };
    let ended = close(writer, &Line::End { wall_s: started.elapsed().as_secs_f64(), stopped });
    let finished = result?;
    ended.map(|()| finished)
}

/// Ends a record. One without its first line is none, and is taken away: the race could not begin.
pub(crate) fn close(mut writer: Writer, end: &Line) -> Result<(), LabError> {
    if writer.is_empty() {
        let path = writer.path();
        return std::fs::remove_file(path).map_err(LabError::file("remove", path));
    }
    Ok(writer.append(end)?)
}

/// A seed that no race is likely to have had.
pub(crate) fn fresh_seed() -> u64 {
    // Short enough to be typed again.
    (linux::clock::now_ns() ^ u64::from(std::process::id()).rotate_left(40)) % 1_000_000
}
