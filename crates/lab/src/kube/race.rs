//! The race in a cluster, from its experiment to its record.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux::CpuSet;
use linux::cpu::Scheduling;
use record::{Entrant, Experiment, Header, Line, Machine, Placement, ServerKind, Writer};
use serde_json::{Value, json};

use super::camp::{Camp, failed};
use super::hands::Hand;
use super::kubectl::Kubectl;
use super::manifests::{Manifests, Side, SidecarMark, rights};
use super::nodes::{Node, choose};
use super::path::{ClusterContender, PodPath, Pods, contenders};
use super::protocol::{Answer, Seen, Task};
use super::runner::ClusterArena;
use crate::race::{Arena, CONTENDERS_FROM, Contest, Finished, Runner, concluded, fresh_seed};
use crate::remote::possible_elsewhere;
use crate::trial::Method;
use crate::{Event, LabError, NodeCpus, OwnProgram};

/// Where a server listens in its pod.
const PORT: u16 = 8080;

/// What a race in a cluster needs beside its experiment.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// How the cluster is reached.
    pub kubectl: Kubectl,
    /// A namespace that is there; `None`: one is made and deleted.
    pub namespace: Option<String>,
    /// The client's node and the server's, or one for both; empty: the first that take pods.
    pub nodes: Vec<String>,
    /// An image with this program.
    pub image: String,
    /// An image with a shell, into whose pods this program is copied instead.
    pub copy: Option<String>,
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
    /// The record file to write; it must not exist yet.
    pub record: PathBuf,
    /// This program.
    pub own: OwnProgram,
    /// Set from outside to end the race after the running trial.
    pub stop: Arc<AtomicBool>,
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
        let namespace = options.namespace.clone().unwrap_or_else(|| format!("hostgap-race-{id:06}"));
        Ok(ClusterRace { experiment, options, contenders, namespace, seed })
    }

    /// Everything that the race would create, and before it the rights that it takes, as a list of objects.
    ///
    /// # Errors
    /// The cluster's nodes cannot be listed, or not two of them take pods.
    pub fn manifests(&self) -> Result<Value, LabError> {
        let camp = self.camp(self.nodes()?);
        let mut items = vec![rights()];
        items.extend(camp.manifests.ground());
        items.extend(camp.objects(&self.paths()));
        Ok(json!({ "apiVersion": "v1", "kind": "List", "items": items }))
    }

    /// Runs it. Whatever happens, finished rounds are in the record file, and what was made in the cluster is deleted.
    ///
    /// # Errors
    /// [`LabError::Machine`]: the cluster or a pod fails, and why in its words.
    pub fn run(mut self, tell: &mut dyn FnMut(Event)) -> Result<Finished, LabError> {
        let machine = failed(&self.options.kubectl, String::new());
        if let LabError::Machine { machine, .. } = machine {
            tell(Event::Connecting { machine });
        }
        let writer = Writer::create(&self.options.record)?;
        let started = Instant::now();
        let mut writer = writer;
        let result = self.raced(&mut writer, tell);
        concluded(writer, started, result)
    }

    fn raced(&mut self, writer: &mut Writer, tell: &mut dyn FnMut(Event)) -> Result<Finished, LabError> {
        let nodes = self.nodes()?;
        let paths = self.paths();
        let options = self.options.clone();
        let namespace = self.namespace.clone();
        let mut camp = Camp::new(&options.kubectl, manifests(&options, &namespace, &self.experiment), nodes);
        let stop = || options.stop.load(Ordering::Relaxed);
        tell(Event::Pitching { namespace: namespace.clone(), pods: paths_pods(&paths) });
        if let Err(error) = camp.pitch(&paths, &options.own, &stop) {
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
        let cpus = (self.options.server_cpus.as_ref(), self.options.host_port);
        camp.serve(paths, &self.experiment.workload, cpus)?;
        self.leave_out(camp)?;
        let header = self.header(camp)?;
        writer.append(&Line::Header(Box::new(header.clone())))?;
        tell(Event::Recording { path: self.options.record.clone() });
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
            stop: &self.options.stop,
        };
        contest.builds(&header, writer, tell)
    }

    /// Says of paths that the cluster does not have why: each is connected once before the race.
    fn leave_out(&mut self, camp: &Camp<'_>) -> Result<(), LabError> {
        for at in CONTENDERS_FROM..self.contenders.len() {
            let found = self.connected(camp, at)?;
            let Some(why) = found else { continue };
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

    fn header(&self, camp: &Camp<'_>) -> Result<Header, LabError> {
        let entrant = |contender: &ClusterContender| Entrant {
            name: contender.name.clone(),
            path: contender.path.to_string(),
            stands_for: contender.path.stands_for(),
            unmet: contender.unmet.clone(),
            commands: Vec::new(),
            settings: Vec::new(),
            mtu: None,
        };
        Ok(Header {
            schema: record::SCHEMA,
            hostgap: self.options.own.version.to_owned(),
            started_unix_s: linux::clock::unix_s(),
            seed: self.seed,
            experiment: self.experiment.clone(),
            machine: self.machine(camp)?,
            server: format!("hostgap serve {}", self.options.own.version),
            entrants: self.contenders.iter().map(entrant).collect(),
        })
    }

    /// The client's node, and of the server's what may matter to a reader of the figures.
    fn machine(&self, camp: &Camp<'_>) -> Result<Machine, LabError> {
        let client = self.seen(&camp.hand(Side::Client, &Pods::Host))?;
        let server = self.seen(&camp.hand(Side::Server, &Pods::Host))?;
        let mut machine = client.machine.clone();
        let named = |named: &Option<CpuSet>, workers: &CpuSet| named.as_ref().unwrap_or(workers).to_string();
        machine.client_cpus = named(&self.options.client_cpus, &client.workers);
        machine.server_cpus = named(&self.options.server_cpus, &server.workers);
        let [client_node, server_node] = &camp.nodes;
        let theirs = &server.machine;
        let gibibytes = theirs.memory_bytes as f64 / f64::from(1 << 30);
        let describes = format!(
            "{}: {}, {}, {} CPUs, {gibibytes:.0} GiB",
            server_node.name, server_node.says, theirs.cpu_model, theirs.cpus
        );
        let facts = [
            ("client's node", format!("{}: {}", client_node.name, client_node.says)),
            ("server's node", describes),
            ("CPUs of pods", self.cpus_of_pods(&client, &server)),
            ("image", self.options.copy.clone().unwrap_or_else(|| self.options.image.clone())),
        ];
        machine.facts.extend(facts.map(|(name, what)| (name.to_owned(), what)));
        Ok(machine)
    }

    /// What a hand sees, if it is of this very version.
    fn seen(&self, hand: &Hand) -> Result<Seen, LabError> {
        let seen = match hand.ask(&Task::Look { workers: self.options.pod_cpus }, None, "host")? {
            Answer::Seen(seen) => *seen,
            other => return Err(hand.strange(&other)),
        };
        let own = self.options.own.version;
        if seen.version == own {
            return Ok(seen);
        }
        let why = format!("its image {} has hostgap {}, and this is {own}", self.options.image, seen.version);
        let remedy = Some("name an image of this version with --image, or race with --copy".to_owned());
        Err(LabError::Machine { machine: hand.name().to_owned(), why, remedy })
    }

    /// Whether the kubelets have given the pods CPUs of their own.
    fn cpus_of_pods(&self, client: &Seen, server: &Seen) -> String {
        let asked = self.options.pod_cpus;
        if !self.options.guaranteed {
            return "shared with all other pods: none were asked for".to_owned();
        }
        let own = |seen: &Seen| seen.allowed.len() == asked as usize && seen.machine.cpus > asked;
        match (own(client), own(server)) {
            (true, true) => format!("{asked} of its own for each, by the kubelet's static policy"),
            (false, false) => format!(
                "{asked} for each, which the scheduler has counted; they share CPUs with others, as the kubelet has no \
                 static policy"
            ),
            (client_has_own, _) => {
                let who = if client_has_own { "client" } else { "server" };
                format!(
                    "{asked} for each; only the {who}'s are its own: the other kubelet has no static policy"
                )
            }
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
        let ClusterOptions { kubectl, nodes, .. } = &self.options;
        choose(kubectl, nodes, same_node).map_err(|why| failed(kubectl, why))
    }

    fn camp(&self, nodes: [Node; 2]) -> Camp<'_> {
        let manifests = manifests(&self.options, &self.namespace, &self.experiment);
        Camp::new(&self.options.kubectl, manifests, nodes)
    }
}

fn manifests<'a>(options: &'a ClusterOptions, namespace: &'a str, experiment: &Experiment) -> Manifests<'a> {
    Manifests {
        namespace,
        owns_namespace: options.namespace.is_none(),
        image: options.copy.as_deref().unwrap_or(&options.image),
        copies: options.copy.is_some(),
        cpus: options.pod_cpus,
        guaranteed: options.guaranteed,
        port: PORT,
        is_udp: experiment.workload.kind.is_udp(),
        ipv6: experiment.workload.ipv6,
        sidecar: options.sidecar.as_ref(),
    }
}

/// How many pods race: a client and a server of each pair.
fn paths_pods(paths: &BTreeSet<PodPath>) -> usize {
    2 * paths.iter().map(|path| &path.pods).collect::<BTreeSet<_>>().len()
}

/// Why a path that has an address is not what its name says.
fn misnamed(camp: &Camp<'_>, path: &PodPath, address: &str) -> Result<Option<String>, LabError> {
    match &path.pods {
        Pods::Sidecar if camp.containers(&path.pods) < 2 => {
            Ok(Some("the cluster has put no second container into its pods".to_owned()))
        }
        Pods::Policy if !camp.manifests.is_udp => {
            // Who is not let in must be kept out. What becomes of the nodes' own packets, each network decides for itself.
            let stranger = camp.hand(Side::Client, &Pods::Plain);
            let task = Task::Reach { address: address.to_owned(), ipv6: camp.manifests.ipv6 };
            match stranger.ask(&task, None, "host")? {
                Answer::Reached(false) => Ok(None),
                Answer::Reached(true) => Ok(Some(
                    "the cluster's network enforces no NetworkPolicy: a client that it does not let in was answered"
                        .to_owned(),
                )),
                other => Err(stranger.strange(&other)),
            }
        }
        _ => Ok(None),
    }
}
