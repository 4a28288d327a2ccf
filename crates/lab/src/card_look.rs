//! How often the cards of a wire interrupted which CPU, and what each CPU received: two looks and their difference.
//!
//! Softirqs and packets are counted for the machine, so that this is for a virtual machine in which nothing but the
//! race has a network.

use std::collections::{BTreeMap, BTreeSet};

use datapath::NodeSpec;
use linux::IfName;
use linux::interrupts::{Interrupt, Interrupts};
use linux::procfs::{PerCpu, Procfs, SoftnetCpu};
use linux::sysfs::NetSysfs;
use plan::Place;
use record::CardCounts;

use crate::{ByRole, LabError};

/// The interrupts of both nodes' cards.
pub(crate) type CardInterrupts = ByRole<Vec<Interrupt>>;

/// The interrupts of the cards that nodes have taken. A driver may ask for others when a card comes up or gets other
/// queues, so they are known when all that is done.
pub(crate) fn interrupts(nodes: &ByRole<NodeSpec>) -> Result<CardInterrupts, LabError> {
    let of = |node: &NodeSpec| interrupts_of(&node.place, &node.wire);
    let ByRole { client, server } = nodes;
    Ok(ByRole { client: of(client)?, server: of(server)? })
}

/// The interrupts of a card that is up in this namespace.
pub(crate) fn interrupts_of(place: &Place, card: &IfName) -> Result<Vec<Interrupt>, LabError> {
    let numbers = NetSysfs::open(&place.open()?)?.interrupts(card)?;
    let mut all = Interrupts::kernel().list()?;
    all.retain(|one| numbers.contains(&one.number));
    Ok(all)
}

/// One look.
#[derive(Debug, Clone)]
pub(crate) struct CardLook {
    interrupts: ByRole<PerCpu>,
    net_rx: PerCpu,
    softnet: BTreeMap<u16, SoftnetCpu>,
}

impl CardLook {
    pub(crate) fn take(procfs: &Procfs, of: &CardInterrupts) -> Result<CardLook, LabError> {
        let all = procfs.interrupts()?;
        let by_cpu = |own: &[Interrupt]| {
            let numbers: BTreeSet<u32> = own.iter().map(|one| one.number).collect();
            let mut sums = PerCpu::new();
            for interrupt in all.iter().filter(|one| numbers.contains(&one.number)) {
                interrupt.counts.iter().for_each(|(cpu, count)| *sums.entry(*cpu).or_default() += count);
            }
            sums
        };
        let ByRole { client, server } = of;
        Ok(CardLook {
            interrupts: ByRole { client: by_cpu(client), server: by_cpu(server) },
            net_rx: procfs.softirqs()?.remove("NET_RX").unwrap_or_default(),
            softnet: procfs.softnet()?.into_iter().map(|row| (row.cpu, row)).collect(),
        })
    }

    /// What happened since an earlier look.
    pub(crate) fn since(&self, earlier: &CardLook) -> CardCounts {
        let packets = self.softnet.iter().filter_map(|(cpu, now)| {
            let processed = now.since(earlier.softnet.get(cpu)?).processed;
            (processed > 0).then_some((*cpu, processed))
        });
        CardCounts {
            client_interrupts: grown(&self.interrupts.client, &earlier.interrupts.client),
            server_interrupts: grown(&self.interrupts.server, &earlier.interrupts.server),
            net_rx: grown(&self.net_rx, &earlier.net_rx),
            packets: packets.collect(),
        }
    }
}

/// By how much each CPU's count grew, where it did.
fn grown(now: &PerCpu, then: &PerCpu) -> PerCpu {
    let more = |(cpu, count): (&u16, &u64)| {
        let more = count.saturating_sub(then.get(cpu).copied().unwrap_or_default());
        (more > 0).then_some((*cpu, more))
    };
    now.iter().filter_map(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `/proc` in which the second CPU of two counts `more` of everything.
    fn procfs(dir: &std::path::Path, more: u64) -> Procfs {
        let softnet = |packets: u64, cpu: u64| {
            let zeros = ["00000000"; 11].join(" ");
            format!("{packets:08x} {zeros} {cpu:08x} 00000000 00000000\n")
        };
        let line =
            |number: u32, count: u64, name: &str| format!(" {number}: 3 {count} PCI-MSIX 0-edge {name}\n");
        let heading = "  CPU0 CPU1\n";
        let files = [
            // The links of all nodes have one name, so that the names of their interrupts are alike.
            (
                "interrupts",
                format!(
                    "{heading}{}{}{}",
                    line(24, 5, "eth0"),
                    line(25, 10 + more, "eth0-TxRx-0"),
                    line(31, 20 + 2 * more, "eth0-TxRx-0")
                ),
            ),
            ("softirqs", format!("{heading}NET_TX: 1 {more}\nNET_RX: 7 {}\n", 3 * more)),
            ("thread-self/net/softnet_stat", softnet(9, 0) + &softnet(u64::from(u32::MAX), 1)),
        ];
        for (file, text) in files {
            let path = dir.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        if more > 0 {
            // The kernel's columns start again at 0.
            let wrapped = softnet(9, 0) + &softnet(4 * more - 1, 1);
            std::fs::write(dir.join("thread-self/net/softnet_stat"), wrapped).unwrap();
        }
        Procfs::at(dir)
    }

    #[test]
    fn counts_are_those_of_the_nodes_own_cards_by_cpu() {
        let dir = tempfile::tempdir().unwrap();
        let named = |number| Interrupt { number, name: "eth0-TxRx-0".to_owned() };
        let of = ByRole { client: vec![named(25)], server: vec![named(30), named(31)] };
        let before = CardLook::take(&procfs(dir.path(), 0), &of).unwrap();
        let after = CardLook::take(&procfs(dir.path(), 100), &of).unwrap();
        let one = |count| BTreeMap::from([(1, count)]);
        let counts = CardCounts {
            client_interrupts: one(100),
            server_interrupts: one(200),
            net_rx: one(300),
            packets: one(400),
        };
        assert_eq!(after.since(&before), counts);
        assert_eq!(after.since(&after), CardCounts::default());
    }
}
