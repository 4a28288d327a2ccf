//! The values read at one moment, in the kernel's format.

use std::collections::BTreeMap;
use std::fmt::Write;

use doctor::KernelAnswers;
use linux::IfName;
use linux::netlink::QdiscCounters;
use linux::nic::{Channels, Coalescing, Nic, Rings};

pub(super) const CPUS: usize = 4;

/// The names of counters by file and group, as in Linux 6.18. Only those that checks use are here.
pub(super) const COUNTERS: [(&str, &str, &str); 7] = [
    (
        "snmp",
        "Ip",
        "InReceives InHdrErrors InAddrErrors OutRequests OutDiscards OutNoRoutes ReasmReqds ReasmFails FragOKs FragFails",
    ),
    (
        "snmp",
        "Tcp",
        "ActiveOpens PassiveOpens AttemptFails EstabResets InSegs OutSegs RetransSegs InErrs OutRsts",
    ),
    ("snmp", "Udp", "InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors MemErrors"),
    (
        "netstat",
        "TcpExt",
        "SyncookiesSent SyncookiesRecv PruneCalled RcvPruned OfoPruned ListenOverflows ListenDrops TCPSACKReorder \
         TCPTSReorder TCPRenoReorder TCPFullUndo TCPPartialUndo TCPDSACKUndo TCPLostRetransmit TCPFastRetrans \
         TCPSlowStartRetrans TCPTimeouts TCPLossProbes TCPLossProbeRecovery TCPRcvCollapsed TCPDSACKRecv \
         TCPAbortOnMemory TCPAbortOnTimeout TCPMemoryPressures TCPSpuriousRTOs TCPBacklogDrop IPReversePathFilter \
         TCPTimeWaitOverflow TCPReqQFullDoCookies TCPReqQFullDrop TCPSpuriousRtxHostQueues TCPToZeroWindowAdv \
         TCPWantZeroWindowAdv TCPSynRetrans TCPMTUPFail TCPMTUPSuccess TCPZeroWindowDrop TCPRcvQDrop \
         TCPHystartTrainDetect TCPHystartTrainCwnd TCPHystartDelayDetect TCPHystartDelayCwnd",
    ),
    ("netstat", "IpExt", "InNoRoutes InOctets"),
    (
        "snmp6",
        "Ip6",
        "InReceives InHdrErrors InNoRoutes InAddrErrors OutRequests OutNoRoutes ReasmReqds ReasmFails FragOKs FragFails",
    ),
    ("snmp6", "Icmp6", "InPktTooBigs"),
];

/// Parameters below `/proc/sys` with their defaults in Linux 6.18.
const SYSCTLS: [(&str, &str); 33] = [
    ("kernel/osrelease", "6.18.1-amd64"),
    ("net/core/netdev_max_backlog", "1000"),
    ("net/core/rmem_max", "4194304"),
    ("net/core/wmem_max", "4194304"),
    ("net/core/rps_sock_flow_entries", "0"),
    ("net/core/somaxconn", "4096"),
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/ip_local_port_range", "32768\t60999"),
    ("net/ipv4/neigh/default/gc_thresh3", "1024"),
    ("net/ipv4/tcp_adv_win_scale", "1"),
    ("net/ipv4/tcp_congestion_control", "cubic"),
    ("net/ipv4/tcp_dsack", "1"),
    ("net/ipv4/tcp_early_retrans", "3"),
    ("net/ipv4/tcp_fack", "0"),
    ("net/ipv4/tcp_limit_output_bytes", "4194304"),
    ("net/ipv4/tcp_low_latency", "0"),
    ("net/ipv4/tcp_max_syn_backlog", "2048"),
    ("net/ipv4/tcp_max_tw_buckets", "131072"),
    ("net/ipv4/tcp_mem", "300000\t400000\t600000"),
    ("net/ipv4/tcp_moderate_rcvbuf", "1"),
    ("net/ipv4/tcp_mtu_probing", "0"),
    ("net/ipv4/tcp_rmem", "4096\t131072\t33554432"),
    ("net/ipv4/tcp_sack", "1"),
    ("net/ipv4/tcp_slow_start_after_idle", "1"),
    ("net/ipv4/tcp_timestamps", "1"),
    ("net/ipv4/tcp_tw_reuse", "2"),
    ("net/ipv4/tcp_window_scaling", "1"),
    ("net/ipv4/tcp_wmem", "4096\t16384\t4194304"),
    ("net/ipv6/conf/all/forwarding", "0"),
    ("net/ipv6/neigh/default/gc_thresh3", "1024"),
    ("net/netfilter/nf_conntrack_buckets", "262144"),
    ("net/netfilter/nf_conntrack_count", "1200"),
    ("net/netfilter/nf_conntrack_max", "262144"),
];

const CARD: [(&str, &str); 9] = [
    ("ifindex", "2"),
    ("mtu", "1500"),
    ("flags", "0x1003"),
    ("speed", "10000"),
    ("duplex", "full"),
    ("carrier_changes", "2"),
    ("device/uevent", "DRIVER=mlx5_core"),
    ("device/numa_node", "0"),
    ("device/local_cpulist", "0-3"),
];

/// The machine at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Look {
    /// The contents of files by path.
    pub(crate) texts: BTreeMap<String, String>,
    /// user nice system idle iowait irq softirq steal of each CPU.
    pub(crate) stat: [[u64; 8]; CPUS],
    /// Rounds of `NET_RX` of each CPU.
    pub(crate) net_rx: [u64; CPUS],
    /// Rounds of `BLOCK` of each CPU.
    pub(crate) block: [u64; CPUS],
    /// The columns of softnet_stat.
    pub(crate) softnet: [[u64; 15]; CPUS],
    /// Interrupts 40 to 43, those of the card's queues.
    pub(crate) interrupts: [[u64; CPUS]; 4],
    /// Counters of the stack under nstat's names.
    pub(crate) counters: BTreeMap<String, u64>,
    /// The kernel's answers to queries.
    pub(crate) answers: KernelAnswers,
}

impl Look {
    pub(super) fn healthy() -> Look {
        let mut look =
            Look { counters: BTreeMap::from([("TcpOutSegs".to_owned(), 1000)]), ..Look::default() };
        for (path, text) in CARD {
            look.texts.insert(format!("sys/class/net/eth0/{path}"), format!("{text}\n"));
        }
        for queue in 0..4 {
            let at = format!("sys/class/net/eth0/queues/rx-{queue}");
            look.texts.insert(format!("{at}/rps_cpus"), "0\n".to_owned());
            look.texts.insert(format!("{at}/rps_flow_cnt"), "0\n".to_owned());
            let at = format!("sys/class/net/eth0/queues/tx-{queue}");
            look.texts.insert(format!("{at}/tx_timeout"), "0\n".to_owned());
            look.texts.insert(format!("{at}/xps_cpus"), format!("{}\n", 1 << queue));
            look.texts
                .insert(format!("sys/class/net/eth0/device/msi_irqs/{}", 40 + queue), "msix\n".to_owned());
            look.texts
                .insert(format!("proc/irq/{}/effective_affinity_list", 40 + queue), format!("{queue}\n"));
        }
        for (key, value) in SYSCTLS {
            look.texts.insert(format!("proc/sys/{key}"), format!("{value}\n"));
        }
        let files = [
            ("proc/meminfo", "MemTotal:       32000000 kB\n"),
            (
                "proc/thread-self/net/sockstat",
                "sockets: used 90\nTCP: inuse 5 orphan 0 tw 3 alloc 7 mem 200\n",
            ),
            (
                "proc/thread-self/net/route",
                "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
                 eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
            ),
            ("sys/devices/system/cpu/isolated", "\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
        ];
        for (path, text) in files {
            look.texts.insert(path.to_owned(), text.to_owned());
        }
        look.answers = answers();
        look
    }

    /// The values in the kernel's format.
    pub(super) fn texts(&self) -> BTreeMap<String, String> {
        let mut texts = self.texts.clone();
        let mut stat = String::from("cpu  0 0 0 0 0 0 0 0 0 0\n");
        let mut softnet = String::new();
        for cpu in 0..CPUS {
            let columns = self.stat[cpu].map(|ticks| ticks.to_string()).join(" ");
            writeln!(stat, "cpu{cpu} {columns} 0 0").unwrap();
            let mut columns = self.softnet[cpu];
            columns[12] = cpu as u64;
            writeln!(softnet, "{}", columns.map(|number| format!("{number:08x}")).join(" ")).unwrap();
        }
        stat += "ctxt 1\n";
        let heading = "          CPU0 CPU1 CPU2 CPU3\n";
        let per_cpu = |numbers: &[u64; CPUS]| numbers.map(|number| format!("{number:10}")).join(" ");
        let softirqs =
            format!("{heading}NET_RX: {}\nBLOCK: {}\n", per_cpu(&self.net_rx), per_cpu(&self.block));
        let mut interrupts = heading.to_owned();
        for (queue, counts) in self.interrupts.iter().enumerate() {
            writeln!(
                interrupts,
                " {}: {} PCI-MSIX-0000:01:00.0 {queue}-edge mlx5_comp{queue}",
                40 + queue,
                per_cpu(counts)
            )
            .unwrap();
        }
        let mut files = BTreeMap::from(["snmp", "netstat", "snmp6"].map(|file| (file, String::new())));
        for (file, group, names) in COUNTERS {
            let names: Vec<&str> = names.split_ascii_whitespace().collect();
            let value = |name: &&str| {
                self.counters.get(&format!("{group}{name}")).copied().unwrap_or_default().to_string()
            };
            let values: Vec<String> = names.iter().map(value).collect();
            let rows = names.iter().zip(&values).map(|(name, value)| format!("{group}{name}\t{value}\n"));
            *files.get_mut(file).unwrap() += &match file {
                "snmp6" => rows.collect(),
                _ => format!("{group}: {}\n{group}: {}\n", names.join(" "), values.join(" ")),
            };
        }
        for (file, text) in files {
            texts.insert(format!("proc/thread-self/net/{file}"), text);
        }
        texts.insert("proc/stat".to_owned(), stat);
        texts.insert("proc/softirqs".to_owned(), softirqs);
        texts.insert("proc/interrupts".to_owned(), interrupts);
        texts.insert("proc/thread-self/net/softnet_stat".to_owned(), softnet);
        texts
    }
}

fn answers() -> KernelAnswers {
    let offloads = ["gso", "gro", "tso", "rx-checksum", "tx-checksum", "scatter-gather"];
    let mut offloads: BTreeMap<String, bool> = offloads.map(|name| (name.to_owned(), true)).into();
    offloads.insert("lro".to_owned(), false);
    let nic = Nic {
        driver: "mlx5_core".to_owned(),
        statistics: BTreeMap::new(),
        rings: Some(Rings { rx: 1024, rx_max: 8192, tx: 1024, tx_max: 8192 }),
        channels: Some(Channels { rx: 0, rx_max: 0, combined: 4, combined_max: 4 }),
        coalescing: Some(Coalescing { rx_usecs: 8, rx_frames: 32, tx_usecs: 8, adaptive_rx: true }),
        offloads,
    };
    let mq = QdiscCounters {
        index: 2,
        kind: "mq".to_owned(),
        root: true,
        major: 0,
        minor: 0xffff,
        bytes: 1_000_000,
        packets: 1000,
        drops: 0,
        requeues: 0,
        backlog_bytes: 0,
        queued: 0,
        flow_limited: 0,
    };
    KernelAnswers {
        sockets: Some(Vec::new()),
        ports: None,
        qdiscs: Some(vec![mq]),
        nics: BTreeMap::from([(IfName::new("eth0").unwrap(), nic)]),
        kinds: BTreeMap::new(),
        path_mtus: Some(Vec::new()),
        route_mtus: Some(Vec::new()),
    }
}
