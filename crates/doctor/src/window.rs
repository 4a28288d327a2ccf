//! Two snapshots of one machine: growth of counters, and rates.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use linux::nic::Nic;
use linux::procfs::{CpuTicks, Interrupt, PerCpu, Route, SoftnetCpu};
use linux::sock_diag::{TcpInfo, TcpSocket};
use linux::sysctl::Assignment;
use linux::{CpuSet, Device, IfName};
use tune::{Lives, Since};

use crate::Snapshot;
use crate::rate::share;

/// Two snapshots of one machine, in order.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Window<'a> {
    pub before: &'a Snapshot,
    pub after: &'a Snapshot,
}

/// A connection that was there at the end, with what it did in between.
#[derive(Debug, Clone, Copy)]
pub struct Connection<'a> {
    /// As it was at the end.
    pub socket: &'a TcpSocket,
    /// Its `tcp_info` at the end.
    pub now: &'a TcpInfo,
    /// The socket as it was at the beginning, if it was there.
    pub earlier: Option<&'a TcpSocket>,
    /// What TCP knew at the beginning; zeros if it began in between.
    pub then: TcpInfo,
    /// Seconds between the snapshots.
    pub seconds: f64,
}

impl<'a> Window<'a> {
    /// Seconds between the two; never 0.
    pub fn seconds(&self) -> f64 {
        let passed = self.after.at_ns.saturating_sub(self.before.at_ns) as f64 / 1e9;
        if passed > 0.0 { passed } else { 1.0 }
    }

    /// Growth of a counter of the stack (`snmp`, `netstat`, `snmp6`), by its name.
    pub fn grew(&self, counter: &str) -> u64 {
        self.after.counters.since(&self.before.counters, counter)
    }

    /// The kernel's version; if it cannot be parsed, the oldest supported version.
    pub fn kernel(&self) -> Since {
        Since::of_release(&self.after.kernel).unwrap_or(Since(5, 15))
    }

    /// A kernel parameter as it is at the end.
    pub fn sysctl(&self, key: &str) -> Option<&'a str> {
        self.after.sysctls.get(key).map(String::as_str)
    }

    /// The parameter's value as numbers; words that are none are left out.
    pub fn numbers(&self, key: &str) -> Vec<u64> {
        let words = self.sysctl(key).unwrap_or_default().split_ascii_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    }

    /// The same where it is one number.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.numbers(key).first().copied()
    }

    /// What files set at every start, of the examined namespace: they are applied in the machine's first one, so that
    /// in another only the parameters of the machine can be compared with them.
    pub fn configured(&self) -> impl DoubleEndedIterator<Item = &'a Assignment> + use<'a> {
        let is_elsewhere = self.after.netns.is_some();
        let of_machine = |key: &str| {
            let mut knobs = tune::all();
            !key.starts_with("net/")
                || knobs.any(|knob| matches!(knob.lives, Lives::Machine(other) if other == key))
        };
        self.after.configured.iter().filter(move |line| !is_elsewhere || of_machine(&line.key))
    }

    /// What each CPU did in between, for the CPUs that are in both snapshots.
    pub fn cpus(&self) -> BTreeMap<u16, CpuTicks> {
        let earlier = |cpu| self.before.stat.cpus.get(cpu);
        let cpus = self.after.stat.cpus.iter();
        cpus.filter_map(|(cpu, ticks)| Some((*cpu, ticks.since(earlier(cpu)?)))).collect()
    }

    /// The share of time in soft and hard interrupts, by CPU.
    pub fn interrupted(&self) -> BTreeMap<u16, f64> {
        let share_of = |ticks: &CpuTicks| share(ticks.softirq + ticks.irq, ticks.total());
        self.cpus().iter().map(|(cpu, ticks)| (*cpu, share_of(ticks))).collect()
    }

    /// The CPU that is saturated by interrupts while another one has time, if there is one: more than 80 % there, and
    /// less than 30 % on the least busy half.
    pub fn saturated(&self) -> Option<(u16, f64)> {
        let shares = self.interrupted();
        let (cpu, most) = shares.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
        let mut sorted: Vec<f64> = shares.values().copied().collect();
        sorted.sort_by(f64::total_cmp);
        // Of two CPUs the lower one, of four the second.
        let middle = sorted[(sorted.len() - 1) / 2];
        (*most > 0.8 && middle < 0.3).then_some((*cpu, *most))
    }

    /// Soft interrupts of a kind in between, by CPU.
    pub fn softirqs(&self, kind: &str) -> PerCpu {
        let growth = |cpus: (&PerCpu, &PerCpu)| grown(cpus.0, cpus.1);
        self.before.softirqs.get(kind).zip(self.after.softirqs.get(kind)).map(growth).unwrap_or_default()
    }

    /// What the backlog of each CPU counted in between, for the CPUs that are in both snapshots.
    pub fn backlogs(&self) -> impl Iterator<Item = SoftnetCpu> + use<'a> {
        let (before, after) = (&self.before.softnet, &self.after.softnet);
        let earlier = move |cpu| before.iter().find(|row| row.cpu == cpu);
        after.iter().filter_map(move |row| Some(row.since(earlier(row.cpu)?)))
    }

    /// Links at both ends.
    pub fn devices(&self) -> impl Iterator<Item = (&'a Device, &'a Device)> + use<'a> {
        // By name, since hosts of containers have thousands of links.
        let before: BTreeMap<&IfName, &Device> =
            self.before.devices.iter().map(|device| (&device.name, device)).collect();
        self.after.devices.iter().filter_map(move |after| Some((*before.get(&after.name)?, after)))
    }

    /// Links with hardware that are up.
    pub fn cards(&self) -> impl Iterator<Item = (&'a Device, &'a Device)> + use<'a> {
        self.devices().filter(|(_, device)| device.hardware && device.up)
    }

    /// How much a counter of a link grew.
    pub fn link_grew(&self, link: &IfName, counter: &str) -> u64 {
        let named = |devices: &'a [Device]| devices.iter().find(|device| device.name == *link);
        let pair = named(&self.before.devices).zip(named(&self.after.devices));
        pair.map_or(0, |pair| counter_grew(pair, counter))
    }

    /// The driver's report on a link in the later snapshot.
    pub fn nic(&self, link: &IfName) -> Option<&'a Nic> {
        self.after.answers.nics.get(link)
    }

    /// Statistics of a link's driver that grew, and by how much.
    pub fn driver_grew(&self, link: &IfName) -> BTreeMap<&'a str, u64> {
        let (Some(before), Some(after)) = (self.before.answers.nics.get(link), self.nic(link)) else {
            return BTreeMap::new();
        };
        let growth = after.statistics.iter().map(|(name, value)| {
            let earlier = before.statistics.get(name).copied().unwrap_or(*value);
            (name.as_str(), value.saturating_sub(earlier))
        });
        growth.filter(|(_, growth)| *growth > 0).collect()
    }

    /// The route to a destination, assuming no policy rules.
    pub fn route_of(&self, peer: IpAddr) -> Option<&'a Route> {
        // A socket for both families has IPv4 addresses in the form of IPv6.
        let peer = peer.to_canonical();
        let routes = self.after.routes.iter().filter(|route| route.dst.contains(&peer));
        routes.max_by_key(|route| (route.dst.prefix_len(), Reverse(route.metric)))
    }

    /// The link by which a connection's packets leave, where that is known.
    pub fn link_of(&self, connection: &Connection<'_>) -> Option<&'a Device> {
        self.named(&self.route_of(connection.socket.peer.ip())?.link)
    }

    /// The cards by which a connection's packets leave: its link, or those below it. None where it stays in this host.
    pub fn cards_of(&self, connection: &Connection<'_>) -> Vec<&'a Device> {
        let mut links: Vec<&Device> = self.link_of(connection).into_iter().collect();
        // A VLAN on a bond has its cards two levels below.
        for _ in 0..3 {
            let below = |link: &&'a Device| link.below.iter().filter_map(|name| self.named(name));
            let lower: Vec<_> = links.iter().flat_map(below).collect();
            links.retain(|link| link.hardware);
            links.extend(lower);
        }
        links.retain(|link| link.hardware);
        links
    }

    /// Of these connections the one with the shortest round trip by each card, which is called by its number.
    pub fn nearest(
        &self,
        connections: impl Iterator<Item = Connection<'a>>,
    ) -> BTreeMap<u32, Connection<'a>> {
        let mut connections: Vec<Connection<'a>> = connections.collect();
        connections.sort_by_key(|connection| connection.now.min_rtt);
        let (mut peers, mut nearest) = (BTreeSet::new(), BTreeMap::new());
        for connection in connections {
            // All to one peer go the same way, and there may be many.
            if peers.insert(connection.socket.peer.ip()) {
                for card in self.cards_of(&connection) {
                    nearest.entry(card.index).or_insert(connection);
                }
            }
        }
        nearest
    }

    fn named(&self, link: &IfName) -> Option<&'a Device> {
        self.after.devices.iter().find(|device| device.name == *link)
    }

    /// Where the route to a destination leads, if it is not the default route, and one at which something can be set.
    pub fn route_to(&self, peer: IpAddr) -> Option<IpNet> {
        let route = self.route_of(peer).filter(|route| !route.announced)?;
        (route.dst.prefix_len() > 0).then_some(route.dst)
    }

    /// The CPUs that should handle a card's packets: those of its NUMA node that are not isolated. If that leaves
    /// none, all that are not isolated; if there are none of these either, all that are on line.
    pub fn cpus_near(&self, card: &Device) -> CpuSet {
        let online: CpuSet = self.after.stat.cpus.keys().copied().collect();
        let free = online.without(&self.after.machine.isolated);
        let is_near = |cpu: &u16| card.local_cpus.is_empty() || card.local_cpus.contains(*cpu);
        let near: CpuSet = free.iter().filter(is_near).collect();
        [near, free].into_iter().find(|cpus| !cpus.is_empty()).unwrap_or(online)
    }

    /// The interrupts of a link, each with how often it came on each CPU in between.
    pub fn interrupts(&self, device: &Device) -> Vec<(&'a Interrupt, PerCpu)> {
        // Without the numbers, drivers name interrupts after the link.
        let ours = |interrupt: &&Interrupt| {
            let rest = interrupt.name.strip_prefix(device.name.as_str());
            // Those of eth10 are not eth1's.
            let is_named = rest.is_some_and(|rest| !rest.starts_with(|sign: char| sign.is_ascii_digit()));
            device.interrupts.contains(&interrupt.number) || (is_named && device.interrupts.is_empty())
        };
        let earlier = |interrupt: &Interrupt| {
            let same = self.before.interrupts.iter().find(|other| other.number == interrupt.number);
            same.map(|other| &other.counts)
        };
        let all = self.after.interrupts.iter().filter(ours);
        all.filter_map(|interrupt| Some((interrupt, grown(earlier(interrupt)?, &interrupt.counts)))).collect()
    }

    /// TCP connections in the later snapshot, without those that stay within the machine.
    pub fn connections(&self) -> Vec<Connection<'a>> {
        let seconds = self.seconds();
        let earlier = self.before.answers.sockets.iter().flatten();
        let earlier: BTreeMap<u64, &TcpSocket> = earlier.map(|socket| (socket.cookie, socket)).collect();
        let sockets = || self.after.answers.sockets.iter().flatten();
        // Whoever another socket here is connected to is here: at another address of this host, or behind a Service's
        // that leads back to it.
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let called: BTreeSet<SocketAddr> = sockets().map(|socket| plain(socket.peer)).collect();
        let is_here = |socket: &TcpSocket| is_inside(socket) || called.contains(&plain(socket.local));
        let connected = sockets().filter(|socket| CONNECTED.contains(&socket.state) && !is_here(socket));
        let connections = connected.filter_map(|socket| {
            let earlier = earlier.get(&socket.cookie).copied();
            let then = earlier.and_then(|socket| socket.tcp).unwrap_or_default();
            Some(Connection { socket, now: socket.tcp.as_ref()?, earlier, then, seconds })
        });
        connections.collect()
    }

    /// Listeners at the end.
    pub fn listeners(&self) -> impl Iterator<Item = &'a TcpSocket> + use<'a> {
        self.after.answers.sockets.iter().flatten().filter(|socket| socket.state == LISTEN)
    }
}

/// The number of the state `TCP_SYN_SENT` (include/net/tcp_states.h).
pub(crate) const SYN_SENT: u8 = 2;
/// The number of the state `TCP_LISTEN` (include/net/tcp_states.h).
const LISTEN: u8 = 10;
/// `TCP_ESTABLISHED`, and those in which data may still be on its way: FIN_WAIT1, CLOSE_WAIT, LAST_ACK.
const CONNECTED: [u8; 4] = [1, 4, 8, 9];

/// Loopback, or both ends at one address: no network is in between.
fn is_inside(socket: &TcpSocket) -> bool {
    socket.peer.ip().is_loopback() || socket.peer.ip() == socket.local.ip()
}

/// Growth of a link's counter between the snapshots.
pub(crate) fn counter_grew((before, after): (&Device, &Device), counter: &str) -> u64 {
    // Without an earlier value the later one shows no growth.
    let counters = after.counters.get(counter).zip(before.counters.get(counter));
    counters.map_or(0, |(after, before)| after.saturating_sub(*before))
}

fn grown(before: &PerCpu, after: &PerCpu) -> PerCpu {
    let earlier = |cpu| before.get(cpu).copied().unwrap_or_default();
    after.iter().map(|(cpu, count)| (*cpu, count.saturating_sub(earlier(cpu)))).collect()
}

impl Connection<'_> {
    /// Bytes that the peer acknowledged in between.
    pub fn acked(&self) -> u64 {
        self.now.bytes_acked.saturating_sub(self.then.bytes_acked)
    }

    /// Bytes that came in between.
    pub fn received(&self) -> u64 {
        self.now.bytes_received.saturating_sub(self.then.bytes_received)
    }

    /// Microseconds in between during which there was something to send or to be acknowledged.
    pub fn busy_us(&self) -> u64 {
        self.now.busy_time.saturating_sub(self.then.busy_time)
    }

    /// The share of that time for which the receiver's window was the limit.
    pub fn rwnd_share(&self) -> f64 {
        share(self.now.rwnd_limited.saturating_sub(self.then.rwnd_limited), self.busy_us())
    }

    /// The share of that time for which the send buffer was the limit.
    pub fn sndbuf_share(&self) -> f64 {
        share(self.now.sndbuf_limited.saturating_sub(self.then.sndbuf_limited), self.busy_us())
    }

    /// The share of that time in which the congestion window or the network was the limit, which is the rest.
    pub fn network_share(&self) -> f64 {
        if self.busy_us() == 0 { 0.0 } else { (1.0 - self.rwnd_share() - self.sndbuf_share()).max(0.0) }
    }

    /// The share of the window during which there was something to send.
    pub fn busy_share(&self) -> f64 {
        (self.busy_us() as f64 / (self.seconds * 1e6)).min(1.0)
    }

    /// The share of data segments that were sent again in between.
    pub fn loss(&self) -> f64 {
        let again = self.now.total_retrans.saturating_sub(self.then.total_retrans);
        let sent = self.now.data_segs_out.saturating_sub(self.then.data_segs_out);
        share(again.into(), sent.into())
    }

    /// The smaller round-trip time of both snapshots, in microseconds. A pause of the machine just before a snapshot
    /// makes a few round trips long and is not a property of the path. If a connection had no data in flight at the
    /// first snapshot, only the last one counts.
    pub fn lasting_rtt(&self) -> u32 {
        if self.then.unacked > 0 { self.now.rtt.min(self.then.rtt) } else { self.now.rtt }
    }

    /// Whether its segments are less than half full: it waits for answers, or sends little at a time, and what a path
    /// carries does not matter to it.
    pub fn sends_small(&self) -> bool {
        let segments = self.now.data_segs_out.saturating_sub(self.then.data_segs_out);
        self.acked() * 2 < u64::from(segments) * u64::from(self.now.snd_mss)
    }

    /// Bytes a second that were acknowledged while there was something to send.
    pub fn goodput(&self) -> f64 {
        let busy = (self.busy_us() as f64 / 1e6).max(self.seconds / 1e3);
        self.acked() as f64 / busy
    }

    /// For texts: `10.0.0.1:443 to 10.0.0.2:5000`.
    pub fn name(&self) -> String {
        format!("{} to {}", self.socket.local, self.socket.peer)
    }

    /// Connections of one service: the same peer and the same port, whichever side listens.
    pub fn service(&self) -> (IpAddr, u16) {
        (self.socket.peer.ip(), self.socket.local.port().min(self.socket.peer.port()))
    }
}
