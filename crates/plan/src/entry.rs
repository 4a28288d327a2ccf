//! What a journal says: the old state before a step, what was read back after it, how undo went.
//!
//! These are the project's own files, read by the same version that wrote them or a later one; the version stands in
//! the header, and an unknown version is refused instead of guessed at.

use std::collections::BTreeMap;
use std::fmt;

use linux::netlink::{MetricState, QdiscInfo};
use linux::sysfs::Queue;
use linux::{CpuSet, sysctl};
use serde::{Deserialize, Serialize};

use crate::{Placed, RssHash};

/// The version of the journal's format.
pub(crate) const VERSION: u32 = 2;

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
        /// The intent's number.
        seq: u64,
        /// What was read back.
        after: After,
    },
    /// A step was undone, or there was nothing to undo.
    Undone {
        /// The intent's number.
        seq: u64,
        /// How it went.
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

/// Who writes the journal, and in which run of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of the format.
    pub version: u32,
    /// `/proc/sys/kernel/random/boot_id`: what the steps changed does not outlive it.
    pub boot_id: String,
    /// The process that made the journal, for messages: whether it lives is told by its lock.
    pub pid: u32,
}

/// A step that is about to be done, with all that undo must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The number of the step in the journal, from 0.
    pub seq: u64,
    /// The step.
    pub placed: Placed,
    /// The kernel's cookie of the step's namespace, so that a later one of the same name is not taken for it.
    /// `None` for a namespace that is about to be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns_cookie: Option<u64>,
    /// What was there.
    pub before: Before,
}

/// The state that a step is about to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Before {
    /// What an `Add…` step makes is not there.
    Absent,
    /// A link that is about to be moved.
    Placed {
        /// Its index where it is.
        index: u32,
        /// Its kind, where it has one; hardware has none.
        kind: Option<String>,
        /// Its own kernel parameters, `net/*/*/LINK/*`: a namespace gives a newcomer its defaults.
        parameters: BTreeMap<sysctl::Key, String>,
    },
    /// A link's administrative state.
    Up {
        /// The link's index.
        index: u32,
        /// True: it is up already.
        up: bool,
    },
    /// A link's MTU.
    Mtu {
        /// The link's index.
        index: u32,
        /// Bytes.
        mtu: u32,
        /// MTUs of the other links of the namespace by index: a parent takes its children with it.
        others: BTreeMap<u32, u32>,
    },
    /// Whose port a link is.
    Master {
        /// The link's index.
        index: u32,
        /// The bridge's index.
        master: Option<u32>,
    },
    /// Hairpin mode of a bridge port.
    Hairpin {
        /// The link's index.
        index: u32,
        /// True: it is on already.
        on: bool,
    },
    /// A kernel parameter.
    Sysctl {
        /// Its value.
        value: String,
        /// The values of those that the kernel may change together with it.
        along: BTreeMap<sysctl::Key, String>,
    },
    /// The CPUs of a queue.
    QueueCpus {
        /// The link's index.
        index: u32,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// The flows that a queue keeps track of.
    QueueFlows {
        /// The link's index.
        index: u32,
        /// How many.
        flows: u32,
    },
    /// What a route tells connections.
    RouteMetric {
        /// The link's index.
        index: u32,
        /// What it said.
        state: MetricState,
    },
    /// How many segments a packet may have that a link takes.
    GsoMaxSegs {
        /// The link's index.
        index: u32,
        /// Segments.
        segments: u32,
    },
    /// The queueing discipline at the root of a link.
    RootQdisc {
        /// The link's index.
        index: u32,
        /// What somebody has put there; `None`: the kernel's own choice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        qdisc: Option<QdiscInfo>,
    },
    /// A number of a network card.
    Nic {
        /// The link's index.
        index: u32,
        /// What it was asked to be.
        wanted: u32,
        /// What it was.
        value: u32,
        /// What the kernel may change together with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queues: Option<QueueState>,
    },
    /// The table by which a card spreads flows.
    Indirection {
        /// The link's index.
        index: u32,
        /// The queue of each entry.
        table: Vec<u32>,
    },
    /// What a card hashes received flows by.
    RssHash {
        /// The link's index.
        index: u32,
        /// What it was.
        was: RssHash,
    },
    /// A number that is a file of a link.
    LinkAttribute {
        /// The link's index.
        index: u32,
        /// What it was.
        value: u64,
    },
    /// A number in debugfs.
    Debug {
        /// What it was.
        value: u64,
    },
    /// A parameter of a module.
    Module {
        /// What it was.
        value: u64,
    },
    /// The CPUs of an interrupt.
    IrqCpus {
        /// The CPUs.
        cpus: CpuSet,
    },
    /// A link that gets a program.
    Unattached {
        /// The link's index.
        index: u32,
        /// It has a clsact qdisc, for somebody's filters.
        clsact: bool,
    },
    /// A link of which an entry of a map will speak.
    Unlisted {
        /// The link's index.
        index: u32,
    },
}

/// What is set for each queue of a card, and for its interrupts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueState {
    /// The CPUs of each queue that has some to choose.
    pub cpus: Vec<(Queue, CpuSet)>,
    /// The flows that each receive queue keeps track of.
    pub flows: Vec<(u16, u32)>,
    /// The table by which flows are spread, where the card has one.
    pub table: Option<Vec<u32>>,
    /// Number, name and CPUs of each interrupt.
    pub interrupts: Vec<(u32, String, CpuSet)>,
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
        /// Its index there.
        index: u32,
    },
    /// A link's MTU was set.
    Mtu {
        /// MTUs of the other links of the namespace that followed.
        others: BTreeMap<u32, u32>,
    },
    /// A kernel parameter was written.
    Sysctl {
        /// What it holds now, in the kernel's way of writing it.
        value: String,
        /// Those that the kernel changed together with it.
        along: BTreeMap<sysctl::Key, String>,
    },
    /// The CPUs of a queue were written.
    QueueCpus {
        /// What the kernel took.
        cpus: CpuSet,
    },
    /// The flows of a queue were written.
    QueueFlows {
        /// What the kernel took.
        flows: u32,
    },
    /// A route's property was written.
    RouteMetric {
        /// What the kernel took.
        state: MetricState,
    },
    /// A number of a network card was set.
    Nic {
        /// What the card took.
        value: u32,
        /// What the kernel changed together with it, or left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queues: Option<QueueState>,
    },
    /// The table by which a card spreads flows was set.
    Indirection {
        /// The queue of each entry.
        table: Vec<u32>,
    },
    /// What a card hashes received flows by was set.
    RssHash {
        /// What the card took.
        is: RssHash,
    },
    /// A number that is a file of a link was written.
    LinkAttribute {
        /// What the kernel took.
        value: u64,
    },
    /// A number in debugfs was written.
    Debug {
        /// What the kernel took.
        value: u64,
    },
    /// A parameter of a module was written.
    Module {
        /// What the kernel took.
        value: u64,
    },
    /// The CPUs of an interrupt were written.
    IrqCpus {
        /// What the kernel took.
        cpus: CpuSet,
    },
    /// A queueing discipline was put at the root of a link.
    RootQdisc {
        /// What the kernel made of it.
        qdisc: QdiscInfo,
    },
}

/// How the undoing of a step went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undone {
    /// What was there before is there again.
    Restored,
    /// It was as before already: the step never happened, or somebody else has undone it.
    AlreadySo,
    /// Somebody else has changed it since; it was left alone.
    ChangedByOther {
        /// What is there now.
        found: String,
    },
    /// What the step made or changed is gone.
    Gone,
    /// The machine was started anew since, so that nothing of it is left.
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
            Undone::ChangedByOther { found } => write!(f, "left alone, changed by somebody else: {found}"),
            Undone::Gone => f.write_str("gone"),
            Undone::Rebooted => f.write_str("gone with a restart of the machine"),
            Undone::Failed { why } => write!(f, "failed: {why}"),
        }
    }
}
