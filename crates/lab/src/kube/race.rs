//! The race in a cluster, from its experiment to its record.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use record::{Experiment, Placement, ServerKind, Writer};
use serde_json::{Value, json};

use super::access::ClusterAccess;
use super::cluster_setup::{ClusterSetup, PodPlacement};
use super::manifests::{AFTER_NAMESPACE, Manifests};
use super::node_pair_pods::NodePairPods;
use super::nodes::{check_ends, choose};
use super::options::ClusterOptions;
use super::pair_race::PairRace;
use super::path::{ClusterContender, PodPath, Pods, contenders};
use super::rights::rights;
use crate::limits::clients_suffice;
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
    /// The number by which this run knows what it has made.
    run: u64,
    pub(super) seed: u64,
}

impl ClusterRace {
    /// Checks everything that can be checked without the cluster.
    ///
    /// # Errors
    /// [`LabError::Experiment`]: something is asked for that is not done in a cluster, or not between these nodes.
    pub fn prepare(experiment: Experiment, options: ClusterOptions) -> Result<ClusterRace, LabError> {
        check_ends(&options.access.nodes, experiment.placement == Placement::SameNode)?;
        ClusterRace::of_nodes(experiment, options)
    }

    /// The same, whichever nodes are named.
    pub(super) fn of_nodes(
        mut experiment: Experiment,
        options: ClusterOptions,
    ) -> Result<ClusterRace, LabError> {
        possible_elsewhere(&experiment, "in a cluster")?;
        clients_suffice(&experiment, 1)?;
        if experiment.workload.server == ServerKind::Nginx {
            let why = "the image has hostgap's own server".to_owned();
            return Err(LabError::Experiment { what: "nginx in a cluster".to_owned(), why });
        }
        experiment.workload.server = ServerKind::Hostgap;
        // A pod may not load the programs that watch for stalls.
        experiment.witness = false;
        let contenders = contenders(&experiment, options.sidecar.as_ref())?;
        let seed = experiment.seed.unwrap_or_else(fresh_seed);
        let run = fresh_seed();
        let namespace = options.access.namespace.clone().unwrap_or_else(|| format!("hostgap-race-{run:06}"));
        Ok(ClusterRace { experiment, options, contenders, namespace, run, seed })
    }

    /// Everything that the race would create, and before it the rights that it takes, as a list of objects.
    ///
    /// # Errors
    /// The cluster's nodes cannot be listed, or not two of them take pods.
    pub fn manifests(&self) -> Result<Value, LabError> {
        Ok(self.listed(&self.setup(self.placement()?)))
    }

    /// What would be made in the cluster, as a list of objects.
    pub(super) fn listed(&self, setup: &ClusterSetup<'_>) -> Value {
        let ClusterAccess { namespace, pull_secret, .. } = &self.options.access;
        let mut items = rights(namespace.as_deref(), pull_secret.as_ref());
        let mut ground = setup.manifests().ground(&setup.nodes()[0].name);
        let copy = pull_secret.as_ref().and_then(|secret| secret.shown(setup.manifests()));
        copy.into_iter().for_each(|copy| ground.insert(AFTER_NAMESPACE, copy));
        items.extend(ground);
        items.extend(setup.objects(&self.paths()));
        json!({ "apiVersion": "v1", "kind": "List", "items": items })
    }

    /// Runs it. Whatever happens, finished rounds are in the record file, which must not exist yet, and what was made
    /// in the cluster is deleted.
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
        let finished = self
            .with_setup(self.placement()?, emit, |setup, emit| self.contest(setup, &paths, writer, emit))?;
        Ok(finished.unwrap_or(Finished::Stopped))
    }

    /// Makes a setup, does the work with it, and removes it, whatever the work returns. `None` if it was stopped
    /// before. What cannot be removed, as pods of a node that is lost, does not change the result.
    pub(super) fn with_setup<T>(
        &self,
        placement: PodPlacement,
        emit: &mut dyn FnMut(Event),
        work: impl FnOnce(&mut ClusterSetup<'_>, &mut dyn FnMut(Event)) -> Result<T, LabError>,
    ) -> Result<Option<T>, LabError> {
        let mut setup = self.setup(placement);
        if let Err(error) = setup.make(&self.paths(), emit) {
            // Interrupted, it is no error.
            let is_stopped = self.options.access.is_stopped();
            setup.remove(emit);
            return if is_stopped { Ok(None) } else { Err(error) };
        }
        let result = work(&mut setup, emit).map_err(|error| setup.explained(error));
        setup.remove(emit);
        result.map(Some)
    }

    /// Races between pods that stand.
    fn contest(
        &self,
        setup: &mut ClusterSetup<'_>,
        paths: &BTreeSet<PodPath>,
        writer: &mut Writer,
        emit: &mut dyn FnMut(Event),
    ) -> Result<Finished, LabError> {
        let cpus = (self.options.server_cpus.as_ref(), self.options.host_port);
        let machine = self.pair_race(setup.pair(PAIR), false).machine(&pairs(paths))?;
        setup.serve(paths, &self.experiment.workload, cpus)?;
        let mut pair_race = self.pair_race(setup.pair(PAIR), false);
        let header = pair_race.open(machine, writer, emit)?;
        pair_race.contest().builds(&header, writer, emit)
    }

    /// The race from a client's node to a server's.
    pub(super) fn pair_race<'a>(&'a self, pair: NodePairPods<'a>, in_tournament: bool) -> PairRace<'a> {
        let contenders = self.contenders.clone();
        PairRace {
            pair,
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
        choose(kubectl, nodes, same_node).map(|pair| PodPlacement::Pair(Box::new(pair)))
    }

    /// A setup of which nothing is made yet.
    pub(super) fn setup(&self, placement: PodPlacement) -> ClusterSetup<'_> {
        let manifests = manifests(&self.options, (&self.namespace, self.run), &self.experiment);
        ClusterSetup::new(&self.options.access, manifests, placement)
    }
}

/// The pairs of pods that these paths need; some paths share one.
pub(super) fn pairs(paths: &BTreeSet<PodPath>) -> BTreeSet<Pods> {
    paths.iter().map(|path| path.pods.clone()).collect()
}

fn manifests<'a>(
    options: &'a ClusterOptions,
    (namespace, run): (&'a str, u64),
    experiment: &Experiment,
) -> Manifests<'a> {
    Manifests {
        namespace,
        owns_namespace: options.access.namespace.is_none(),
        run,
        image: options.access.pod_image(),
        pull_secret: options.access.pull_secret.as_ref().map(|secret| secret.name.as_str()),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::super::kubectl::Kubectl;
    use super::super::ready::name_of;
    use super::*;
    use crate::OwnProgram;

    /// A cluster from which nothing goes, as from a node that is lost. A process in a pod that hears the end of its
    /// input writes that down, and stays.
    const SCRIPT: &str = r#"
        dir=${0%/*}
        shift # the context
        created() { ls "$dir" | grep -c '^created-'; }
        case "$*" in
        get*" nodes") cat "$dir/nodes" ;;
        create*) cat >"$dir/created-$(created)" ;;
        get*" pods "*) cat "$dir/pods-$(created)" ;;
        get*) cat "$dir/owner" ;;
        attach*) read hold; echo held; cat >"$dir/held" ;;
        exec*) cat >"$dir/heard"; echo >"$dir/ended"; exec sleep 86396 ;;
        delete*) echo 'Error from server (Forbidden)' >&2; exit 1 ;;
        esac"#;

    fn race(script: &Path) -> ClusterRace {
        let words = vec!["sh".to_owned(), script.display().to_string()];
        let access = ClusterAccess {
            kubectl: Kubectl { words, context: Some("prod".to_owned()) },
            namespace: None,
            nodes: Vec::new(),
            image: "image".to_owned(),
            pull_secret: None,
            copy: None,
            own: OwnProgram { program: "hostgap".into(), version: "1" },
            stop: Arc::new(AtomicBool::new(false)),
        };
        let options = ClusterOptions {
            access,
            pod_cpus: 1,
            guaranteed: false,
            client_cpus: None,
            server_cpus: None,
            host_port: 0,
            sidecar: None,
        };
        ClusterRace::prepare(Experiment::default(), options).unwrap()
    }

    #[test]
    fn a_result_outlives_what_cannot_be_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
        write("kubectl", SCRIPT.to_owned());
        let node = |name: &str| {
            let conditions = json!([{ "type": "Ready", "status": "True" }]);
            json!({ "metadata": { "name": name }, "status": { "conditions": conditions } })
        };
        write("nodes", json!({ "items": [node("a"), node("b")] }).to_string());
        let race = race(&dir.path().join("kubectl"));
        let placement = race.placement().unwrap();
        let of = |name: &str| {
            json!({ "metadata": { "name": name }, "spec": { "containers": [{}] },
                "status": { "phase": "Running", "containerStatuses": [{ "ready": true }] } })
        };
        let setup = race.setup(race.placement().unwrap());
        write("owner", setup.manifests().ground("a")[0].to_string());
        let objects = setup.objects(&race.paths());
        let pods = objects.iter().filter(|object| object["kind"] == "Pod").map(name_of);
        let all: Vec<Value> = std::iter::once("guard").chain(pods).map(of).collect();
        write("pods-1", json!({ "items": [of("guard")] }).to_string());
        write("pods-2", json!({ "items": all }).to_string());

        let mut events = Vec::new();
        let done = race.with_setup(placement, &mut |event| events.push(event), |_, _| Ok(7));
        assert_eq!(done.unwrap(), Some(7));
        let Some(Event::NotDeleted { namespace, why, command }) = events.pop() else { panic!("{events:?}") };
        assert_eq!(why, "Error from server (Forbidden)");
        let script = dir.path().join("kubectl");
        let typed = format!("sh {} --context=prod delete namespace {namespace}", script.display());
        assert_eq!(command, typed);
        assert!(!dir.path().join("ended").exists(), "a process was asked to end, and waited for");
    }
}
