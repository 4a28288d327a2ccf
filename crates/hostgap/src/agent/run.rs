//! `hostgap agent run`: the agent itself.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use ::agent::Settings;
use ::agent::source::file::FileSource;
use anyhow::{Context, anyhow};
use datapath::ATTACHES;
use lab::LabError;
use linux::IfName;
use node::Home;
use node::install::RuntimeDirs;
use tokio::signal::unix::{SignalKind, signal};

use super::NetworkArgs;
use crate::speak;

/// Run the agent on this node until it is stopped (SIGTERM, SIGINT).
///
/// What it has made stays when it ends, however it ends; the next agent takes it over. `hostgap agent down` takes it
/// back.
///
/// The lease source is a file that all nodes have a copy of (file:/etc/hostgap/nodes.toml):
///
///   [network]                  # the keys of flannel's net-conf.json
///   Network = "10.244.0.0/16"
///   Backend = { Type = "vxlan", DirectRouting = true }
///   [[node]]
///   name = "a"
///   public = ["192.0.2.1"]
///   pods = ["10.244.1.0/24"]
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    #[command(flatten)]
    network: NetworkArgs,
    /// Where leases come from: file:PATH.
    #[arg(long, value_name = "SOURCE")]
    source: Source,
    /// The name of this node in the source [default: the name of the host].
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// The link to other nodes [default: that of the default route].
    #[arg(long, value_name = "LINK")]
    wire: Option<IfName>,
    /// How pods reach the node: bridge, ptp, ebpf or netkit.
    #[arg(long, value_name = "ATTACH", default_value = "ptp", value_parser = attach)]
    attach: String,
    /// Give what pods send out of the network the node's address.
    #[arg(long)]
    masquerade: bool,
    /// Write no configuration for container runtimes, and copy no program for them.
    #[arg(long)]
    no_install: bool,
    /// Where the container runtime looks for plugins.
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    bin_dir: PathBuf,
    /// Where the container runtime looks for configurations.
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    conf_dir: PathBuf,
    /// Serve /healthz, /readyz, /metrics and /status over HTTP at this address.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// Print what would be made on this node as commands, and make nothing.
    #[arg(long)]
    dry_run: bool,
    /// Write the log as JSON, a line each.
    #[arg(long)]
    log_json: bool,
}

/// A lease source, as the command line says it.
#[derive(Debug, Clone)]
enum Source {
    File(PathBuf),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Source::File(path.into())),
            _ => Err("file:PATH is expected".to_owned()),
        }
    }
}

/// Attaches whose pods the node forwards for: the ways between nodes begin there.
fn attach(text: &str) -> Result<String, String> {
    let forwarded: Vec<&str> =
        ATTACHES.iter().filter(|path| path.attach.leads_out()).map(|path| path.name).collect();
    if forwarded.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("one of {} is expected", forwarded.join(", ")))
}

/// `hostgap agent run`.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(LabError::Privileges)?;
    let source = source(args);
    let settings = settings(args);
    let home = Home::of_this_machine();
    if args.dry_run {
        let snapshot = source.read().map_err(|why| anyhow!(why))?;
        for command in ::agent::preview(&settings, &home, &snapshot).map_err(|why| anyhow!(why))? {
            speak::result(command)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    log(args.log_json);
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
        // Without a service manager there is nobody to tell.
        let ready = || drop(sd_notify::notify(&[sd_notify::NotifyState::Ready]));
        ::agent::run(settings, home, source, ready, stop).await?;
        Ok(ExitCode::SUCCESS)
    })
}

fn source(args: &Args) -> FileSource {
    let node = args.node.clone().unwrap_or_else(linux::process::host_name);
    let Source::File(path) = &args.source;
    FileSource { path: path.clone(), node }
}

fn settings(args: &Args) -> Settings {
    let dirs = || RuntimeDirs { bin: args.bin_dir.clone(), conf: args.conf_dir.clone() };
    Settings {
        network: args.network.network.clone(),
        wire: args.wire.clone(),
        attach: args.attach.clone(),
        masquerade: args.masquerade,
        runtime: (!args.no_install).then(dirs),
        subnet_env: args.network.subnet_file.clone(),
        status: args.network.status_dir.clone(),
        listen: args.listen,
    }
}

/// The log goes to stderr.
fn log(as_json: bool) {
    let lines = tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false);
    if as_json { lines.json().init() } else { lines.compact().init() }
}
