//! What a journal says: the old state before a step, what was read back after it, how undo went.
//!
//! These are the project's own files, read by the same version that wrote them or a later one; the version stands in
//! the header, and an unknown version is refused instead of guessed at.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use bpf::services::Service;
use linux::netlink::DisplacedRoute;
use linux::sysfs::DevicePort;
use linux::{FdbEntry, Mac, Neighbour, sysctl};
use serde::{Deserialize, Serialize};

use crate::Placed;
use crate::owner::Owner;
use crate::set::RegisterState;

/// The version of the journal's format.
pub(crate) const VERSION: u32 = 3;

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The first line, and no other.
    Header(Header),
    /// A step is about to be done.
    Intent(Intent),
    /// A step was done and read back.
    Done {
        /// The number of the intent that it answers.
        seq: u64,
        /// What was read back.
        after: After,
    },
    /// A step was undone, or there was nothing to undo.
    Undone {
        /// The number of the intent that it answers.
        seq: u64,
        /// How undoing the step went.
        outcome: Undone,
        /// The index of a link that was moved back: the kernel may have given it a new one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        index: Option<u32>,
    },
}

impl Entry {
    /// The step that this line begins.
    pub(crate) fn intent(&self) -> Option<&Intent> {
        match self {
            Entry::Intent(intent) => Some(intent),
            Entry::Header(_) | Entry::Done { .. } | Entry::Undone { .. } => None,
        }
    }
}

/// The process that writes the journal, and the run of the kernel in which it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the format.
    pub version: u32,
    /// `/proc/sys/kernel/random/boot_id`: what the steps changed does not outlive it.
    pub boot_id: String,
    /// The process that made the journal, for messages: whether it lives, its lock shows.
    pub pid: u32,
}

/// A step that is about to be done, with all that undo must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The number of the step in the journal, from 0.
    pub seq: u64,
    /// The step, with its place.
    pub placed: Placed,
    /// The kernel's cookie of the step's namespace, so that a later one of the same name is not taken for it.
    /// `None` for a namespace that is about to be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns_cookie: Option<u64>,
    /// What the step found, to be put back by undo.
    pub before: Before,
}

/// The state that a step is about to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Before {
    /// What an `Add…` step makes is not there.
    Absent,
    /// What an `Ensure…` step would make is there, and is not its own.
    Present,
    /// What a `Replace…` step takes the place of.
    Displaced(Displaced),
    /// A link that is about to be moved.
    Placed {
        /// Its index where it is.
        index: u32,
        /// Its kind, where it has one; hardware has none.
        kind: Option<String>,
        /// Its own kernel parameters, `net/*/*/LINK/*`: a namespace gives a newcomer its defaults.
        parameters: BTreeMap<sysctl::Key, String>,
        /// The kernel's cookie of the namespace to which it goes; journals before this one have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to_cookie: Option<u64>,
        /// The address of its device on its bus, where it has one: when its namespace ends, the kernel brings it back
        /// under any name that is free.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device: Option<String>,
        /// What else is to be known of such a link; journals before this one do not have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hardware: Option<Box<Hardware>>,
    },
    /// What the register of a setting holds.
    Was(RegisterState),
    /// A link that gets a program.
    Unattached {
        /// The index of the link, by which undo finds it under any name.
        index: u32,
        /// It has a clsact qdisc, for other programs' filters.
        clsact: bool,
    },
    /// A step that several units share: what it found stands in a claim.
    Shared {
        /// The directory of claims.
        claims: PathBuf,
        /// The unit and its step.
        owner: Owner,
    },
    /// A link of which an entry of a map will speak.
    Unlisted {
        /// The index of the link, by which undo finds it under any name.
        index: u32,
    },
    /// The same of an interface of a container.
    Unguarded {
        /// The index of the node's end of its link.
        index: u32,
        /// The cookie of the container's namespace, which may be gone before the entries.
        container: u64,
    },
}

/// What a card keeps on its way through namespaces, so that it is as before when it comes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// Which of its device's links it is.
    pub port: DevicePort,
    /// Bytes of a packet without the Ethernet header.
    pub mtu: u32,
    /// Its Ethernet address, where it has one.
    pub mac: Option<Mac>,
}

/// What was in a place that a `Replace…` step takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Displaced {
    /// A route, with all of its properties.
    Route(DisplacedRoute),
    /// A permanent neighbour entry.
    Neighbour(Neighbour),
    /// An entry of a bridge's or tunnel's forwarding database.
    Fdb(FdbEntry),
    /// A Service in the programs' maps.
    Service(Service),
}

/// What was read back after a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum After {
    /// It is as the step says.
    AsPlanned,
    /// A namespace was made.
    Netns {
        /// The kernel's cookie of it.
        cookie: u64,
    },
    /// A link was made, or moved to its new namespace.
    Link {
        /// Its index in the namespace where it is now.
        index: u32,
    },
    /// What the register of a setting holds.
    Is(RegisterState),
}

/// How the undoing of a step went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undone {
    /// What was there before is there again.
    Restored,
    /// It was as before already: the step never happened, or another program has undone it.
    AlreadySo,
    /// Another program has changed it since; it was left alone.
    ChangedByOther {
        /// What is there now.
        found: String,
    },
    /// Other units share it, the last of which takes it back.
    LeftToOthers {
        /// Those that still share it, by kind and id: `lab/3f2a`.
        owners: Vec<String>,
    },
    /// What the step made or changed is gone.
    Gone,
    /// The machine was restarted since, so that nothing of it is left.
    Rebooted,
    /// It could not be undone; undo may be run again.
    Failed {
        /// What was attempted, and the kernel's reason.
        why: String,
    },
}

impl Undone {
    /// False if another run of undo could still do something about the step.
    pub fn is_final(&self) -> bool {
        match self {
            Undone::Restored
            | Undone::AlreadySo
            | Undone::ChangedByOther { .. }
            | Undone::LeftToOthers { .. }
            | Undone::Gone
            | Undone::Rebooted => true,
            Undone::Failed { .. } => false,
        }
    }
}

impl fmt::Display for Undone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undone::Restored => f.write_str("restored"),
            Undone::AlreadySo => f.write_str("already as before"),
            Undone::ChangedByOther { found } => write!(f, "left alone, changed since: {found}"),
            Undone::LeftToOthers { owners } => write!(f, "left to {}, which share it", owners.join(", ")),
            Undone::Gone => f.write_str("gone"),
            Undone::Rebooted => f.write_str("gone with a restart of the machine"),
            Undone::Failed { why } => write!(f, "failed: {why}"),
        }
    }
}
