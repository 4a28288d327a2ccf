//! `hostgap cni`: the commands by which people put the plugin under a container runtime, and judge plugins.

mod chosen;
mod conformance;
mod install;
mod uninstall;

use std::path::{Path, PathBuf};
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

const BIN_DIR: &str = "/opt/cni/bin";
const CONF_DIR: &str = "/etc/cni/net.d";

/// The directories of a container runtime.
#[derive(Debug, clap::Args)]
pub(crate) struct DirArgs {
    /// Where the runtime looks for programs of plugins.
    #[arg(long, value_name = "DIR", default_value = BIN_DIR)]
    bin_dir: PathBuf,
    /// Where the runtime looks for configurations of networks.
    #[arg(long, value_name = "DIR", default_value = CONF_DIR)]
    conf_dir: PathBuf,
}

impl DirArgs {
    pub(crate) fn dirs(&self) -> RuntimeDirs {
        RuntimeDirs { bin: self.bin_dir.clone(), conf: self.conf_dir.clone() }
    }

    /// The options that are not as they are by default, as a command line has them.
    pub(crate) fn other_than_default(&self) -> String {
        options(&[("bin-dir", &self.bin_dir, BIN_DIR), ("conf-dir", &self.conf_dir, CONF_DIR)])
    }
}

/// The options whose paths are others than their defaults, each with a space before it.
pub(crate) fn options(options: &[(&str, &Path, &str)]) -> String {
    let others = options.iter().filter(|(_, path, default)| *path != Path::new(default));
    others.map(|(name, path, _)| format!(" --{name} {}", path.display())).collect()
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Install(args) => install::run(args),
        Command::Uninstall(args) => uninstall::run(args),
        Command::Conformance(args) => conformance::run(args),
    }
}
