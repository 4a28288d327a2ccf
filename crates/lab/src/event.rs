//! The events of a race, for a listener.

use std::path::PathBuf;
use std::time::Duration;

use record::{Capacity, Load, Void, Witness};
use serde::{Deserialize, Serialize};

use crate::Chosen;

/// Something that a person who waits would like to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A virtual machine boots, in which the race will run.
    Booting {
        /// The kernel's release.
        release: String,
        /// Who executes its instructions, and what its clock counts.
        how: String,
    },
    /// Another machine is being reached, which gets this program unless it has it.
    Connecting {
        /// As the user names it.
        machine: String,
    },
    /// Pods are being created in a cluster.
    Pitching {
        /// Where.
        namespace: String,
        /// How many take part.
        pods: usize,
    },
    /// A pod does not run yet.
    AwaitingPod {
        /// Which, and why.
        why: String,
    },
    /// The remains of a dead race were removed before this one began.
    CleanedUp {
        /// Its id.
        id: String,
    },
    /// Another race runs on this machine; this one begins when that one ends.
    Waiting {
        /// The other race's process.
        pid: u32,
    },
    /// A candidate cannot run here.
    CannotRun {
        /// Its name.
        name: String,
        /// Why.
        reasons: Vec<String>,
    },
    /// The record file is open.
    Recording {
        /// Where.
        path: PathBuf,
    },
    /// It is decided whose CPUs work on received packets.
    Steering {
        /// What, and why.
        chosen: Chosen,
    },
    /// All topologies are being built.
    Building {
        /// From 0.
        build: u32,
        /// How many there will be; `None` where the race ends for what it sees.
        of: Option<u32>,
    },
    /// Capacity is known for a body size.
    Capacity(Capacity),
    /// What will be raced.
    Loads(Vec<Load>),
    /// The machine is watched for stalls.
    Witness(Witness),
    /// A trial begins.
    Trial {
        /// The round, from 0.
        round: u32,
        /// How many rounds there will be, if that is known.
        of: Option<u32>,
        /// The candidate.
        name: String,
        /// How much of the race is done, 0 to 1: of its trials, or of its budget.
        share: f64,
    },
    /// A trial does not count and is repeated.
    Voided {
        /// The candidate.
        name: String,
        /// Why.
        why: Void,
    },
    /// A candidate broke and is out of the race.
    Broke {
        /// Its name.
        name: String,
        /// The round, from 0.
        round: u32,
        /// What was seen.
        why: String,
    },
    /// A round is done and written down.
    Round {
        /// Rounds done.
        done: u32,
        /// Rounds to do, if that is known.
        of: Option<u32>,
        /// An estimate of what is left; the most that is left where the race ends for what it sees.
        left: Duration,
    },
    /// All comparisons were looked at.
    Looked {
        /// Builds so far.
        builds: u32,
        /// The candidates that race on.
        undecided: Vec<String>,
        /// At how many loads together.
        comparisons: usize,
        /// The most time that is left.
        left: Duration,
    },
    /// Pairs of nodes race at once, where all pairs do.
    Slot {
        /// From 0.
        build: u32,
        /// How many builds there will be.
        builds: u32,
        /// From 0.
        slot: usize,
        /// Slots of a build.
        slots: usize,
        /// Which pairs.
        pairs: Vec<String>,
        /// An estimate of what is left, but before the first.
        left: Option<Duration>,
    },
    /// A node takes no part in a race of all pairs.
    NodeLeftOut {
        /// Which.
        node: String,
        /// Why; fit to follow its name and a colon.
        why: String,
    },
    /// Pairs of nodes do at once what comes before the first build.
    Preparing {
        /// What, as "finding capacities".
        what: String,
        /// From 0.
        slot: usize,
        /// Slots of this.
        slots: usize,
        /// Which pairs.
        pairs: Vec<String>,
    },
    /// Which pair has the lowest capacity, of which the rates of all are shares.
    LowestCapacity {
        /// Which.
        pair: String,
        /// Of its reference.
        capacity: Capacity,
    },
    /// A pair of nodes is out of a race of all pairs.
    PairLeft {
        /// Which.
        pair: String,
        /// Why; fit to follow "could not".
        why: String,
    },
    /// A slice begins whose late answers are looked at; the rounds are over.
    Watching {
        /// The candidate.
        name: String,
        /// Visits done so far.
        done: usize,
        /// Visits to do in all.
        total: usize,
    },
    /// A slice of a profile begins; the rounds are over.
    Profiling {
        /// The candidate.
        name: String,
        /// Slices done so far.
        done: usize,
        /// Slices to do in all.
        total: usize,
    },
}
