//! `/sys/class/net` of a namespace.
//!
//! A sysfs shows the network namespace it was mounted in, so `/sys` shows those links wherever the reader is. Here
//! each namespace gets a detached mount: it is reached by its descriptor and ends with it, so it needs no mount
//! namespace and no directory (`fsopen`, Linux 5.2).

mod attribute;
mod device;
mod function;
mod rdma;
mod stack;

pub use attribute::LinkAttribute;
pub use function::{DevicePort, Elsewhere, Function, FunctionCard};

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use serde::{Deserialize, Serialize};

use crate::error::Attempt;
use crate::{CpuSet, Error, IfName, NameError, Netns, Result};

/// The sysfs of one network namespace.
#[derive(Debug)]
pub struct NetSysfs {
    root: OwnedFd,
    place: String,
}

/// A queue of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// Receive queue n; its CPUs are the targets of receive packet steering (`rps_cpus`).
    Rx(u16),
    /// Send queue n; its CPUs are those that send through it (`xps_cpus`).
    Tx(u16),
}

impl NetSysfs {
    /// Mounts the namespace's sysfs. `EPERM` without `CAP_SYS_ADMIN`.
    pub fn open(netns: &Netns) -> Result<NetSysfs> {
        let place = netns.describe();
        let root = netns.run(mount)?.attempt(|| format!("mount the sysfs of {place}"))?;
        Ok(NetSysfs { root, place })
    }

    /// A tree of files in its place.
    #[cfg(test)]
    fn at(root: &std::path::Path) -> Result<NetSysfs> {
        let opened = rustix::fs::open(root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let place = root.display().to_string();
        Ok(NetSysfs { root: opened.attempt(|| format!("open {place}"))?, place })
    }

    /// Where its files can be read by name, as long as this value lives and by this process alone.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd()))
    }

    /// The links that have a directory, by name.
    pub fn links(&self) -> Result<Vec<IfName>> {
        let names = self.directory("class/net")?;
        Ok(names.into_iter().filter_map(|name| IfName::new(name).ok()).collect())
    }

    /// The queues of a link, receive queues first. `ENOENT` without the link.
    pub fn queues(&self, link: &IfName) -> Result<Vec<Queue>> {
        let names = self.directory(&format!("class/net/{link}/queues"))?;
        let mut queues: Vec<Queue> = names.iter().filter_map(|name| Queue::from_directory(name)).collect();
        queues.sort_unstable();
        Ok(queues)
    }

    /// The CPUs of a queue; an empty set turns steering off. `ENOENT` without the link or the queue, and for the only
    /// send queue of a link, where XPS has no choice to make.
    pub fn read_queue_cpus(&self, link: &IfName, queue: Queue) -> Result<CpuSet> {
        let path = queue.path(link);
        let text = self.read(&path)?;
        CpuSet::from_mask(&text)
            .map_err(|error: NameError| Error::invalid(self.attempted("read", &path), error.to_string()))
    }

    /// Sets the CPUs of a queue; the empty set turns steering off. `ENOENT` as above, `EINVAL` or `EOVERFLOW` for CPUs
    /// that the kernel has no place for.
    pub fn write_queue_cpus(&self, link: &IfName, queue: Queue, cpus: &CpuSet) -> Result<()> {
        let path = queue.path(link);
        let attempted = || self.attempted(&format!("write {} to", cpus.to_mask()), &path);
        let mut file = self.file(&path, OFlags::WRONLY).attempt(attempted)?;
        file.write_all(cpus.to_mask().as_bytes()).attempt(attempted)
    }

    /// How many flows a receive queue keeps track of, to send each to the CPU of the thread that reads it (RFS); 0: it
    /// does not. `ENOENT` without the link or the queue, and in kernels without receive steering.
    pub fn read_queue_flows(&self, link: &IfName, rx: u16) -> Result<u32> {
        let path = flows_path(link, rx);
        let text = self.read(&path)?;
        text.trim().parse().map_err(|_| Error::invalid(self.attempted("read", &path), "a number is expected"))
    }

    /// Sets the same. The kernel rounds it up to a power of two.
    pub fn write_queue_flows(&self, link: &IfName, rx: u16, flows: u32) -> Result<()> {
        let path = flows_path(link, rx);
        let attempted = || self.attempted(&format!("write {flows} to"), &path);
        let mut file = self.file(&path, OFlags::WRONLY).attempt(attempted)?;
        file.write_all(flows.to_string().as_bytes()).attempt(attempted)
    }

    fn read(&self, path: &str) -> Result<String> {
        let attempted = || self.attempted("read", path);
        let mut text = String::new();
        self.file(path, OFlags::RDONLY).attempt(attempted)?.read_to_string(&mut text).attempt(attempted)?;
        Ok(text)
    }

    fn directory(&self, path: &str) -> Result<BTreeSet<String>> {
        let attempted = || self.attempted("list", path);
        let directory = self.file(path, OFlags::RDONLY | OFlags::DIRECTORY).attempt(attempted)?;
        let mut names = BTreeSet::new();
        for entry in rustix::fs::Dir::read_from(directory).attempt(attempted)? {
            let entry = entry.attempt(attempted)?;
            names.extend(
                entry.file_name().to_str().ok().filter(|name| !name.starts_with('.')).map(str::to_owned),
            );
        }
        Ok(names)
    }

    fn file(&self, path: &str, flags: OFlags) -> std::io::Result<File> {
        Ok(rustix::fs::openat(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    fn attempted(&self, verb: &str, path: &str) -> String {
        format!("{verb} /sys/{path} in {}", self.place)
    }
}

impl Queue {
    fn from_directory(name: &str) -> Option<Queue> {
        let (direction, number) = name.split_once('-')?;
        let number = number.parse().ok()?;
        match direction {
            "rx" => Some(Queue::Rx(number)),
            "tx" => Some(Queue::Tx(number)),
            _ => None,
        }
    }

    fn path(self, link: &IfName) -> String {
        let file = match self {
            Queue::Rx(_) => "rps_cpus",
            Queue::Tx(_) => "xps_cpus",
        };
        format!("class/net/{link}/queues/{self}/{file}")
    }
}

fn flows_path(link: &IfName, rx: u16) -> String {
    format!("class/net/{link}/queues/{}/rps_flow_cnt", Queue::Rx(rx))
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Queue::Rx(number) => write!(f, "rx-{number}"),
            Queue::Tx(number) => write!(f, "tx-{number}"),
        }
    }
}

/// Mounts the sysfs of the calling thread's network namespace, detached from every directory.
fn mount() -> rustix::io::Result<OwnedFd> {
    let filesystem = rustix::mount::fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&filesystem)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    rustix::mount::fsmount(&filesystem, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_named_as_the_kernel_names_them() {
        let link = IfName::new("eth0").unwrap();
        assert_eq!(Queue::from_directory("rx-12"), Some(Queue::Rx(12)));
        assert_eq!(Queue::from_directory("tx-0"), Some(Queue::Tx(0)));
        assert_eq!(Queue::from_directory("fx-0"), None);
        assert_eq!(Queue::Tx(3).path(&link), "class/net/eth0/queues/tx-3/xps_cpus");
    }
}
