//! What a machine's card is and does, in a line for the record.

use std::collections::BTreeSet;

use linux::ethtool::Ethtool;
use linux::interrupts::{Interrupts, queue_of};
use linux::netlink::LinkInfo;
use linux::sysfs::NetSysfs;
use linux::{CpuSet, IfName, Netns};

/// In words: kind or driver, speed, queues, rings, interrupts and their CPUs, offloads. What the driver does not say is
/// left out.
pub(crate) fn describe(link: &LinkInfo) -> String {
    let mut words = vec![format!("MTU {}", link.mtu)];
    let sysfs = Netns::current().and_then(|netns| NetSysfs::open(&netns)).ok();
    let sysfs = sysfs.as_ref();
    words.extend(sysfs.and_then(|sysfs| sysfs.driver(&link.name)).or_else(|| link.kind.clone()));
    words.extend(sysfs.and_then(|sysfs| sysfs.speed_mbit_s(&link.name)).map(speed));
    if let Ok(ethtool) = Ethtool::open() {
        words.extend(ethtool.channels(&link.name).map(|channels| {
            let queues = channels.rx + channels.combined;
            format!("{queues} receive queues of {}", channels.rx_max + channels.combined_max)
        }));
        words.extend(ethtool.rings(&link.name).map(|rings| format!("rings {} and {}", rings.rx, rings.tx)));
        words.extend(ethtool.coalescing(&link.name).map(|waits| {
            let adaptive = if waits.adaptive_rx { ", adaptive" } else { "" };
            format!("interrupts after {} and {} µs{adaptive}", waits.rx_usecs, waits.tx_usecs)
        }));
        words.extend(sysfs.and_then(|sysfs| interrupted(&link.name, sysfs)).map(|cpus| {
            let plural = if cpus.len() == 1 { "CPU" } else { "CPUs" };
            format!("queues interrupt {plural} {cpus}")
        }));
        let on = ethtool.offloads(&link.name).into_iter().filter(|(_, is_on)| *is_on);
        let on: Vec<String> = on.map(|(name, _)| name).collect();
        words.push(if on.is_empty() { "no offloads".to_owned() } else { on.join(" ") });
    }
    words.join(", ")
}

/// The CPUs that the interrupts of a card's queues may come to; `None`: it has none, or they are not to be found out.
fn interrupted(card: &IfName, sysfs: &NetSysfs) -> Option<CpuSet> {
    let own = sysfs.interrupts(card).ok().filter(|own| !own.is_empty())?;
    let all = Interrupts::kernel().list().ok()?.into_iter();
    let of_queues = all.filter(|one| own.contains(&one.number) && queue_of(&one.name).is_some());
    let cpus = of_queues.filter_map(|one| Interrupts::kernel().read_cpus(one.number).ok().flatten());
    let cpus: BTreeSet<u16> = cpus.flat_map(|cpus| cpus.iter().collect::<Vec<_>>()).collect();
    (!cpus.is_empty()).then(|| cpus.into_iter().collect())
}

fn speed(megabits: u32) -> String {
    if megabits < 1000 {
        format!("{megabits} Mbit/s")
    } else {
        format!("{} Gbit/s", f64::from(megabits) / 1000.0)
    }
}
