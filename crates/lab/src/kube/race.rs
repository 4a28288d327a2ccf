//! The race in a cluster, from its experiment to its record.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use linux::CpuSet;
use linux::cpu::Scheduling;
use record::{Entrant, Experiment, Header, Line, Machine, Placement, ServerKind, Writer};
use serde_json::{Value, json};

use super::access::ClusterAccess;
use super::camp::Camp;
use super::facts;
use super::manifests::{Manifests, Side, SidecarMark, rights};
use super::nodes::{Node, choose};
use super::path::{By, ClusterContender, PodPath, Pods, contenders};
use super::protocol::{Answer, Task};
use super::runner::ClusterArena;
use crate::race::{Arena, CONTENDERS_FROM, Contest, Finished, Runner, concluded, fresh_seed};
use crate::remote::possible_elsewhere;
use crate::trial::Method;
use crate::{Event, LabError, NodeCpus};

/// Where a server listens in its pod.
const PORT: u16 = 8080;

/// What a race in a cluster needs beside its experiment.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// The cluster.
    pub access: ClusterAccess,
    /// Whole CPUs of a pod, and threads of client and server.
    pub pod_cpus: u32,
    /// Pods have these CPUs for themselves; otherwise they share with all others.
    pub guaranteed: bool,
    /// CPUs of the client's threads, where not the last that its pod may use.
    pub client_cpus: Option<CpuSet>,
    /// The same of the server's.
    pub server_cpus: Option<CpuSet>,
    /// Where the reference's server listens on its node; 0: at a port that is free.
    pub host_port: u16,
    /// How the cluster is asked for a sidecar.
    pub sidecar: Option<SidecarMark>,
}

/// A race in a cluster that is ready to run.
#[derive(Debug)]
pub struct ClusterRace {
    experiment: Experiment,
    options: ClusterOptions,
    contenders: Vec<ClusterContender>,
    namespace: String,
    seed: u64,
}

impl ClusterRace {
    /// Checks everything that can be checked without the cluster.
    ///
    /// # Errors
    /// [`LabError::Experiment`]: something is asked for that is not done in a cluster.
    pub fn prepare(mut experiment: Experiment, options: ClusterOptions) -> Result<ClusterRace, LabError> {
        possible_elsewhere(&experiment, "in a cluster")?;
        if experiment.workload.server == ServerKind::Nginx {
            let why = "the image has hostgap's own server".to_owned();
            return Err(LabError::Experiment { what: "nginx in a cluster".to_owned(), why });
        }
        experiment.workload.server = ServerKind::Hostgap;
        // A pod may not load the programs that watch for stalls.
        experiment.witness = false;
        let contenders = contenders(&experiment, options.sidecar.as_ref())?;
        let seed = experiment.seed.unwrap_or_else(fresh_seed);
        let id = fresh_seed();
        let namespace = options.access.namespace.clone().unwrap_or_else(|| format!("hostgap-race-{id:06}"));
        Ok(ClusterRace { experiment, options, contenders, namespace, seed })
    }

    /// Everything that the race would create, and before it the rights that it takes, as a list of objects.
    ///
    /// # Errors
    /// The cluster's nodes cannot be listed, or not two of them take pods.
    pub fn manifests(&self) -> Result<Value, LabError> {
        let camp = self.camp(self.nodes()?);
        let mut items = rights(self.options.access.namespace.as_deref());
        items.extend(camp.manifests().ground(&camp.nodes[0].name));
        items.extend(camp.objects(&self.paths()));
        Ok(json!({ "apiVersion": "v1", "kind": "List", "items": items }))
    }

    /// Runs it. Whatever happens, finished rounds are in the record file, which must not exist yet, and what was made in the
    /// cluster is deleted.
    ///
    /// # Errors
    /// [`LabError::Machine`]: the cluster or a pod fails, and why in its words.
    pub fn run(mut self, record: &Path, tell: &mut dyn FnMut(Event)) -> Result<Finished, LabError> {
        tell(Event::Connecting { machine: self.options.access.kubectl.cluster() });
        let mut writer = Writer::create(record)?;
        let started = Instant::now();
        let result = self.raced(&mut writer, tell);
        concluded(writer, started, result)
    }

    fn raced(&mut self, writer: &mut Writer, tell: &mut dyn FnMut(Event)) -> Result<Finished, LabError> {
        let nodes = self.nodes()?;
        let paths = self.paths();
        let options = self.options.clone();
        let namespace = self.namespace.clone();
        let mut camp =
            Camp::new(&options.access.kubectl, manifests(&options, &namespace, &self.experiment), nodes);
        let stop = || options.access.is_stopped();
        if let Err(error) = camp.pitch(&paths, &options.access.own, &stop, tell) {
            // Interrupted, it is no error.
            let struck = camp.strike();
            return if stop() { struck.map(|()| Finished::Stopped) } else { Err(error) };
        }
        let result = self.contest(&mut camp, &paths, writer, tell);
        let result = result.map_err(|error| camp.explained(error));
        let struck = camp.strike();
        result.and_then(|finished| struck.map(|()| finished))
    }

    /// Races between pods that stand.
    fn contest(
        &mut self,
        camp: &mut Camp<'_>,
        paths: &BTreeSet<PodPath>,
        writer: &mut Writer,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Finished, LabError> {
        let pairs: BTreeSet<Pods> = paths.iter().map(|path| path.pods.clone()).collect();
        let machine = facts::machine(camp, &self.options, &pairs.into_iter().collect::<Vec<_>>())?;
        let cpus = (self.options.server_cpus.as_ref(), self.options.host_port);
        camp.serve(paths, &self.experiment.workload, cpus)?;
        self.leave_out(camp)?;
        let header = self.header(machine);
        writer.append(&Line::Header(Box::new(header.clone())))?;
        tell(Event::Recording { path: writer.path().to_owned() });
        for contender in self.contenders.iter().filter(|contender| !contender.unmet.is_empty()) {
            tell(Event::CannotRun { name: contender.name.clone(), reasons: contender.unmet.clone() });
        }
        let method = Method {
            warmup: Duration::from_millis(self.experiment.warmup_ms.into()),
            slice: Duration::from_millis(self.experiment.slice_ms.into()),
            // Which CPUs these are is decided in the pods.
            ..Method::new(
                NodeCpus { client: CpuSet::default(), server: CpuSet::default() },
                Scheduling::Normal,
            )
        };
        let mut contest = Contest {
            arena: self.arena(camp),
            experiment: &self.experiment,
            method,
            seed: self.seed,
            stop: &self.options.access.stop,
        };
        contest.builds(&header, writer, tell)
    }

    /// Says of paths that the cluster does not have why: each is connected once before the race.
    fn leave_out(&mut self, camp: &Camp<'_>) -> Result<(), LabError> {
        for at in 0..self.contenders.len() {
            let found = self.connected(camp, at)?;
            let Some(why) = found else { continue };
            if at < CONTENDERS_FROM {
                let remedy = "let the nodes reach each other at a port, and name it with --host-port";
                let machine = format!("nodes {} and {}", camp.nodes[0].name, camp.nodes[1].name);
                return Err(LabError::Machine { machine, why, remedy: Some(remedy.to_owned()) });
            }
            let contender = &mut self.contenders[at];
            if contender.required {
                let what = format!("path {:?} in this cluster", contender.name);
                return Err(LabError::Experiment { what, why });
            }
            contender.unmet.push(why);
        }
        Ok(())
    }

    /// Why a path cannot race, if it cannot.
    fn connected(&self, camp: &Camp<'_>, at: usize) -> Result<Option<String>, LabError> {
        let path = &self.contenders[at].path;
        let address = match camp.address(path) {
            Ok(address) => address,
            Err(why) => return Ok(Some(why)),
        };
        let stood = self.arena(camp).stand(at).and_then(Runner::take_down);
        match stood {
            Ok(()) => misnamed(camp, path, &address),
            Err(LabError::Broken { what, .. }) => Ok(Some(what)),
            Err(error) => Err(error),
        }
    }

    fn arena<'a>(&'a self, camp: &'a Camp<'a>) -> ClusterArena<'a> {
        ClusterArena {
            camp,
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
            pair: None,
        }
    }

    /// All paths for which something is made: a policy is tried with a client that it keeps out.
    fn paths(&self) -> BTreeSet<PodPath> {
        let mut paths: BTreeSet<PodPath> =
            self.contenders.iter().map(|contender| contender.path.clone()).collect();
        if paths.iter().any(|path| path.pods == Pods::Policy) {
            paths.insert(PodPath::PLAIN);
        }
        paths
    }

    fn nodes(&self) -> Result<[Node; 2], LabError> {
        let same_node = self.experiment.placement == Placement::SameNode;
        let ClusterAccess { kubectl, nodes, .. } = &self.options.access;
        choose(kubectl, nodes, same_node).map_err(|why| kubectl.failed(why))
    }

    fn camp(&self, nodes: [Node; 2]) -> Camp<'_> {
        let manifests = manifests(&self.options, &self.namespace, &self.experiment);
        Camp::new(&self.options.access.kubectl, manifests, nodes)
    }
}

fn manifests<'a>(options: &'a ClusterOptions, namespace: &'a str, experiment: &Experiment) -> Manifests<'a> {
    Manifests {
        namespace,
        owns_namespace: options.access.namespace.is_none(),
        image: options.access.pod_image(),
        copies: options.access.copy.is_some(),
        cpus: options.pod_cpus,
        guaranteed: options.guaranteed,
        port: PORT,
        is_udp: experiment.workload.kind.is_udp(),
        ipv6: experiment.workload.ipv6,
        tolerates: !options.access.nodes.is_empty(),
        sidecar: options.sidecar.as_ref(),
    }
}

/// Why a path that has an address is not what its name says.
fn misnamed(camp: &Camp<'_>, path: &PodPath, address: &str) -> Result<Option<String>, LabError> {
    let containers = camp.containers(&path.pods);
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
    if camp.manifests().is_udp {
        return Ok(Some("whether a policy keeps datagrams out is not tried: race tcp-rr".to_owned()));
    }
    // Who is not let in must be kept out. What becomes of the nodes' own packets, each network decides for itself.
    let stranger = camp.hand(Side::Client, &Pods::Plain);
    let task = Task::TryToEnter { address: address.to_owned(), ipv6: camp.manifests().ipv6 };
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
