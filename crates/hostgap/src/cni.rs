//! `hostgap cni`: the commands by which people put the plugin under a container runtime, and judge plugins.

mod chosen;
mod conformance;
mod install;
mod uninstall;

use std::path::PathBuf;
use std::process::ExitCode;

use node::install::RuntimeDirs;
pub(crate) use uninstall::print_networks;

/// Put hostgap under containers, as a plugin of the Container Network Interface, and judge plugins.
///
/// A container runtime (containerd, CRI-O, podman) starts plugins from one directory by configurations in another. The
/// plugin connects containers with the same drivers that connect the pods of a race. docs/cni-plugin.md describes it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Install(Box<install::Args>),
    Uninstall(uninstall::Args),
    Conformance(conformance::Args),
}

/// The directories of a container runtime.
#[derive(Debug, clap::Args)]
pub(crate) struct DirArgs {
    /// Where the runtime looks for programs of plugins.
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    bin_dir: PathBuf,
    /// Where the runtime looks for configurations of networks.
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    conf_dir: PathBuf,
}

impl DirArgs {
    pub(crate) fn dirs(&self) -> RuntimeDirs {
        RuntimeDirs { bin: self.bin_dir.clone(), conf: self.conf_dir.clone() }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Install(args) => install::run(args),
        Command::Uninstall(args) => uninstall::run(args),
        Command::Conformance(args) => conformance::run(args),
    }
}
