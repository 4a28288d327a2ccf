//! How often the cards of a wire interrupted, and what the CPUs received from them, by candidate. Emulation bends
//! times, but not these.

use std::collections::BTreeMap;

use record::{CardCounts, Measure, WorkloadKind};
use serde::Serialize;

use crate::figures;

/// What is counted of a candidate at a load: means a request, and of what each CPU did how much.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CardSummary {
    /// Interrupts of the server's card: a request; of downloads an object, of streams of datagrams a packet, of streams
    /// of bytes a megabyte (10⁶ bytes).
    pub server_interrupts_per_request: Counted,
    /// Interrupts of the client's card, likewise.
    pub client_interrupts_per_request: Counted,
    /// Soft interrupts that received packets, of the whole machine.
    pub net_rx_per_request: Counted,
    /// Packets that the stack got, of the whole machine: acknowledgements too, and again where one goes on to a pod.
    pub packets_per_request: Counted,
    /// Packets that the stack got for each such soft interrupt: what one poll brings.
    pub packets_per_net_rx: Counted,
    /// How often each CPU did it, in ascending order, in the trials that count.
    pub by_cpu: Vec<CpuCounts>,
}

/// A mean over the trials that count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Counted {
    /// `None` where there was nothing to divide by.
    pub value: Option<f64>,
    /// Lower end of its 95 % interval; `None` without one, as for a count of 0.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// What one CPU of the machine did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names say it; CardSummary has what each of them is")]
pub struct CpuCounts {
    pub cpu: u16,
    pub server_interrupts: u64,
    pub client_interrupts: u64,
    pub net_rx: u64,
    pub packets: u64,
}

impl CpuCounts {
    /// Of all CPUs that did any of it.
    pub(crate) fn of(counts: &CardCounts) -> Vec<CpuCounts> {
        let CardCounts { client_interrupts, server_interrupts, net_rx, packets } = counts;
        let mut cpus: Vec<u16> = [client_interrupts, server_interrupts, net_rx, packets]
            .into_iter()
            .flat_map(BTreeMap::keys)
            .copied()
            .collect();
        cpus.sort_unstable();
        cpus.dedup();
        let at = |counts: &BTreeMap<u16, u64>, cpu| counts.get(&cpu).copied().unwrap_or_default();
        cpus.into_iter()
            .map(|cpu| CpuCounts {
                cpu,
                server_interrupts: at(server_interrupts, cpu),
                client_interrupts: at(client_interrupts, cpu),
                net_rx: at(net_rx, cpu),
                packets: at(packets, cpu),
            })
            .collect()
    }
}

/// One of the quantities that are shared out over CPUs.
pub(crate) struct Quantity {
    pub(crate) name: &'static str,
    pub(crate) of: fn(&CpuCounts) -> u64,
}

/// In the order in which a packet meets them.
pub(crate) const BY_CPU: [Quantity; 4] = [
    Quantity { name: "interrupts, server", of: |cpu| cpu.server_interrupts },
    Quantity { name: "interrupts, client", of: |cpu| cpu.client_interrupts },
    Quantity { name: "NET_RX", of: |cpu| cpu.net_rx },
    Quantity { name: "packets", of: |cpu| cpu.packets },
];

impl Counted {
    /// "1.24 (1.20 to 1.29)"; a dash where nothing is known.
    pub(crate) fn text(&self) -> String {
        let Some(value) = self.value else { return "–".to_owned() };
        let value = digits(value);
        match (self.low, self.high) {
            (Some(low), Some(high)) => format!("{value} ({} to {})", digits(low), digits(high)),
            _ => value,
        }
    }
}

/// Three digits, of small counts as of large ones.
fn digits(value: f64) -> String {
    if value > 0.0 && value < 0.0995 { figures::trimmed(value, 4) } else { figures::three_digits(value) }
}

/// The names of the means, and where they are.
pub(crate) type Mean = (&'static str, fn(&CardSummary) -> &Counted);

pub(crate) const MEANS: [Mean; 5] = [
    ("interrupts, server", |counts| &counts.server_interrupts_per_request),
    ("interrupts, client", |counts| &counts.client_interrupts_per_request),
    ("NET_RX", |counts| &counts.net_rx_per_request),
    ("packets", |counts| &counts.packets_per_request),
    ("packets a NET_RX", |counts| &counts.packets_per_net_rx),
];

/// The CPUs of several candidates, in order.
pub(crate) fn cpus<'a>(all: impl Iterator<Item = &'a CardSummary>) -> Vec<u16> {
    let mut cpus: Vec<u16> = all.flat_map(|counts| counts.by_cpu.iter().map(|one| one.cpu)).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// The share that each of these CPUs has of a quantity; `None` where there is none of it.
pub(crate) fn shares(counts: &CardSummary, of: &Quantity, cpus: &[u16]) -> Option<Vec<String>> {
    let all: u64 = counts.by_cpu.iter().map(of.of).sum();
    let at = |cpu: &u16| counts.by_cpu.iter().find(|one| one.cpu == *cpu).map_or(0, of.of);
    (all > 0).then(|| cpus.iter().map(|cpu| figures::percent(at(cpu) as f64 / all as f64)).collect())
}

/// What the counts are divided by, in a word.
pub(crate) fn subject(kind: WorkloadKind) -> &'static str {
    match kind.measure() {
        Measure::Latency => "request",
        Measure::Bandwidth if kind == WorkloadKind::Download => "object",
        Measure::Bandwidth => "megabyte",
        Measure::Packets | Measure::Frames => "packet",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_three_digits_and_their_interval() {
        let counted = |value, low, high| Counted { value, low, high }.text();
        assert_eq!(counted(Some(1.2341), Some(1.2), Some(1.299)), "1.23 (1.20 to 1.30)");
        assert_eq!(counted(Some(0.0123), None, None), "0.0123");
        assert_eq!(counted(Some(0.0), None, None), "0.00");
        assert_eq!(counted(None, None, None), "–");
    }
}
