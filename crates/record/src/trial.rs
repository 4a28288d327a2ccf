//! A trial: one slice of one candidate at one load.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::{CardCounts, Histogram, Measure};

/// What one trial gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialRecord {
    /// The candidate, as an index into [`crate::Header::entrants`].
    pub entrant: usize,
    /// Index into the record's loads.
    pub load: usize,
    /// The measured part in nanoseconds: from the first intended instant to the end of the schedule. Of packets: the
    /// CPU time of all frames less what it took to make as many ([`Frames::net_ns`]).
    pub duration_ns: u64,
    /// Requests whose intended instant lay in the measured part.
    pub intended: u64,
    /// Intended requests that were sent.
    pub sent: u64,
    /// Intended requests that were answered as expected.
    pub answered: u64,
    /// Answered requests whose answer came within the measured part.
    pub answered_in_time: u64,
    /// Of a closed loop: how long `answered_in_time` answers take, in nanoseconds, at the rate that follows from
    /// the times between the answers of each connection. The measured part holds too few: each connection waits
    /// for its first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_ns: Option<u64>,
    /// Those still open when the trial stopped waiting. They are in no histogram.
    pub missed: u64,
    /// The greatest age of a missed request in nanoseconds.
    pub missed_age_max_ns: u64,
    /// Connections that broke or could not be made.
    pub connection_errors: u64,
    /// Answers with another status or length than expected.
    pub unexpected: u64,
    /// Response, service and lag, in nanoseconds.
    pub latencies: Latencies,
    /// The same response times without the machine's stalls, where a witness watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witnessed: Option<Witnessed>,
    /// CPU time of the client's node.
    pub client_cpu: CpuTime,
    /// CPU time of the server's node.
    pub server_cpu: CpuTime,
    /// Of which each CPU of the node spent this, where [`crate::Experiment::by_cpu`] asks for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub client_by_cpu: BTreeMap<u16, CpuTime>,
    /// The time of each CPU of the server's node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server_by_cpu: BTreeMap<u16, CpuTime>,
    /// What the stacks counted.
    pub counters: Counters,
    /// What the cards of the wire counted, and the CPUs that received from them; where the wire has cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cards: Option<CardCounts>,
    /// What was carried; of downloads and streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Transfer>,
    /// What became of the frames; of packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<Frames>,
    /// What became of the frames of a flood, of candidates that had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub junk: Option<Junk>,
    /// TLS handshakes within the trial, where connections are made in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
    /// Why it does not count, if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<Void>,
}

/// What a download or a stream carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// Bytes of content that arrived within the measured part: of bodies, of a stream, of datagrams.
    pub bytes: u64,
    /// For downloads: the sum of the times of all objects, from the start of the connection to the last byte, in
    /// nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects_ns: Option<u64>,
    /// What became of the datagrams; of streams of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<Packets>,
}

/// What became of the datagrams of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packets {
    /// Datagrams due within the measured part that the kernel took before its end.
    pub sent: u64,
    /// Sent datagrams that arrived before the trial stopped waiting.
    pub received: u64,
    /// Datagrams that arrived within the measured part, whenever they were sent.
    pub in_time: u64,
    /// Those of the received that arrived after a later one of their flow.
    pub reordered: u64,
    /// The longest time between two arrivals within the measured part, in nanoseconds.
    pub gap_max_ns: u64,
}

/// What became of frames that the kernel made, and what CPU time they took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frames {
    /// Frames that were sent over the wire.
    pub made: u64,
    /// Those that met the candidate's filter, or were read from its socket.
    pub judged: u64,
    /// Those that a filter sent on, and that arrived at the end of their way.
    pub sunk: u64,
    /// CPU time of the generator's thread for these, in nanoseconds: to make them, and all that happened
    /// to them in softirqs.
    pub cpu_ns: u64,
    /// Frames that were made and not sent, in turn with the others.
    pub alone: u64,
    /// CPU time of the generator's thread for those, in nanoseconds.
    pub alone_cpu_ns: u64,
}

impl Frames {
    /// CPU time after the frames had been made: that of all less that of as many frames alone, in nanoseconds.
    pub fn net_ns(&self) -> u64 {
        let making = self.alone_cpu_ns as f64 * self.made as f64 / self.alone.max(1) as f64;
        (self.cpu_ns as f64 - making).max(0.0) as u64
    }
}

/// The frames of a flood during a trial, its warm-up included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Junk {
    /// Frames that were sent over the wire.
    pub sent: u64,
    /// Those that the candidate's filter dropped, or that were read from its socket.
    pub filtered: u64,
    /// CPU time in nanoseconds that a CPU of the server's node spent on them: to make them, and all that happened
    /// to them in softirqs.
    pub cpu_ns: u64,
    /// How much later than its due time the latest of them was sent, in nanoseconds.
    pub late_max_ns: u64,
}

/// How connections in TLS began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handshakes {
    /// With certificates and keys.
    pub full: u64,
    /// By a session of before.
    pub resumed: u64,
}

/// The three times of a request as histograms of nanoseconds. In a closed loop (no rate) only `service` is meaningful:
/// `response` equals it and `lag` is zero.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latencies {
    /// received − intended, in nanoseconds.
    pub response: Histogram,
    /// received − sent, in nanoseconds.
    pub service: Histogram,
    /// sent − intended, in nanoseconds.
    pub lag: Histogram,
}

/// A trial without the times at which the machine did not run one of the nodes' CPUs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witnessed {
    /// Requests whose intended instant lay in the measured part and outside the windows of all stalls.
    pub intended: u64,
    /// received − intended of those that were answered as expected, in nanoseconds.
    pub response: Histogram,
    /// The part of the measured part that lies within windows, in nanoseconds.
    pub left_out_ns: u64,
    /// The stalls that the windows are of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<Stall>,
}

/// A time at which a CPU did not run, somewhere between two ticks, or ran another program while a thread of the race
/// waited for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// The number of the CPU.
    pub cpu: u16,
    /// The tick before it, or when the thread was woken, in nanoseconds from the first intended
    /// instant; negative in front of that.
    pub from_ns: i64,
    /// The tick after it, or when the thread ran, likewise.
    pub to_ns: i64,
    /// How late that tick was, in nanoseconds: the stall was at least as long; 0 for a wait.
    pub late_ns: u64,
    /// What the hypervisor says it took in between, in nanoseconds; 0 where it does not say.
    pub stolen_ns: u64,
    /// For how long the thread waited for the other program, in nanoseconds; 0: it is none of these.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub blocked_ns: u64,
}

/// CPU time of one node's CPUs during a trial, in nanoseconds, from `/proc/stat` (a sampling clock: meaningful
/// in sums over many trials, not in one).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuTime {
    /// User mode, nice included.
    pub user_ns: u64,
    /// Kernel mode without interrupts.
    pub system_ns: u64,
    /// In software interrupts, where most network code runs.
    pub softirq_ns: u64,
    /// In hardware interrupt handlers.
    pub irq_ns: u64,
    /// Idle, including time spent waiting for disks.
    pub idle_ns: u64,
    /// Taken by the hypervisor.
    pub steal_ns: u64,
}

/// Counters of both nodes and their pods, differences over the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// TCP segments sent again (`RetransSegs`).
    pub retransmits: u64,
    /// Segments that arrived twice, as their receiver reported (`TCPDSACKRecv`, RFC 2883): retransmitted or duplicated
    /// without need. Omitted if zero, so that a hostgap that does not know the key can read other records.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub needless_retransmits: u64,
    /// Segments that overtook others, and waited for them in the receiver's queue (`TCPOFOQueue`): a sign of loss, or
    /// of a network or a steering that reorders. Not written where there are none, as above.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub out_of_order: u64,
    /// Expired retransmission timers (`TCPTimeouts`).
    pub rto_expiries: u64,
    /// Packets that a CPU's backlog dropped (`/proc/net/softnet_stat`, of the nodes' CPUs).
    pub softnet_drops: u64,
    /// UDP receive errors (`InErrors`), which is where vxlan loses.
    pub udp_errors: u64,
    /// Receive and send drops and errors of the wires.
    pub wire_drops: u64,
    /// Involuntary context switches of the generator's threads.
    pub client_involuntary_switches: u64,
    /// Context switches of the generator's threads, all.
    pub client_switches: u64,
    /// Nanoseconds that the generator's threads were runnable without a CPU (`schedstat`).
    pub client_runqueue_ns: u64,
    /// Nanoseconds of CPU time in which the generator's threads waited without sleeping. Not written where there are
    /// none: a hostgap before this key did not know them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub client_spun_ns: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        let Counters {
            retransmits,
            needless_retransmits,
            out_of_order,
            rto_expiries,
            softnet_drops,
            udp_errors,
            wire_drops,
            client_involuntary_switches,
            client_switches,
            client_runqueue_ns,
            client_spun_ns,
        } = other;
        self.retransmits += retransmits;
        self.needless_retransmits += needless_retransmits;
        self.out_of_order += out_of_order;
        self.rto_expiries += rto_expiries;
        self.softnet_drops += softnet_drops;
        self.udp_errors += udp_errors;
        self.wire_drops += wire_drops;
        self.client_involuntary_switches += client_involuntary_switches;
        self.client_switches += client_switches;
        self.client_runqueue_ns += client_runqueue_ns;
        self.client_spun_ns += client_spun_ns;
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Why a trial does not count. It is repeated, and shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Void {
    /// The generator sent late by its own fault: the p99 of that was above the limit.
    GeneratorLate {
        /// p99 of sent − max(intended, the instant at which the connection became free), in nanoseconds. Records from
        /// before this was separated from waiting for a connection have p99 of sent − intended, as `lag_p99_ns`.
        #[serde(alias = "lag_p99_ns")]
        late_p99_ns: u64,
        /// The limit for that, in nanoseconds.
        limit_ns: u64,
    },
    /// A thread of the generator was ready to run and had no CPU for too long. Answers lay unread meanwhile, which
    /// looks like a slow server.
    GeneratorStarved {
        /// Share of the wall time of the thread that waited most, in permille.
        run_queue_permille: u32,
        /// The limit for that share, in thousandths.
        limit_permille: u32,
    },
    /// The client's CPUs had no headroom.
    ClientBusy {
        /// Busy share of the generator's threads in permille.
        busy_permille: u32,
    },
    /// The hypervisor took time away.
    Stolen {
        /// Share of the nodes' CPU time in permille.
        steal_permille: u32,
    },
    /// The candidate's path no longer matched its plan, or packets did not take it.
    PathChanged {
        /// The difference, in words.
        what: String,
    },
    /// The machine stood still for so much of the time that the rest says little.
    StoodStill {
        /// Share of the measured part that lies within windows around stalls, in permille.
        left_out_permille: u32,
        /// The limit for that share, in permille.
        limit_permille: u32,
    },
    /// Frames were lost, or others than ours were judged: the time of a frame is not known.
    FramesLost {
        /// Frames that were sent over the wire.
        made: u64,
        /// Those that met the candidate's filter.
        judged: u64,
        /// Those that were sent on and arrived, where the filter sends them on.
        sunk: Option<u64>,
    },
    /// Most of what was sent got no valid answer, while the machine and the generator ran: the server had no CPU for so
    /// long, or the path was interrupted. A candidate without answers in each repeat is broken.
    Unanswered {
        /// Requests that were due.
        intended: u64,
        /// Requests that were sent.
        sent: u64,
        /// Those of them without a valid answer.
        unanswered: u64,
        /// Answers that were not the expected ones.
        unexpected: u64,
        /// Connections that broke or could not be opened.
        connection_errors: u64,
    },
    /// Much of the flood beside the trial was not sent: its thread had no CPU.
    FloodShort {
        /// Frames that were sent over the wire.
        sent: u64,
        /// Those that the flood's rate asked for in that time.
        due: u64,
    },
    /// A fact of the machine changed.
    FactsChanged {
        /// Which, from what, to what.
        what: String,
    },
    /// It does not count on one of several clients' machines.
    OnClient {
        /// The machine, as the user names it.
        machine: String,
        /// Why it does not.
        why: Box<Void>,
    },
    /// One of several clients' machines did not do its part of it.
    ClientLost {
        /// The machine, as the user names it.
        machine: String,
        /// Why, in words.
        what: String,
    },
}

impl TrialRecord {
    /// Intended requests that are in no histogram. Leaving them out would make a path that loses requests look fast.
    /// Without a rate no request has an intended instant, and requests that are open at the end are no slower than
    /// those that were answered.
    pub fn unanswered(&self) -> u64 {
        self.missed.max(self.intended.saturating_sub(self.latencies.response.count()))
    }

    /// The response times that count, and how many requests without an expected answer stand above them: without the
    /// machine's stalls where a witness watched, else all.
    pub fn counted(&self) -> (&Histogram, u64) {
        match &self.witnessed {
            Some(seen) => (&seen.response, seen.intended.saturating_sub(seen.response.count())),
            None => self.whole(),
        }
    }

    /// All response times, and how many requests without an expected answer stand above them.
    pub fn whole(&self) -> (&Histogram, u64) {
        (&self.latencies.response, self.unanswered())
    }

    /// Adds what another client did in the same trial: counts are summed, histograms merged. The trial is as long as
    /// the longer of the two parts, and void if either is.
    pub fn add_client(&mut self, other: &TrialRecord) {
        self.loop_ns = self.loop_with(other);
        self.duration_ns = self.duration_ns.max(other.duration_ns);
        self.intended += other.intended;
        self.sent += other.sent;
        self.answered += other.answered;
        self.answered_in_time += other.answered_in_time;
        self.missed += other.missed;
        self.missed_age_max_ns = self.missed_age_max_ns.max(other.missed_age_max_ns);
        self.connection_errors += other.connection_errors;
        self.unexpected += other.unexpected;
        self.latencies.response += &other.latencies.response;
        self.latencies.service += &other.latencies.service;
        self.latencies.lag += &other.latencies.lag;
        self.client_cpu += other.client_cpu;
        self.counters += other.counters;
        if let Some(theirs) = other.handshakes {
            let ours = self.handshakes.get_or_insert_default();
            ours.full += theirs.full;
            ours.resumed += theirs.resumed;
        }
        // What a witness of one machine saw says nothing of the others' requests, and the times of one machine's
        // CPUs are not another's.
        self.witnessed = None;
        self.client_by_cpu.clear();
        if self.void.is_none() {
            self.void.clone_from(&other.void);
        }
    }

    /// How long the answers of both take at the sum of their rates in a closed loop, in nanoseconds.
    fn loop_with(&self, other: &TrialRecord) -> Option<u64> {
        self.loop_ns.or(other.loop_ns)?;
        let per_ns = |part: &TrialRecord| part.answered_in_time as f64 / part.throughput_ns().max(1) as f64;
        let answered = self.answered_in_time + other.answered_in_time;
        (answered > 0).then(|| (answered as f64 / (per_ns(self) + per_ns(other))) as u64)
    }

    /// In how long it got its work done, in nanoseconds: what its throughput is divided by.
    pub fn throughput_ns(&self) -> u64 {
        self.loop_ns.unwrap_or(self.duration_ns)
    }

    /// CPU time in nanoseconds that requests took on both nodes: what the generator waited is not
    /// theirs, however it waited.
    pub fn request_cpu_ns(&self) -> u64 {
        self.server_cpu.busy_ns() + self.client_request_cpu_ns()
    }

    /// The client's part of that.
    pub fn client_request_cpu_ns(&self) -> u64 {
        self.client_cpu.busy_ns().saturating_sub(self.counters.client_spun_ns)
    }

    /// What it got done, in the unit of its throughput.
    pub fn work(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Latency | Measure::Packets | Measure::Frames => self.answered_in_time,
            Measure::Bandwidth => self.carried.map_or(0, |carried| carried.bytes),
        }
    }
}

impl CpuTime {
    /// All time except stolen time.
    pub fn all_ns(&self) -> u64 {
        self.busy_ns() + self.idle_ns
    }

    /// All time except idle and stolen time.
    pub fn busy_ns(&self) -> u64 {
        self.user_ns + self.system_ns + self.softirq_ns + self.irq_ns
    }
}

impl AddAssign for CpuTime {
    fn add_assign(&mut self, other: CpuTime) {
        self.user_ns += other.user_ns;
        self.system_ns += other.system_ns;
        self.softirq_ns += other.softirq_ns;
        self.irq_ns += other.irq_ns;
        self.idle_ns += other.idle_ns;
        self.steal_ns += other.steal_ns;
    }
}
