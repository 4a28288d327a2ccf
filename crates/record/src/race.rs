//! The lines of a record file.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::{
    Arrivals, Candidate, Experiment, InterimLook, Late, Leaving, Profile, RequestedRate, Setting, TrialRecord,
};

/// One line of a record file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    /// First line: all facts known before the first packet.
    Header(Box<Header>),
    /// The reference's capacity, once a body size.
    Capacity(Capacity),
    /// What will be raced, once capacity is known.
    Loads(Vec<Load>),
    /// How the machine is watched for stalls, where it is.
    Witness(Witness),
    /// A finished round of trials.
    Round(Round),
    /// What left after a build, and at the end; only in races with [`Experiment::until`].
    Look(InterimLook),
    /// Where a candidate's time went at a load; after the last round, if requested.
    Profile(Profile),
    /// Why a candidate's answers were late at a load; after the last round, if requested.
    Late(Late),
    /// The race came to its end; a file without it was cut off.
    End {
        /// From the first packet to the last, in seconds.
        wall_s: f64,
        /// Why the race ended before its last round, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stopped: Option<String>,
    },
}

/// A whole record file.
#[derive(Debug, Clone, PartialEq)]
pub struct RaceRecord {
    /// The first line of the record.
    pub header: Header,
    /// The reference's capacity, once a body size.
    pub capacities: Vec<Capacity>,
    /// The loads, in the order in which rounds refer to them.
    pub loads: Vec<Load>,
    /// How the machine was watched for stalls; `None`: it was not.
    pub witness: Option<Witness>,
    /// The rounds that were completed.
    pub rounds: Vec<Round>,
    /// What left the race and when, where it had [`Experiment::until`].
    pub looks: Vec<InterimLook>,
    /// Where each candidate's time went, if that was asked.
    pub profiles: Vec<Profile>,
    /// Why each candidate's answers were late, if that was asked.
    pub late: Vec<Late>,
    /// How it ended; `None`: the file was cut off.
    pub end: Option<End>,
    /// What the reader had to put up with, in words.
    pub notes: Vec<String>,
}

impl RaceRecord {
    /// Rounds that ran but are not in the record: lines were removed from it. A race that was cut off or stopped
    /// lacks its last rounds, which did not run.
    pub fn missing_rounds(&self) -> Vec<RangeInclusive<u32>> {
        let mut missing = Vec::new();
        let mut next = 0;
        for round in &self.rounds {
            if round.round > next {
                missing.push(next..=round.round - 1);
            }
            next = round.round.saturating_add(1);
        }
        let is_whole = self.end.as_ref().is_some_and(|end| end.stopped.is_none());
        // These are taken after the last round.
        let is_after = !self.profiles.is_empty() || !self.late.is_empty();
        let ran = match self.header.experiment.until {
            // As many as the last look saw.
            Some(_) => self.looks.last().map_or(0, |look| look.rounds),
            None if is_whole || is_after => self.header.experiment.rounds,
            None => 0,
        };
        if next < ran {
            missing.push(next..=ran - 1);
        }
        missing
    }

    /// The round, from 0, in which a candidate broke, and why; `None` if it did not.
    pub fn broke(&self, entrant: usize) -> Option<(u32, &str)> {
        self.rounds.iter().find_map(|round| {
            let broken = round.broken.iter().find(|broken| broken.entrant == entrant)?;
            Some((round.round, broken.why.as_str()))
        })
    }

    /// At which look a candidate left a load, and why; `None` if it did not.
    pub fn left(&self, entrant: usize, load: usize) -> Option<(&InterimLook, Leaving)> {
        self.looks.iter().find_map(|look| {
            let left = look.left.iter().find(|left| (left.entrant, left.load) == (entrant, load))?;
            Some((look, left.why))
        })
    }

    /// Whether a look can be the next one; otherwise why not.
    pub(crate) fn expects(&self, look: &InterimLook) -> Result<(), String> {
        let number = look.number;
        if self.header.experiment.until.is_none() {
            return Err(format!("look {number} is in a race that was not to end for what it sees"));
        }
        let (last, rounds) = self.looks.last().map_or((0, 0), |last| (last.number, last.rounds));
        if number <= last || look.rounds < rounds {
            return Err(format!("look {number} is not later than the one before it"));
        }
        let ran = self.rounds.last().map_or(0, |round| round.round.saturating_add(1));
        if look.rounds < ran {
            return Err(format!("look {number} saw {} rounds of the {ran} before it", look.rounds));
        }
        for left in &look.left {
            if left.entrant >= self.header.entrants.len() || left.load >= self.loads.len() {
                return Err(format!("at look {number} an unknown entrant or load left"));
            }
            if self.left(left.entrant, left.load).is_some() {
                return Err(format!("at look {number} a candidate left a load for a second time"));
            }
        }
        Ok(())
    }
}

/// How a race ended.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// From the first packet to the last, in seconds.
    pub wall_s: f64,
    /// Why the race ended before its last round, if it did.
    pub stopped: Option<String>,
}

/// The facts known before the first packet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The version of the format, [`crate::SCHEMA`].
    pub schema: u32,
    /// The version of hostgap that wrote the file.
    pub hostgap: String,
    /// Start, in seconds since 1970.
    pub started_unix_s: u64,
    /// The seed in force.
    pub seed: u64,
    /// The experiment that was run.
    pub experiment: Experiment,
    /// The machine that ran it.
    pub machine: Machine,
    /// The server's program: "nginx/1.22.1" or "hostgap serve".
    pub server: String,
    /// The entrants, in display order. The first is the reference, the second the same again.
    pub entrants: Vec<Entrant>,
    /// The nodes of a cluster between which it ran, if it is one of a race of all pairs.
    ///
    /// Omitted from all other records, so that a hostgap that does not know the key can read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<NodePair>,
}

impl Header {
    /// The name of the fact of [`Machine::facts`] that says by which policy threads were scheduled.
    pub const SCHEDULING: &'static str = "scheduling";
    /// The fact of the machine that says how many machines' clients shared the load, and how; absent where one
    /// had all of it.
    pub const CLIENTS: &'static str = "clients";
    /// The fact of a report that says how far apart these began.
    pub const CLIENTS_APART: &'static str = "clients began apart";
    /// That fact begins so where the threads of client and server, spinning ones excepted, were real-time threads.
    pub const REAL_TIME: &'static str = "SCHED_FIFO";

    /// Whether what answers for an entrant was scheduled by another policy than the reference's server: one of them
    /// spins, or a program between client and server carries its packets, under the normal policy, and the other one is
    /// a real-time thread. Where a request costs the server CPU time, all are under the normal one.
    pub fn is_scheduled_apart(&self, entrant: usize) -> bool {
        let facts = &self.machine.facts;
        let real_time =
            facts.get(Header::SCHEDULING).is_some_and(|policy| policy.starts_with(Header::REAL_TIME));
        let spins = |entrant: &Entrant| {
            let named = |candidate: &&Candidate| candidate.title() == entrant.name;
            let own = self.experiment.candidates.iter().find(named);
            entrant.carried || own.is_some_and(|own| own.stack.wait.hardly_sleeps())
        };
        let is_alike = self.entrants.get(entrant).map(spins) == self.entrants.first().map(spins);
        real_time && self.experiment.workload.cpu_us.is_none() && !is_alike
    }
}

/// Two nodes of a cluster, in one of their two directions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePair {
    /// Where the client ran.
    pub client: NodeInZone,
    /// Where the server ran.
    pub server: NodeInZone,
}

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeInZone {
    /// The name of the node in the cluster.
    pub node: String,
    /// Its label `topology.kubernetes.io/zone`, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// A candidate of the race, able to run or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entrant {
    /// The name in tables: the data path's, "host again", or what a candidate with settings is called.
    pub name: String,
    /// The data path; for CNI plugins the same as the name.
    pub path: String,
    /// What it stands for in the world.
    pub stands_for: String,
    /// Why it cannot run here; empty: it races.
    pub unmet: Vec<String>,
    /// The commands that a person would type to build the same, in order.
    pub commands: Vec<String>,
    /// The settings that make it differ from its data path, in the order in which they are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
    /// The pod's MTU in bytes; `None` where it cannot run, and where CNI plugins choose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Its packets pass a program in user space between client and server, which is scheduled by the normal policy.
    ///
    /// Omitted where they do not, so that a hostgap that does not know the key can read the record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub carried: bool,
    /// Threads that carry its packets poll, and have no CPU of their own: its figures are shown, and not compared.
    ///
    /// Omitted where they do not, so that a hostgap that does not know the key can read the record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub crowded: bool,
}

/// The machine, as far as it may matter to a reader of the figures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Machine {
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// The processor's model name.
    pub cpu_model: String,
    /// The number of CPUs on line.
    pub cpus: u32,
    /// CPUs of the client's node, as a list.
    pub client_cpus: String,
    /// CPUs of the server's node, as a list.
    pub server_cpus: String,
    pub memory_bytes: u64,
    /// Other facts, by name: clock source, governor, scheduling policy of client and server, mitigations, load
    /// average at the start, hypervisor.
    pub facts: BTreeMap<String, String>,
}

/// A load that each candidate gets in each round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Bytes of the answer's body.
    pub body_bytes: u32,
    /// Requests per second; `None`: a closed loop (every connection sends again when its answer is there).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// The share of capacity that the rate was asked as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_capacity: Option<f64>,
    /// How the requests of a rate are spread over time.
    #[serde(default, skip_serializing_if = "Arrivals::are_usual")]
    pub arrivals: Arrivals,
}

impl Load {
    /// Every connection sends again when its answer is there.
    pub fn closed_loop(body_bytes: u32) -> Load {
        Load { body_bytes, rate_per_s: None, of_capacity: None, arrivals: Arrivals::Constant }
    }

    /// So many requests per second, at equal intervals.
    pub fn at_rate(body_bytes: u32, rate_per_s: f64) -> Load {
        Load { rate_per_s: Some(rate_per_s), ..Load::closed_loop(body_bytes) }
    }
}

/// The reference's highest sustained rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// Bytes of the answer's body.
    pub body_bytes: u32,
    /// Requests per second: the first rate, going down from the median of the samples, that was kept.
    pub rate_per_s: f64,
    /// What single slices reached, in order.
    pub samples_per_s: Vec<f64>,
}

impl Capacity {
    /// The load at a rate. A share of the capacity is a whole number of requests per second, but below ten, where that
    /// would be another share.
    pub fn load(&self, rate: &RequestedRate, arrivals: Arrivals) -> Load {
        let (rate_per_s, of_capacity) = match rate {
            RequestedRate::PerSecond(rate) => (*rate, None),
            RequestedRate::OfCapacity(share) => match share * self.rate_per_s {
                slow @ ..10.0 => (slow, Some(*share)),
                fast => (fast.round(), Some(*share)),
            },
        };
        Load { of_capacity, arrivals, ..Load::at_rate(self.body_bytes, rate_per_s) }
    }
}

/// A witness of the machine's stalls: what it took for one, what was left out for it, and how it changed the median.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// Between two ticks of a CPU, in nanoseconds: the witness's own, or where those changed the median
    /// too much the kernel's.
    pub period_ns: u64,
    /// A tick that was this much later than that showed a stall, in nanoseconds.
    pub late_ns: u64,
    /// So did this much time that the hypervisor took between two looks at its clock, in nanoseconds.
    pub stolen_ns: u64,
    /// So did a thread's turn that came this much later than its waking on an idle CPU, in nanoseconds. `None`: it did
    /// not, as on a bare machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken_late_ns: Option<u64>,
    /// How long before a stall a window began, in nanoseconds.
    pub before_ns: u64,
    /// How long after a stall it ended, in nanoseconds.
    pub after_ns: u64,
    /// How many times as long as the stall was it lasted besides.
    #[serde(default)]
    pub after_lengths: u64,
    /// The reference's median response time with the witness ÷ without, by pairs of slices before the first round.
    pub cost: Option<WitnessCost>,
    /// It changed the median too much, so that the race went without.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_off: bool,
}

/// How watching for stalls changes an answer's time, up or down, as it was measured before the first round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WitnessCost {
    /// The rate at which it was measured, in requests per second.
    pub rate_per_s: f64,
    /// The median of the ratios of the pairs.
    pub ratio: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end of its 95 % interval.
    pub high: f64,
    /// How many pairs there were.
    pub pairs: u32,
}

/// Every candidate at every load, in shuffled order: contenders once, the hosts more often at rates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// The number of the round, from 0.
    pub round: u32,
    /// Which build of the topologies it ran on, from 0.
    pub build: u32,
    /// Seconds from the beginning of the race to its end, builds included, by the clock of the machine that raced: one
    /// in counted time has its own. Records from before this was written have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_s: Option<f64>,
    /// The trials in the order in which they ran, void ones included.
    pub trials: Vec<TrialRecord>,
    /// Candidates that broke in this round. Later rounds go without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broken: Vec<Broken>,
}

/// A candidate that broke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Broken {
    /// The candidate, as an index into [`Header::entrants`].
    pub entrant: usize,
    /// What was seen, in words.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_a_capacity_is_a_rate_that_can_be_asked_for() {
        let tenth = |rate_per_s: f64| {
            let capacity = Capacity { body_bytes: 100, rate_per_s, samples_per_s: Vec::new() };
            capacity.load(&RequestedRate::OfCapacity(0.1), Arrivals::Constant).rate_per_s
        };
        assert_eq!(tenth(123_456.0), Some(12_346.0));
        assert_eq!(tenth(104.0), Some(10.0));
        assert_eq!(tenth(2.5), Some(0.25));
    }
}
