//! `/proc/net`: counters of a namespace's stack, and of the CPUs' backlogs.

use std::collections::BTreeMap;

use super::Procfs;
use crate::{IfName, Result};

/// Counters by their kernel name with the group before it: `TcpRetransSegs`, `TcpExtTCPTimeouts`, `Udp6InErrors`;
/// the names that `nstat` prints.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters(BTreeMap<String, i64>);

/// What one CPU's backlog did since the machine's start; the same in all namespaces. The kernel's columns are 32 bits
/// wide and restart at 0, which [`SoftnetCpu::since`] takes into account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct SoftnetCpu {
    pub cpu: u16,
    /// Packets received by the stack (`__netif_receive_skb_core`).
    pub processed: u64,
    /// Packets dropped, since the backlog was full.
    pub dropped: u64,
    /// How often work was left when budget or time ran out.
    pub squeezed: u64,
    /// How often another CPU asked this one to receive for it (RPS).
    pub received_rps: u64,
    /// Packets dropped because their flow filled too much of a backlog, counted at the CPU that queued them. They are
    /// also in `dropped` of the CPU that owns the backlog.
    pub flow_limited: u64,
}

/// What a link counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    missing_docs,
    reason = "the columns of /proc/net/dev under their own names; all count from the link's birth"
)]
pub struct LinkCounters {
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub rx_errors: u64,
    pub rx_dropped: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    pub tx_dropped: u64,
}

impl Procfs {
    /// All counters of the stack (`snmp`, `netstat`, `snmp6`) of the calling thread's namespace.
    pub fn counters(&self) -> Result<Counters> {
        let mut counters = Counters::default();
        for file in ["snmp", "netstat"] {
            let file = own_net(file);
            self.read_pairs(&file, &mut counters)?;
        }
        let file = own_net("snmp6");
        // Not there without IPv6.
        for line in self.read(&file)?.unwrap_or_default().lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse)) else {
                return Err(self.misread(&file, line));
            };
            counters.0.insert(name.to_owned(), value);
        }
        Ok(counters)
    }

    /// What the CPUs' backlogs did.
    pub fn softnet(&self) -> Result<Vec<SoftnetCpu>> {
        let file = own_net("softnet_stat");
        let text = self.required(&file)?;
        let lines = text.lines().zip(0_u16..);
        lines
            .map(|(line, row)| SoftnetCpu::parse(line, row).ok_or_else(|| self.misread(&file, line)))
            .collect()
    }

    /// What the links of the calling thread's namespace counted.
    pub fn link_counters(&self) -> Result<BTreeMap<IfName, LinkCounters>> {
        let file = own_net("dev");
        let text = self.required(&file)?;
        // Two lines of headings.
        let lines = text.lines().skip(2);
        lines.map(|line| parse_link(line).ok_or_else(|| self.misread(&file, line))).collect()
    }

    /// Pairs of lines: names, then values, both behind the name of their group.
    fn read_pairs(&self, file: &str, counters: &mut Counters) -> Result<()> {
        let text = self.required(file)?;
        let mut lines = text.lines();
        while let Some(names) = lines.next() {
            let values = lines.next().unwrap_or_default();
            let pairs = names.split_once(": ").zip(values.split_once(": "));
            let Some(((group, names), (again, values))) = pairs.filter(|(names, values)| names.0 == values.0)
            else {
                return Err(self.misread(file, names));
            };
            debug_assert_eq!(group, again);
            for (name, value) in names.split_ascii_whitespace().zip(values.split_ascii_whitespace()) {
                // Signed, since TcpMaxConn is -1 where there is no limit.
                let value = value.parse().map_err(|_| self.misread(file, values))?;
                counters.0.insert(format!("{group}{name}"), value);
            }
        }
        Ok(())
    }
}

impl Counters {
    /// A counter's value; zero if this kernel does not have it.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).map_or(0, |value| value.max(&0).cast_unsigned())
    }

    /// A counter's growth since an earlier reading; none if that one lacks it.
    pub fn since(&self, before: &Counters, name: &str) -> u64 {
        if before.has(name) { self.get(name).saturating_sub(before.get(name)) } else { 0 }
    }

    /// True if this kernel has the counter.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// All counters, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

impl SoftnetCpu {
    /// The CPU's counts since an earlier reading.
    pub fn since(&self, before: &SoftnetCpu) -> SoftnetCpu {
        let grew = |now: u64, then: u64| now.wrapping_sub(then) & u64::from(u32::MAX);
        SoftnetCpu {
            cpu: self.cpu,
            processed: grew(self.processed, before.processed),
            dropped: grew(self.dropped, before.dropped),
            squeezed: grew(self.squeezed, before.squeezed),
            received_rps: grew(self.received_rps, before.received_rps),
            flow_limited: grew(self.flow_limited, before.flow_limited),
        }
    }

    /// Hexadecimal columns. The thirteenth is the CPU (since Linux 5.10); before it, the row was.
    fn parse(line: &str, row: u16) -> Option<SoftnetCpu> {
        let columns: Vec<u64> =
            line.split_ascii_whitespace().map_while(|word| u64::from_str_radix(word, 16).ok()).collect();
        let [processed, dropped, squeezed, _, _, _, _, _, _, received_rps, ..] = columns[..] else {
            return None;
        };
        let cpu = columns.get(12).map_or(Some(row), |cpu| u16::try_from(*cpu).ok())?;
        let flow_limited = columns.get(10).copied().unwrap_or_default();
        Some(SoftnetCpu { cpu, processed, dropped, squeezed, received_rps, flow_limited })
    }
}

fn parse_link(line: &str) -> Option<(IfName, LinkCounters)> {
    let (name, rest) = line.split_once(':')?;
    let columns: Vec<u64> = rest.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    let [
        rx_bytes,
        rx_packets,
        rx_errors,
        rx_dropped,
        _,
        _,
        _,
        _,
        tx_bytes,
        tx_packets,
        tx_errors,
        tx_dropped,
        ..,
    ] = columns[..]
    else {
        return None;
    };
    let counters = LinkCounters {
        rx_bytes,
        rx_packets,
        rx_errors,
        rx_dropped,
        tx_bytes,
        tx_packets,
        tx_errors,
        tx_dropped,
    };
    Some((IfName::new(name.trim()).ok()?, counters))
}

/// `/proc/net` is a link to `self/net`, which is that of the process's first thread.
pub(super) fn own_net(file: &str) -> String {
    format!("thread-self/net/{file}")
}

#[cfg(test)]
mod tests {
    use super::super::fake::proc_with;
    use super::*;

    const SNMP: &str = "Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm MaxConn RetransSegs
Tcp: 1 -1 42
";
    const NETSTAT: &str = "TcpExt: TCPTimeouts TCPLostRetransmit\nTcpExt: 7 8\n";

    #[test]
    fn counters_have_the_names_of_nstat() {
        let files = [
            ("thread-self/net/snmp", SNMP),
            ("thread-self/net/netstat", NETSTAT),
            ("thread-self/net/snmp6", "Udp6InErrors                    \t9\n"),
        ];
        let (_directory, procfs) = proc_with(&files);
        let counters = procfs.counters().unwrap();
        assert_eq!(counters.get("TcpRetransSegs"), 42);
        assert_eq!(counters.get("TcpExtTCPTimeouts"), 7);
        assert_eq!(counters.get("Udp6InErrors"), 9);
        assert_eq!(counters.get("TcpMaxConn"), 0);
        assert!(counters.has("TcpMaxConn") && !counters.has("TcpNothing"));
        let earlier = Counters(BTreeMap::from([("TcpRetransSegs".to_owned(), 40)]));
        assert_eq!(counters.since(&earlier, "TcpRetransSegs"), 2);
        assert_eq!(counters.since(&earlier, "TcpExtTCPTimeouts"), 0, "it is not known what it was");
        assert_eq!(earlier.since(&counters, "TcpRetransSegs"), 0);
    }

    #[test]
    fn halves_that_do_not_fit_are_an_error() {
        let files = [("thread-self/net/snmp", "Ip: A\nTcp: 1\n"), ("thread-self/net/netstat", "")];
        let (_directory, procfs) = proc_with(&files);
        assert!(procfs.counters().unwrap_err().to_string().ends_with("line \"Ip: A\" was not understood"));
    }

    #[test]
    fn backlogs_are_hexadecimal_with_the_cpu_in_the_thirteenth_column() {
        let new = "000000ff 00000002 00000003 0 0 0 0 0 0 0000000a 00000001 0 00000005 0 0\n";
        let old = "00000001 00000000 00000000 0 0 0 0 0 0 00000000 0\n";
        let text = format!("{new}{old}");
        let (_directory, procfs) = proc_with(&[("thread-self/net/softnet_stat", &text)]);
        let cpus = procfs.softnet().unwrap();
        let first =
            SoftnetCpu { cpu: 5, processed: 255, dropped: 2, squeezed: 3, received_rps: 10, flow_limited: 1 };
        assert_eq!(cpus[0], first);
        assert_eq!((cpus[1].cpu, cpus[1].processed), (1, 1));
    }

    #[test]
    fn columns_that_began_anew_have_grown() {
        let row = |processed, dropped| SoftnetCpu { cpu: 3, processed, dropped, ..SoftnetCpu::default() };
        let since = row(5, 7).since(&row(u64::from(u32::MAX) - 4, 6));
        assert_eq!((since.cpu, since.processed, since.dropped, since.squeezed), (3, 10, 1, 0));
    }

    #[test]
    fn links_may_have_dots_and_no_blank_behind_the_colon() {
        let text = "Inter-|   Receive\n face |bytes\n  lo: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\nflannel.1:9 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        let (_directory, procfs) = proc_with(&[("thread-self/net/dev", text)]);
        let links = procfs.link_counters().unwrap();
        let lo = links[&IfName::new("lo").unwrap()];
        assert_eq!((lo.rx_bytes, lo.rx_dropped, lo.tx_bytes, lo.tx_dropped), (1, 4, 5, 8));
        assert_eq!(links[&IfName::new("flannel.1").unwrap()].rx_bytes, 9);
    }

    #[test]
    fn the_kernels_own_files_are_understood() {
        let procfs = Procfs::kernel();
        assert!(procfs.counters().unwrap().has("TcpRetransSegs"));
        assert!(procfs.counters().unwrap().has("TcpExtTCPTimeouts"));
        assert_eq!(procfs.softnet().unwrap().len(), crate::cpu::online().unwrap().len());
        assert!(procfs.link_counters().unwrap().contains_key(&IfName::new("lo").unwrap()));
    }
}
