//! Where programs, maps and links are pinned: a bpffs for each node, so that what belongs together goes together.
//!
//! A mount of our own, and not a folder of `/sys/fs/bpf`: that one is not mounted everywhere, and `ip netns exec` hides
//! it behind a fresh `/sys`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use linux::{Error, Result};
use rustix::fs::{FlockOperation, flock, statfs};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Below it each node has its mount. The directory itself stays, empty: an agent's container may see it as
/// `OF_MACHINE`, and would not see another one of the same name.
pub const ROOT: &str = "/run/hostgap-bpf";
/// Where an agent's container sees [`ROOT`] of its machine (`deploy/services`): what the machine's own processes mount
/// there, the plugin above all, is mounted here too.
const OF_MACHINE: &str = "/run/hostgap-bpf-of-machine";
/// What a container mounts goes with it, so the agent's container has this folder of its machine's bpffs as [`ROOT`]
/// (`deploy/services`). The machine's own processes find the container's pins here.
const OF_CONTAINERS: &str = "/sys/fs/bpf/hostgap";
/// Where nodes may have their folders, in the order in which they are looked for.
const ROOTS: [&str; 3] = [ROOT, OF_MACHINE, OF_CONTAINERS];
/// Files that a kernel with `BPF_PRELOAD` has in each bpffs that is mounted (kernel/bpf/inode.c).
const OF_KERNEL: [&str; 2] = ["maps.debug", "progs.debug"];
/// The type of a bpffs in statfs(2): `BPF_FS_MAGIC` of `linux/magic.h`.
const BPF_FS_MAGIC: rustix::fs::FsWord = 0xcafe_4a11;

/// The folder of a node: where there is one, and else where a new one belongs, below [`ROOT`]. A process on the machine
/// finds those of an agent in a container, and the other way round.
pub fn folder(node: &str) -> PathBuf {
    let mut folders = ROOTS.iter().map(|root| Path::new(root).join(node));
    folders.find(|folder| folder.exists()).unwrap_or_else(|| Path::new(ROOT).join(node))
}

/// Mounts a bpffs on a new folder. Where [`ROOT`] is a bpffs already, as in a container whose pins shall outlive it, it
/// is a plain folder there.
///
/// # Errors
/// The folder exists, or the kernel refuses: it has no bpffs, or this user may not mount.
pub fn make(folder: &Path) -> Result<()> {
    linux::folder::create(folder).map_err(|error| failed("create", folder, error))?;
    if is_bpffs(folder) {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mounted = mount("bpf", folder, "bpf", flags, Some(c"mode=0700"));
    mounted.map_err(|error| {
        let _ = fs::remove_dir(folder);
        failed("mount a bpffs on", folder, error.into())
    })
}

/// Whether there is anything at the folder.
pub fn exists(folder: &Path) -> bool {
    folder.exists()
}

/// Whether there is a folder without pins.
pub(crate) fn is_empty(folder: &Path) -> bool {
    let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
    exists(folder) && entries.all(|entry| OF_KERNEL.iter().any(|name| entry.file_name() == *name))
}

/// Unmounts a node's bpffs and removes its folder. The last holder of programs, maps and links is gone with it, so they
/// stop. Nothing happens if there is no such folder.
///
/// # Errors
/// The kernel refuses to unmount.
pub fn remove(folder: &Path) -> Result<()> {
    match unmount(folder, UnmountFlags::DETACH) {
        // INVAL: it is a folder and no mount; NOENT: it is not there.
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(failed("unmount", folder, error.into())),
    }
    // A folder of a bpffs that somebody else mounted.
    let removed = if is_bpffs(folder) { fs::remove_dir_all(folder) } else { fs::remove_dir(folder) };
    match removed {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("remove", folder, error)),
    }
    if let Some(parent) = folder.parent().filter(|parent| *parent == Path::new(OF_CONTAINERS)) {
        // Others may have theirs in it.
        let _ = fs::remove_dir(parent);
    }
    Ok(())
}

/// Whether a folder lies in a bpffs or is one.
fn is_bpffs(folder: &Path) -> bool {
    statfs(folder).is_ok_and(|found| found.f_type == BPF_FS_MAGIC)
}

/// Holds a node's folder: what is read there and written back must not change between the two. The lock goes with the
/// value, or with its process.
pub(crate) fn alone(folder: &Path) -> Result<fs::File> {
    let attempted = |error| failed("lock", folder, error);
    let open = fs::File::open(folder).map_err(attempted)?;
    flock(&open, FlockOperation::LockExclusive).map_err(|error| attempted(error.into()))?;
    Ok(open)
}

/// The nodes that have a folder, in alphabetical order.
pub fn nodes() -> Vec<String> {
    let entries = ROOTS.into_iter().flat_map(fs::read_dir).flatten().flatten();
    // Where a bpffs is mounted for all nodes, the kernel's own files are beside their folders.
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names.dedup();
    names
}

fn failed(what: &str, path: &Path, error: io::Error) -> Error {
    Error::new(format!("{what} {}", path.display()), error)
}
