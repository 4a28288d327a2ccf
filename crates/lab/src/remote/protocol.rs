//! What the two processes of a race between machines say to each other: a line of JSON each. They are the same program, so
//! that the form needs no version.

use std::collections::BTreeMap;
use std::net::IpAddr;

use linux::CpuSet;
use linux::cpu::Scheduling;
use linux::features::Facts;
use record::{Counters, CpuTime, Machine, Plant, Workload};
use serde::{Deserialize, Serialize};

use super::links::{MachineLink, MachineNodes};
use crate::traffic::TransferredAmounts;

/// Asked of the server's machine. Each is answered before the next; an empty line says only that this side is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum RemoteRequest {
    /// Takes the machine for the race. Answered with [`Reply::Begun`].
    Begin(Begin),
    /// Builds its half of a topology and starts the server.
    Stand(Box<Order>),
    /// Looks at the counters of a candidate, before the measured part of a trial.
    Count { candidate: String },
    /// Says what has happened since. Answered with [`Reply::Spent`].
    Spent { candidate: String, work: TransferredAmounts },
    /// Says whether its half is still as it was built, and fails if the server has ended. Answered with [`Reply::Changed`].
    Check { candidate: String },
    /// Ends the server and undoes its half.
    TakeDown { candidate: String },
}

/// What the server's machine is asked to be ready for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Begin {
    /// What will be asked of servers.
    pub(super) workload: Workload,
    /// The server's CPUs; `None`: all that the process may use.
    pub(super) cpus: Option<CpuSet>,
    /// Policy of the server's threads, where the machine permits it.
    pub(super) scheduling: Scheduling,
}

/// Half a topology, in as few words as both sides plan it from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    /// The name in tables.
    pub(super) candidate: String,
    /// The data path's name.
    pub(super) path: String,
    /// The machines, and which of their networks it is.
    pub(super) nodes: MachineNodes,
    /// What is asked of the server, with the candidate's connections.
    pub(super) workload: Workload,
    /// Answers that the server holds back on purpose.
    pub(super) plant: Option<Plant>,
}

/// What the server's machine answers to a [`Request`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The machine is the race's.
    Begun(Box<Counterpart>),
    /// What was asked is done, and there is nothing to say of it.
    Done,
    /// What a trial cost there.
    Spent(Box<Spent>),
    /// What has changed, in words.
    Changed(Option<String>),
    /// It could not be done; what was begun is undone.
    Failed(Failed),
    /// This machine does not have what it was asked for, in words.
    NotThere(String),
}

/// Why something could not be done, in words.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub(crate) why: String,
    /// What the user can try, shown as a hint.
    pub(crate) remedy: Option<String>,
    /// What the candidate broke by, where it is that and the race can go on without it.
    pub(crate) broken: Option<String>,
}

/// The server's machine, as it says itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Counterpart {
    pub(super) machine: Machine,
    /// What its kernel can do.
    pub(super) facts: Facts,
    /// Its links that have addresses for the world.
    pub(super) links: Vec<MachineLink>,
    /// The address by which ssh came in.
    pub(super) reached_by: Option<IpAddr>,
    /// The server program there and its version: "nginx/1.22.1".
    pub(super) server: String,
    /// It is this program.
    pub(super) serves_itself: bool,
    pub(super) cpus: CpuSet,
}

/// What a trial cost on the server's machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// CPU time by the number of the CPU, from the end of the warm-up.
    pub(crate) cpus: BTreeMap<u16, CpuTime>,
    /// What its stack counted.
    pub(crate) counters: Counters,
    /// Why packets cannot have taken the path, in words.
    pub(crate) detour: Option<String>,
}
