//! `hostgap agent`: one network of pods over many nodes.

mod check;
mod down;
mod migrate;
mod probe;
mod run;
mod status;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::agent::cloud::{CloudSettings, Login};
use clap::Subcommand;

/// Keep one network of pods over many nodes, by the data path that won the race.
///
/// The agent runs on each node. It reads from a lease source which node has which prefixes of pods, makes the ways to
/// them (routes, a VXLAN or WireGuard tunnel, or routes in AWS's route tables, compatible with flannel's host-gw,
/// vxlan, wireguard and aws-vpc), and installs the CNI plugin with the node's own prefixes. If another program deletes
/// or changes what the agent made, the agent restores it: within a second where the kernel announces the change or it
/// is one to an encrypted tunnel, else within ten. Packets do not pass through the agent: it can be stopped, killed and
/// upgraded while pods talk.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Status(status::Args),
    Check(check::Args),
    Probe(probe::Args),
    Migrate(migrate::Args),
    Down(down::Args),
}

const STATUS_DIR: &str = "/run/hostgap/agent-status";
const SUBNET_FILE: &str = "/run/flannel/subnet.env";

/// Which network on this node.
#[derive(Debug, clap::Args)]
struct NetworkArgs {
    /// The name of the network.
    #[arg(long, default_value = "pods")]
    network: String,
    /// The directory of the files with the state of networks.
    #[arg(long, value_name = "DIR", default_value = STATUS_DIR)]
    status_dir: PathBuf,
    /// The file in which flanneld writes the node's prefix; of several networks on a node each has one of its own.
    #[arg(long, value_name = "FILE", default_value = SUBNET_FILE)]
    subnet_file: PathBuf,
}

/// What is kept in a cloud, by the backend aws-vpc.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Backend aws-vpc")]
struct CloudArgs {
    /// The directory of the file that says what was made in the cloud; it has to outlive the machine's restart.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/hostgap/agent")]
    cloud_record: PathBuf,
}

/// The key of encrypted tunnels, by the backend wireguard.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Backend wireguard")]
struct KeyArgs {
    /// The directory of the file with this node's private key; it has to outlive the machine's restart.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/hostgap/agent")]
    key_dir: PathBuf,
}

/// How often the tables are compared where nothing else is said, and how many routes they may have.
const CLOUD_PERIOD: Duration = Duration::from_secs(60);
/// AWS's quota "Routes per route table" unless it was raised; it was 50 before June 2025.
const CLOUD_ROUTES_MAX: usize = 500;

impl CloudArgs {
    /// The endpoint of the calls and their credentials are in the environment.
    fn settings(&self) -> CloudSettings {
        CloudSettings {
            record: self.cloud_record.clone(),
            period: CLOUD_PERIOD,
            routes_max: CLOUD_ROUTES_MAX,
            login: Login::from_environment(),
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Run(args) => run::run(args),
        Command::Status(args) => status::run(args),
        Command::Check(args) => check::run(args),
        Command::Probe(args) => probe::run(args),
        Command::Migrate(args) => migrate::run(args),
        Command::Down(args) => down::run(args),
    }
}
