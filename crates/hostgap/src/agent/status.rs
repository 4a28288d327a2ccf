//! `hostgap agent status`: how a network is on this node.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::agent::status::{CloudStatus, PeerStatus, Status, TableStatus};
use anyhow::anyhow;
use node::Home;
use plan::UnitState;
use serde_json::json;

use super::NetworkArgs;
use crate::{exit, output};

/// How many of the last repairs are shown.
const REPAIRS: usize = 5;

/// Show the state of a network on this node: the other nodes, the way to each, and what was repaired.
///
/// It reads what the agent wrote last, so it also works while no agent runs. The exit code is 0 if all nodes are
/// reached (and all Services handled, with --services), and 1 if not.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    network: NetworkArgs,
    /// Print the state as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let network = &args.network.network;
    let path = Status::path(&args.network.status_dir, network);
    let status = Status::read(&path).map_err(|why| anyhow!("{why}; `hostgap agent run` writes it"))?;
    let unit = Home::of_this_machine().node_networks().find(network)?;
    let is_running = unit.is_some_and(|unit| unit.state == UnitState::Alive);
    let all_reached = status.peers.values().all(|peer| peer.why_not.is_none()) && status.undecided.is_none();
    let all_handled = status
        .services
        .as_ref()
        .is_none_or(|services| services.failed.is_empty() && services.why_not.is_none());
    if args.json {
        let mut all = serde_json::to_value(&status)?;
        all["running"] = json!(is_running);
        output::result(all)?;
    } else {
        print(&status, is_running)?;
    }
    Ok(if all_reached && all_handled { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILURE) })
}

fn print(status: &Status, is_running: bool) -> Result<(), output::OutputError> {
    let words = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".to_owned());
    let agent = if is_running {
        format!("process {}", status.pid)
    } else {
        "not running; what it made stays".to_owned()
    };
    output::result(format_args!("network  {}", status.network))?;
    output::result(format_args!("agent    {agent}"))?;
    output::result(format_args!("backend  {}", words(&status.backend)))?;
    let wire = [&[words(&status.wire)], &status.public[..]].concat().join(", ");
    output::result(format_args!("wire     {wire}"))?;
    output::result(format_args!("pods     {}", status.pods.join(", ")))?;
    let mtu = status.mtu.map_or_else(|| "-".to_owned(), |mtu| format!("{mtu} bytes"));
    output::result(format_args!("MTU      {mtu}"))?;
    if let Some(key) = &status.public_key {
        output::result(format_args!("key      {key}"))?;
    }
    for (link, offload) in &status.offload {
        output::result(format_args!("tunnel   {link}: {}", offload.words()))?;
    }
    if let Some(programs) = &status.programs {
        let why = programs.why_not.as_deref();
        output::result(format_args!(
            "programs {}",
            why.unwrap_or("pods' packets take them through the tunnels")
        ))?;
    }
    if let Some(services) = &status.services {
        let failed = services.failed.len();
        let failed = if failed > 0 { format!(", {failed} of them not handled") } else { String::new() };
        output::result(format_args!("services {}{failed}", services.total))?;
        let why = services.failed.iter().map(|(name, why)| (name.as_str(), why));
        for (name, why) in services.why_not.iter().map(|why| ("services", why)).chain(why) {
            output::result(format_args!("{name:8} {why}"))?;
        }
    }
    if let Some(cloud) = &status.cloud {
        print_cloud(cloud)?;
    }
    let runtimes = ("runtimes", &status.runtimes);
    for (what, why) in [("node", &status.undecided), runtimes, ("source", &status.source_unreachable)] {
        if let Some(why) = why {
            output::result(format_args!("{what:8} {why}"))?;
        }
    }
    let rows: Vec<Row> = status.peers.iter().map(|(name, peer)| row(name, peer)).collect();
    if !rows.is_empty() {
        output::result("")?;
        table(&rows)?;
    }
    if status.repairs_total > 0 {
        output::result(format_args!("\nrepaired {} times, last:", status.repairs_total))?;
        for repair in status.repairs.iter().rev().take(REPAIRS) {
            output::result(format_args!("  {} ago  {}", ago(repair.at_s), repair.what))?;
        }
    }
    Ok(())
}

fn print_cloud(cloud: &CloudStatus) -> Result<(), output::OutputError> {
    let interface = cloud.interface.as_deref().unwrap_or("an interface that is not known yet");
    for table in &cloud.tables {
        let TableStatus { name, routes, routes_max, warning } = table;
        output::result(format_args!(
            "table    {name}, {routes} of {routes_max} routes, leads to {interface}"
        ))?;
        if let Some(warning) = warning {
            output::result(format_args!("table    {name}: {warning}"))?;
        }
    }
    for why in &cloud.failed {
        output::result(format_args!("cloud    {why}"))?;
    }
    Ok(())
}

/// What the columns of the table show.
type Row = [String; 6];

fn row(name: &str, peer: &PeerStatus) -> Row {
    let mut ways: Vec<&str> = peer.by.values().map(String::as_str).collect();
    ways.dedup();
    let way = match &peer.why_not {
        None => ways.join(", "),
        Some(why) => format!("not reached: {why}"),
    };
    let path_mtu = peer.path_mtu.map_or_else(|| "-".to_owned(), |mtu| mtu.to_string());
    [name.to_owned(), peer.pods.join(", "), peer.public.join(", "), path_mtu, ago(peer.since_s), way]
}

fn table(rows: &[Row]) -> Result<(), output::OutputError> {
    let head = ["NODE", "PODS", "ADDRESS", "PATH MTU", "SINCE", "WAY"].map(str::to_owned);
    let all: Vec<&Row> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(width).collect();
    for row in all {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        output::result(format_args!("{}  {}", cells.join("  "), row[5]))?;
    }
    Ok(())
}

fn ago(at_s: u64) -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    humantime::format_duration(Duration::from_secs(now_s.saturating_sub(at_s))).to_string()
}
