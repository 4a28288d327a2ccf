//! `hostgap agent down`: what agents made on this node goes.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use ::agent::status::Status;
use anyhow::{Context, bail};
use lab::LabError;
use node::Home;
use plan::{Keeper, Kernel};

use super::NetworkArgs;
use crate::{exit, speak};

/// Take back what the agent made of a network on this node: tunnels, and the ways to other nodes' pods.
///
/// The agent must not run. Pods stay attached to the node and reach each other there; `hostgap cni uninstall` removes
/// the plugin. What was displaced by the agent (a route of another program) is put back.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    network: NetworkArgs,
}

/// `hostgap agent down`.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(LabError::Privileges)?;
    let network = &args.network.network;
    let book = Home::of_this_machine().node_networks();
    if book.find(network)?.is_none() {
        bail!("no agent has made a network {network} on this node; --network names another one");
    }
    let mut failures = 0;
    let mut undone = 0;
    for journal in Keeper::take_back(&book, network, &mut Kernel::new()?)? {
        let steps = match journal.steps {
            Ok(steps) => steps,
            Err(error) => {
                failures += 1;
                speak::aside(format_args!("hostgap: left alone: {error}"));
                continue;
            }
        };
        for (placed, outcome) in steps {
            if outcome.is_final() {
                undone += 1;
            } else {
                failures += 1;
                let command = placed.commands().join("; ");
                speak::aside(format_args!("hostgap: could not undo {command}: {outcome}"));
            }
        }
    }
    if failures == 0 {
        for file in [&args.network.subnet_file, &Status::path(&args.network.status_dir, network)] {
            remove(file)?;
        }
    }
    speak::result(format_args!("{network}: undid {undone} steps"))?;
    Ok(if failures > 0 { ExitCode::from(exit::FAILURE) } else { ExitCode::SUCCESS })
}

fn remove(file: &Path) -> anyhow::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", file.display()))
        }
        _ => Ok(()),
    }
}
