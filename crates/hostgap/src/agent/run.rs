//! `hostgap agent run`: the agent itself.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use ::agent::cloud::CloudSettings;
use ::agent::files::previous_prefixes;
use ::agent::lease::{Announcement, Snapshot};
use ::agent::source::LeaseSource;
use ::agent::source::etcd::{self, EtcdSource, Login, Tls};
use ::agent::source::file::FileSource;
use ::agent::source::kubernetes::{self, KubernetesSource};
use ::agent::{Endpoint, Settings};
use anyhow::{Context, anyhow, bail};
use datapath::{ATTACHES, Attach};
use lab::LabError;
use linux::IfName;
use node::Home;
use node::install::RuntimeDirs;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::{CLOUD_ROUTES_MAX, CloudArgs, KeyArgs, NetworkArgs};
use crate::exit::BadInput;
use crate::{output, units};

/// Run the agent on this node until it is stopped (SIGTERM, SIGINT).
///
/// What it has made stays when it ends, however it ends; the next agent takes it over. `hostgap agent down` takes it
/// back.
///
/// The lease source is Kubernetes (the podCIDRs of its nodes), or etcd (etcd:http://192.0.2.9:2379), both in flannel's
/// form, so that nodes of flannel and nodes of this agent share a network; or a file in TOML that all nodes have a copy
/// of (file:/etc/hostgap/nodes.toml). docs/agent.md shows each.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    network: NetworkArgs,
    /// Where leases come from: kubernetes, etcd:URL with further URLs after commas, or file:PATH.
    #[arg(long, value_name = "SOURCE")]
    source: Source,
    /// The name of this node in Kubernetes or in a file [default: the name of the host, for Kubernetes in lower case].
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node: Option<String>,
    /// The link to other nodes [default: that of the default route].
    #[arg(long, value_name = "LINK")]
    wire: Option<IfName>,
    /// How pods reach the node: bridge, ptp, ebpf, netkit, ipvlan-l3, ipvlan-l3s, or macvlan
    /// where nodes are neighbours.
    #[arg(long, value_name = "ATTACH", default_value = "ptp", value_parser = attach)]
    attach: String,
    /// Give packets that leave the pods' network the node's source address (SNAT).
    #[arg(long)]
    masquerade: bool,
    /// Write no configuration for container runtimes, and copy no program for them.
    #[arg(long)]
    no_install: bool,
    /// Copy this program, too, to where the runtime looks for plugins, as hostgap-cli: for the commands of a node whose
    /// agent is in a container.
    #[arg(long, conflicts_with = "no_install")]
    install_cli: bool,
    /// Where the container runtime looks for plugins.
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    bin_dir: PathBuf,
    /// Where the container runtime looks for configurations.
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    conf_dir: PathBuf,
    /// How often to find out, by echo requests, how large a packet can be on the way to each node.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = period)]
    path_mtu_every: Duration,
    /// Do not test, with TCP segments to the other nodes, whether packets arrive whose checksum or segmentation a
    /// tunnel leaves to the card. The test switches off at the tunnel what fails.
    #[arg(long)]
    no_offload_test: bool,
    /// Serve /healthz, /readyz, /metrics and /status over HTTP, at an address (127.0.0.1:9475) or a socket in the file
    /// system (unix:/run/agent.sock, for `hostgap agent probe`); may be given more than once.
    #[arg(long, value_name = "WHERE")]
    listen: Vec<Endpoint>,
    /// Wait while another agent keeps the network on this node, and take it over when that one ends.
    ///
    /// Until then nothing is made or announced. /readyz, at a socket alone, says whether this agent could do the work:
    /// its program runs, the lease source answers, and the node can have what it says.
    #[arg(long)]
    wait: bool,
    /// Make Services work for pods of ebpf, netkit, macvlan and ipvlan, whose packets do not pass kube-proxy's rules:
    /// a socket that calls a ClusterIP, or a NodePort of this node, is connected to an endpoint directly. Needs Linux
    /// 6.1 and --source kubernetes.
    #[arg(long)]
    services: bool,
    /// The control group (of version 2) for whose sockets --services does that [default: the root of the hierarchy].
    #[arg(long, value_name = "DIRECTORY", requires = "services")]
    services_cgroup: Option<PathBuf>,
    /// Print what would be made on this node as commands, and make nothing.
    #[arg(long)]
    dry_run: bool,
    /// Write the log as JSON, a line each.
    #[arg(long)]
    log_json: bool,
    #[command(flatten)]
    kubernetes: KubernetesArgs,
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    cloud: CloudArgs,
    /// How often to compare the cloud's route tables with what they should be.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = period, help_heading = "Backend aws-vpc")]
    cloud_every: Duration,
    /// The most routes that a table may have (a quota of the account), 1 to 1000000: near it the agent warns.
    #[arg(long, value_name = "COUNT", default_value_t = CLOUD_ROUTES_MAX, value_parser = routes_max,
          help_heading = "Backend aws-vpc")]
    cloud_routes_max: usize,
}

/// How Kubernetes is reached.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
struct KubernetesArgs {
    /// How to reach the API server [default: as a pod does, with its service account and KUBERNETES_SERVICE_HOST].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The network's configuration (flannel's net-conf.json).
    #[arg(long, value_name = "FILE", default_value = "/etc/kube-flannel/net-conf.json")]
    net_config: PathBuf,
    /// What the names of nodes' annotations begin with.
    #[arg(long, value_name = "PREFIX", default_value = kubernetes::PREFIX)]
    annotation_prefix: String,
    /// Report to Kubernetes that the node's network is there (the condition NetworkUnavailable).
    #[arg(long)]
    set_condition: bool,
}

/// How etcd is reached.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "etcd")]
struct EtcdArgs {
    /// What the keys of the network begin with.
    #[arg(long, value_name = "KEY", default_value = etcd::PREFIX)]
    etcd_prefix: String,
    /// The authorities that sign etcd's certificate, in PEM [default: those of this machine].
    #[arg(long, value_name = "FILE")]
    etcd_ca: Option<PathBuf>,
    /// This node's certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
    /// The user of etcd; the password is in HOSTGAP_ETCD_PASSWORD.
    #[arg(long, value_name = "NAME")]
    etcd_user: Option<String>,
}

/// A lease source, as the command line says it.
#[derive(Debug, Clone)]
enum Source {
    Kubernetes,
    Etcd(Vec<String>),
    File(PathBuf),
}

/// The same with all that belongs to it.
enum AnySource {
    Kubernetes(KubernetesSource),
    Etcd(EtcdSource),
    File(FileSource),
}

impl LeaseSource for AnySource {
    fn start(self, own: watch::Receiver<Option<Announcement>>) -> watch::Receiver<Snapshot> {
        match self {
            AnySource::Kubernetes(kubernetes) => kubernetes.start(own),
            AnySource::Etcd(etcd) => etcd.start(own),
            AnySource::File(file) => file.start(own),
        }
    }
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        if text == "kubernetes" {
            return Ok(Source::Kubernetes);
        }
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Source::File(path.into())),
            Some(("etcd", urls)) if !urls.is_empty() => {
                Ok(Source::Etcd(urls.split(',').map(str::to_owned).collect()))
            }
            _ => Err("kubernetes, etcd:URL or file:PATH is expected".to_owned()),
        }
    }
}

/// A time of a second at least.
fn period(text: &str) -> Result<Duration, String> {
    let period = units::duration(text)?;
    if period >= Duration::from_secs(1) { Ok(period) } else { Err("1s or more is expected".to_owned()) }
}

/// How many routes a table may have.
fn routes_max(text: &str) -> Result<usize, String> {
    let count: Option<usize> = text.parse().ok().filter(|count| (1..=1_000_000).contains(count));
    count.ok_or_else(|| "a number from 1 to 1000000 is expected".to_owned())
}

/// Attaches with which a node and its pods reach each other.
pub(super) fn attach(text: &str) -> Result<String, String> {
    let reaches = |attach: &dyn Attach| attach.leads_out() || attach.takes_host_link();
    let names: Vec<&str> =
        ATTACHES.iter().filter(|path| reaches(path.attach)).map(|path| path.name).collect();
    if names.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("one of {} is expected", names.join(", ")))
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(LabError::Privileges)?;
    let source = source(args);
    let settings = settings(args)?;
    let home = Home::of_this_machine();
    if args.dry_run {
        let AnySource::File(file) = &source else {
            bail!(
                "--dry-run needs a lease source that is a file: elsewhere this node would announce itself first"
            );
        };
        let snapshot = file.read().map_err(|why| anyhow!(why))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("start the loop of events")?;
        let commands = runtime.block_on(::agent::preview(&settings, &home, &snapshot));
        for command in commands.map_err(|why| anyhow!(why))? {
            output::result(command)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    log(args.log_json);
    if let Err(error) = linux::sysctl::make_writable() {
        // Where the node has them already as they are to be, none is written.
        tracing::warn!("could not {error}; kernel parameters that differ will fail to be set");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("start the loop of events")?.block_on(async {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        // Without a service manager there is nothing to notify.
        let ready = || drop(sd_notify::notify(&[sd_notify::NotifyState::Ready]));
        ::agent::run(settings, home, source, ready, stop).await?;
        Ok(ExitCode::SUCCESS)
    })
}

fn source(args: &Args) -> AnySource {
    let node =
        || args.node.clone().unwrap_or_else(|| default_node(&args.source, linux::process::host_name()));
    match &args.source {
        Source::File(path) => AnySource::File(FileSource { path: path.clone(), node: node() }),
        Source::Kubernetes => AnySource::Kubernetes(KubernetesSource {
            node: node(),
            kubeconfig: args.kubernetes.kubeconfig.clone(),
            network: args.kubernetes.net_config.clone(),
            annotation_prefix: args.kubernetes.annotation_prefix.clone(),
            set_condition: args.kubernetes.set_condition,
            services: args.services,
        }),
        Source::Etcd(endpoints) => {
            let EtcdArgs { etcd_prefix, etcd_ca, etcd_cert, etcd_key, etcd_user } = &args.etcd;
            let password = std::env::var("HOSTGAP_ETCD_PASSWORD").unwrap_or_default();
            AnySource::Etcd(EtcdSource {
                prefix: etcd_prefix.clone(),
                tls: Tls { ca: etcd_ca.clone(), identity: etcd_cert.clone().zip(etcd_key.clone()) },
                login: etcd_user.clone().map(|user| Login { user, password }),
                previous: previous_prefixes(&args.network.subnet_file, &args.network.network),
                ..EtcdSource::at(endpoints.clone())
            })
        }
    }
}

/// The name of this node where none is given. The kubelet registers its node in lower case (`GetHostname` in
/// k8s.io/component-helpers/node/util/hostname.go), whatever the host is called.
fn default_node(source: &Source, host: String) -> String {
    match source {
        Source::Kubernetes => host.to_lowercase(),
        Source::Etcd(_) | Source::File(_) => host,
    }
}

/// The control group for whose sockets Services are handled.
fn services_cgroup(args: &Args) -> anyhow::Result<Option<PathBuf>> {
    if !args.services {
        return Ok(None);
    }
    if !matches!(args.source, Source::Kubernetes) {
        return Err(BadInput(
            "--services needs --source kubernetes: no other source knows Services".to_owned(),
        )
        .into());
    }
    linux::features::services().map_err(|unmet| anyhow!("--services cannot be had: {unmet}"))?;
    match &args.services_cgroup {
        Some(cgroup) if cgroup.join("cgroup.procs").exists() => Ok(Some(cgroup.clone())),
        Some(cgroup) => {
            let why =
                format!("{} is no control group; mkdir makes one below a cgroup2 mount", cgroup.display());
            Err(BadInput(why).into())
        }
        None => Ok(Some(linux::cgroup::hierarchy()?)),
    }
}

fn settings(args: &Args) -> anyhow::Result<Settings> {
    let dirs = || RuntimeDirs { bin: args.bin_dir.clone(), conf: args.conf_dir.clone() };
    Ok(Settings {
        network: args.network.network.clone(),
        wire: args.wire.clone(),
        attach: args.attach.clone(),
        masquerade: args.masquerade,
        runtime: (!args.no_install).then(dirs),
        installs_cli: args.install_cli,
        subnet_env: args.network.subnet_file.clone(),
        status: args.network.status_dir.clone(),
        path_mtu_period: args.path_mtu_every,
        tests_offload: !args.no_offload_test,
        listen: args.listen.clone(),
        waits: args.wait,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        services: services_cgroup(args)?,
        keys: args.keys.key_dir.clone(),
        cloud: CloudSettings {
            period: args.cloud_every,
            routes_max: args.cloud_routes_max,
            ..args.cloud.settings()
        },
    })
}

/// The log goes to stderr. The client of Kubernetes would log each failed request; the source says
/// once what that means.
fn log(as_json: bool) {
    let targets = Targets::new().with_default(Level::INFO).with_target("kube_client", LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let registry = tracing_subscriber::registry();
    if as_json {
        registry.with(lines.json().with_filter(targets)).init();
    } else {
        registry.with(lines.compact().with_filter(targets)).init();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_called_as_the_kubelet_registers_it() {
        let name = |source: &str| default_node(&source.parse().unwrap(), "Node1".to_owned());
        assert_eq!((name("kubernetes"), name("file:/nodes.toml")), ("node1".to_owned(), "Node1".to_owned()));
    }
}
