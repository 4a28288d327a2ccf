//! What a machine's card is and does, in a line for the record.

use linux::IfName;
use linux::ethtool::Ethtool;
use linux::netlink::LinkInfo;

/// In words: kind or driver, speed, queues, rings, interrupts, offloads. What the driver does not say is left out.
pub(super) fn describe(link: &LinkInfo) -> String {
    let mut words = vec![format!("MTU {}", link.mtu)];
    words.extend(driver(&link.name).or_else(|| link.kind.clone()));
    words.extend(speed(&link.name));
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

/// The name of its device's driver.
fn driver(link: &IfName) -> Option<String> {
    let path = std::fs::read_link(format!("/sys/class/net/{link}/device/driver")).ok()?;
    Some(path.file_name()?.to_string_lossy().into_owned())
}

/// As the driver says it, in megabits per second; -1 where it does not know.
fn speed(link: &IfName) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{link}/speed")).ok()?;
    let megabits: u32 = text.trim().parse().ok()?;
    Some(if megabits >= 1000 {
        format!("{} Gbit/s", f64::from(megabits) / 1000.0)
    } else {
        format!("{megabits} Mbit/s")
    })
}
