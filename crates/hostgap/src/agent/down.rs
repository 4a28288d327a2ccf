//! `hostgap agent down`: what agents made on this node goes.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::agent::cloud::{self, CloudSettings, TakenBack};
use ::agent::files::Environment;
use ::agent::keys;
use ::agent::status::Status;
use anyhow::{Context, bail};
use lab::LabError;
use node::Home;
use plan::{Keeper, Kernel, TakenBackJournal, UnitState};

use super::{CloudArgs, KeyArgs, NetworkArgs};
use crate::{exit, output};

/// Take back what the agent made of a network on this node: tunnels with the node's key, the ways to other nodes' pods,
/// and this node's own routes in the cloud's route tables.
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
    let state = book.find(network)?.map(|found| found.state);
    let files = Files::of(args);
    if state.is_none() && recorded == Ok(false) && !files.are_left() {
        bail!("no agent has made a network {network} on this node; --network names another one");
    }
    // It says that the ways to other nodes are there. One that an agent needs which runs is not touched:
    // it is refused below.
    if state != Some(UnitState::Alive) {
        files.remove_environment(state.is_some())?;
    }
    let journals =
        if state.is_some() { Keeper::take_back(&book, network, &mut Kernel::new()?)? } else { Vec::new() };
    let mut undone = Undone::of(journals);
    // After the node's own ways, so that the keeper's lock has shown that no agent runs.
    match recorded {
        Ok(false) => {}
        Ok(true) => undone.add_cloud(leave_cloud(&settings, network)?),
        Err(error) => undone.add_cloud(TakenBack { failed: vec![error], ..TakenBack::default() }),
    }
    let Undone { steps, failures } = undone;
    if failures == 0 {
        remove(&files.status)?;
        remove(&files.key)?;
    }
    output::after_work(output::result(format_args!("{network}: undid {steps} steps")))?;
    Ok(if failures > 0 { ExitCode::from(exit::FAILURE) } else { ExitCode::SUCCESS })
}

/// What an agent leaves of a network beside what stands in the kernel. Some of it outlives a restart of the machine.
struct Files {
    /// flannel's environment file, which is flannel's own where no agent has written it.
    environment: PathBuf,
    status: PathBuf,
    key: PathBuf,
    /// What the environment file says of its writer; `None`: there is no such file.
    written: Option<Environment>,
    network: String,
}

impl Files {
    fn of(args: &Args) -> Files {
        let NetworkArgs { network, status_dir, subnet_file } = &args.network;
        Files {
            environment: subnet_file.clone(),
            status: Status::path(status_dir, network),
            key: keys::file(&args.keys.key_dir, network),
            written: Environment::read(subnet_file).ok(),
            network: network.clone(),
        }
    }

    /// Whether there is one that an agent of this network must have written.
    fn are_left(&self) -> bool {
        let owner = self.written.as_ref().and_then(|written| written.owner.as_ref());
        owner == Some(&self.network) || self.status.exists() || self.key.exists()
    }

    /// Removes the environment file, by which a runtime knows that pods reach those of other nodes. One that says no
    /// network may be of an agent of an earlier version if the network stands, and is flannel's own if it does not.
    fn remove_environment(&self, network_stands: bool) -> anyhow::Result<()> {
        let owner = self.written.as_ref().map(|written| written.owner.as_ref());
        match owner {
            Some(Some(owner)) if *owner == self.network => remove(&self.environment),
            Some(None) if network_stands => remove(&self.environment),
            _ => Ok(()),
        }
    }
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
