//! A healthy machine of four CPUs with a card of four queues, as texts in the kernel's format at two moments
//! ten seconds apart. A fault is planted by changing these texts, so that the real readers see it.

mod look;

use std::net::SocketAddr;

use doctor::{Diagnosis, Snapshot, Window, diagnose};
use linux::netlink::QdiscCounters;
use linux::nic::{Channels, Nic};
use linux::sock_diag::{SocketMemory, TcpInfo, TcpSocket};
use linux::{Files, IfName};

use look::{COUNTERS, CPUS, Look};

/// Seconds between the snapshots.
pub(crate) const SECONDS: u64 = 10;

/// A healthy machine at two moments, in which tests plant faults.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) before: Look,
    pub(crate) after: Look,
}

impl Scene {
    /// A machine that has work and no problems.
    pub(crate) fn healthy() -> Scene {
        let before = Look::healthy();
        let mut scene = Scene { after: before.clone(), before };
        for cpu in 0..CPUS {
            // Ten seconds are a thousand ticks: a tenth in softirqs, a third in programs.
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

    /// Adds to the ticks of a CPU.
    pub(crate) fn ticks(&mut self, cpu: usize, ticks: [u64; 8]) {
        for (column, ticks) in ticks.into_iter().enumerate() {
            self.after.stat[cpu][column] = self.before.stat[cpu][column] + ticks;
        }
    }

    /// One CPU is fully busy with receiving, the others are idle.
    pub(crate) fn saturate(&mut self, cpu: usize) {
        for other in 0..CPUS {
            self.ticks(other, [20, 0, 10, 960, 0, 0, 10, 0]);
            self.after.net_rx[other] = self.before.net_rx[other] + 100;
            self.after.softnet[other][0] = self.before.softnet[other][0] + 200;
        }
        self.ticks(cpu, [10, 0, 10, 10, 0, 20, 950, 0]);
        self.after.net_rx[cpu] += 100_000;
        self.after.softnet[cpu][0] += 500_000;
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

    /// The report of the card's driver, in both snapshots.
    pub(crate) fn nics(&mut self) -> [&mut Nic; 2] {
        let card = IfName::new("eth0").unwrap();
        [&mut self.before, &mut self.after].map(|look| look.answers.nics.get_mut(&card).unwrap())
    }

    /// A file has this text in both snapshots.
    pub(crate) fn file(&mut self, path: &str, text: &str) {
        for look in [&mut self.before, &mut self.after] {
            look.texts.insert(path.to_owned(), text.to_owned());
        }
    }

    /// A file of the card has this text in both snapshots.
    pub(crate) fn card(&mut self, path: &str, text: &str) {
        self.file(&format!("sys/class/net/eth0/{path}"), text);
    }

    /// A virtual link that is up, in both snapshots.
    pub(crate) fn virtual_link(&mut self, name: &str, kind: &str) {
        for (file, text) in [("ifindex", "7"), ("mtu", "1500"), ("flags", "0x1003")] {
            self.file(&format!("sys/class/net/{name}/{file}"), &format!("{text}\n"));
        }
        for look in [&mut self.before, &mut self.after] {
            look.answers.kinds.insert(IfName::new(name).unwrap(), kind.to_owned());
        }
    }

    /// Removes the card's files that begin with `prefix`.
    pub(crate) fn remove(&mut self, prefix: &str) {
        for look in [&mut self.before, &mut self.after] {
            look.texts.retain(|path, _| !path.starts_with(prefix));
        }
    }

    /// Sets a kernel parameter in both snapshots.
    pub(crate) fn sysctl(&mut self, key: &str, value: &str) {
        self.file(&format!("proc/sys/{key}"), &format!("{value}\n"));
    }

    /// Sets the kernel's release.
    pub(crate) fn kernel(&mut self, release: &str) {
        self.sysctl("kernel/osrelease", release);
    }

    /// The card has a single queue, with its interrupt on CPU 0.
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

    /// A connection to 10.0.0.9:443 that transferred 10 MB over a round trip of 1 ms with nothing limiting
    /// it. `change` then alters its state in the second snapshot.
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
        change(&mut socket);
        // State goes into both snapshots; counters grow in the second.
        let stood = |now: TcpInfo| TcpInfo {
            rtt: now.rtt,
            min_rtt: now.min_rtt,
            unacked: now.unacked,
            notsent_bytes: now.notsent_bytes,
            snd_cwnd: now.snd_cwnd,
            snd_wnd: now.snd_wnd,
            ..then
        };
        let earlier = TcpSocket { tcp: socket.tcp.map(stood), ..socket.clone() };
        self.before.answers.sockets.get_or_insert_default().push(earlier);
        self.after.answers.sockets.get_or_insert_default().push(socket);
    }

    /// The TCP state of the last planted connection, in both snapshots.
    pub(crate) fn tcp(&mut self) -> [&mut TcpInfo; 2] {
        [&mut self.before, &mut self.after].map(|look| {
            let sockets = look.answers.sockets.as_mut().unwrap();
            sockets.last_mut().unwrap().tcp.as_mut().unwrap()
        })
    }

    /// A listener on port 80 with `waiting` connections of at most `limit` in its queue.
    pub(crate) fn listen(&mut self, waiting: u32, limit: u32) {
        self.connect(|socket| {
            socket.state = 10;
            socket.local = SocketAddr::from(([0, 0, 0, 0], 80));
            socket.peer = SocketAddr::from(([0, 0, 0, 0], 0));
            (socket.rqueue, socket.wqueue, socket.tcp) = (waiting, limit, None);
        });
    }

    /// The qdisc at the card's root, in both snapshots.
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
