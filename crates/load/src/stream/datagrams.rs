//! Datagrams: a thread and a port for each flow at the sender, a thread for each socket at the receiver.
//!
//! A datagram begins with 16 bytes: its flow (4), whether it belongs to the measured part (4), its number within the
//! flow (8), each with the least significant byte first. So loss is counted for exactly the datagrams of the measured
//! part, however late they arrive.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::thread;

use linux::clock;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use super::arrivals::{Arrival, Arrivals};
use super::{
    Delivered, Flow, LOOK, Packets, Shared, Window, due_ns, is_pause, nanoseconds, on_cpus, sleep_until,
};
use crate::LoadError;
use crate::error::system;
use crate::schedule::{Pace, Schedule};
use crate::thread::RunningCounters;

/// Bytes that every datagram begins with.
pub const PACKET_BYTES_MIN: u32 = 16;
/// Waits that are shorter than this are spun where each sender has a CPU: a sleep is several microseconds late.
const SPIN_NS: u64 = 20_000;

/// A socket that shares its port with others of the same receiver.
pub(super) fn bind(listen: SocketAddr) -> io::Result<UdpSocket> {
    let family = if listen.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket: OwnedFd =
        rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(ipproto::UDP))?;
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &listen)?;
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket)
}

pub(super) fn connect(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    socket.set_write_timeout(Some(LOOK))?;
    Ok(socket)
}

pub(super) fn run(
    from: &[UdpSocket],
    to: &[UdpSocket],
    (packet_bytes, schedule): (usize, Schedule),
    flow: &Flow,
    edge: &mut dyn FnMut(),
) -> Result<Delivered, LoadError> {
    let paces = (0..from.len()).map(|index| schedule.pace(index, from.len()));
    let paces = paces.collect::<Result<Vec<Pace>, _>>()?;
    let spins = flow.spins(from.len())?;
    let (window, shared) = (Window::from_now(flow), Shared::default());
    let mut total = Delivered { duration: flow.duration, ..Delivered::default() };
    let results: Vec<Result<Delivered, LoadError>> = thread::scope(|scope| {
        let shared = &shared;
        let receiver = |socket| {
            let sink = Sink { socket, window, quiet_ns: nanoseconds(flow.quiet), flows: from.len() };
            move || on_cpus(&flow.receiver_cpus, || sink.receive(shared))
        };
        let receivers: Vec<_> = to.iter().map(|socket| scope.spawn(receiver(socket))).collect();
        let senders: Vec<_> = from
            .iter()
            .zip(paces)
            .enumerate()
            .map(|(index, (socket, pace))| {
                let source = Source { socket, window, index: index as u32, packet_bytes, spins };
                scope.spawn(move || on_cpus(&flow.sender_cpus, || source.send(pace, shared)))
            })
            .collect();
        let joined = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().expect("a thread of a stream does not panic")
        };
        window.observe(edge);
        let mut results: Vec<_> = senders.into_iter().map(joined).collect();
        shared.end();
        results.extend(receivers.into_iter().map(joined).map(without_threads));
        results
    });
    for delivered in results {
        total.add(&delivered?);
    }
    Ok(total)
}

/// The receiver's threads have costs too, but those are in the node's CPU time: only the sender's may be late.
fn without_threads(delivered: Result<Delivered, LoadError>) -> Result<Delivered, LoadError> {
    delivered.map(|delivered| Delivered { threads: Vec::new(), ..delivered })
}

/// The sending side of a flow.
struct Source<'a> {
    socket: &'a UdpSocket,
    window: Window,
    index: u32,
    packet_bytes: usize,
    spins: bool,
}

impl Source<'_> {
    fn send(&self, mut pace: Pace, shared: &Shared) -> Result<Delivered, LoadError> {
        let mut packet = vec![b'x'; self.packet_bytes];
        packet[..4].copy_from_slice(&self.index.to_le_bytes());
        let Window { begin_ns, start_ns, end_ns } = self.window;
        let saturates = matches!(pace, Pace::Saturate);
        let mut delivered = Delivered::default();
        let mut number = 0_u64;
        let counters = RunningCounters::begin()?;
        self.window.wait_for_begin();
        let mut now_ns = clock::now_ns();
        while now_ns < end_ns {
            let due_ns = due_ns(&pace, begin_ns, now_ns);
            if due_ns > now_ns {
                if due_ns >= end_ns {
                    break;
                }
                let before_ns = now_ns;
                now_ns = self.wait(before_ns, due_ns);
                if self.spins && due_ns - before_ns <= SPIN_NS && before_ns >= start_ns {
                    delivered.spun.add(now_ns - before_ns);
                }
                continue;
            }
            pace.advance();
            // By when it was due: what should have been sent before the measured part is not counted there for being
            // late.
            let measured = if saturates { now_ns } else { due_ns } >= start_ns;
            delivered.packets.intended += u64::from(measured);
            packet[4..8].copy_from_slice(&u32::from(measured).to_le_bytes());
            packet[8..16].copy_from_slice(&number.to_le_bytes());
            if self.transmit(&packet)? {
                number += 1;
                delivered.packets.sent += u64::from(measured);
                delivered.total_bytes.0 += packet.len() as u64;
            }
            now_ns = clock::now_ns();
        }
        // Datagrams that were due and not sent in time are part of the request too.
        let mut unsent_ns = due_ns(&pace, begin_ns, now_ns);
        while !saturates && unsent_ns < end_ns {
            pace.advance();
            delivered.packets.intended += u64::from(unsent_ns >= start_ns);
            unsent_ns = due_ns(&pace, begin_ns, now_ns);
        }
        delivered.in_schedule = Some(counters.since_start(begin_ns, delivered.spun.ns));
        shared.sent.fetch_add(number, Ordering::AcqRel);
        Ok(delivered)
    }

    /// Waits for an instant, or for a part of the time until it, and reads the clock.
    fn wait(&self, now_ns: u64, due_ns: u64) -> u64 {
        if !self.spins {
            sleep_until(due_ns);
        } else if due_ns - now_ns > SPIN_NS {
            sleep_until(due_ns - SPIN_NS / 2);
        }
        clock::now_ns()
    }

    /// Sends one. False: the kernel did not accept it, for lack of room or because the last one met a closed port.
    fn transmit(&self, packet: &[u8]) -> Result<bool, LoadError> {
        match self.socket.send(packet) {
            Ok(_) => Ok(true),
            Err(error) if is_pause(&error) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => Ok(false),
            Err(error) => Err(system("send a datagram of a stream")(error)),
        }
    }
}

/// A receiving thread's part.
struct Sink<'a> {
    socket: &'a UdpSocket,
    window: Window,
    quiet_ns: u64,
    flows: usize,
}

impl Sink<'_> {
    /// Receives until all datagrams sent have arrived, or no more arrive.
    fn receive(&self, shared: &Shared) -> Result<Delivered, LoadError> {
        let mut delivered = Delivered::default();
        let mut arrivals = vec![Arrivals::new(); self.flows];
        let mut buffer = vec![0; 65_536];
        let (mut last_ns, mut before_ns) = (self.window.end_ns, None);
        let mut shared_before = 0;
        let mut received = 0;
        let mut asked_ns = clock::now_ns();
        loop {
            let now_ns = match self.socket.recv(&mut buffer) {
                Ok(bytes) => {
                    let now_ns = clock::now_ns();
                    if count(&buffer[..bytes], &mut arrivals, &mut delivered.packets) {
                        received += 1;
                        last_ns = last_ns.max(now_ns);
                        self.arrived(now_ns, bytes, &mut before_ns, &mut delivered);
                    }
                    now_ns
                }
                Err(error) if is_pause(&error) => clock::now_ns(),
                Err(error) => return Err(system("receive a datagram of a stream")(error)),
            };
            if !shared.is_over() {
                continue;
            }
            shared.received.fetch_add(received - shared_before, Ordering::AcqRel);
            shared_before = received;
            let all = shared.received.load(Ordering::Acquire) >= shared.sent.load(Ordering::Acquire);
            // Quiet is from when it was asked: this thread may have been kept from running after the answer.
            if all || asked_ns >= last_ns.saturating_add(self.quiet_ns) {
                return Ok(delivered);
            }
            asked_ns = now_ns;
        }
    }

    fn arrived(&self, now_ns: u64, bytes: usize, before_ns: &mut Option<u64>, delivered: &mut Delivered) {
        delivered.total_bytes.1 += bytes as u64;
        if !self.window.holds(now_ns) {
            return;
        }
        delivered.bytes += bytes as u64;
        delivered.packets.in_time += 1;
        let gap_ns = now_ns - before_ns.replace(now_ns).unwrap_or(now_ns);
        delivered.packets.gap_max_ns = delivered.packets.gap_max_ns.max(gap_ns);
    }
}

/// Counts a datagram by its header. False: it is not ours, or was there before.
fn count(packet: &[u8], arrivals: &mut [Arrivals], packets: &mut Packets) -> bool {
    let Some(head) = packet.first_chunk::<{ PACKET_BYTES_MIN as usize }>() else { return false };
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let number = u64::from(word(8)) | u64::from(word(12)) << 32;
    let Some(arrivals) = arrivals.get_mut(word(0) as usize) else { return false };
    let (arrival, measured) = (arrivals.note(number), u64::from(word(4) == 1));
    match arrival {
        Arrival::InOrder => {}
        Arrival::Reordered => packets.reordered += measured,
        Arrival::Duplicate => {
            packets.duplicated += measured;
            return false;
        }
    }
    packets.received += measured;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_that_comes_twice_has_arrived_once() {
        let packet = |measured: u32, number: u64| {
            let mut packet = 0_u32.to_le_bytes().to_vec();
            packet.extend_from_slice(&measured.to_le_bytes());
            packet.extend_from_slice(&number.to_le_bytes());
            packet
        };
        let (mut arrivals, mut packets) = (vec![Arrivals::new()], Packets::default());
        let mut count = |measured, number| count(&packet(measured, number), &mut arrivals, &mut packets);
        assert_eq!(
            [(0, 0), (0, 0), (1, 1), (1, 3)].map(|(part, number)| count(part, number)),
            [true, false, true, true]
        );
        assert_eq!([1, 2, 3].map(|number| count(1, number)), [false, true, false]);
        assert_eq!((packets.received, packets.duplicated, packets.reordered), (3, 2, 1));
    }
}
