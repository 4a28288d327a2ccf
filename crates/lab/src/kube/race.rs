//! The race in a cluster, from its experiment to its record.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use record::{Experiment, Placement, ServerKind, Writer};
use serde_json::{Value, json};

use super::access::ClusterAccess;
use super::camp::{Camp, PodPlacement};
use super::lane::Lane;
use super::manifests::Manifests;
use super::nodes::choose;
use super::options::ClusterOptions;
use super::pair_race::PairRace;
use super::path::{ClusterContender, PodPath, Pods, contenders};
use super::rights::rights;
use crate::race::{Finished, concluded, fresh_seed};
use crate::remote::possible_elsewhere;
use crate::{Event, LabError};

/// The client's and the server's place among the nodes of a race of one pair.
const PAIR: [usize; 2] = [0, 1];
/// Where a server listens in its pod.
const PORT: u16 = 8080;

/// A race in a cluster that is ready to run.
#[derive(Debug)]
pub struct ClusterRace {
    pub(super) experiment: Experiment,
    pub(super) options: ClusterOptions,
    contenders: Vec<ClusterContender>,
    namespace: String,
    pub(super) seed: u64,
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
        Ok(self.listed(&self.camp(self.placement()?)))
    }

    /// What a camp would have, as a list of objects.
    pub(super) fn listed(&self, camp: &Camp<'_>) -> Value {
        let mut items = rights(self.options.access.namespace.as_deref());
        items.extend(camp.manifests().ground(&camp.nodes()[0].name));
        items.extend(camp.objects(&self.paths()));
        json!({ "apiVersion": "v1", "kind": "List", "items": items })
    }

    /// Runs it. Whatever happens, finished rounds are in the record file, which must not exist yet, and what was made in the
    /// cluster is deleted.
    ///
    /// # Errors
    /// [`LabError::Machine`]: the cluster or a pod fails, and why in its words.
    pub fn run(self, record: &Path, emit: &mut dyn FnMut(Event)) -> Result<Finished, LabError> {
        emit(Event::Connecting { machine: self.options.access.kubectl.cluster() });
        let mut writer = Writer::create(record)?;
        let started = Instant::now();
        let result = self.raced(&mut writer, emit);
        concluded(writer, started, result)
    }

    fn raced(&self, writer: &mut Writer, emit: &mut dyn FnMut(Event)) -> Result<Finished, LabError> {
        let paths = self.paths();
        let camped =
            self.camped(self.placement()?, emit, |camp, emit| self.contest(camp, &paths, writer, emit))?;
        Ok(camped.unwrap_or(Finished::Stopped))
    }

    /// Does something with a camp that stands, and strikes it, whatever becomes of that. `None` if it was stopped before.
    pub(super) fn camped<T>(
        &self,
        placement: PodPlacement,
        emit: &mut dyn FnMut(Event),
        work: impl FnOnce(&mut Camp<'_>, &mut dyn FnMut(Event)) -> Result<T, LabError>,
    ) -> Result<Option<T>, LabError> {
        let mut camp = self.camp(placement);
        let access = &self.options.access;
        let stop = || access.is_stopped();
        if let Err(error) = camp.pitch(&self.paths(), &access.own, &stop, emit) {
            // Interrupted, it is no error.
            let struck = camp.strike();
            return if stop() { struck.map(|()| None) } else { Err(error) };
        }
        let result = work(&mut camp, emit).map_err(|error| camp.explained(error));
        let struck = camp.strike();
        result.and_then(|result| struck.map(|()| Some(result)))
    }

    /// Races between pods that stand.
    fn contest(
        &self,
        camp: &mut Camp<'_>,
        paths: &BTreeSet<PodPath>,
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Finished, LabError> {
        let cpus = (self.options.server_cpus.as_ref(), self.options.host_port);
        let machine = self.bout(camp.lane(PAIR), false).machine(&pairs(paths))?;
        camp.serve(paths, &self.experiment.workload, cpus)?;
        let mut bout = self.bout(camp.lane(PAIR), false);
        let header = bout.open(machine, writer, emit)?;
        bout.contest().builds(&header, writer, emit)
    }

    /// The race of a lane.
    pub(super) fn bout<'a>(&'a self, lane: Lane<'a>, in_tournament: bool) -> PairRace<'a> {
        let contenders = self.contenders.clone();
        PairRace {
            lane,
            experiment: &self.experiment,
            options: &self.options,
            contenders,
            seed: self.seed,
            in_tournament,
        }
    }

    /// All paths for which something is made: a policy is tried with a client that it keeps out.
    pub(super) fn paths(&self) -> BTreeSet<PodPath> {
        let mut paths: BTreeSet<PodPath> =
            self.contenders.iter().map(|contender| contender.path.clone()).collect();
        if paths.iter().any(|path| path.pods == Pods::Policy) {
            paths.insert(PodPath::PLAIN);
        }
        paths
    }

    fn placement(&self) -> Result<PodPlacement, LabError> {
        let same_node = self.experiment.placement == Placement::SameNode;
        let ClusterAccess { kubectl, nodes, .. } = &self.options.access;
        choose(kubectl, nodes, same_node)
            .map(|pair| PodPlacement::Pair(Box::new(pair)))
            .map_err(|why| kubectl.failed(why))
    }

    /// A camp of which nothing stands yet.
    pub(super) fn camp(&self, placement: PodPlacement) -> Camp<'_> {
        let manifests = manifests(&self.options, &self.namespace, &self.experiment);
        Camp::new(&self.options.access.kubectl, manifests, placement)
    }
}

/// The pairs of pods of paths.
pub(super) fn pairs(paths: &BTreeSet<PodPath>) -> BTreeSet<Pods> {
    paths.iter().map(|path| path.pods.clone()).collect()
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
