//! What was seen while a slice ran, arranged as the causes ask for it.

use std::collections::{BTreeMap, HashMap};

use bpf::late::{LateEvent, LateEventKind, LateEvents, Retransmission, ThreadOwner};
use record::Retransmitted;

use super::answer::AnsweredRequest;
use crate::ports::SERVER_PORT;

/// A time in which something was the case on a CPU, in nanoseconds of [`linux::clock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuInterval {
    pub(crate) cpu: u16,
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
}

/// Why a segment was sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetransmitKind {
    TimeOut,
    Probe,
    Fast,
}

/// A segment that was sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resent {
    /// The client's port of its connection.
    pub(crate) port: u16,
    pub(crate) at_ns: u64,
    pub(crate) kind: RetransmitKind,
    /// The server's end sent it.
    pub(crate) by_server: bool,
}

/// When an exchange was where; `None`: not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stages {
    pub(crate) arrived_ns: Option<u64>,
    pub(crate) read_ns: Option<u64>,
    pub(crate) answered_ns: Option<u64>,
    pub(crate) back_ns: Option<u64>,
    /// When the client's call that read the answer returned.
    pub(crate) until_ns: u64,
    pub(crate) server_cpu: Option<u16>,
}

/// All that was seen in a slice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SliceEvents {
    /// CPUs that stood still.
    pub(crate) stalls: Vec<CpuInterval>,
    pub(crate) softirqs: Vec<CpuInterval>,
    pub(crate) server_waits: Vec<CpuInterval>,
    pub(crate) client_waits: Vec<CpuInterval>,
    /// In the order of time.
    pub(crate) resent: Vec<Resent>,
    /// Dropped packets that were meant to arrive: the client's port, and when.
    pub(crate) drops: Vec<(u16, u64)>,
    /// By the client's port.
    pub(crate) exchanges: HashMap<u16, Vec<Stages>>,
}

impl Stages {
    /// From the reading of the request to the answer. The server's call may return after the answer has arrived: then
    /// it was on the way, and not in the server.
    pub(crate) fn in_the_server(&self) -> Option<(u64, u64)> {
        let until_ns = [self.answered_ns, self.back_ns].into_iter().flatten().min()?;
        Some((self.read_ns?, until_ns))
    }

    /// Without what lies outside an answer's time: a stage of an exchange before, which ended otherwise.
    fn within(self, answer: &AnsweredRequest) -> Stages {
        let seen = |at: Option<u64>| at.filter(|ns| (answer.sent_ns..=answer.received_ns).contains(ns));
        Stages {
            arrived_ns: seen(self.arrived_ns),
            read_ns: seen(self.read_ns),
            answered_ns: seen(self.answered_ns),
            back_ns: seen(self.back_ns),
            ..self
        }
    }
}

impl SliceEvents {
    /// From the kernel's events, on the CPUs of the nodes. `lost` says of a reason whether a packet that is dropped for
    /// it was meant to arrive.
    pub(crate) fn of(
        seen: &LateEvents,
        is_ours: impl Fn(u16) -> bool,
        lost: impl Fn(u32) -> bool,
    ) -> SliceEvents {
        let mut evidence = SliceEvents::default();
        for event in &seen.events {
            let LateEvent { from_ns, until_ns, cpu, .. } = *event;
            let interval = CpuInterval { cpu, from_ns, until_ns };
            match event.kind {
                LateEventKind::Waited(ThreadOwner::Server) => evidence.server_waits.push(interval),
                LateEventKind::Waited(ThreadOwner::Client) => evidence.client_waits.push(interval),
                LateEventKind::SoftirqRan(_) if is_ours(cpu) => evidence.softirqs.push(interval),
                LateEventKind::SoftirqRan(_) => {}
                LateEventKind::Retransmitted(why) => evidence.resent.push(Resent {
                    port: port(event),
                    at_ns: from_ns,
                    kind: kind(why),
                    by_server: event.local_port == SERVER_PORT,
                }),
                LateEventKind::Dropped(reason) if lost(reason) => evidence.drops.push((port(event), from_ns)),
                LateEventKind::Dropped(_) => {}
                LateEventKind::Exchanged { arrived_ns, read_ns, answered_ns, back_ns, server_cpu } => {
                    let stages = Stages { arrived_ns, read_ns, answered_ns, back_ns, until_ns, server_cpu };
                    evidence.add_exchange(event.local_port, stages);
                }
            }
        }
        evidence.resent.sort_by_key(|resent| resent.at_ns);
        evidence
    }

    /// An exchange on the connection of a client's port.
    pub(crate) fn add_exchange(&mut self, port: u16, stages: Stages) {
        self.exchanges.entry(port).or_default().push(stages);
    }

    /// The stages of the exchange that this answer belongs to; `None`: the programs did not see it.
    pub(crate) fn stages(&self, answer: &AnsweredRequest) -> Option<Stages> {
        let exchanges = self.exchanges.get(&answer.port)?;
        let own = |stages: &&Stages| (answer.sent_ns..=answer.received_ns).contains(&stages.until_ns);
        exchanges.iter().find(own).map(|stages| stages.within(answer))
    }
}

/// Counts segments that were sent again.
pub(crate) fn count(seen: &LateEvents, total: &mut Retransmitted) {
    for event in &seen.events {
        let LateEventKind::Retransmitted(why) = event.kind else { continue };
        match why {
            Retransmission::TimeOut => total.time_outs += 1,
            Retransmission::Probe => total.probes += 1,
            Retransmission::Fast => total.fast += 1,
        }
    }
}

/// Counts dropped packets by the names of their reasons.
pub(crate) fn count_drops(
    seen: &LateEvents,
    names: &BTreeMap<u32, String>,
    total: &mut BTreeMap<String, u64>,
) {
    for event in &seen.events {
        let LateEventKind::Dropped(reason) = event.kind else { continue };
        let name = names.get(&reason).cloned().unwrap_or_else(|| format!("reason {reason}"));
        *total.entry(name).or_insert(0) += 1;
    }
}

/// Whether a packet that is dropped for a reason was meant to arrive. TCP itself frees segments that it has already or
/// has no use for, and what has no reason is mostly of that kind.
pub(crate) fn is_loss(reason: &str) -> bool {
    !reason.starts_with("TCP_") && !["NOT_SPECIFIED", "NOT_DROPPED_YET", "CONSUMED"].contains(&reason)
}

fn kind(why: Retransmission) -> RetransmitKind {
    match why {
        Retransmission::TimeOut => RetransmitKind::TimeOut,
        Retransmission::Probe => RetransmitKind::Probe,
        Retransmission::Fast => RetransmitKind::Fast,
    }
}

/// The client's port of an event on a connection.
fn port(event: &LateEvent) -> u16 {
    if event.local_port == SERVER_PORT { event.remote_port } else { event.local_port }
}
