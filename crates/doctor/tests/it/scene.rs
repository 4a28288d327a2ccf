//! A healthy machine of four CPUs with a card of four queues, as texts in the kernel's forms at two moments ten seconds
//! apart. A fault is planted by changing what was read, so that the real readers see it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;

use doctor::{Answers, Diagnosis, Snapshot, Window, diagnose};
use linux::netlink::QdiscCounters;
use linux::nic::{Channels, Coalescing, Nic, Rings};
use linux::sock_diag::{SocketMemory, TcpInfo, TcpSocket};
use linux::{Files, IfName};

/// Seconds between the looks.
pub(crate) const SECONDS: u64 = 10;
const CPUS: usize = 4;

/// The names of counters, by file and group, as Linux 6.18 has them (those that somebody looks at).
const COUNTERS: [(&str, &str, &str); 5] = [
    (
        "snmp",
        "Ip",
        "InReceives InHdrErrors InAddrErrors OutRequests OutNoRoutes ReasmReqds ReasmFails FragOKs FragFails",
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
         TCPWantZeroWindowAdv TCPSynRetrans TCPMTUPFail TCPMTUPSuccess TCPZeroWindowDrop TCPRcvQDrop",
    ),
    ("netstat", "IpExt", "InNoRoutes InOctets"),
];

/// What the kernel would have chosen itself.
const SYSCTLS: [(&str, &str); 30] = [
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
    ("net/ipv4/tcp_timestamps", "1"),
    ("net/ipv4/tcp_tw_reuse", "2"),
    ("net/ipv4/tcp_window_scaling", "1"),
    ("net/ipv4/tcp_wmem", "4096\t16384\t4194304"),
    ("net/netfilter/nf_conntrack_buckets", "262144"),
    ("net/netfilter/nf_conntrack_count", "1200"),
    ("net/netfilter/nf_conntrack_max", "262144"),
];

/// The card.
const CARD: [(&str, &str); 12] = [
    ("ifindex", "2"),
    ("mtu", "1500"),
    ("flags", "0x1003"),
    ("speed", "10000"),
    ("duplex", "full"),
    ("tx_queue_len", "1000"),
    ("carrier_changes", "2"),
    ("gro_flush_timeout", "0"),
    ("threaded", "0"),
    ("device/uevent", "DRIVER=mlx5_core"),
    ("device/numa_node", "0"),
    ("device/local_cpulist", "0-3"),
];

/// One moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Look {
    /// Files as they are.
    pub(crate) texts: BTreeMap<String, String>,
    /// user nice system idle iowait irq softirq steal of each CPU.
    pub(crate) stat: [[u64; 8]; CPUS],
    /// Rounds of receiving.
    pub(crate) net_rx: [u64; CPUS],
    /// The columns of softnet_stat.
    pub(crate) softnet: [[u64; 15]; CPUS],
    /// Interrupts 40 to 43, those of the card's queues.
    pub(crate) interrupts: [[u64; CPUS]; 4],
    /// Counters of the stack under nstat's names.
    pub(crate) counters: BTreeMap<String, u64>,
    /// What was asked.
    pub(crate) answers: Answers,
}

/// Two moments.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) before: Look,
    pub(crate) after: Look,
}

impl Scene {
    /// A machine that has work and no trouble.
    pub(crate) fn healthy() -> Scene {
        let before = Look::healthy();
        let mut scene = Scene { after: before.clone(), before };
        for cpu in 0..CPUS {
            // Ten seconds are a thousand ticks: a tenth in soft interrupts, a third in programs.
            scene.ticks(cpu, [300, 0, 100, 490, 5, 5, 100, 0]);
            scene.after.net_rx[cpu] += 20_000;
            scene.after.softnet[cpu][0] += 100_000;
            scene.after.interrupts[cpu][cpu] += 20_000;
        }
        for (name, growth) in [
            ("TcpOutSegs", 200_000),
            ("TcpInSegs", 200_000),
            ("TcpRetransSegs", 8),
            ("TcpPassiveOpens", 500),
            ("TcpActiveOpens", 500),
            ("IpInReceives", 200_000),
            ("IpOutRequests", 200_000),
            ("UdpInDatagrams", 10_000),
            ("UdpOutDatagrams", 10_000),
        ] {
            scene.count(name, growth);
        }
        scene.link("rx_packets", 400_000);
        scene.link("tx_packets", 400_000);
        scene.link("rx_bytes", 400_000_000);
        scene.link("tx_bytes", 400_000_000);
        scene.connect(|_| ());
        scene
    }

    /// What a CPU did.
    pub(crate) fn ticks(&mut self, cpu: usize, ticks: [u64; 8]) {
        for (column, ticks) in ticks.into_iter().enumerate() {
            self.after.stat[cpu][column] = self.before.stat[cpu][column] + ticks;
        }
    }

    /// One CPU does nothing but receive, the others nothing at all.
    pub(crate) fn saturate(&mut self, cpu: usize) {
        for other in 0..CPUS {
            self.ticks(other, [20, 0, 10, 960, 0, 0, 10, 0]);
            self.after.net_rx[other] = self.before.net_rx[other] + 100;
        }
        self.ticks(cpu, [10, 0, 10, 10, 0, 20, 950, 0]);
        self.after.net_rx[cpu] += 100_000;
    }

    /// A counter of the stack grows.
    pub(crate) fn count(&mut self, name: &str, growth: u64) {
        let known = COUNTERS.iter().any(|(_, group, names)| {
            name.strip_prefix(group)
                .is_some_and(|name| names.split_ascii_whitespace().any(|other| other == name))
        });
        assert!(known, "{name} is in no file of the scene");
        *self.after.counters.entry(name.to_owned()).or_default() += growth;
    }

    /// A counter of the card's link grows.
    pub(crate) fn link(&mut self, name: &str, growth: u64) {
        let path = format!("sys/class/net/eth0/statistics/{name}");
        let value: u64 = self.after.texts.get(&path).map_or(0, |text| text.trim().parse().unwrap());
        self.before.texts.entry(path.clone()).or_insert_with(|| "0\n".to_owned());
        self.after.texts.insert(path, format!("{}\n", value + growth));
    }

    /// A statistic of the card's driver grows.
    pub(crate) fn driver(&mut self, name: &str, growth: u64) {
        let [before, after] = self.nics();
        before.statistics.insert(name.to_owned(), 1000);
        after.statistics.insert(name.to_owned(), 1000 + growth);
    }

    /// What the card's driver says, at both ends.
    pub(crate) fn nics(&mut self) -> [&mut Nic; 2] {
        let card = IfName::new("eth0").unwrap();
        [&mut self.before, &mut self.after].map(|look| look.answers.nics.get_mut(&card).unwrap())
    }

    /// A file has this text at both ends.
    pub(crate) fn file(&mut self, path: &str, text: &str) {
        for look in [&mut self.before, &mut self.after] {
            look.texts.insert(path.to_owned(), text.to_owned());
        }
    }

    /// A file of the card's.
    pub(crate) fn card(&mut self, path: &str, text: &str) {
        self.file(&format!("sys/class/net/eth0/{path}"), text);
    }

    /// A file of the card's is not there.
    pub(crate) fn remove(&mut self, prefix: &str) {
        for look in [&mut self.before, &mut self.after] {
            look.texts.retain(|path, _| !path.starts_with(prefix));
        }
    }

    /// A kernel parameter.
    pub(crate) fn sysctl(&mut self, key: &str, value: &str) {
        self.file(&format!("proc/sys/{key}"), &format!("{value}\n"));
    }

    /// The release of another kernel.
    pub(crate) fn kernel(&mut self, release: &str) {
        self.sysctl("kernel/osrelease", release);
    }

    /// Only one queue, its interrupt on CPU 0.
    pub(crate) fn single_queue(&mut self) {
        for queue in 1..4 {
            self.remove(&format!("sys/class/net/eth0/queues/rx-{queue}/"));
            self.remove(&format!("sys/class/net/eth0/queues/tx-{queue}/"));
            self.after.interrupts[queue] = self.before.interrupts[queue];
        }
        self.after.interrupts[0] = [80_000, 0, 0, 0];
        self.nics()
            .into_iter()
            .for_each(|nic| nic.channels = Some(Channels { rx: 0, rx_max: 0, combined: 1, combined_max: 1 }));
    }

    /// A connection to 10.0.0.9:443 that carried 10 MB over a round trip of 1 ms, was never short of anything, and that
    /// is now as it is changed to be.
    pub(crate) fn connect(&mut self, change: impl FnOnce(&mut TcpSocket)) {
        let cookie = self.after.answers.sockets.as_ref().map_or(0, Vec::len) as u64 + 1;
        let then = TcpInfo {
            rtt: 1000,
            rttvar: 100,
            min_rtt: 900,
            rto: 201_000,
            snd_mss: 1448,
            rcv_mss: 1448,
            advmss: 1448,
            pmtu: 1500,
            snd_cwnd: 40,
            snd_wnd: 3_000_000,
            segs_in: 100,
            bytes_acked: 1_000_000,
            bytes_received: 1_000_000,
            data_segs_out: 10_000,
            busy_time: 1_000_000,
            ..TcpInfo::default()
        };
        let now = TcpInfo {
            bytes_acked: 11_000_000,
            bytes_received: 1_200_000,
            data_segs_out: 17_000,
            segs_in: 4000,
            busy_time: 4_000_000,
            ..then
        };
        let memory = SocketMemory { received: 0, receive_buffer: 131_072, send_buffer: 2_000_000, drops: 0 };
        let port = u16::try_from(40_000 + cookie).unwrap();
        let mut socket = TcpSocket {
            cookie,
            state: 1,
            local: SocketAddr::from(([10, 0, 0, 1], port)),
            peer: SocketAddr::from(([10, 0, 0, 9], 443)),
            rqueue: 0,
            wqueue: 0,
            uid: 0,
            congestion: "cubic".to_owned(),
            tcp: Some(now),
            memory: Some(memory),
        };
        let earlier = TcpSocket { tcp: Some(then), ..socket.clone() };
        change(&mut socket);
        // What waits at both looks is planted at both.
        let earlier = TcpSocket { rqueue: socket.rqueue, local: socket.local, peer: socket.peer, ..earlier };
        self.before.answers.sockets.get_or_insert_default().push(earlier);
        self.after.answers.sockets.get_or_insert_default().push(socket);
    }

    /// A listener on port 80 with so many of so many waiting.
    pub(crate) fn listen(&mut self, waiting: u32, limit: u32) {
        self.connect(|socket| {
            socket.state = 10;
            socket.local = SocketAddr::from(([0, 0, 0, 0], 80));
            socket.peer = SocketAddr::from(([0, 0, 0, 0], 0));
            (socket.rqueue, socket.wqueue, socket.tcp) = (waiting, limit, None);
        });
    }

    /// The queueing discipline at the card's root.
    pub(crate) fn qdiscs(&mut self) -> [&mut QdiscCounters; 2] {
        [&mut self.before, &mut self.after].map(|look| &mut look.answers.qdiscs.as_mut().unwrap()[0])
    }

    pub(crate) fn snapshots(&self) -> (Snapshot, Snapshot) {
        let [mut before, mut after] = [&self.before, &self.after]
            .map(|look| Snapshot::read(&Files::of(look.texts()), look.answers.clone()));
        before.at_ns = 1_000_000_000;
        after.at_ns = before.at_ns + SECONDS * 1_000_000_000;
        (before, after)
    }

    pub(crate) fn diagnose(&self) -> Diagnosis {
        let (before, after) = self.snapshots();
        diagnose(&Window { before: &before, after: &after })
    }
}

impl Look {
    fn healthy() -> Look {
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

    /// In the kernel's forms.
    fn texts(&self) -> BTreeMap<String, String> {
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
        let softirqs = format!("{heading}NET_RX: {}\n", per_cpu(&self.net_rx));
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
        let mut files = BTreeMap::from([("snmp", String::new()), ("netstat", String::new())]);
        for (file, group, names) in COUNTERS {
            let names: Vec<&str> = names.split_ascii_whitespace().collect();
            let value = |name: &&str| {
                self.counters.get(&format!("{group}{name}")).copied().unwrap_or_default().to_string()
            };
            let values: Vec<String> = names.iter().map(value).collect();
            *files.get_mut(file).unwrap() +=
                &format!("{group}: {}\n{group}: {}\n", names.join(" "), values.join(" "));
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

fn answers() -> Answers {
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
    };
    Answers {
        sockets: Some(Vec::new()),
        qdiscs: Some(vec![mq]),
        nics: BTreeMap::from([(IfName::new("eth0").unwrap(), nic)]),
    }
}
