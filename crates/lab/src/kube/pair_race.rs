//! The race from one client's node to one server's: which paths it has, its header, and its contest.

use std::collections::BTreeSet;
use std::time::Duration;

use datapath::SocketRole;
use linux::CpuSet;
use linux::cpu::Scheduling;
use record::{Entrant, Experiment, Header, Line, Machine, Writer};

use super::facts;
use super::node_pair_pods::NodePairPods;
use super::options::ClusterOptions;
use super::path::{By, ClusterContender, PodPath, Pods};
use super::protocol::{Answer, Task};
use super::runner::ClusterArena;
use crate::error::Fault;
use crate::race::{Arena, CONTENDERS_FROM, Contest, Runner};
use crate::trial::Method;
use crate::{Event, LabError, NodeCpus};

/// The race from one client's node to one server's.
pub(super) struct PairRace<'a> {
    pub(super) pair: NodePairPods<'a>,
    pub(super) experiment: &'a Experiment,
    pub(super) options: &'a ClusterOptions,
    pub(super) contenders: Vec<ClusterContender>,
    pub(super) seed: u64,
    /// Whether it is one of a race of all pairs.
    pub(super) in_tournament: bool,
}

impl PairRace<'_> {
    /// What the processes in the pods see of both nodes.
    pub(super) fn machine(&self, pairs: &BTreeSet<Pods>) -> Result<Machine, LabError> {
        facts::machine(self.pair, self.options, pairs)
    }

    /// Tries each path once, and begins the record with the candidates that can race.
    pub(super) fn open(
        &mut self,
        machine: Machine,
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Header, LabError> {
        let tried = self.leave_out();
        let header = self.header(machine);
        if tried.is_ok() || self.in_tournament {
            // That two nodes of many do not reach each other is a result.
            writer.append(&Line::Header(Box::new(header.clone())))?;
        }
        tried?;
        emit(Event::Recording { path: writer.path().to_owned() });
        for contender in self.contenders.iter().filter(|contender| !contender.unmet.is_empty()) {
            emit(Event::CannotRun { name: contender.name.clone(), reasons: contender.unmet.clone() });
        }
        Ok(header)
    }

    /// The race between pods that stand and serve.
    pub(super) fn contest(&self) -> Contest<'_, ClusterArena<'_>> {
        let method = Method {
            warmup: Duration::from_millis(self.experiment.warmup_ms.into()),
            slice: Duration::from_millis(self.experiment.slice_ms.into()),
            seed: self.seed,
            // Which CPUs these are is decided in the pods.
            ..Method::new(
                NodeCpus { client: CpuSet::default(), server: CpuSet::default() },
                Scheduling::Normal,
            )
        };
        Contest {
            arena: self.arena(),
            experiment: self.experiment,
            method,
            seed: self.seed,
            stop: &self.options.access.stop,
        }
    }

    /// Says of paths that the cluster does not have why: each is connected once before the race.
    fn leave_out(&mut self) -> Result<(), LabError> {
        for at in 0..self.contenders.len() {
            let found = self.connected(at)?;
            let Some(why) = found else { continue };
            if at < CONTENDERS_FROM {
                let remedy = "let the nodes reach each other at a port, and name it with --host-port";
                let [client, server] =
                    [SocketRole::Client, SocketRole::Server].map(|part| &self.pair.node(part).name);
                let machine = format!("nodes {client} and {server}");
                let (remedy, fault) = (Some(remedy.to_owned()), Fault::Failure);
                return Err(LabError::Machine { machine, why, remedy, fault });
            }
            let contender = &mut self.contenders[at];
            // Between two nodes of many that is a result.
            if contender.required && !self.in_tournament {
                let why = format!("run path {:?}: {why}", contender.name);
                let machine = self.options.access.kubectl.cluster();
                return Err(LabError::Machine { machine, why, remedy: None, fault: Fault::Lack });
            }
            contender.unmet.push(why);
        }
        Ok(())
    }

    /// Why a path cannot race, if it cannot.
    fn connected(&self, at: usize) -> Result<Option<String>, LabError> {
        let path = &self.contenders[at].path;
        let address = match self.pair.address(path) {
            Ok(address) => address,
            Err(why) => return Ok(Some(why)),
        };
        let stood = self.arena().stand(at).and_then(Runner::take_down);
        match stood {
            Ok(_) => misnamed(self.pair, path, &address),
            Err(LabError::Broken { what, .. }) => Ok(Some(what)),
            Err(error) => Err(error),
        }
    }

    fn arena(&self) -> ClusterArena<'_> {
        ClusterArena {
            pair: self.pair,
            contenders: &self.contenders,
            workload: &self.experiment.workload,
            cpus: self.options.client_cpus.as_ref(),
        }
    }

    fn header(&self, machine: Machine) -> Header {
        let entrant = |contender: &ClusterContender| Entrant {
            name: contender.name.clone(),
            path: contender.path.to_string(),
            stands_for: contender.path.stands_for(),
            unmet: contender.unmet.clone(),
            commands: Vec::new(),
            settings: Vec::new(),
            mtu: None,
            carried: false,
            crowded: false,
        };
        Header {
            schema: record::SCHEMA,
            hostgap: self.options.access.own.version.to_owned(),
            started_unix_s: linux::clock::unix_s(),
            seed: self.seed,
            experiment: self.experiment.clone(),
            machine,
            server: format!("hostgap serve {}", self.options.access.own.version),
            entrants: self.contenders.iter().map(entrant).collect(),
            pair: self.in_tournament.then(|| self.pair.recorded()),
        }
    }
}

/// Why a path that has an address is not what its name says.
fn misnamed(pair: NodePairPods<'_>, path: &PodPath, address: &str) -> Result<Option<String>, LabError> {
    let containers = pair.containers(&path.pods);
    match &path.pods {
        Pods::Sidecar if containers.contains(&1) => {
            return Ok(Some("the cluster has put no second container into its pods".to_owned()));
        }
        Pods::Sidecar => {}
        _ if containers != [1, 1] => {
            return Ok(Some("the cluster has put a second container into its pods".to_owned()));
        }
        _ => {}
    }
    if path.pods != Pods::Policy {
        return Ok(None);
    }
    if pair.manifests().is_udp {
        return Ok(Some("whether a policy keeps datagrams out is not tried: race tcp-rr".to_owned()));
    }
    // A client that the policy does not let in must be kept out. Each network decides by itself about
    // the nodes' own packets.
    let stranger = pair.process(SocketRole::Client, &Pods::Plain);
    let task = Task::TryToEnter { address: address.to_owned(), ipv6: pair.manifests().ipv6 };
    match stranger.ask(&task, None, "host")? {
        Answer::KeptOut(true) => Ok(None),
        Answer::KeptOut(false) if path.by == By::NodePort => Ok(Some(
            "a client that the policy does not let in was answered: a NodePort hides the sender".to_owned(),
        )),
        Answer::KeptOut(false) => Ok(Some(
            "the cluster's network enforces no NetworkPolicy: a client that it does not let in was answered"
                .to_owned(),
        )),
        other => Err(stranger.strange(&other)),
    }
}
