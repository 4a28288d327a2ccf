//! Namespaces that are made: on a thread of their own, since whoever makes one is in it.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::mount::MountPropagationFlags;
use rustix::thread::UnshareFlags;

use crate::error::Attempt;
use crate::netlink::Netlink;
use crate::netns::{DIRECTORY, OWN, path};
use crate::{Netns, NetnsName, Result};

impl Netns {
    /// Makes a named namespace with its loopback up. `EEXIST`, and no change, if the name is taken.
    pub fn create(name: &NetnsName) -> Result<Netns> {
        let attempted = || format!("create namespace {name}");
        prepare_directory().attempt(attempted)?;
        let path = path(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o444);
        drop(options.open(&path).attempt(attempted)?);
        on_a_thread_of_a_new_namespace(|| bind_to(&path).attempt(attempted)).inspect_err(|_| {
            // The error that matters is the first one; an empty file is all that can be left.
            let _ = fs::remove_file(&path);
        })?;
        Netns::open(name)
    }

    /// Makes a namespace without a name, with its loopback up. It ends with the last descriptor or process in it.
    pub fn anonymous() -> Result<Netns> {
        on_a_thread_of_a_new_namespace(Netns::current)
    }
}

/// Makes the directory of names as `ip netns` does: mounts in it are seen in every mount namespace that shares them,
/// so that a name deleted here is gone everywhere and no forgotten copy keeps a namespace alive.
fn prepare_directory() -> rustix::io::Result<()> {
    match fs::DirBuilder::new().mode(0o755).recursive(true).create(DIRECTORY) {
        Ok(()) => {}
        Err(error) => return Err(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)),
    }
    let directory =
        rustix::fs::open(DIRECTORY, rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC, 0.into())?;
    // Two processes that find it unshared at the same time would stack two mounts; `ip netns` takes the same lock.
    rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    match rustix::mount::mount_change(DIRECTORY, shared) {
        Err(rustix::io::Errno::INVAL) => {
            // It is no mount yet: make it one.
            rustix::mount::mount_bind_recursive(DIRECTORY, DIRECTORY)?;
            rustix::mount::mount_change(DIRECTORY, shared)
        }
        result => result,
    }
}

fn bind_to(path: &Path) -> rustix::io::Result<()> {
    rustix::mount::mount_bind(OWN, path)
}

/// Runs the closure on a separate thread in a new network namespace with its loopback up. The caller's thread stays
/// where it is, so no return can fail.
fn on_a_thread_of_a_new_namespace<T: Send>(inside: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let work = || {
        unshare().attempt(|| "create a network namespace")?;
        Netlink::open()?.loopback_up()?;
        inside()
    };
    std::thread::scope(|scope| scope.spawn(work).join().expect("the closures passed here do not panic"))
}

fn unshare() -> rustix::io::Result<()> {
    // SAFETY: with NEWNET alone the call does not unshare the table of file descriptors, which is the one effect
    // that could take a descriptor away from under its owner.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
}
