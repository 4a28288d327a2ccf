//! `hostgap cni uninstall`: the configurations, and the program once no container needs it.

use std::path::PathBuf;
use std::process::ExitCode;

use lab::LabError;
use node::install::{LeftProgram, Uninstalled, uninstall};
use node::{Home, LeftNetwork, StandingAttachment, UnusedNetworks};
use plan::UnitState;
use serde_json::{Value, json};

use super::DirArgs;
use crate::output;

/// Remove hostgap's networks from a container runtime, then the program.
///
/// It removes the configurations that have hostgap's plugin. Containers that are attached keep their network. The
/// program stays, because it detaches them when they go, and the result names them. Run the command again when they
/// are gone; it then removes the program, and what the containers of a network shared.
///
/// A configuration or a program that is not hostgap's is left alone.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Remove this network alone [default: all of hostgap's].
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    dirs: DirArgs,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(LabError::Privileges)?;
    let removed = uninstall(&Home::of_this_machine(), &args.dirs.dirs(), args.name.as_deref())?;
    if args.json {
        output::result(json(&removed))?;
    } else {
        print(&removed)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(removed: &Uninstalled) -> Result<(), output::OutputError> {
    let program = removed.program.display();
    for path in &removed.conflists {
        output::result(format_args!("{}: removed", path.display()))?;
    }
    match (&removed.left, removed.program_was_there) {
        (None, true) => output::result(format_args!("{program}: removed"))?,
        (None, false) if removed.conflists.is_empty() => output::result("nothing to remove")?,
        (None, false) => {}
        (Some(LeftProgram::Configured(by)), _) => {
            output::result(format_args!("{program}: left, needed by {}", listed(by)))?;
        }
        (Some(LeftProgram::Linked(by)), _) => {
            output::result(format_args!("{program}: left, links lead to it: {}", listed(by)))?;
        }
        (Some(LeftProgram::Attached), _) => {
            output::result(format_args!("{program}: left, to take back containers that are attached"))?;
        }
        (Some(LeftProgram::Foreign), _) => {
            output::result(format_args!("{program}: left, it is another program"))?;
        }
    }
    print_networks(&removed.networks)?;
    for attachment in &removed.attachments {
        output::result(format_args!("attached: {}", line(attachment)))?;
    }
    if removed.left == Some(LeftProgram::Attached) {
        output::aside("hint: when these containers are gone, run `hostgap cni uninstall` again");
    }
    Ok(())
}

/// What became of networks that no container is attached to.
pub(crate) fn print_networks(unused: &UnusedNetworks) -> Result<(), output::OutputError> {
    for network in &unused.removed {
        output::result(format_args!("network {network}: removed, no container is attached to it"))?;
    }
    for LeftNetwork { network, why } in &unused.left {
        output::result(format_args!("network {network}: left, {why}"))?;
    }
    Ok(())
}

fn listed(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

fn line(attachment: &StandingAttachment) -> String {
    let StandingAttachment { container_id, ifname, network, state } = attachment;
    let state = match state {
        UnitState::Standing => "",
        UnitState::Alive => ", a process works on it",
        UnitState::Dead => ", left by a process that died",
    };
    match container_id.as_str() {
        "" => format!("an interface of an unknown container{state}"),
        container => format!("interface {ifname} of container {container} in network {network}{state}"),
    }
}

fn json(removed: &Uninstalled) -> Value {
    let (left, needed_by) = match &removed.left {
        None => (None, None),
        Some(LeftProgram::Configured(by)) => (Some("configured"), Some(by)),
        Some(LeftProgram::Linked(by)) => (Some("linked"), Some(by)),
        Some(LeftProgram::Attached) => (Some("attached"), None),
        Some(LeftProgram::Foreign) => (Some("foreign"), None),
    };
    json!({
        "schema": 1,
        "conflists": removed.conflists,
        "program": { "path": removed.program, "left": left, "needed_by": needed_by },
        "attachments": removed.attachments,
        "networks": removed.networks.removed,
        "networks_left": removed.networks.left,
    })
}
