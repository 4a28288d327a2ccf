//! A bpffs for the plugins of a node. What a plugin pins lives on after its call, as it does on a machine; in a mount
//! of the call's own it would end with the call, and the pod's programs with it.
//!
//! It lies beside the pins of our own data paths and has the candidate's id in its name, so that the lab finds it after
//! a crash as it finds those.

use std::path::{Path, PathBuf};

use bpf::pins;
use linux::NetnsName;
use linux::view::Own;

use crate::LabError;

fn folder(node: &NetnsName) -> PathBuf {
    pins::folder(&format!("{node}-cni"))
}

/// Mounts the bpffs of a node, unless it is there. A kernel that refuses has no programs to pin: plugins that need none
/// work there.
pub(super) fn provide(node: &NetnsName) {
    let folder = folder(node);
    if !pins::exists(&folder) {
        let _ = pins::make(&folder);
    }
}

/// Ends what plugins of the node left there.
pub(super) fn take_back(node: &NetnsName) -> Result<(), LabError> {
    Ok(pins::remove(&folder(node))?)
}

/// Where plugins of the node see it, if it is mounted. `run` is the directory that is their `/run`.
pub(super) fn view(node: &NetnsName, run: &Path) -> std::io::Result<Option<Own>> {
    let folder = folder(node);
    if !pins::exists(&folder) {
        return Ok(None);
    }
    let at = Path::new(pins::ROOT);
    let name = at.file_name().expect("it is a folder in /run");
    std::fs::create_dir_all(run.join(name))?;
    Ok(Some(Own::new(at, folder, &[])))
}
