//! `hostgap agent down`: what agents made on this node goes.

use std::fmt;
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
use plan::{Keeper, Kernel, TakenBackJournal};

use super::{CloudArgs, KeyArgs, NetworkArgs};
use crate::{exit, output};

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

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(LabError::Privileges)?;
    let network = &args.network.network;
    let book = Home::of_this_machine().node_networks();
    let settings = args.cloud.settings();
    // Where that cannot be known, the node is undone all the same.
    let recorded = cloud::has_record(&settings.record, network);
    let is_on_node = book.find(network)?.is_some();
    if !is_on_node && recorded == Ok(false) {
        bail!("no agent has made a network {network} on this node; --network names another one");
    }
    let journals =
        if is_on_node { Keeper::take_back(&book, network, &mut Kernel::new()?)? } else { Vec::new() };
    let mut undone = Undone::of(journals);
    // After the node's own ways, so that the keeper's lock has shown that no agent runs.
    match recorded {
        Ok(false) => {}
        Ok(true) => undone.add_cloud(leave_cloud(&settings, network)?),
        Err(error) => undone.add_cloud(TakenBack { failed: vec![error], ..TakenBack::default() }),
    }
    let Undone { steps, failures } = undone;
    if failures == 0 {
        let (status, key) =
            (Status::path(&args.network.status_dir, network), keys::file(&args.keys.key_dir, network));
        for file in [&args.network.subnet_file, &status, &key] {
            remove(file)?;
        }
    }
    output::result(format_args!("{network}: undid {steps} steps"))?;
    Ok(if failures > 0 { ExitCode::from(exit::FAILURE) } else { ExitCode::SUCCESS })
}

/// What was undone, and what could not be, which is reported at once.
#[derive(Default)]
pub(super) struct Undone {
    pub(super) steps: usize,
    pub(super) failures: usize,
}

impl Undone {
    fn fail(&mut self, what: fmt::Arguments<'_>) {
        self.failures += 1;
        output::aside(format_args!("hostgap: {what}"));
    }

    fn add_cloud(&mut self, taken: TakenBack) {
        self.steps += taken.done.len();
        if let Some(copied) = taken.copied {
            output::aside(format_args!("hostgap: {copied}"));
        }
        for error in taken.failed {
            let remedy = error.remedy().map(|remedy| format!("; {remedy}"));
            self.fail(format_args!("could not {error}{}", remedy.unwrap_or_default()));
        }
    }

    /// What was taken back of a node.
    pub(super) fn of(journals: Vec<TakenBackJournal>) -> Undone {
        let mut undone = Undone::default();
        for journal in journals {
            let steps = match journal.steps {
                Ok(steps) => steps,
                Err(error) => {
                    undone.fail(format_args!("left alone: {error}"));
                    continue;
                }
            };
            for (placed, outcome) in steps {
                if outcome.is_final() {
                    undone.steps += 1;
                } else {
                    let command = placed.commands().join("; ");
                    undone.fail(format_args!("could not undo {command}: {outcome}"));
                }
            }
        }
        undone
    }
}

fn leave_cloud(settings: &CloudSettings, network: &str) -> anyhow::Result<TakenBack> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("start the loop of events")?;
    Ok(runtime.block_on(cloud::take_back(settings, network))?)
}

pub(super) fn remove(file: &Path) -> anyhow::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", file.display()))
        }
        _ => Ok(()),
    }
}
