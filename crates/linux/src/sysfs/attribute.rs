//! Numbers of a link that are files of its directory.

use std::fmt;
use std::io::Write;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::NetSysfs;
use crate::error::Attempt;
use crate::{Error, IfName, Result};

/// A number of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkAttribute {
    /// Nanoseconds after which segments that were put together go on, also without the end of a poll.
    GroFlushTimeout,
    /// How often an empty poll is repeated before interrupts are enabled again (Linux 5.8).
    NapiDeferHardIrqs,
    /// 1: packets are received by a kernel thread of each queue, and not in softirqs (Linux 5.12).
    Threaded,
    /// Packets in the link's own queue (`pfifo`, `pfifo_fast`).
    TxQueueLen,
    /// The virtual functions that a card has made of itself (SR-IOV). A number other than 0 becomes another only
    /// by way of 0.
    VirtualFunctions,
}

impl LinkAttribute {
    /// The file's name below `/sys/class/net/LINK`.
    pub fn file(self) -> &'static str {
        match self {
            LinkAttribute::GroFlushTimeout => "gro_flush_timeout",
            LinkAttribute::NapiDeferHardIrqs => "napi_defer_hard_irqs",
            LinkAttribute::Threaded => "threaded",
            LinkAttribute::TxQueueLen => "tx_queue_len",
            LinkAttribute::VirtualFunctions => "device/sriov_numvfs",
        }
    }

    fn path(self, link: &IfName) -> String {
        format!("class/net/{link}/{}", self.file())
    }
}

impl fmt::Display for LinkAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file())
    }
}

impl NetSysfs {
    /// A number of a link. `ENOENT` without the link, and in kernels that do not have it.
    pub fn read_attribute(&self, link: &IfName, attribute: LinkAttribute) -> Result<u64> {
        let path = attribute.path(link);
        let text = self.read(&path)?;
        text.trim().parse().map_err(|_| Error::invalid(self.attempted("read", &path), "a number is expected"))
    }

    /// Sets the same. `EOPNOTSUPP` for threads where a driver does not poll.
    pub fn write_attribute(&self, link: &IfName, attribute: LinkAttribute, value: u64) -> Result<()> {
        let path = attribute.path(link);
        let attempted = || self.attempted(&format!("write {value} to"), &path);
        let mut file = self.file(&path, OFlags::WRONLY).attempt(attempted)?;
        file.write_all(value.to_string().as_bytes()).attempt(attempted)
    }
}
