//! The events of a race, for a listener.

use std::path::PathBuf;
use std::time::Duration;

use record::{Capacity, Load, Void, Witness};
use serde::{Deserialize, Serialize};

use crate::Chosen;

/// A step or a result of a race, for a listener that reports progress. Serialised, it comes from a
/// guest or another machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A virtual machine boots, in which the race will run.
    Booting {
        /// The release of the guest's kernel.
        release: String,
        /// What executes its instructions (KVM or the emulator), and what its clock counts.
        how: String,
    },
    /// Another machine is being reached, which gets this program unless it has it.
    Connecting {
        /// As the user names it.
        machine: String,
    },
    /// Pods are being created in a cluster.
    #[serde(rename = "Pitching")]
    CreatingPods {
        /// The name of the namespace in the cluster.
        namespace: String,
        /// How many take part.
        pods: usize,
    },
    /// A pod does not run yet.
    AwaitingPod {
        /// The name of the pod, and the reason.
        why: String,
    },
    /// The remains of a dead race were removed before this one began.
    CleanedUp {
        /// The id of the dead race.
        id: String,
    },
    /// Something of a dead race could not be removed before this one began.
    NotCleanedUp {
        /// The id of the dead race.
        id: String,
        /// What could not be undone, each a phrase.
        failures: Vec<String>,
    },
    /// Another race runs on this machine; this one begins when that one ends.
    Waiting {
        /// The other race's process.
        pid: u32,
    },
    /// A candidate cannot run here.
    CannotRun {
        /// The name of the candidate.
        name: String,
        /// What it lacks here, each a phrase.
        reasons: Vec<String>,
    },
    /// Switches in user space have no CPUs of their own.
    Crowded {
        /// Whose they are, and what they take.
        why: String,
    },
    /// Datagrams do not fit into one packet.
    Fragments {
        /// Whose they are, and what their packets have room for.
        why: String,
    },
    /// The record file is open.
    Recording {
        /// The path of the record file.
        path: PathBuf,
    },
    /// It is decided whose CPUs work on received packets.
    Steering {
        /// The choice, and the reason for it.
        chosen: Chosen,
    },
    /// All topologies are being built.
    Building {
        /// The number of the build, from 0.
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
    /// A trial of a candidate begins.
    Trial {
        /// The round, from 0.
        round: u32,
        /// How many rounds there will be, if that is known.
        of: Option<u32>,
        /// The name of the candidate.
        name: String,
        /// How much of the race is done, 0 to 1: of its trials, or of its budget.
        share: f64,
    },
    /// A trial does not count and is repeated.
    Voided {
        /// The name of the candidate.
        name: String,
        /// What makes the trial void.
        why: Void,
    },
    /// A candidate broke and is out of the race.
    Broke {
        /// The name of the candidate.
        name: String,
        /// The round, from 0.
        round: u32,
        /// What the client or the server noticed.
        why: String,
    },
    /// A round is done and written down.
    Round {
        /// Rounds that are done, this one included.
        done: u32,
        /// Rounds to do, if that is known.
        of: Option<u32>,
        /// An estimate of what is left; the most that is left where the race ends for what it sees.
        left: Duration,
    },
    /// All comparisons were looked at.
    Looked {
        /// Builds that have raced so far.
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
        /// The number of the build, from 0.
        build: u32,
        /// How many builds there will be.
        builds: u32,
        /// The number of the slot within the build, from 0.
        slot: usize,
        /// Slots of a build.
        slots: usize,
        /// The pairs that race in this slot, by their names.
        pairs: Vec<String>,
        /// An estimate of what is left, but before the first.
        left: Option<Duration>,
    },
    /// What a candidate had set or made was changed by another program meanwhile, and is left as that has it.
    LeftAlone {
        /// The name of the candidate.
        name: String,
        /// What it is and how it is now, in words.
        what: String,
    },
    /// A node takes no part in a race of all pairs.
    NodeLeftOut {
        /// The name of the node.
        node: String,
        /// Why; fit to follow its name and a colon.
        why: String,
    },
    /// What was made in a cluster is still there.
    NotDeleted {
        /// The name of the namespace that it is in.
        namespace: String,
        /// Why; fit to follow a colon.
        why: String,
        /// The command that deletes it.
        command: String,
    },
    /// Pairs of nodes do at once what comes before the first build.
    Preparing {
        /// What, as "finding capacities".
        what: String,
        /// The number of the slot, from 0.
        slot: usize,
        /// How many slots this work takes.
        slots: usize,
        /// The pairs that work in this slot.
        pairs: Vec<String>,
    },
    /// Which pair has the lowest capacity, of which the rates of all are shares.
    LowestCapacity {
        /// The name of the pair.
        pair: String,
        /// The capacity of its reference.
        capacity: Capacity,
    },
    /// A pair of nodes is out of a race of all pairs.
    PairLeft {
        /// The name of the pair.
        pair: String,
        /// Why; fit to follow "could not".
        why: String,
    },
    /// A slice begins whose late answers are looked at; the rounds are over.
    Watching {
        /// The name of the candidate.
        name: String,
        /// Visits done so far.
        done: usize,
        /// Visits to do in all.
        total: usize,
    },
    /// A slice of a profile begins; the rounds are over.
    Profiling {
        /// The name of the candidate.
        name: String,
        /// Slices done so far.
        done: usize,
        /// Slices to do in all.
        total: usize,
    },
}
