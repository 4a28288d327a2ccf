//! `hostgap agent down`: what agents made on this node goes.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use ::agent::cloud::{self, CloudSettings, TakenBack};
use ::agent::keys;
use ::agent::status::Status;
use anyhow::{Context, bail};
use lab::LabError;
use node::Home;
use plan::{Keeper, Kernel};

use super::{CloudArgs, KeyArgs, NetworkArgs};
use crate::{exit, speak};

/// Take back what the agent made of a network on this node: tunnels with the node's key, the ways to other nodes' pods, and
/// this node's own routes in the cloud's route tables.
///
/// The agent must not run. Pods stay attached to the node and reach each other there; `hostgap cni uninstall` removes
/// the plugin. What was displaced by the agent (a route of another program) is put back.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    cloud: CloudArgs,
}

/// `hostgap agent down`.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(LabError::Privileges)?;
    let network = &args.network.network;
    let book = Home::of_this_machine().node_networks();
    let settings = args.cloud.settings();
    let is_in_cloud = cloud::has_record(&settings.record, network)?;
    let is_on_node = book.find(network)?.is_some();
    if !is_on_node && !is_in_cloud {
        bail!("no agent has made a network {network} on this node; --network names another one");
    }
    let mut failures = 0;
    let mut undone = 0;
    let journals =
        if is_on_node { Keeper::take_back(&book, network, &mut Kernel::new()?)? } else { Vec::new() };
    for journal in journals {
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
    if is_in_cloud {
        let taken = leave_cloud(&settings, network)?;
        undone += taken.done.len();
        failures += taken.failed.len();
        for error in taken.failed {
            let remedy = error.remedy().map(|remedy| format!("; {remedy}"));
            speak::aside(format_args!("hostgap: could not {error}{}", remedy.unwrap_or_default()));
        }
    }
    if failures == 0 {
        let (status, key) =
            (Status::path(&args.network.status_dir, network), keys::file(&args.keys.key_dir, network));
        for file in [&args.network.subnet_file, &status, &key] {
            remove(file)?;
        }
    }
    speak::result(format_args!("{network}: undid {undone} steps"))?;
    Ok(if failures > 0 { ExitCode::from(exit::FAILURE) } else { ExitCode::SUCCESS })
}

/// After the node's own ways, so that the keeper's lock has shown that no agent runs.
fn leave_cloud(settings: &CloudSettings, network: &str) -> anyhow::Result<TakenBack> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("start the loop of events")?;
    Ok(runtime.block_on(cloud::take_back(settings, network))?)
}

fn remove(file: &Path) -> anyhow::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", file.display()))
        }
        _ => Ok(()),
    }
}
