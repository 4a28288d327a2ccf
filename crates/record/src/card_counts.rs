//! What the cards of a wire and the CPUs that received from them counted during a trial.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Counts over one trial, each by the CPU that did it. CPUs without any are left out. What is not a card's own is the
/// whole machine's, so it is counted only where the machine is a race's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardCounts {
    /// Interrupts of the client's card (`/proc/interrupts`), on whichever node's CPU.
    pub client_interrupts: BTreeMap<u16, u64>,
    /// Interrupts of the server's card.
    pub server_interrupts: BTreeMap<u16, u64>,
    /// Soft interrupts that received packets (`NET_RX` in `/proc/softirqs`), of the machine.
    pub net_rx: BTreeMap<u16, u64>,
    /// Packets that the stack got (`/proc/net/softnet_stat`), of the machine. Segments that were put together before
    /// are one, and a packet that goes on through another link, a pod's, is counted there again.
    pub packets: BTreeMap<u16, u64>,
}

impl AddAssign<&CardCounts> for CardCounts {
    fn add_assign(&mut self, other: &CardCounts) {
        let CardCounts { client_interrupts, server_interrupts, net_rx, packets } = other;
        let parts = [
            (&mut self.client_interrupts, client_interrupts),
            (&mut self.server_interrupts, server_interrupts),
            (&mut self.net_rx, net_rx),
            (&mut self.packets, packets),
        ];
        for (all, more) in parts {
            more.iter().for_each(|(cpu, count)| *all.entry(*cpu).or_default() += count);
        }
    }
}
