//! Takes the plugin out of a runtime's directories again, as far as no container needs it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::CLI;
use super::RuntimeDirs;
use super::error::InstallError;
use super::files::{configurations_of_ours, is_this_program, read, remove};
use crate::conflist::PLUGIN;
use crate::{Home, StandingAttachment, UnusedNetworks};

/// What was removed, and what was left.
#[derive(Debug, Clone)]
pub struct Uninstalled {
    /// The configurations that were removed.
    pub conflists: Vec<PathBuf>,
    /// Where the program is or was.
    pub program: PathBuf,
    /// Whether the program was there before.
    pub program_was_there: bool,
    /// Why the program was left; `None`: it is gone.
    pub left: Option<LeftProgram>,
    /// What stands on the node: containers that are attached, or whose attachment a process died at.
    pub attachments: Vec<StandingAttachment>,
    /// Networks that no container was attached to, once the program is gone: they were taken back, but for those
    /// that other programs use.
    pub networks: UnusedNetworks,
}

/// Why the program was left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftProgram {
    /// These configurations need it.
    Configured(Vec<PathBuf>),
    /// Attachments stand. A container that goes is taken back by the program (`DEL`), so it must be there.
    Attached,
    /// These links in its directory lead to it: it is called by the names of other plugins, too.
    Linked(Vec<PathBuf>),
    /// It is another program.
    Foreign,
}

/// Removes the configurations that have our plugin, of one network if it is named, and then the program, if nothing
/// needs it any more. What containers have stays as it is.
///
/// An `ADD` whose runtime read a configuration just before that went may still come; it finds the program, or fails as
/// it would on a node without the plugin.
///
/// # Errors
/// A file cannot be read or removed, or what stands on the node cannot be read.
pub fn uninstall(
    home: &Home,
    dirs: &RuntimeDirs,
    network: Option<&str>,
) -> Result<Uninstalled, InstallError> {
    let mut conflists = Vec::new();
    let mut needed_by = Vec::new();
    // Held to the end, so that no configuration comes while the program goes.
    let _lock = super::locked(home)?;
    for (path, of) in configurations_of_ours(&dirs.conf)? {
        if network.is_some_and(|network| network != of) {
            needed_by.push(path);
            continue;
        }
        remove(&path).map_err(InstallError::file("remove", &path))?;
        conflists.push(path);
    }
    let listing = home.standing_attachments();
    let attachments = listing
        .map_err(|failure| InstallError::Node { doing: "list the attachments of this node", failure })?;
    let program = dirs.bin.join(PLUGIN);
    let program_was_there = program.exists();
    let left = if !needed_by.is_empty() {
        Some(LeftProgram::Configured(needed_by))
    } else if !attachments.is_empty() {
        Some(LeftProgram::Attached)
    } else {
        remove_program(&program)?
    };
    if left.is_none() {
        remove_cli(&dirs.bin.join(CLI))?;
    }
    let networks = match left {
        None => home.remove_unused_networks().map_err(|failure| InstallError::Node {
            doing: "take back a network without containers",
            failure,
        })?,
        Some(_) => UnusedNetworks::default(),
    };
    Ok(Uninstalled { conflists, program, program_was_there, left, attachments, networks })
}

/// Removes the program that [`super::install_cli`] has copied, which may be the one that runs.
fn remove_cli(path: &Path) -> Result<(), InstallError> {
    match read(path)? {
        Some(content) if is_this_program(&content) => {
            remove(path).map_err(InstallError::file("remove", path))
        }
        _ => Ok(()),
    }
}

fn remove_program(program: &Path) -> Result<Option<LeftProgram>, InstallError> {
    let Some(content) = read(program)? else { return Ok(None) };
    if !is_this_program(&content) {
        return Ok(Some(LeftProgram::Foreign));
    }
    let directory = program.parent().expect("it lies in a directory");
    let links = links_to(program, directory).map_err(InstallError::file("list", directory))?;
    if !links.is_empty() {
        return Ok(Some(LeftProgram::Linked(links)));
    }
    remove(program).map_err(InstallError::file("remove", program))?;
    Ok(None)
}

/// The symbolic links of a directory that lead to a file of it.
fn links_to(program: &Path, directory: &Path) -> io::Result<Vec<PathBuf>> {
    let wanted = program.canonicalize()?;
    let mut links = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let leads_there = || path.canonicalize().is_ok_and(|target| target == wanted);
        if path != program && path.is_symlink() && leads_there() {
            links.push(path);
        }
    }
    links.sort();
    Ok(links)
}
