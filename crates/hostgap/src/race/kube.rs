//! A race in a Kubernetes cluster.

use std::process::ExitCode;

use ::lab::LabError;
use ::lab::kube::{AllPairs, ClusterOptions, ClusterRace, SidecarMark, Tournament};
use ::record::Experiment;

use super::machines::cpus;
use super::{Args, RECORD, finish, fresh_dir};
use crate::cluster::ClusterArgs;
use crate::progress::Progress;
use crate::{output, report, stop};

mod pairs;

/// The cluster, and how pods are made in it.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "In a Kubernetes cluster (docs/kubernetes.md)")]
pub(super) struct KubeArgs {
    /// Race in the cluster of kubectl: between pods of two nodes, by address, Service and NodePort, against the network
    /// of the nodes themselves.
    #[arg(long)]
    pub(super) kube: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Race every pair of nodes in both directions, as many at once as share no node, and draw the map: which
    /// pair, path or node is worse than the rest. N nodes take about 2 N times as long as a pair. --nodes names
    /// them, or some of them.
    #[arg(long, requires = "kube", conflicts_with = "same_node", long_help = ALL_PAIRS)]
    all_pairs: bool,
    /// With --all-pairs: race one node of each zone (topology.kubernetes.io/zone), the first of --nodes
    /// or of the cluster.
    #[arg(long, requires = "all_pairs")]
    zones: bool,
    /// With --all-pairs: race one pair after the other, so that none feels another's load. N nodes take
    /// N² times as long.
    #[arg(long, requires = "all_pairs")]
    one_by_one: bool,
    /// Whole CPUs of each pod; client and server have a thread on each.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "kube",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    pod_cpus: u32,
    /// Ask for no CPUs: pods share those of their node with all others.
    #[arg(long, requires = "kube")]
    best_effort: bool,
    /// Where the server in the node's own network listens [default: a port that is free].
    #[arg(long, value_name = "PORT", requires = "kube")]
    host_port: Option<u16>,
    /// How the cluster is asked to put a proxy beside a container, as label and annotation
    /// (sidecar.istio.io/inject=true); for paths with +sidecar.
    #[arg(long, value_name = "KEY=VALUE", requires = "kube", value_parser = sidecar)]
    sidecar: Option<SidecarMark>,
    /// Print the rights that a race needs and all that it would create, as JSON, and race nothing.
    #[arg(long, requires = "kube")]
    show_manifests: bool,
}

const ALL_PAIRS: &str = "Race every pair of nodes in both directions, and draw the map: which pair, which path or which \
node is worse than the rest, with intervals.

Pairs that share no node race at once: N nodes take 2 (N − 1) slots, or 2 N if N is odd, and each slot takes as long as a \
race of one pair. What pairs share (switches, a hypervisor) then carries the load of all of them; --one-by-one races each \
pair alone, in N (N − 1) slots. All pairs get the same rates: shares of the lowest capacity of all, or those of --rate. \
Each pair has a record and a page of its own; a pair that fails leaves, and the others go on (docs/kubernetes.md).";

fn sidecar(text: &str) -> Result<SidecarMark, String> {
    let (key, value) =
        text.split_once('=').ok_or("KEY=VALUE is expected, as sidecar.istio.io/inject=true")?;
    Ok(SidecarMark { key: key.to_owned(), value: value.to_owned() })
}

/// Prints what would be created.
fn print(manifests: &serde_json::Value) -> anyhow::Result<ExitCode> {
    output::result(serde_json::to_string_pretty(manifests)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Races in a cluster.
pub(super) fn race(experiment: Experiment, args: &Args) -> anyhow::Result<ExitCode> {
    let refused = |what: &str, why: &str| LabError::Experiment { what: what.to_owned(), why: why.to_owned() };
    if args.has_machine() || args.machines.has_clients() {
        return Err(
            refused("--kube with machines of ssh", "a race is in a cluster or between machines").into()
        );
    }
    if args.show_commands {
        let why = "a cluster's network is as it is; --show-manifests prints what is made in it";
        return Err(refused("--show-commands with --kube", why).into());
    }
    let kube = &args.kube;
    let options = ClusterOptions {
        access: kube.cluster.access(stop::on_signals()?)?,
        pod_cpus: kube.pod_cpus,
        guaranteed: !kube.best_effort,
        client_cpus: cpus(args.cpus.as_deref())?,
        server_cpus: args.machines.server_cpus()?,
        host_port: kube.host_port.unwrap_or(0),
        sidecar: kube.sidecar.clone(),
    };
    if kube.all_pairs {
        let how = AllPairs { zones: kube.zones, one_by_one: kube.one_by_one };
        return pairs::race(Tournament::prepare(experiment.clone(), options, how)?, &experiment.name, args);
    }
    let name = experiment.name.clone();
    let race = ClusterRace::prepare(experiment, options)?;
    if kube.show_manifests {
        return print(&race.manifests()?);
    }
    let dir = fresh_dir(&args.out, &name)?;
    let mut progress = Progress::new();
    let result = race.run(&dir.join(RECORD), &mut |event| progress.show(&event));
    progress.finish();
    let finished = finish(&dir, result, &mut |summary| report::print(&summary, args.json));
    // This fails, as it should, if something was written there.
    let _ = std::fs::remove_dir(&dir);
    finished
}
