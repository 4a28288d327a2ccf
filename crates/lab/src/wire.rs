//! A wire with delay, loss or limited bandwidth: the settings of netem, and how much longer everything takes.

use std::time::Duration;

use linux::Qdisc;
use linux::features::{Facts, Feature};
use linux::qdisc::{Netem, Probability, Tbf};
use record::{BitRate, Underlay, Wire};

use crate::LabError;
use crate::by_role::ByRole;

/// Both directions of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wires {
    /// From the client's node to the server's.
    pub to_server: Wire,
    /// From the server's node to the client's.
    pub to_client: Wire,
}

/// How long things take, at least or at most, on a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// A round trip on an idle wire.
    round_trip: Duration,
    /// A round trip through queues that are full.
    crowded: Duration,
    /// Whether the wire loses packets, so that answers can take a retransmission longer.
    lossy: bool,
    /// Bits per second of the way to the client, where it is narrow.
    to_client: Option<u64>,
}

/// Packets that netem may hold where no rate limits how many come: beyond all that connections of a race have under
/// way, and short of what memory could not hold.
const PACKETS_MAX: u64 = 1_000_000;
/// As few as any queue on the way of several connections should hold.
const PACKETS_MIN: u64 = 100;
/// A small packet in bytes: a request, or an answer of the default load.
const SMALL: u64 = 256;
/// The default length of a link's queue (`DEFAULT_TX_QUEUE_LEN`).
const QUEUE_PACKETS: u32 = 1000;
/// The least time for which a queue before a narrow wire has room, as in small routers.
const QUEUE_MIN: Duration = Duration::from_millis(20);

impl Wires {
    /// What an experiment says.
    pub fn of(underlay: &Underlay) -> Wires {
        Wires { to_server: underlay.to_server(), to_client: underlay.to_client() }
    }

    /// Whether anything stands between the nodes that holds packets back or loses them.
    pub fn is_shaped(&self) -> bool {
        self.to_server.is_shaped() || self.to_client.is_shaped()
    }

    /// An error where it takes netem or tbf and the kernel has none: then nothing can race, the host neither.
    pub fn possible(&self, facts: &Facts) -> Result<(), LabError> {
        let has_line = [self.to_server, self.to_client].iter().any(|wire| wire.line_rate.is_some());
        let needs = [(self.is_shaped(), Feature::Netem), (has_line, Feature::Tbf)];
        let needs: Vec<Feature> =
            needs.into_iter().filter_map(|(takes, feature)| takes.then_some(feature)).collect();
        facts.unmet(&needs).into_iter().next().map_or(Ok(()), |unmet| Err(LabError::NoTopology(unmet)))
    }

    /// What netem does to packets on their way to a side, if anything. `mtu_bytes` is the wire's.
    pub fn netem(&self, mtu_bytes: u32) -> ByRole<Option<Netem>> {
        ByRole { client: self.to_client, server: self.to_server }.map(|wire| {
            let share = |share: Option<record::Share>| {
                Probability::from_ratio(share.unwrap_or_default().billionths as f64 / 1e9)
            };
            wire.is_shaped().then(|| Netem {
                delay_ns: wire.delay.unwrap_or_default().ns,
                jitter_ns: wire.jitter.unwrap_or_default().ns,
                loss: share(wire.loss),
                reorder: share(wire.reorder),
                rate_bytes_per_s: wire.rate.map(|rate| rate.bits_per_s / 8),
                limit: self.limit(&wire, mtu_bytes),
            })
        })
    }

    /// Packets that netem may hold for a direction. One queue is both the wire, with the packets under way, and the
    /// router before it, with those that wait for their turn; with the kernel's 1000 packets a wire of 100 Mbit/s and
    /// 40 ms would drop small packets at a third of its rate. So there is room for as many small packets as can be
    /// under way, and for as many full ones as the wire carries in a round trip, which is the classic size of a
    /// router's queue.
    fn limit(&self, wire: &Wire, mtu_bytes: u32) -> u32 {
        let Some(rate) = wire.rate else { return PACKETS_MAX as u32 };
        let longest = wire.delay.unwrap_or_default().ns + wire.jitter.unwrap_or_default().ns;
        let bytes_in = |time: Duration| (rate.bits_per_s as f64 / 8.0 * time.as_secs_f64()) as u64;
        let under_way = bytes_in(Duration::from_nanos(longest)) / SMALL;
        let waiting = bytes_in(self.queue()) / (u64::from(mtu_bytes) + 14);
        (under_way + waiting).clamp(PACKETS_MIN, PACKETS_MAX) as u32
    }

    /// How long a packet waits at most before a narrow wire, behind full ones.
    fn queue(&self) -> Duration {
        self.round_trip().max(QUEUE_MIN)
    }

    fn round_trip(&self) -> Duration {
        let ways = [self.to_server, self.to_client];
        let both = ways.iter().flat_map(|wire| [wire.delay, wire.jitter]).flatten();
        Duration::from_nanos(both.map(|delay| delay.ns).sum())
    }

    /// How much time everything takes on it.
    pub fn patience(&self) -> Patience {
        let ways = [self.to_server, self.to_client];
        let narrow = ways.iter().flat_map(|wire| [wire.rate, wire.line_rate]).flatten().count() as u32;
        Patience {
            round_trip: self.round_trip(),
            crowded: self.round_trip() + self.queue() * narrow,
            lossy: ways.iter().any(|wire| wire.loss.is_some_and(|loss| loss.billionths > 0)),
            to_client: self.to_client.narrowest().map(|rate| rate.bits_per_s),
        }
    }
}

/// A card of a line rate with the queue that cards usually have.
pub(crate) fn line(rate: BitRate, mtu_bytes: u32) -> Tbf {
    let frame_bytes = mtu_bytes + 14;
    let rate_bytes_per_s = rate.bits_per_s / 8;
    // What leaves at once is two packets, or what the line sends between two ticks of a slow timer.
    let tick_bytes = u32::try_from(rate_bytes_per_s / 4000).unwrap_or(u32::MAX);
    let inner = Qdisc::Pfifo { limit: QUEUE_PACKETS };
    Tbf { rate_bytes_per_s, burst_bytes: tick_bytes.max(2 * frame_bytes), inner }
}

impl Patience {
    /// A slice as it was asked for, and at least ten round trips: a connection answers one request in each, and in
    /// fewer it is chance which requests fall into the slice.
    pub fn slice(&self, usual: Duration) -> Duration {
        usual.max(self.round_trip * 10)
    }

    /// Load before a slice as it was asked for, and at least four round trips, in which the window of a connection that
    /// was idle opens from 10 segments to 80.
    pub fn warmup(&self, usual: Duration) -> Duration {
        usual.max(self.round_trip * 4)
    }

    /// How long the last answer is under way at least.
    pub fn answer(&self) -> Duration {
        self.round_trip
    }

    /// How long answers are waited for after the schedule's end: three of Linux's shortest retransmission time-outs
    /// (200 ms beyond the round trip, doubled each time), so that a request whose packets were lost three times is
    /// still measured and not missed; and until a narrow wire has carried an answer for each connection.
    pub fn drain(&self, body_bytes: u32, connections: usize) -> Duration {
        /// A head and the headers of packets, generously.
        const AROUND: u64 = 1024;
        let bits = (u64::from(body_bytes) * 11 / 10 + AROUND) * 8 * connections as u64;
        let carried = self.to_client.map_or(0.0, |rate| bits as f64 / rate as f64);
        Duration::from_millis(1500) + self.crowded * 8 + Duration::from_secs_f64(carried)
    }

    /// How long a datagram at least is under way with its answer before it is taken for lost, beyond what a server
    /// takes: an answer that comes later still counts.
    pub fn datagram(&self) -> Duration {
        Duration::from_millis(1) + self.crowded * 2
    }

    /// Whether the wire loses packets.
    pub fn is_lossy(&self) -> bool {
        self.lossy
    }

    /// How long a connection may take. The first packet of one that is lost is sent again after 1, 3 and 7 s.
    pub fn connect(&self) -> Duration {
        Duration::from_secs(if self.lossy { 8 } else { 1 }) + self.crowded * 2
    }

    /// How long a fresh server may take until it answers.
    pub fn ready(&self) -> Duration {
        Duration::from_secs(if self.lossy { 40 } else { 5 }) + self.crowded * 20
    }
}

#[cfg(test)]
mod tests {
    use record::{BitRate, Delay, Share};

    use super::*;

    fn wire(delay_ms: u64, mbit: Option<u64>) -> Wire {
        let delay = Some(Delay { ns: delay_ms * 1_000_000 });
        Wire { delay, rate: mbit.map(|mbit| BitRate { bits_per_s: mbit * 1_000_000 }), ..Wire::default() }
    }

    #[track_caller]
    fn check_limit(to_server: Wire, to_client: Wire, expected: u32) {
        let netem = Wires { to_server, to_client }.netem(1486);
        assert_eq!(netem.server.unwrap().limit, expected);
    }

    #[test]
    fn a_queue_holds_what_is_under_way_and_what_waits() {
        // 500 kB under way as 1953 small packets; a round trip of 80 ms is 1 MB, 666 full packets.
        check_limit(wire(40, Some(100)), wire(40, None), 1953 + 666);
        // No delay: 20 ms of 100 Mbit/s are 250 kB.
        check_limit(wire(0, Some(100)), wire(0, None), 166);
        check_limit(wire(0, Some(1)), wire(0, None), 100);
        check_limit(wire(1000, Some(100_000)), wire(0, None), 1_000_000);
        check_limit(wire(40, None), wire(40, None), 1_000_000);
    }

    #[test]
    fn netem_is_set_to_what_the_wire_does() {
        let lossy = Wire { loss: Some(Share { billionths: 2_000_000 }), ..wire(40, Some(100)) };
        let wires = Wires { to_server: lossy, to_client: Wire::default() };
        assert!(wires.is_shaped());
        let ByRole { client, server } = wires.netem(1500);
        let there = server.unwrap();
        assert_eq!((there.delay_ns, there.rate_bytes_per_s), (40_000_000, Some(12_500_000)));
        assert_eq!((there.loss.to_string().as_str(), client), ("0.2%", None));
    }

    #[test]
    fn without_netem_nothing_races_on_such_a_wire() {
        let mut facts = Facts::default();
        facts.missing.insert(Feature::Netem, "unknown".to_owned());
        let wires = Wires { to_server: wire(1, None), to_client: Wire::default() };
        assert!(
            matches!(wires.possible(&facts), Err(LabError::NoTopology(unmet)) if unmet.feature == Feature::Netem)
        );
        assert!(wires.possible(&Facts::default()).is_ok());
        let cut = Wire { gso: Some(false), ..Wire::default() };
        assert!(Wires { to_server: cut, to_client: cut }.possible(&facts).is_ok());
    }

    #[test]
    fn everything_takes_longer_on_a_long_wire() {
        let [usual, plain] = [Duration::from_millis(100), Wires::default().patience().drain(100, 32)];
        let patience = Wires::default().patience();
        assert_eq!(
            (patience.slice(usual), patience.warmup(usual), patience.connect()),
            (usual, usual, usual * 10)
        );
        assert_eq!(plain, Duration::from_millis(1500));
        let long = Wires { to_server: wire(40, None), to_client: wire(40, Some(100)) }.patience();
        assert_eq!([long.slice(usual), long.warmup(usual)], [800, 320].map(Duration::from_millis));
        // 80 ms and a queue of as much, eight times; 32 answers of a megabyte and a tenth take 2.8 s.
        let seconds = long.drain(1_000_000, 32).as_secs_f64();
        assert!((seconds - (1.5 + 1.28 + 2.818)).abs() < 0.01, "{seconds}");
        // A tenth of a slice is the round trip, so that a lost datagram does not silence its socket for all of it.
        assert_eq!([patience, long].map(|wire| wire.datagram().as_millis()), [1, 321]);
        let lossy = Wire { loss: Some(Share { billionths: 1 }), ..Wire::default() };
        let lossy = Wires { to_server: lossy, ..Wires::default() }.patience();
        assert!(lossy.is_lossy() && !patience.is_lossy() && lossy.connect() > Duration::from_secs(7));
    }
}
