//! An experiment: what is raced, under which load, for how long. The TOML file and the command line both become one.

use serde::{Deserialize, Serialize};

use crate::{Machines, Rate};

/// What a race is asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The version of the file format, [`crate::SCHEMA`].
    pub schema: u32,
    /// A short name.
    pub name: String,
    /// What is asked of the world, in a sentence or two.
    #[serde(default)]
    pub description: String,
    /// What races. `host` is always added, twice: as the reference and as the A/A control.
    #[serde(default)]
    pub candidates: Vec<Candidate>,
    /// The load's content.
    #[serde(default)]
    pub workload: Workload,
    /// The load's rates; empty: 30 % and 50 % of the reference's capacity.
    #[serde(default)]
    pub rates: Vec<Rate>,
    /// How often each candidate is visited.
    #[serde(default = "defaults::rounds")]
    pub rounds: u32,
    /// How often all topologies are torn down and built anew within those rounds.
    #[serde(default = "defaults::builds")]
    pub builds: u32,
    /// The measured part of a trial in milliseconds.
    #[serde(default = "defaults::slice_ms")]
    pub slice_ms: u32,
    /// Load before the measured part of a trial, in milliseconds; not counted.
    #[serde(default = "defaults::warmup_ms")]
    pub warmup_ms: u32,
    /// The wire between the nodes.
    #[serde(default)]
    pub underlay: Underlay,
    /// Where client and server stand.
    ///
    /// The usual one is not written, so that a hostgap that does not know the key reads such records.
    #[serde(default, skip_serializing_if = "Placement::is_usual")]
    pub placement: Placement,
    /// The virtual machines to race in; absent: this machine races.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<Machines>,
    /// After the rounds, sample where each candidate's CPU time goes.
    ///
    /// Not written where it is not asked for, as with [`Experiment::placement`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub profile: bool,
    /// The seed of the order of trials and of the resampling; chosen and written down when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Figures of a publication, to be shown beside ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
}

/// A contender: a data path or the plugins of a CNI configuration, later also settings and a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// A name out of the list of data paths; empty where `cni` says what races.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The file of a CNI network configuration, instead of a data path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni: Option<String>,
    /// True: if it cannot run here, the race is an error instead of a race without it.
    #[serde(default)]
    pub required: bool,
}

/// The content of the load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Sizes of the answers' bodies in bytes; each size is a load of its own.
    pub body_bytes: Vec<u32>,
    /// Permanent connections of the client.
    pub connections: u32,
    /// Who answers.
    pub server: ServerKind,
    /// Requests go over IPv6.
    pub ipv6: bool,
}

/// Who answers the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerKind {
    /// nginx if it is installed, else our own responder, and the report says which.
    Auto,
    /// nginx; an error if it is not installed.
    Nginx,
    /// Our own responder.
    Hostgap,
}

/// What lies between the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Underlay {
    /// Bytes of a packet without the Ethernet header.
    pub mtu: u32,
    /// Whose CPUs work on received packets.
    pub steering: Steering,
}

/// Whose CPUs work on the packets that a node receives. A veth hands a packet to the CPU that sent it; receive packet
/// steering (RPS) hands it on to the receiving node's CPUs, for one inter-processor interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steering {
    /// The receiver's, unless interrupts between CPUs are so dear on this machine that they would hide everything
    /// else; found out before the race and written down.
    #[default]
    Auto,
    /// The receiver's.
    Receiver,
    /// The sender's.
    Sender,
}

/// Where client and server stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Each on a node of its own: what they say crosses the wire.
    #[default]
    TwoNodes,
    /// Both on one node, in two pods. The reference is both in that node's own namespace, over its loopback.
    SameNode,
}

/// A figure that somebody published for the same question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The data path it was measured on.
    pub path: String,
    /// What was measured, with its unit: "p99 ms at 150k req/s".
    pub what: String,
    /// The figure.
    pub value: f64,
    /// Where it was published.
    pub source: String,
}

/// Defaults that the experiment file's documentation names too.
mod defaults {
    pub(super) fn rounds() -> u32 {
        30
    }
    pub(super) fn builds() -> u32 {
        10
    }
    pub(super) fn slice_ms() -> u32 {
        100
    }
    pub(super) fn warmup_ms() -> u32 {
        20
    }
}

impl Placement {
    /// True on two nodes.
    pub fn is_usual(&self) -> bool {
        *self == Placement::TwoNodes
    }
}

impl Default for Experiment {
    /// The built-in experiment: every data path, about two minutes.
    fn default() -> Experiment {
        Experiment {
            schema: crate::SCHEMA,
            name: "default".to_owned(),
            description: "Which container data path is nearest to the host on this kernel?".to_owned(),
            candidates: Vec::new(),
            workload: Workload::default(),
            rates: Vec::new(),
            rounds: defaults::rounds(),
            builds: defaults::builds(),
            slice_ms: defaults::slice_ms(),
            warmup_ms: defaults::warmup_ms(),
            underlay: Underlay::default(),
            placement: Placement::default(),
            vm: None,
            profile: false,
            seed: None,
            published: Vec::new(),
        }
    }
}

impl Default for Workload {
    fn default() -> Workload {
        Workload { body_bytes: vec![100], connections: 32, server: ServerKind::Auto, ipv6: false }
    }
}

impl Default for Underlay {
    fn default() -> Underlay {
        Underlay { mtu: 1500, steering: Steering::Auto }
    }
}
