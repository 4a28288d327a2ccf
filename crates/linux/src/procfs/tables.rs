//! Smaller tables: sockets in use, what waits, what subsystems of the network count for each CPU, and sockets that
//! capture packets.

use std::collections::BTreeMap;

use super::Procfs;
use super::net::own_net;
use crate::Result;

/// How long tasks waited for something (`/proc/pressure`), in microseconds since the machine's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// At least one waited.
    pub some_us: u64,
    /// All that were not idle waited.
    pub full_us: u64,
}

/// A packet socket, which sees packets before the stack does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketTap {
    /// The Ethernet protocol that it receives; 3 (`ETH_P_ALL`) is every packet.
    pub protocol: u16,
    /// The link's index; 0: all links.
    pub index: u32,
}

impl Procfs {
    /// The figures of `/proc/net/sockstat` and `sockstat6`, by protocol and word: `TCP inuse` (IPv4 alone), `TCP6
    /// inuse`, `TCP tw` (of both), `TCP mem` (pages), `UDP mem`, `FRAG memory`.
    pub fn sockstat(&self) -> Result<BTreeMap<String, u64>> {
        let mut text = self.read(&own_net("sockstat"))?.unwrap_or_default();
        // Not there without IPv6.
        text += &self.read(&own_net("sockstat6"))?.unwrap_or_default();
        let mut numbers = BTreeMap::new();
        for (protocol, rest) in text.lines().filter_map(|line| line.split_once(':')) {
            let words: Vec<&str> = rest.split_ascii_whitespace().collect();
            for pair in words.chunks_exact(2) {
                if let Ok(number) = pair[1].parse() {
                    numbers.insert(format!("{protocol} {}", pair[0]), number);
                }
            }
        }
        Ok(numbers)
    }

    /// How long tasks waited for `cpu`, `memory`, `io` or `irq`; `None` where the kernel does not report it.
    pub fn pressure(&self, what: &str) -> Result<Option<Pressure>> {
        let file = format!("pressure/{what}");
        let Some(text) = self.read(&file)? else { return Ok(None) };
        let mut pressure = Pressure::default();
        for line in text.lines() {
            let total = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="));
            let total =
                total.and_then(|total| total.parse().ok()).ok_or_else(|| self.misread(&file, line))?;
            match line.split_ascii_whitespace().next() {
                Some("some") => pressure.some_us = total,
                Some("full") => pressure.full_us = total,
                _ => {}
            }
        }
        Ok(Some(pressure))
    }

    /// The counters of a network subsystem (`/proc/net/stat/nf_conntrack`, `arp_cache`, …), summed over all CPUs.
    /// `entries` is a global value that each row repeats, so it is returned once. Empty if the file does not exist.
    pub fn net_stat(&self, name: &str) -> Result<BTreeMap<String, u64>> {
        let file = own_net(&format!("stat/{name}"));
        let text = self.read(&file)?.unwrap_or_default();
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap_or_default().split_ascii_whitespace().collect();
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (row, line) in lines.enumerate() {
            for (name, word) in names.iter().zip(line.split_ascii_whitespace()) {
                let number = u64::from_str_radix(word, 16).map_err(|_| self.misread(&file, line))?;
                if *name != "entries" || row == 0 {
                    let sum = sums.entry((*name).to_owned()).or_default();
                    *sum = sum.saturating_add(number);
                }
            }
        }
        Ok(sums)
    }

    /// The packet sockets of the calling thread's namespace.
    pub fn packet_taps(&self) -> Result<Vec<PacketTap>> {
        let file = own_net("packet");
        let text = self.read(&file)?.unwrap_or_default();
        let parse = |line: &str| {
            // sk RefCnt Type Proto Iface R Rmem User Inode
            let mut words = line.split_ascii_whitespace().skip(3);
            let protocol = u16::from_str_radix(words.next()?, 16).ok()?;
            Some(PacketTap { protocol, index: words.next()?.parse().ok()? })
        };
        let lines = text.lines().skip(1).filter(|line| !line.trim().is_empty());
        lines.map(|line| parse(line).ok_or_else(|| self.misread(&file, line))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::proc_with;
    use super::*;

    #[test]
    fn small_tables_are_read() {
        let files = [
            ("thread-self/net/sockstat", "sockets: used 9\nTCP: inuse 5 orphan 0 tw 3 alloc 7 mem 2\n"),
            ("thread-self/net/sockstat6", "TCP6: inuse 4\nUDP6: inuse 2\n"),
            ("pressure/irq", "full avg10=0.00 avg60=0.00 avg300=0.00 total=42\n"),
            ("thread-self/net/stat/arp_cache", "entries  allocs table_fulls\n0000000a 1 2\n0000000a 1 3\n"),
            (
                "thread-self/net/packet",
                "sk RefCnt Type Proto Iface R Rmem User Inode\n00 3 3 0003 2 1 0 0 1\n",
            ),
        ];
        let (_directory, procfs) = proc_with(&files);
        let sockstat = procfs.sockstat().unwrap();
        assert_eq!((sockstat["TCP inuse"], sockstat["TCP6 inuse"], sockstat["TCP tw"]), (5, 4, 3));
        assert_eq!(procfs.pressure("irq").unwrap().unwrap().full_us, 42);
        assert_eq!(procfs.pressure("cpu").unwrap(), None);
        let arp = procfs.net_stat("arp_cache").unwrap();
        assert_eq!((arp["entries"], arp["table_fulls"]), (10, 5));
        assert_eq!(procfs.packet_taps().unwrap(), [PacketTap { protocol: 3, index: 2 }]);
        assert!(procfs.net_stat("nf_conntrack").unwrap().is_empty());
    }

    #[test]
    fn the_kernels_own_files_are_understood() {
        let procfs = Procfs::kernel();
        assert!(procfs.sockstat().unwrap().contains_key("TCP inuse"));
        assert!(procfs.net_stat("arp_cache").unwrap().contains_key("table_fulls"));
        procfs.packet_taps().unwrap();
        procfs.pressure("cpu").unwrap();
    }
}
