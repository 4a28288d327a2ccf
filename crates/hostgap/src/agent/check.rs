//! `hostgap agent check`: whether the nodes reach each other's pods' network, and why not.

mod matrix;
mod others;
mod table;

use std::process::ExitCode;

use ::agent::check::{CheckError, Network, Row, check};
use ::agent::status::Status;
use node::Home;
use plan::UnitState;
use serde_json::json;

use self::matrix::Matrix;
use super::NetworkArgs;
use crate::exit::BadInput;
use crate::{exit, output};

/// Check with packets whether this node reaches the others and their pods' network, and say why not.
///
/// For each other node and each family of addresses it sends echo requests to: the node's address; its address in the
/// pods' network, where the network has tunnels; and what the node is to forward to its pods. It sends small packets,
/// and packets that fill the way and may not be fragmented. It makes nothing on the host and needs no pod. Where
/// something does not come back, it compares routes, neighbours, forwarding entries and devices with what the agent
/// made, and says what it sees and what follows.
///
/// It knows the other nodes from the agent's state, so it also works while no agent runs. With --all it asks the
/// other nodes' agents for their rows, for which each must run with `--listen` and an address.
///
/// The exit code is 0 if all is reached, 3 if something is not or an agent does not answer, and 2 for a node that is
/// not known. It needs CAP_NET_RAW.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    network: NetworkArgs,
    /// Check the ways to this node alone; may be given more than once.
    #[arg(long, value_name = "NAME")]
    peer: Vec<String>,
    /// Ask the other nodes' agents, too, and print which node reaches which.
    #[arg(long, conflicts_with = "peer")]
    all: bool,
    /// The port at which the other nodes' agents listen.
    #[arg(long, value_name = "PORT", default_value_t = 9475, requires = "all", value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Print the rows as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let network = Network {
        name: args.network.network.clone(),
        status: args.network.status_dir.clone(),
        home: Home::of_this_machine(),
    };
    let checked = || check(&network, &args.peer).map_err(explained);
    let is_well = if args.all { all(args, &network, checked)? } else { one(args, &checked()?)? };
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(exit::INVALID) })
}

/// What is wrong with the input is a sentence, and no attempt that failed.
fn explained(error: CheckError) -> anyhow::Error {
    match error {
        CheckError::Unknown { .. } => BadInput(error.to_string()).into(),
        CheckError::Status(_) | CheckError::Changed(_) | CheckError::Kernel(_) => error.into(),
    }
}

fn one(args: &Args, row: &Row) -> anyhow::Result<bool> {
    if args.json {
        output::result(serde_json::to_value(row)?)?;
    } else {
        table::print(row)?;
        let unit = Home::of_this_machine().node_networks().find(&row.network)?;
        if unit.is_none_or(|unit| unit.state != UnitState::Alive) {
            output::result("no agent runs on this node: what it has made stays, and nothing repairs it")?;
        }
    }
    Ok(row.is_well())
}

fn all(
    args: &Args,
    network: &Network,
    checked: impl FnOnce() -> anyhow::Result<Row>,
) -> anyhow::Result<bool> {
    let path = Status::path(&network.status, &network.name);
    let status = Status::read(&path).map_err(|why| explained(CheckError::Status(why)))?;
    // The others are asked while this node checks.
    let (own, answers) = std::thread::scope(|scope| {
        let others = scope.spawn(|| others::ask(&status.peers, args.port, &network.name));
        (checked(), others.join().expect("nothing in it panics"))
    });
    let matrix = Matrix::of(own?, answers);
    if args.json {
        let all = json!({ "schema": matrix::SCHEMA, "network": network.name, "rows": matrix.rows, "silent": matrix.silent });
        output::result(all)?;
    } else {
        matrix.print()?;
    }
    Ok(matrix.is_well())
}
