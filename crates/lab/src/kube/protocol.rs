//! What this side and a process in a pod send each other: a line of JSON each.
//!
//! A process answers each task before the next. While a client's process runs a trial, it asks for tasks that the
//! server's process is to do.

use std::net::IpAddr;
use std::time::Duration;

use record::{Capacity, Load, Machine, TrialRecord, Workload};
use serde::{Deserialize, Serialize};

use crate::remote::Failed;
use crate::trial::Method;
use crate::trial_key::TrialKey;
use crate::usage::Spent;

/// What a process in a pod is asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Task {
    /// Say what machine this is and which CPUs are there. Answered with [`Answer::Seen`].
    Look { workers: Workers },
    /// Answer requests. Answered with [`Answer::Serves`].
    Serve(Serve),
    /// Open connections to a server.
    Open(Box<Call>),
    /// Find the highest rate that a server sustains. Answered with [`Answer::Capacity`].
    Capacity { candidate: String, body_bytes: u32, pace: Pace },
    /// Run a slice of load. Answered with [`Answer::Trial`].
    Trial { candidate: String, load: Load, key: TrialKey, pace: Pace },
    /// Close a candidate's connections.
    Close { candidate: String },
    /// Connect to an address that is to refuse this pod, until it does. Answered with [`Answer::KeptOut`].
    TryToEnter { address: String, ipv6: bool },
    /// Look at the counters, at once or after so long: what follows is a trial's measured part.
    Count { after: Duration },
    /// Say what has happened since. Answered with [`Answer::Spent`].
    Spent,
}

/// How a server answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Serve {
    /// What it is asked.
    pub(super) workload: Workload,
    /// Where it listens; port 0: any that is free.
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) workers: Workers,
}

/// Which CPUs threads run on: one each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Workers {
    /// The CPUs that were named.
    Named(linux::CpuSet),
    /// The last of those that the pod may use, so many; before them come so many others, of a pod on the same node.
    Last { count: u32, others: u32 },
}

/// What a candidate's client calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Call {
    pub(super) candidate: String,
    /// Where the server is found: `ADDRESS:PORT` or `NAME:PORT`.
    pub(super) address: String,
    /// What is asked, with the number of connections.
    pub(super) workload: Workload,
    pub(super) workers: Workers,
}

/// Of a trial's [`Method`] what is the race's, and not the pod's.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Pace {
    warmup: Duration,
    slice: Duration,
    answer: Duration,
    seed: u64,
}

impl Pace {
    pub(super) fn of(method: &Method) -> Pace {
        Pace { warmup: method.warmup, slice: method.slice, answer: method.answer, seed: method.seed }
    }

    /// A pod's method at this pace.
    pub(super) fn applied(self, method: &Method) -> Method {
        let Pace { warmup, slice, answer, seed } = self;
        Method { warmup, slice, answer, seed, ..method.clone() }
    }
}

/// A line that a process in a pod writes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum PodMessage {
    /// The task is done.
    Answer(Answer),
    /// The server's process is to do this first.
    Ask(Task),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    Seen(Box<PodFacts>),
    Serves {
        port: u16,
    },
    Capacity(Box<Capacity>),
    Trial(Box<TrialRecord>),
    KeptOut(bool),
    Spent(Box<Spent>),
    /// It could not be done.
    Failed(Failed),
}

/// What a pod sees of its node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PodFacts {
    /// The version of hostgap in the pod.
    pub(super) version: String,
    pub(super) machine: Machine,
    /// CPUs that the pod may use.
    pub(super) allowed: linux::CpuSet,
    /// CPUs on which its threads would run.
    pub(super) workers: linux::CpuSet,
    /// As many CPUs as the smallest quota is worth that holds for it; `None`: none does.
    pub(super) cpu_limit: Option<f64>,
}
