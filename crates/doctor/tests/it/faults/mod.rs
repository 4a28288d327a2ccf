//! Faults, planted in a healthy scene: at least one for each check, and some harmless look-alikes.

mod cards;
mod host;
mod ipv6;
mod pace;
mod sockets;
mod spread;
mod stack;

pub(crate) use stack::conntrack;

use doctor::Severity;

use crate::scene::Scene;

/// A planted fault and the finding that it must cause.
pub(crate) struct Fault {
    pub(crate) code: &'static str,
    /// The fault in a few words.
    pub(crate) name: &'static str,
    pub(crate) severity: Severity,
    pub(crate) plant: fn(&mut Scene),
}

pub(crate) fn all() -> impl Iterator<Item = &'static Fault> {
    let families = [
        spread::FAULTS,
        cards::FAULTS,
        stack::FAULTS,
        ipv6::FAULTS,
        sockets::FAULTS,
        pace::FAULTS,
        host::FAULTS,
    ];
    families.into_iter().flatten()
}

/// A check's code, a name, and a change that the check must not report.
pub(crate) type Harmless = (&'static str, &'static str, fn(&mut Scene));

pub(crate) fn harmless() -> impl Iterator<Item = &'static Harmless> {
    [HARMLESS, spread::HARMLESS, cards::HARMLESS, ipv6::HARMLESS, pace::HARMLESS].into_iter().flatten()
}

/// Thousands of first packets without an answer.
fn handshakes(scene: &mut Scene) {
    scene.count("TcpActiveOpens", 1000);
    for name in ["TcpExtTCPSynRetrans", "TcpExtTCPTimeouts", "TcpRetransSegs"] {
        scene.count(name, 4000);
    }
}

const HARMLESS: &[Harmless] = &[
    ("HG001", "a CPU that a disk saturates", |scene| {
        scene.saturate(2);
        scene.after.net_rx[2] = 2_000;
        scene.after.block[2] = 90_000;
    }),
    ("HG002", "what another CPU's flow limit dropped", |scene| {
        scene.after.softnet[1][1] += 900;
        scene.after.softnet[0][10] += 900;
    }),
    ("HG002", "a column that began anew", |scene| {
        scene.before.softnet[1][1] = 7;
        scene.after.softnet[1][1] = 7;
        scene.before.softnet[2][0] = u64::from(u32::MAX) - 50_000;
        scene.after.softnet[2][0] = 50_000;
    }),
    ("HG004", "budgets that run out now and then", |scene| scene.after.softnet[0][2] += 50),
    ("HG010", "one queue with all packets", |scene| {
        scene.after.interrupts = [[80_000, 0, 0, 0], [10, 0, 0, 0], [10, 0, 0, 0], [10, 0, 0, 0]];
    }),
    ("HG010", "a CPU that polls one queue of four", |scene| {
        scene.saturate(0);
        scene.before.interrupts = [[7, 0, 0, 0], [0, 7, 0, 0], [0, 0, 7, 0], [0, 0, 0, 7]];
        scene.after.interrupts = scene.before.interrupts;
    }),
    ("HG010", "a card at rest", |scene| scene.after.interrupts = [[10, 0, 0, 0]; 4]),
    ("HG011", "interrupts elsewhere than on the isolated CPUs of their node", |scene| {
        scene.single_queue();
        scene.card("device/local_cpulist", "2-3\n");
        scene.file("sys/devices/system/cpu/isolated", "2-3\n");
        scene.ticks(0, [300, 0, 100, 190, 5, 5, 400, 0]);
    }),
    ("HG011", "a card without a node", |scene| scene.card("device/numa_node", "-1\n")),
    ("HG021", "RPS on CPUs without interrupts", |scene| {
        scene.single_queue();
        scene.card("queues/rx-0/rps_cpus", "e\n");
    }),
    ("HG022", "RFS whole", |scene| {
        scene.sysctl("net/core/rps_sock_flow_entries", "32768");
        (0..4).for_each(|queue| scene.card(&format!("queues/rx-{queue}/rps_flow_cnt"), "8192\n"));
    }),
    ("HG023", "a table as large as the flows", |scene| {
        scene.sysctl("net/core/rps_sock_flow_entries", "8192");
        scene.card("queues/rx-0/rps_flow_cnt", "8192\n");
    }),
    ("HG030", "missed packets of long ago", |scene| scene.card("statistics/rx_missed_errors", "4711\n")),
    ("HG030", "a port without room, for which no ring is too small", |scene| {
        scene.driver("rx_discards_phy", 5000);
    }),
    ("HG035", "a port without room", |scene| scene.driver("rx_discards_phy", 5000)),
    ("HG036", "pauses that this host asks for", |scene| {
        scene.driver("tx_pause_ctrl_phy", 90_000);
        scene.driver("tx_prio0_pause", 90_000);
    }),
    ("HG038", "pauses that the other end asks for", |scene| scene.driver("rx_pause_ctrl_phy", 90_000)),
    ("HG034", "an allowance that is left", |scene| scene.driver("conntrack_allowance_available", 100)),
    ("HG040", "a card that cannot do TSO", |scene| {
        for nic in scene.nics() {
            nic.offloads.extend(["tso", "tx-checksum"].map(|name| (name.to_owned(), false)));
        }
    }),
    ("HG043", "netem that loses what it should", |scene| {
        for qdisc in scene.qdiscs() {
            qdisc.kind = "netem".to_owned();
        }
        scene.qdiscs()[1].drops = 500;
    }),
    ("HG060", "half a queue", |scene| scene.listen(20, 128)),
    ("HG061", "the one that is just accepted", |scene| scene.listen(1, 1)),
    ("HG062", "cookies for everybody, as they were asked for", |scene| {
        scene.sysctl("net/ipv4/tcp_syncookies", "2");
        for name in ["TCPReqQFullDoCookies", "SyncookiesSent", "SyncookiesRecv"] {
            scene.count(&format!("TcpExt{name}"), 300);
        }
    }),
    ("HG070", "nine segments of very few", |scene| {
        scene.after.counters.insert("TcpOutSegs".to_owned(), 1100);
        scene.count("TcpRetransSegs", 1);
    }),
    ("HG070", "connections to a port without a listener", handshakes),
    ("HG071", "timeouts of those who connect", handshakes),
    ("HG071", "timeouts of those who connect since before", |scene| {
        scene.after.counters.insert("TcpActiveOpens".to_owned(), 0);
        for name in ["TcpExtTCPSynRetrans", "TcpExtTCPTimeouts", "TcpRetransSegs"] {
            scene.count(name, 60);
        }
        for _ in 0..30 {
            scene.connect(|_| ());
        }
        for look in [&mut scene.before, &mut scene.after] {
            look.answers.sockets.as_mut().unwrap().iter_mut().skip(1).for_each(|socket| socket.state = 2);
        }
    }),
    ("HG071", "timeouts of those who connect, of which newer kernels make more", |scene| {
        scene.kernel("6.12.74+deb13-amd64");
        scene.after.counters.insert("TcpActiveOpens".to_owned(), 2);
        for name in ["TcpExtTCPSynRetrans", "TcpExtTCPTimeouts", "TcpRetransSegs"] {
            scene.count(name, 20);
        }
    }),
    ("HG076", "connections that could not be made", |scene| {
        for (name, growth) in [("TcpExtTCPAbortOnTimeout", 5), ("TcpAttemptFails", 5), ("TcpActiveOpens", 20)]
        {
            scene.count(name, growth);
        }
    }),
    ("HG080", "a small window that is not in the way", |scene| {
        scene.connect(|socket| socket.tcp.as_mut().unwrap().snd_wnd = 65_535);
    }),
    ("HG081", "a send buffer that is full for a moment", |scene| {
        sockets::filled(scene);
        scene.tcp()[0].notsent_bytes = 90_000;
    }),
    ("HG082", "bbr, which does not follow the formula", |scene| {
        sockets::lossy(scene);
        for socket in scene.after.answers.sockets.as_mut().unwrap() {
            socket.congestion = "bbr".to_owned();
        }
    }),
    ("HG082", "what did not fit into a queue that stands", |scene| {
        sockets::lossy(scene);
        scene.tcp().into_iter().for_each(|tcp| tcp.min_rtt = 20_000);
    }),
    ("HG084", "a connection that is busy", |scene| {
        scene.connect(|socket| socket.tcp.as_mut().unwrap().busy_time = 9_000_000);
    }),
    ("HG085", "a machine that stood still just before the second look", |scene| {
        scene.connect(|socket| socket.tcp.as_mut().unwrap().unacked = 20);
        scene.tcp()[1].rtt = 300_000;
    }),
    ("HG100", "a path as wide as its link", |scene| {
        scene.connect(|socket| socket.tcp.as_mut().unwrap().pmtu = 1500);
    }),
    ("HG100", "a path that its route calls narrow", |scene| {
        ipv6::route_mtu(scene, "10.0.0.0/24", 1400);
        scene.connect(|socket| socket.tcp.as_mut().unwrap().pmtu = 1400);
    }),
    ("HG100", "a connection that a rule leads into a tunnel", |scene| {
        scene.virtual_link("wg0", "wireguard");
        scene.file("sys/class/net/wg0/mtu", "1420\n");
        scene.connect(|socket| socket.tcp.as_mut().unwrap().pmtu = 1420);
    }),
    ("HG100", "a narrow connection where it is not known what routes say", |scene| {
        scene.after.answers.route_mtus = None;
        scene.connect(|socket| socket.tcp.as_mut().unwrap().pmtu = 1400);
    }),
    ("HG110", "6 MiB where that is the default", |scene| {
        scene.kernel("6.12.74+deb13-amd64");
        scene.sysctl("net/ipv4/tcp_rmem", "4096 131072 6291456");
    }),
    ("HG110", "the default of a machine with little memory", |scene| {
        scene.file("proc/meminfo", "MemTotal: 1000000 kB\n");
        scene.sysctl("net/ipv4/tcp_rmem", "4096 131072 7000000");
    }),
    ("HG120", "tcp_adv_win_scale where it counts", |scene| {
        scene.kernel("6.1.0");
        scene.sysctl("net/ipv4/tcp_adv_win_scale", "2");
    }),
    ("HG122", "a line that a later one overrules", |scene| {
        scene.file("etc/sysctl.d/10-a.conf", "net.core.somaxconn = 128\n");
        scene.file("etc/sysctl.d/20-b.conf", "net.core.somaxconn = 4096\n");
    }),
    ("HG130", "a quota that is enough", |scene| {
        scene.file("sys/fs/cgroup/cgroup.controllers", "cpu\n");
        scene.file("sys/fs/cgroup/pod/cpu.max", "200000 100000\n");
        scene.file("sys/fs/cgroup/pod/cpu.stat", "nr_periods 50\nnr_throttled 7\nthrottled_usec 9\n");
    }),
    ("HG131", "one hundredth of the time stolen", |scene| scene.ticks(0, [300, 0, 100, 480, 5, 5, 100, 10])),
];
