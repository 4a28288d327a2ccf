//! What the two processes of a race between machines say to each other: a line of JSON each. They are the same program,
//! so that the form needs no version.

use std::net::IpAddr;

use linux::CpuSet;
use linux::cpu::Scheduling;
use linux::features::Facts;
use record::{Machine, Workload};
use serde::{Deserialize, Serialize};

use super::order::Order;
use crate::error::Fault;
use crate::part::{LoadPart, LoadedPart};
use crate::shape::MachineLink;
use crate::traffic::TransferredAmounts;
use crate::usage::Spent;

/// Asked of another machine: the server's, or a client's that does not lead. Each is answered before the next; an empty
/// line says only that this side is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum RemoteRequest {
    /// Takes the machine for the race, as the server's. Answered with [`Reply::Begun`].
    Begin(Begin),
    /// Takes the machine for the race, as a client's. Answered with [`Reply::BegunClient`].
    BeginClient(Box<BeginClient>),
    /// Says why this machine cannot have the settings of its half. Answered with [`Reply::Unmet`].
    Prove(Box<Order>),
    /// Builds its half of a topology and starts the server, or opens the client's connections.
    Stand(Box<Order>),
    /// Sends a client's part of a slice of load, and waits for the answers. Answered with [`Reply::Loaded`].
    Load { candidate: String, part: Box<LoadPart> },
    /// Looks at the counters of a candidate, before the measured part of a trial.
    Count { candidate: String },
    /// Says what a client's clock shows. Answered with [`Reply::Clock`].
    Clock { candidate: String },
    /// Says what has happened since. Answered with [`Reply::Spent`].
    Spent { candidate: String, work: TransferredAmounts },
    /// Says whether its half is still as it was built, and fails if the server has ended. Answered with
    /// [`Reply::Changed`].
    Check { candidate: String },
    /// Ends the server and undoes its half. Answered with [`Reply::TakenDown`].
    TakeDown { candidate: String },
}

/// What the server's machine is asked to be ready for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// What will be asked of servers.
    pub(crate) workload: Workload,
    /// The server's CPUs; `None`: all that the process may use.
    pub(crate) cpus: Option<CpuSet>,
    /// Policy of the server's threads, where the machine permits it.
    pub(crate) scheduling: Scheduling,
}

impl RemoteRequest {
    /// The candidate that it is about; empty: none.
    pub(crate) fn candidate(&self) -> &str {
        match self {
            RemoteRequest::Begin(_) | RemoteRequest::BeginClient(_) => "",
            RemoteRequest::Prove(order) | RemoteRequest::Stand(order) => &order.candidate,
            RemoteRequest::Load { candidate, .. }
            | RemoteRequest::Count { candidate }
            | RemoteRequest::Clock { candidate }
            | RemoteRequest::Spent { candidate, .. }
            | RemoteRequest::Check { candidate }
            | RemoteRequest::TakeDown { candidate } => candidate,
        }
    }
}

/// What a client's machine is asked to be ready for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BeginClient {
    /// What it will ask of servers, with as many connections as it will have at most.
    pub(crate) workload: Workload,
    /// The client's CPUs; `None`: all that the process may use.
    pub(crate) cpus: Option<CpuSet>,
    /// Policy of the client's threads, where the machine permits it.
    pub(crate) scheduling: Scheduling,
    /// The link of the server's machine; its first address is the one that is called.
    pub(crate) server: MachineLink,
}

/// What a machine answers to a [`RemoteRequest`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The machine is the race's.
    Begun(Box<Counterpart>),
    /// The client's machine is the race's.
    BegunClient(Box<ClientCounterpart>),
    /// What came of a client's part of a slice.
    Loaded(Box<LoadedPart>),
    /// What was asked is done, and there is nothing to say of it.
    Done,
    /// The half is undone, but for what another program has changed since, in words.
    TakenDown(Vec<String>),
    /// What the clock of the machine shows, in nanoseconds since it booted.
    Clock(i64),
    /// What a trial cost there.
    Spent(Box<Spent>),
    /// Why settings cannot be made, in words.
    Unmet(Vec<String>),
    /// What has changed, in words.
    Changed(Option<String>),
    /// It could not be done; what was begun is undone.
    Failed(Failed),
}

/// Why something could not be done, in words.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub(crate) why: String,
    /// What the user can try, shown as a hint.
    pub(crate) remedy: Option<String>,
    /// What the candidate broke by, where it is that and the race can go on without it.
    pub(crate) broken: Option<String>,
    /// What kind of failure it is.
    pub(crate) fault: Fault,
}

/// The server's machine, as it says itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Counterpart {
    pub(crate) machine: Machine,
    /// What its kernel can do.
    pub(crate) facts: Facts,
    /// Its links that have addresses for the world.
    pub(crate) links: Vec<MachineLink>,
    /// The address by which ssh came in.
    pub(crate) reached_by: Option<IpAddr>,
    /// The server program there and its version: "nginx/1.22.1".
    pub(crate) server: String,
    /// It is this program.
    pub(crate) serves_itself: bool,
    pub(crate) cpus: CpuSet,
}

/// A client's machine, as it says itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ClientCounterpart {
    pub(crate) machine: Machine,
    /// What its kernel can do.
    pub(crate) facts: Facts,
    /// Its link to the server's machine.
    pub(crate) link: MachineLink,
    /// The router in between; `None`: they are neighbours on one Ethernet.
    pub(crate) router: Option<IpAddr>,
}
