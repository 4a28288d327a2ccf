//! `hostgap agent migrate`: a node of another program's becomes the agent's, and that program's again.

use std::process::ExitCode;

use ::agent::migrate::{self, Bridge, Flannel, Site, Switched};
use ::agent::status::Status;
use clap::ValueEnum;
use lab::LabError;
use linux::{IfName, LinkKind};
use node::Home;
use node::install::{aside_of, configurations_of};
use plan::{Kernel, Plan};

use super::down::{Undone, remove};
use super::{NetworkArgs, STATUS_DIR, SUBNET_FILE};
use crate::cni::{DirArgs, options};
use crate::{exit, output};

/// Take this node over from flannel, or give it back, while its pods talk.
///
/// End flanneld on the node first: what it has made stays in the kernel. Then this command notes flannel's tunnel
/// device in the network's journal and gives container runtimes the configuration of hostgap's plugin; flannel's is
/// set aside. `hostgap agent run` with the same --network goes on with the tunnel, and takes flannel's routes over,
/// each in one step. Pods that flannel has attached stay as they are. With --back it puts all back as flannel had it,
/// and flanneld can be started again.
///
/// A run that was interrupted is completed by another one, or taken back with --back. docs/agent.md says what is not
/// taken over.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The program that has the node now.
    from: Program,
    /// Give the node back. No agent may run.
    #[arg(long)]
    back: bool,
    /// Print what would be made as commands, and make nothing.
    #[arg(long, conflicts_with = "back")]
    dry_run: bool,
    /// How pods that come from now on reach the node, as for `hostgap agent run`.
    #[arg(long, value_name = "ATTACH", default_value = "ptp", value_parser = super::run::attach)]
    attach: String,
    /// The link to other nodes, as for `hostgap agent run` [default: that of the default route].
    #[arg(long, value_name = "LINK")]
    wire: Option<IfName>,
    /// Leave the configurations for container runtimes alone.
    #[arg(long)]
    no_install: bool,
    #[command(flatten)]
    dirs: DirArgs,
    #[command(flatten)]
    network: NetworkArgs,
}

/// Programs whose nodes can be taken over.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Program {
    /// flannel with the backend vxlan or host-gw, and its plugin's bridge.
    Flannel,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(LabError::Privileges)?;
    let Program::Flannel = args.from;
    let (home, dirs) = (Home::of_this_machine(), args.dirs.dirs());
    let runtime = (!args.no_install).then_some(&dirs);
    let site = Site { home: &home, runtime, subnet_env: &args.network.subnet_file };
    if args.back { give_back(args, &site) } else { take_over(args, &site) }
}

fn take_over(args: &Args, site: &Site<'_>) -> anyhow::Result<ExitCode> {
    let network = &args.network.network;
    let flannel = migrate::find(site.subnet_env)?;
    let pods = node::Network { wire: args.wire.clone(), ..migrate::pods_of(&flannel, network, &args.attach) };
    if args.dry_run {
        migrate::check(site, &flannel, &pods)?;
        for command in flannel.parts().values().flat_map(Plan::commands) {
            output::result(command)?;
        }
        for (path, _) in
            site.runtime.map_or(Ok(Vec::new()), |dirs| configurations_of("flannel", &dirs.conf))?
        {
            output::result(format_args!("mv {} {}", path.display(), aside_of(&path).display()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let switched = migrate::take_over(site, &flannel, &pods, &mut Kernel::new()?.keeping_announced_routes())?;
    print_flannel(&flannel)?;
    print_files(&switched, "set aside")?;
    print_rules()?;
    let masquerade = if pods.masquerade { " --masquerade" } else { "" };
    output::result(format_args!(
        "next: `hostgap agent run --network {network} --attach {}{masquerade}{} --source …`",
        args.attach,
        places(args)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Where the agent is to find and leave the same, if not where it would by default.
fn places(args: &Args) -> String {
    let NetworkArgs { status_dir, subnet_file, .. } = &args.network;
    let wire = args.wire.as_ref().map(|wire| format!(" --wire {wire}")).unwrap_or_default();
    let runtime = if args.no_install { " --no-install".to_owned() } else { args.dirs.other_than_default() };
    let files = [("status-dir", status_dir.as_path(), STATUS_DIR), ("subnet-file", subnet_file, SUBNET_FILE)];
    wire + &runtime + &options(&files)
}

fn give_back(args: &Args, site: &Site<'_>) -> anyhow::Result<ExitCode> {
    let network = &args.network.network;
    let given = migrate::give_back(site, network, &mut Kernel::new()?)?;
    let Undone { steps, failures } = Undone::of(given.journals);
    let is_whole = failures == 0;
    let status = Status::path(&args.network.status_dir, network);
    let removed = if is_whole { remove(&status) } else { Ok(()) };
    let print = || {
        print_files(&given.switched, "put back")?;
        output::result(format_args!("{network}: undid {steps} steps"))?;
        if is_whole && given.left > 0 {
            let left = given.left;
            output::result(format_args!("left: the ways to {left} nodes that have come or changed since"))?;
        }
        if is_whole { output::result("next: start flanneld") } else { Ok(()) }
    };
    output::after_work(print())?;
    removed?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILURE) })
}

fn print_flannel(flannel: &Flannel) -> Result<(), output::OutputError> {
    for tunnel in &flannel.tunnels {
        let LinkKind::Vxlan(vxlan) = &tunnel.kind else { continue };
        let mac = tunnel.mac.map(|mac| format!(", address {mac}")).unwrap_or_default();
        output::result(format_args!(
            "tunnel {}: used from now on (VNI {}, port {}{mac})",
            tunnel.name, vxlan.vni, vxlan.port
        ))?;
    }
    match (flannel.tunnels.is_empty(), flannel.ways) {
        (false, _) => {}
        (true, 0) => output::result(
            "no tunnel of flannel's, and no route to another node: on a node that is alone its backend may be host-gw; \
             others that have no device (aws-vpc, ipsec, ...) cannot be taken over",
        )?,
        (true, ways) => output::result(format_args!(
            "no tunnel of flannel's, and routes to {ways} prefixes of other nodes: its backend is host-gw"
        ))?,
    }
    if let Some(Bridge { name, ports }) = &flannel.bridge {
        output::result(format_args!("bridge {name}: left, with {ports} pods of flannel's"))?;
    }
    Ok(())
}

fn print_files(switched: &Switched, verb: &str) -> Result<(), output::OutputError> {
    for path in &switched.of_flannel {
        output::result(format_args!("{}: {verb}", path.display()))?;
    }
    for path in &switched.ours {
        let verb = if path.exists() { "written" } else { "removed" };
        output::result(format_args!("{}: {verb}", path.display()))?;
    }
    Ok(())
}

/// They are as good for pods of the plugin's as for flannel's.
fn print_rules() -> Result<(), output::OutputError> {
    match Flannel::rules() {
        Ok(rules) => {
            for rule in rules {
                output::result(format_args!("nftables, {rule}: left"))?;
            }
            Ok(())
        }
        Err(error) => {
            output::aside(format_args!("hostgap: could not {error}; flannel's rules are left"));
            Ok(())
        }
    }
}
