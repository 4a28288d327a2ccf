//! The namespaces of one test, and the pinned programs of its nodes.

use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use linux::process::kill_in;
use linux::{Netns, NetnsName, netns};
use plan::Place;

/// The prefix of every name. The number of the process and that of the world follow.
const PREFIX: &str = "hgt-";

/// A set of named namespaces that no other test uses, with a bpffs for each node that has programs. Dropping
/// it removes all of them, even after a panic, and also those that the test made by other means.
#[derive(Debug)]
pub struct World {
    prefix: String,
}

impl World {
    /// A world without namespaces. The first one in a process removes what dead processes have left.
    pub fn new() -> World {
        static SWEPT: Once = Once::new();
        static NEXT: AtomicU32 = AtomicU32::new(0);
        SWEPT.call_once(sweep);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        World { prefix: format!("{PREFIX}{}-{number}-", std::process::id()) }
    }

    /// The full name of a namespace of this world, whether it exists or not.
    ///
    /// # Panics
    /// If it is not a valid name.
    pub fn name(&self, short: &str) -> NetnsName {
        NetnsName::new(format!("{}{short}", self.prefix)).expect("tests choose sound names")
    }

    /// The namespace as a place of a plan.
    pub fn place(&self, short: &str) -> Place {
        Place::Netns(self.name(short))
    }

    /// Makes a namespace with a name of this world.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn add(&self, short: &str) -> Netns {
        Netns::create(&self.name(short)).expect("root can make namespaces")
    }

    /// Opens a namespace that exists.
    ///
    /// # Panics
    /// If it does not exist.
    pub fn open(&self, short: &str) -> Netns {
        Netns::open(&self.name(short)).expect("it was made before")
    }

    /// The namespaces of this world that exist now, by full name.
    pub fn existing(&self) -> Vec<NetnsName> {
        with_prefix(&self.prefix)
    }

    /// The nodes of this world that have pinned programs now. Their pins are named after namespaces of this
    /// world.
    pub fn pinned(&self) -> Vec<String> {
        let mut nodes = bpf::pins::nodes();
        nodes.retain(|node| node.starts_with(&self.prefix));
        nodes
    }
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for name in with_prefix(&self.prefix) {
            remove(&name);
        }
        for node in self.pinned() {
            unpin(&node);
        }
    }
}

/// Whether this is root. If not, the calling test is recorded as skipped, and must return.
pub fn require_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        crate::skip("it needs root");
    }
    root
}

fn with_prefix(prefix: &str) -> Vec<NetnsName> {
    let names = netns::list().unwrap_or_default();
    names.into_iter().filter(|name| name.as_str().starts_with(prefix)).collect()
}

/// Ends the processes in a namespace and removes its name. Errors are ignored: the next sweep tries again.
fn remove(name: &NetnsName) {
    if let Ok(netns) = Netns::open(name) {
        let _ = kill_in(&[netns]);
    }
    let _ = netns::delete(name);
}

/// Removes the pins of a node. Errors are ignored, as above.
fn unpin(node: &str) {
    let _ = bpf::pins::remove(&bpf::pins::folder(node));
}

/// Removes the worlds of processes that were killed before they could do it themselves.
fn sweep() {
    for name in with_prefix(PREFIX).iter().filter(|name| is_left(name.as_str())) {
        remove(name);
    }
    for node in bpf::pins::nodes().iter().filter(|node| is_left(node)) {
        unpin(node);
    }
}

/// Whether a name is one of ours and its process is dead.
fn is_left(name: &str) -> bool {
    let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
    pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists())
}
