//! What a machine's card is and does, in a line for the record.

use linux::Netns;
use linux::ethtool::Ethtool;
use linux::netlink::LinkInfo;
use linux::sysfs::NetSysfs;

/// In words: kind or driver, speed, queues, rings, interrupts, offloads. What the driver does not say is left out.
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
        let on = ethtool.offloads(&link.name).into_iter().filter(|(_, is_on)| *is_on);
        let on: Vec<String> = on.map(|(name, _)| name).collect();
        words.push(if on.is_empty() { "no offloads".to_owned() } else { on.join(" ") });
    }
    words.join(", ")
}

fn speed(megabits: u32) -> String {
    if megabits < 1000 {
        format!("{megabits} Mbit/s")
    } else {
        format!("{} Gbit/s", f64::from(megabits) / 1000.0)
    }
}
