//! Streams: bytes or datagrams from a sender to a receiver, both in this process, at a fixed rate or unlimited.
//!
//! The caller makes each socket in its namespace; the threads of a run use it from outside. Data is counted where it
//! arrives, within the measured part, by one clock for both ends.
//!
//! Every datagram is a separate `send` and `recv`, without segmentation offload (no GSO, no GRO): the measurement is
//! the cost of a packet on its way, and `sendmmsg` would save only a tenth of a microsecond of it. TCP data is sent by
//! plain writes of a fixed size, into buffers that the kernel grows.
//!
//! **Invariant: between the first and the last byte of a run nothing here allocates, locks or logs.**

mod arrivals;
mod datagrams;
mod segments;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use linux::cpu::{self, Scheduling};
use linux::{CpuSet, clock};

use crate::error::system;
use crate::schedule::{Pace, Schedule};
use crate::spun::Spun;
use crate::thread::ThreadPlacement;
use crate::{Address, LoadError, ScheduleCost, ThreadCost};

pub use datagrams::PACKET_BYTES_MIN;

/// What a stream is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Carries {
    /// A stream of bytes over TCP.
    Segments {
        /// Bytes of one write, at least one.
        write_bytes: u32,
    },
    /// A stream of datagrams over UDP.
    Datagrams {
        /// Bytes of one, [`PACKET_BYTES_MIN`] to 65 507.
        packet_bytes: u32,
        /// Datagrams per second of all flows together; `None`: no limit.
        rate_per_s: Option<f64>,
    },
}

/// The receiving end, in the namespace of the thread that made it.
#[derive(Debug)]
pub struct Receiver(Sink);

#[derive(Debug)]
enum Sink {
    Segments(TcpListener),
    /// A socket a thread, on one port.
    Datagrams(Vec<UdpSocket>),
}

/// The sending end, likewise.
#[derive(Debug)]
pub struct Sender(Source);

#[derive(Debug)]
enum Source {
    Segments(Vec<TcpStream>),
    Datagrams(Vec<UdpSocket>),
}

/// How a stream is run.
#[derive(Debug, Clone)]
pub struct Flow {
    /// The kind of data, equal for both ends.
    pub carries: Carries,
    /// Sending before the measured part.
    pub warmup: Duration,
    /// The length of the measured part.
    pub duration: Duration,
    /// How long a receiver waits for data in flight after the last arrival: at least the path's delay.
    pub quiet: Duration,
    /// CPUs of the sender's threads, one a flow. Where datagrams have a rate and these are fewer than the flows, or the
    /// receiver's too, no thread spins: that would keep the others waiting.
    pub sender_cpus: CpuSet,
    /// CPUs of the receiver's threads.
    pub receiver_cpus: CpuSet,
}

/// What a stream gave.
#[derive(Debug, Clone, Default)]
pub struct Delivered {
    /// The length of the measured part.
    pub duration: Duration,
    /// Bytes of content that arrived within it.
    pub bytes: u64,
    /// Bytes of content that were sent in all, and that arrived in all.
    pub total_bytes: (u64, u64),
    /// The account of datagrams; zero for TCP.
    pub packets: Packets,
    /// What each thread of the sender cost. Of what it spun, that within the measured part.
    pub threads: Vec<ThreadCost>,
    /// What one thread spun within the measured part.
    spun: Spun,
    /// What one thread cost from the beginning of its schedule to its end, if it has one.
    in_schedule: Option<ScheduleCost>,
}

/// What became of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Packets {
    /// Datagrams due within the measured part; without a rate, those sent.
    pub intended: u64,
    /// Intended datagrams that the kernel took before its end.
    pub sent: u64,
    /// Intended datagrams that arrived at all, each once.
    pub received: u64,
    /// Datagrams that arrived within the measured part.
    pub in_time: u64,
    /// Those of the received that arrived after a later one of their flow.
    pub reordered: u64,
    /// Further copies of intended datagrams that arrived. They are in none of the other figures.
    pub duplicated: u64,
    /// The longest time between two arrivals at a thread within the measured part, in nanoseconds.
    pub gap_max_ns: u64,
}

/// The measured part and the beginning before it, as instants of the clock.
#[derive(Debug, Clone, Copy)]
struct Window {
    begin_ns: u64,
    start_ns: u64,
    end_ns: u64,
}

/// What the threads of both ends know of each other.
#[derive(Debug, Default)]
struct Shared {
    /// The sender has finished.
    over: AtomicBool,
    /// Datagrams sent and received so far by threads that are done with a part.
    sent: AtomicU64,
    received: AtomicU64,
}

/// From the moment at which threads are started to the first byte, so that all are there.
const LEAD_NS: u64 = 2_000_000;
/// The longest time that a system call may block before its thread checks whether the run is over.
const LOOK: Duration = Duration::from_millis(20);
const READ_BYTES: usize = 256 << 10;

impl Receiver {
    /// Listens for bytes over TCP.
    ///
    /// # Errors
    /// If the address is taken or not this namespace's.
    pub fn segments(listen: SocketAddr) -> Result<Receiver, LoadError> {
        let listener = TcpListener::bind(listen).map_err(system("listen for a stream"))?;
        Ok(Receiver(Sink::Segments(listener)))
    }

    /// Receives datagrams, with `threads` threads; the kernel assigns flows to threads by a hash.
    ///
    /// # Errors
    /// If the address is in use or not this namespace's.
    pub fn datagrams(listen: SocketAddr, threads: usize) -> Result<Receiver, LoadError> {
        let sockets = (0..threads.max(1)).map(|_| datagrams::bind(listen)).collect::<io::Result<_>>();
        Ok(Receiver(Sink::Datagrams(sockets.map_err(system("take datagrams of a stream"))?)))
    }

    /// The address, including the port that was chosen.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn address(&self) -> Result<SocketAddr, LoadError> {
        match &self.0 {
            Sink::Segments(listener) => listener.local_addr(),
            Sink::Datagrams(sockets) => sockets[0].local_addr(),
        }
        .map_err(system("ask for a socket's address"))
    }
}

impl Sender {
    /// Connects `flows` flows over TCP.
    ///
    /// # Errors
    /// If a connection is refused, or not established within `timeout`.
    pub fn segments(to: SocketAddr, flows: usize, timeout: Duration) -> Result<Sender, LoadError> {
        let connect = |_| TcpStream::connect_timeout(&to, timeout);
        let streams = (0..flows).map(connect).collect::<io::Result<Vec<_>>>();
        let streams = streams.map_err(|why| LoadError::Connect { address: Address::Tcp(to), why })?;
        Ok(Sender(Source::Segments(streams)))
    }

    /// Makes `flows` flows of datagrams, each from its own port.
    ///
    /// # Errors
    /// If there is no route to the address.
    pub fn datagrams(to: SocketAddr, flows: usize) -> Result<Sender, LoadError> {
        let sockets = (0..flows).map(|_| datagrams::connect(to)).collect::<io::Result<_>>();
        let sockets = sockets.map_err(|why| LoadError::Connect { address: Address::Udp(to), why })?;
        Ok(Sender(Source::Datagrams(sockets)))
    }
}

/// Runs a stream to its end: the start, the measured part, and the data in flight then. Both ends are used up.
///
/// `edge` is called on the calling thread at the beginning and at the end of the measured part.
///
/// Threads run with normal scheduling, not in real time: a real-time thread that never sleeps would keep the receive
/// processing from its CPU.
///
/// # Errors
/// If the ends carry different kinds of data, a size is impossible, a connection does not arrive, or a CPU is not
/// available.
pub fn run(
    sender: Sender,
    receiver: Receiver,
    flow: &Flow,
    edge: &mut dyn FnMut(),
) -> Result<Delivered, LoadError> {
    match (sender.0, receiver.0, flow.carries) {
        (Source::Segments(streams), Sink::Segments(listener), Carries::Segments { write_bytes }) => {
            if write_bytes == 0 {
                return Err(LoadError::Shape("a write has at least one byte"));
            }
            segments::run(&streams, &listener, write_bytes as usize, flow, edge)
        }
        (Source::Datagrams(from), Sink::Datagrams(to), Carries::Datagrams { packet_bytes, rate_per_s }) => {
            if !(PACKET_BYTES_MIN..=65_507).contains(&packet_bytes) {
                return Err(LoadError::Shape("datagrams of a stream have 16 to 65507 bytes"));
            }
            let schedule = match rate_per_s {
                Some(rate_per_s) => Schedule::Constant { rate_per_s },
                None => Schedule::Saturate,
            };
            datagrams::run(&from, &to, (packet_bytes as usize, schedule), flow, edge)
        }
        _ => Err(LoadError::Shape("both ends of a stream carry the same")),
    }
}

impl Window {
    fn from_now(flow: &Flow) -> Window {
        let begin_ns = clock::now_ns() + LEAD_NS;
        let start_ns = begin_ns + nanoseconds(flow.warmup);
        Window { begin_ns, start_ns, end_ns: start_ns + nanoseconds(flow.duration) }
    }

    fn holds(&self, now_ns: u64) -> bool {
        (self.start_ns..self.end_ns).contains(&now_ns)
    }

    /// Waits through the measured part.
    fn observe(&self, edge: &mut dyn FnMut()) {
        for at_ns in [self.start_ns, self.end_ns] {
            sleep_until(at_ns);
            edge();
        }
    }

    fn wait_for_begin(&self) {
        sleep_until(self.begin_ns);
    }
}

impl Flow {
    /// Whether so many senders have CPUs on which each may wait without sleep.
    fn spins(&self, senders: usize) -> Result<bool, LoadError> {
        let allowed = cpu::allowed()?;
        let of = |cpus: &CpuSet| if cpus.is_empty() { allowed.clone() } else { cpus.clone() };
        let (own, others) = (of(&self.sender_cpus), of(&self.receiver_cpus));
        Ok(senders <= own.len() && (own != others || senders < own.len()))
    }
}

impl Delivered {
    /// Bits of content per second that arrived within the measured part.
    pub fn bits_per_s(&self) -> f64 {
        if self.duration.is_zero() { 0.0 } else { self.bytes as f64 * 8.0 / self.duration.as_secs_f64() }
    }

    fn add(&mut self, other: &Delivered) {
        self.bytes += other.bytes;
        self.total_bytes.0 += other.total_bytes.0;
        self.total_bytes.1 += other.total_bytes.1;
        self.packets.intended += other.packets.intended;
        self.packets.sent += other.packets.sent;
        self.packets.received += other.packets.received;
        self.packets.in_time += other.packets.in_time;
        self.packets.reordered += other.packets.reordered;
        self.packets.duplicated += other.packets.duplicated;
        self.packets.gap_max_ns = self.packets.gap_max_ns.max(other.packets.gap_max_ns);
        self.threads.extend_from_slice(&other.threads);
    }
}

/// A thread of an end, which reports its cost.
fn on_cpus(
    cpus: &CpuSet,
    work: impl FnOnce() -> Result<Delivered, LoadError>,
) -> Result<Delivered, LoadError> {
    let (mut delivered, cost) = ThreadPlacement::on(cpus, Scheduling::Normal).work(work)?;
    let cost = cost.with_spun(delivered.spun);
    let in_schedule = delivered.in_schedule.unwrap_or(cost.in_schedule);
    delivered.threads.push(ThreadCost { in_schedule, ..cost });
    Ok(delivered)
}

fn sleep_until(at_ns: u64) {
    let left_ns = at_ns.saturating_sub(clock::now_ns());
    if left_ns > 0 {
        thread::sleep(Duration::from_nanos(left_ns));
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}

/// A call that only waited for too long.
fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// The wait for the instant of the next datagram, in nanoseconds from the beginning.
fn due_ns(pace: &Pace, begin_ns: u64, now_ns: u64) -> u64 {
    begin_ns.saturating_add(pace.next_ns(now_ns.saturating_sub(begin_ns)))
}

impl Shared {
    fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}
