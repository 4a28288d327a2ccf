//! `hostgap` as a CNI plugin: a container runtime runs it without arguments, with `CNI_COMMAND` in the environment. And
//! `hostgap cni`, the commands by which people put it there and judge plugins.

mod chosen;
mod conformance;
mod install;
mod uninstall;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use node::install::RuntimeDirs;
use node::{Home, plugin};
pub(crate) use uninstall::tell_networks;

use crate::{exit, speak};

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
struct DirArgs {
    /// Where the runtime looks for programs of plugins.
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    bin_dir: PathBuf,
    /// Where the runtime looks for configurations of networks.
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    conf_dir: PathBuf,
}

impl DirArgs {
    fn dirs(&self) -> RuntimeDirs {
        RuntimeDirs { bin: self.bin_dir.clone(), conf: self.conf_dir.clone() }
    }
}

/// `hostgap cni`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Install(args) => install::run(args),
        Command::Uninstall(args) => uninstall::run(args),
        Command::Conformance(args) => conformance::run(args),
    }
}

/// Answers a container runtime, if one runs the program; `None` if a person does.
pub(crate) fn answer_runtime() -> Option<anyhow::Result<ExitCode>> {
    let is_called = std::env::var_os("CNI_COMMAND").is_some() && std::env::args_os().len() == 1;
    is_called.then(answer)
}

fn answer() -> anyhow::Result<ExitCode> {
    let mut input = String::new();
    // What cannot be read is no JSON, and the plugin says so in the form that a runtime understands.
    let _ = std::io::stdin().read_to_string(&mut input);
    let called = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default().to_string_lossy();
    let reply = plugin::call(&Home::of_this_machine(), &name, |name| std::env::var(name).ok(), &input);
    if let Some(printed) = reply.printed {
        speak::result(printed)?;
    }
    Ok(if reply.is_success { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILURE) })
}
