//! The plugin in a runtime's directories: the program where the runtime starts it, and the configuration that makes the
//! runtime do so. `hostgap cni install` and `uninstall` are callers of it.

mod aside;
mod error;
mod files;
mod remove;
mod standing;

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use datapath::DataPath;
use linux::features::{Facts, Feature, Unmet, tcx};
use plan::lock;
use serde::Serialize;

pub use aside::{all_aside, aside_of, configurations_aside, put_back, set_aside};
pub use error::InstallError;
pub use files::{configurations_of, replace};
pub use remove::{LeftProgram, Uninstalled, uninstall};
pub use standing::InstalledFiles;

use crate::Home;
use crate::conflist::{Configured, Network, PLUGIN};
use files::{before, configurations_of_ours, is_this_program, is_whole, network_of_ours, read};

const PROGRAM_MODE: u32 = 0o755;
const CONFLIST_MODE: u32 = 0o644;

/// Where a container runtime looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeDirs {
    /// For programs of plugins: `/opt/cni/bin`.
    pub bin: PathBuf,
    /// For configurations: `/etc/cni/net.d`.
    pub conf: PathBuf,
}

/// What is to be installed, and where.
#[derive(Debug)]
pub struct Installation<'a> {
    /// What stands on the node.
    pub home: &'a Home,
    /// What the kernel can do.
    pub facts: &'a Facts,
    /// The directories, which are made if they are not there.
    pub dirs: &'a RuntimeDirs,
    /// The network to configure.
    pub network: &'a Network,
    /// What becomes of a configuration that has other subnets than attached containers have their addresses of.
    pub other_subnets: OtherSubnets,
    /// The name of the file of the configuration; `None`: `10-NAME.conflist`.
    pub file: Option<&'a str>,
    /// The program to copy: [`program`].
    pub program: PathBuf,
}

/// What becomes of a configuration that could be followed but for its subnets, or its MTU: containers are attached that
/// have addresses of others, or share what has another, and the attach cannot have both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherSubnets {
    /// It is refused.
    Refused,
    /// It is written. `ADD` fails as long as such containers are attached, and so no container gets an address that
    /// other nodes do not lead here any more.
    Awaited,
}

/// The program that runtimes are to start: `hostgap-cni`, which lies beside this one, or this one where that is
/// missing, since it answers runtimes, too.
pub fn program() -> PathBuf {
    let this = Path::new("/proc/self/exe");
    let beside = fs::read_link(this).map(|own| own.with_file_name("hostgap-cni"));
    beside.ok().filter(|beside| beside.is_file()).unwrap_or_else(|| this.to_owned())
}

/// What the program of all commands is called in a runtime's directory of plugins.
const CLI: &str = "hostgap-cli";

/// Copies this program, with all commands, to where the plugin is: a node whose agent is in a container has it nowhere
/// else. [`uninstall`] removes it together with the plugin.
///
/// # Errors
/// Another program has the name, or the file cannot be written.
pub fn install_cli(home: &Home, dirs: &RuntimeDirs) -> Result<Change, InstallError> {
    let this = Path::new("/proc/self/exe");
    let content = fs::read(this).map_err(InstallError::file("read", this))?;
    let _lock = locked(home)?;
    put_program(&dirs.bin.join(CLI), &content)
}

/// What becomes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It did not exist, and was written.
    Written,
    /// An earlier one of ours is gone.
    Replaced,
    /// It was so already.
    Unchanged,
}

/// What was installed, or would be.
#[derive(Debug, Clone)]
pub struct Installed {
    /// The path of the program, and what became of it.
    pub program: (PathBuf, Change),
    /// The path of the configuration, and what became of it.
    pub conflist: (PathBuf, Change),
    /// Why `ADD` fails for now, with [`OtherSubnets::Awaited`].
    pub waits: Option<String>,
    /// The text of the configuration.
    pub text: String,
    /// How containers reach the node.
    pub path: &'static DataPath,
    /// The files that runtimes find before the configuration, in their order. Most use the first of a directory alone.
    pub before: Vec<PathBuf>,
}

/// What the kernel has to have for a network: the facts of an [`Installation`] that are looked at.
///
/// # Errors
/// The plugin would refuse the configuration.
pub fn needs(network: &Network) -> Result<Vec<Feature>, InstallError> {
    let configured = Configured::read(&network.conflist()).map_err(InstallError::Conf)?.remove(0);
    Ok(configured.needs())
}

impl Installation<'_> {
    /// What [`Installation::install`] would do. Nothing is written.
    ///
    /// # Errors
    /// The plugin would refuse the configuration, the node cannot have such a network, or another's file is in the way.
    pub fn preview(&self) -> Result<Installed, InstallError> {
        let text = self.network.conflist();
        let configured = Configured::read(&text).map_err(InstallError::Conf)?.remove(0);
        let path = self.conflist_path()?;
        let reasons = |unmet: &[Unmet]| unmet.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let unmet = configured.unmet(self.facts);
        if !unmet.is_empty() {
            return Err(InstallError::Unmet { attach: configured.path().name, reasons: reasons(&unmet) });
        }
        let unmet = configured.unmet_of_anti_spoofing(self.facts);
        if !unmet.is_empty() {
            return Err(InstallError::NoAntiSpoofing { reasons: reasons(&unmet) });
        }
        if configured.checks_at_tcx() && !tcx().map_err(InstallError::Unknown)? {
            return Err(InstallError::NoTcx);
        }
        let waits = match self.other_subnets {
            OtherSubnets::Refused => configured.check(self.home).map(|()| None),
            OtherSubnets::Awaited => configured.check_but_for_awaited(self.home),
        };
        let waits = waits.map_err(InstallError::Conf)?.map(|failure| failure.message);
        let before = before(&path)?;
        let program = self.program_path();
        Ok(Installed {
            program: (program.clone(), judge_program(&program, &self.own_program()?)?),
            conflist: (path.clone(), self.judge_conflist(&path, &text)?),
            waits,
            text,
            path: configured.path(),
            before,
        })
    }

    /// Copies the program, then writes the configuration: a runtime that reads it finds the program. Each is replaced
    /// in one stroke, so that calls of the plugin go on meanwhile.
    ///
    /// # Errors
    /// As of [`Installation::preview`], with nothing written; or a file cannot be written. The program may then be
    /// there without the configuration, and no runtime uses it.
    pub fn install(&self) -> Result<Installed, InstallError> {
        let planned = self.preview()?;
        for directory in [&self.dirs.bin, &self.dirs.conf] {
            let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
            made.map_err(InstallError::file("create", directory))?;
        }
        let _lock = locked(self.home)?;
        let program = self.program_path();
        let change = put_program(&program, &self.own_program()?)?;
        let program = (program, change);
        let path = planned.conflist.0;
        // Another process may have written since it was looked at.
        let change = self.judge_conflist(&path, &planned.text)?;
        write(&path, change, planned.text.as_bytes(), CONFLIST_MODE)?;
        let conflist = (path, change);
        Ok(Installed { program, conflist, ..planned })
    }

    fn program_path(&self) -> PathBuf {
        self.dirs.bin.join(PLUGIN)
    }

    fn own_program(&self) -> Result<Vec<u8>, InstallError> {
        let content = fs::read(&self.program).map_err(InstallError::file("read", &self.program))?;
        // It may be written just now.
        if is_this_program(&content) && is_whole(&content) {
            Ok(content)
        } else {
            Err(InstallError::NotWhole(self.program.clone()))
        }
    }

    fn conflist_path(&self) -> Result<PathBuf, InstallError> {
        let name = self.file.map_or_else(|| format!("10-{}.conflist", self.network.name), str::to_owned);
        // A hidden file would be read, which would surprise.
        let is_plain = !name.contains(['/', '\0']) && !name.starts_with('.') && name.ends_with(".conflist");
        if is_plain { Ok(self.dirs.conf.join(name)) } else { Err(InstallError::FileName(name)) }
    }

    fn judge_conflist(&self, path: &Path, text: &str) -> Result<Change, InstallError> {
        let name = &self.network.name;
        let mut ours = configurations_of_ours(&self.dirs.conf)?.into_iter();
        if let Some((other, network)) = ours.find(|(other, network)| other != path && network == name) {
            return Err(InstallError::Configured { network, path: other });
        }
        let Some(there) = read(path)? else { return Ok(Change::Written) };
        match network_of_ours(&there) {
            None => Err(InstallError::ForeignConflist(path.to_owned())),
            Some(network) if network != *name => {
                Err(InstallError::OtherNetwork { path: path.to_owned(), network })
            }
            Some(_) if there == text.as_bytes() => Ok(Change::Unchanged),
            Some(_) => Ok(Change::Replaced),
        }
    }
}

fn put_program(path: &Path, content: &[u8]) -> Result<Change, InstallError> {
    let change = judge_program(path, content)?;
    write(path, change, content, PROGRAM_MODE)?;
    Ok(change)
}

fn judge_program(path: &Path, content: &[u8]) -> Result<Change, InstallError> {
    let Some(there) = read(path)? else { return Ok(Change::Written) };
    let mode = fs::metadata(path).map(|found| found.permissions().mode() & 0o7777);
    if there == content && mode.is_ok_and(|mode| mode == PROGRAM_MODE) {
        return Ok(Change::Unchanged);
    }
    let is_ours = there == content || is_this_program(&there);
    if is_ours { Ok(Change::Replaced) } else { Err(InstallError::ForeignProgram(path.to_owned())) }
}

/// The lock under which files of runtimes' directories come and go: processes that install or uninstall do so one after
/// the other. It is on a file of ours, since every user may read those directories, and so lock them.
fn locked(home: &Home) -> Result<fs::File, InstallError> {
    let path = home.install_lock();
    if let Some(directory) = path.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
        made.map_err(InstallError::file("create", directory))?;
    }
    lock::exclusive(&path).map_err(InstallError::file("lock", &path))
}

fn write(path: &Path, change: Change, content: &[u8], mode: u32) -> Result<(), InstallError> {
    match change {
        Change::Unchanged => Ok(()),
        Change::Written | Change::Replaced => {
            replace(path, content, mode).map_err(InstallError::file("write", path))
        }
    }
}
