//! What a trial cost: CPU time and what the stacks counted.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

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
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
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
