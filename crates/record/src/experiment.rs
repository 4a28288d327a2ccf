//! An experiment: the candidates, their load and the duration. The TOML file and the command line both become one.

mod candidates;
mod card;
mod file;
mod filters;
mod flood;
mod plant;
mod proxy;
mod quick;
mod stack;
mod sweep;
mod until;
mod vm;

use serde::{Deserialize, Serialize};

pub use self::card::{Card, CardError};
pub use self::flood::Flood;
pub use self::plant::Plant;
pub use self::proxy::{Proxies, ProxyKind};
use self::quick::Quick;
pub use self::stack::{OWN_STACK_MTU_MAX, Stack, StackKind, StackWait};
pub use self::sweep::{AxisUnit, Over, Sweep, SweepPosition, SweepValue, Way, WireKey};
pub use self::until::{Until, UntilError};
pub use self::vm::{Clock, Machines};
use crate::{
    BitRate, Delay, PacketFilter, Published, RequestedRate, Share, Side, Tuning, Ways, Wire, Workload,
};

/// What a race is asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The version of the file format, [`crate::SCHEMA`].
    pub schema: u32,
    /// A short name, for file names and headings.
    pub name: String,
    /// The question of the experiment, in a sentence or two.
    #[serde(default)]
    pub description: String,
    /// What races. `host` is always added, twice: as the reference and as the A/A control.
    #[serde(default)]
    pub candidates: Vec<Candidate>,
    /// The kind of requests or data.
    #[serde(default)]
    pub workload: Workload,
    /// The load's rates; empty: 30 % and 50 % of the reference's capacity.
    #[serde(default)]
    pub rates: Vec<RequestedRate>,
    /// One quantity that is raced at several values, to plot lines over it.
    ///
    /// Omitted from records without a sweep, as with [`Experiment::placement`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    /// How often each candidate is visited.
    #[serde(default = "defaults::rounds")]
    pub rounds: u32,
    /// How often all topologies are torn down and rebuilt within those rounds.
    #[serde(default = "defaults::builds")]
    pub builds: u32,
    /// When the race ends for what it sees. It then has as many builds as it needs and its budget allows; `rounds` and
    /// `builds` only say how many rounds each build has.
    ///
    /// Omitted from records where it is absent, as with [`Experiment::placement`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// The most seconds of such a race, from its first build on; absent: [`Until::BUDGET_S`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_s: Option<u32>,
    /// The measured part of a trial in milliseconds.
    #[serde(default = "defaults::slice_ms")]
    pub slice_ms: u32,
    /// Load before the measured part of a trial, in milliseconds; not counted.
    #[serde(default = "defaults::warmup_ms")]
    pub warmup_ms: u32,
    /// The wire between the nodes.
    #[serde(default)]
    pub underlay: Underlay,
    /// Junk that arrives at the server's node while it serves candidates with a `filter`.
    ///
    /// Omitted from records without one, as with [`Experiment::placement`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flood: Option<Flood>,
    /// The nodes on which client and server run.
    ///
    /// The default is omitted from records, so that a hostgap that does not know the key can read them.
    #[serde(default, skip_serializing_if = "Placement::is_usual")]
    pub placement: Placement,
    /// The virtual machines to race in; absent: this machine races.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm: Option<Machines>,
    /// After the rounds, sample where each candidate's CPU time goes.
    ///
    /// Omitted from records if false, as with [`Experiment::placement`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub profile: bool,
    /// After the rounds, find out why the answers beyond p99 are late.
    ///
    /// Omitted from records if false, as with [`Experiment::placement`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub why_late: bool,
    /// Record the time of every single CPU, besides that of the nodes as a whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_cpu: bool,
    /// Watch the machine for stalls, and leave out what was intended near one.
    ///
    /// Omitted from records if true, as with [`Experiment::placement`].
    #[serde(default = "defaults::witness", skip_serializing_if = "is_true")]
    pub witness: bool,
    /// The seed of the order of trials and of the resampling; chosen and written down when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Figures of a publication, to be shown beside ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::published::expanded")]
    pub published: Vec<Published>,
    /// The author's observations in a run of their own, compared with the published figures. They do not describe any
    /// other run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reading: String,
    /// The run that `reading` is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading_of: Option<AuthorsRun>,
    /// The differences of the quick form. Only in files: a record contains the experiment that was raced.
    #[serde(default, skip_serializing)]
    pub quick: Option<Quick>,
}

/// What the author of a scenario got from it, to compare one's own result with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorsRun {
    /// The day, as `2026-11-22`.
    pub date: String,
    /// What it ran on, and in which form of the experiment.
    pub machine: String,
}

/// A contender: a data path or the plugins of a CNI configuration, optionally with its own settings; later also a
/// kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// A name from the list of data paths; empty if `cni` names the contender.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The file of a CNI network configuration, instead of a data path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni: Option<String>,
    /// Which side is in a container. The other one is then the host's network of its node, as `host` has it.
    ///
    /// Written only where it is one side, as with [`Experiment::placement`].
    #[serde(default, skip_serializing_if = "Side::is_both")]
    pub in_container: Side,
    /// The name in tables; `None`: it is made of path and settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its settings; if empty, the kernel's defaults apply.
    #[serde(default, skip_serializing_if = "Tuning::is_empty")]
    pub tune: Tuning,
    /// What of the wire is otherwise for it, laid over the experiment's.
    #[serde(default, skip_serializing_if = "Ways::is_empty")]
    pub underlay: Ways,
    /// Its connections, where not [`Workload::connections`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// What becomes of its frames in a race of packets, or else of the frames of [`Experiment::flood`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<PacketFilter>,
    /// Answers that its server holds back on purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plant: Option<Plant>,
    /// What its connections pass through beside client and server.
    #[serde(default, skip_serializing_if = "Proxies::is_empty")]
    pub proxy: Proxies,
    /// What its server answers on.
    #[serde(default, skip_serializing_if = "Stack::is_usual")]
    pub stack: Stack,
    /// Its place in the experiment's sweep; [`Experiment::swept`] writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swept: Option<SweepPosition>,
    /// True: if it cannot run here, the race is an error instead of a race without it.
    #[serde(default)]
    pub required: bool,
}

/// What lies between the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Underlay {
    /// Bytes of a packet without the Ethernet header.
    pub mtu: u32,
    /// Which CPUs process received packets.
    pub steering: Steering,
    /// The cards at both ends of the wire, in a virtual machine of ours; `None`: the ends of a veth pair.
    #[serde(rename = "wire", skip_serializing_if = "Option::is_none")]
    pub card: Option<Card>,
    /// [`Wire::delay`] of both directions. This and the keys below are omitted if unset, so that a hostgap that does
    /// not know them can read records of plain wires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
    /// [`Wire::jitter`] of both directions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Delay>,
    /// [`Wire::loss`] of both directions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Share>,
    /// [`Wire::reorder`] of both directions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Share>,
    /// [`Wire::rate`] of either direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// [`Wire::line_rate`] of both nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line_rate: Option<BitRate>,
    /// [`Wire::gso`] of both directions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gso: Option<bool>,
    /// What the way to the server does otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_server: Option<Wire>,
    /// What the way to the client does otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_client: Option<Wire>,
}

/// Which CPUs process the packets that a node receives. A veth hands a packet to the CPU that sent it; receive packet
/// steering (RPS) passes it on to the receiving node's CPUs, at the cost of one inter-processor interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Steering {
    /// The receiver's CPUs, unless interrupts between CPUs are so expensive on this machine that they would hide all
    /// other effects. That is measured before the race and recorded.
    #[default]
    Auto,
    Receiver,
    Sender,
}

/// Where client and server stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Each on a separate node: their traffic crosses the wire.
    #[default]
    TwoNodes,
    /// Both on one node, in two pods. The reference is both in that node's own namespace, over its loopback.
    SameNode,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_true(value: &bool) -> bool {
    *value
}

/// Defaults that the experiment file's documentation names too.
mod defaults {
    pub(super) fn rounds() -> u32 {
        24
    }
    pub(super) fn builds() -> u32 {
        12
    }
    pub(super) fn slice_ms() -> u32 {
        100
    }
    pub(super) fn warmup_ms() -> u32 {
        20
    }
    pub(super) fn witness() -> bool {
        true
    }
}

impl Candidate {
    /// The name in tables: the given one, else the filter of packets or the data path with its settings and, if only
    /// one side is in a container, that side. Empty for a CNI configuration without a name or settings, which has the
    /// name in its file.
    pub fn title(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let mut title = match self.filter {
            Some(filter) => self.tune.name_on(filter.name()),
            None => self.tune.name_on(&self.path),
        };
        title += match self.in_container {
            Side::Both => "",
            Side::Client => ", client only",
            Side::Server => ", server only",
        };
        if !self.proxy.is_empty() {
            title += &format!(", {}", self.proxy);
        }
        if !self.stack.is_usual() {
            title += &format!(", {}", self.stack);
        }
        title
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
            sweep: None,
            rounds: defaults::rounds(),
            builds: defaults::builds(),
            until: None,
            budget_s: None,
            slice_ms: defaults::slice_ms(),
            warmup_ms: defaults::warmup_ms(),
            underlay: Underlay::default(),
            flood: None,
            placement: Placement::default(),
            vm: None,
            profile: false,
            why_late: false,
            by_cpu: false,
            witness: defaults::witness(),
            seed: None,
            published: Vec::new(),
            reading: String::new(),
            reading_of: None,
            quick: None,
        }
    }
}

impl Default for Underlay {
    fn default() -> Underlay {
        Underlay {
            mtu: 1500,
            steering: Steering::Auto,
            card: None,
            delay: None,
            jitter: None,
            loss: None,
            reorder: None,
            rate: None,
            line_rate: None,
            gso: None,
            to_server: None,
            to_client: None,
        }
    }
}

impl Underlay {
    /// What happens to packets on their way to the server.
    pub fn to_server(&self) -> Wire {
        self.to_server.unwrap_or_default().or(self.both_ways())
    }

    /// What happens to packets on their way to the client.
    pub fn to_client(&self) -> Wire {
        self.to_client.unwrap_or_default().or(self.both_ways())
    }

    /// The wire of a candidate that overrides some of its properties.
    #[must_use]
    pub fn with(&self, ways: &Ways) -> Underlay {
        let over = |own: Option<Wire>, of: Option<Wire>| own.map(|own| own.or(of.unwrap_or_default())).or(of);
        Underlay {
            to_server: over(ways.to_server, self.to_server),
            to_client: over(ways.to_client, self.to_client),
            ..self.clone()
        }
    }

    /// The properties set for both directions.
    pub fn both_ways(&self) -> Wire {
        let Underlay { delay, jitter, loss, reorder, rate, line_rate, gso, .. } = *self;
        Wire { delay, jitter, loss, reorder, rate, line_rate, gso }
    }

    /// The same underlay with these properties for both directions. What the directions have of their own stays.
    #[must_use]
    pub fn with_both_ways(self, wire: Wire) -> Underlay {
        let Wire { delay, jitter, loss, reorder, rate, line_rate, gso } = wire;
        Underlay { delay, jitter, loss, reorder, rate, line_rate, gso, ..self }
    }
}
