//! `tcp-stream` and `udp-stream`: from a sender in the client's pod to a receiver in the server's, both of this
//! process.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use datapath::SocketRole;
use load::stream::{self, Carries, Delivered, Flow, Receiver, Sender};
use load::{LoadError, ThreadCost};
use record::{Load, Packets, Transfer, TrialRecord, Void};

use super::WorkloadDriver;
use crate::ports::SERVER_PORT;
use crate::traffic::TransferredAmounts;
use crate::trial::Method;
use crate::trial_key::TrialKey;
use crate::usage::{CounterSnapshot, Usage};
use crate::void::{STARVED_LIMIT_PERMILLE, kept_from_cpus, starved_sender};
use crate::{BuiltTopology, LabError, NodeCpus};

/// Bytes or datagrams, one way.
pub(super) struct Stream;

/// How long datagrams that are still under way are waited for when nothing more comes.
const QUIET: Duration = Duration::from_millis(150);
/// How long a flow may take to connect.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the port of the stream before may still be held.
const FREED: Duration = Duration::from_secs(2);
/// A stream that only shows whether the way is there.
const TRY: Duration = Duration::from_millis(20);
const NOTHING: &str = "nothing of a stream arrived";

impl WorkloadDriver for Stream {
    fn open(&self, built: &mut BuiltTopology, body_bytes: u32, _: u32) -> Result<(), LabError> {
        let rate_per_s = built.workload.kind.is_udp().then_some(500.0);
        let load = Load { rate_per_s, ..Load::closed_loop(body_bytes) };
        let flow = Flow { warmup: Duration::ZERO, duration: TRY, ..flow(built, &load, None) };
        let deadline = Instant::now() + built.ready_limit();
        loop {
            let tried = run(built, &flow, 1, &mut || {}).and_then(|delivered| match delivered.total_bytes {
                (_, 0) => Err(LabError::Broken { candidate: built.name.clone(), what: NOTHING.to_owned() }),
                _ => Ok(()),
            });
            if tried.is_ok() || Instant::now() >= deadline {
                return tried;
            }
        }
    }

    fn trial(
        &self,
        built: &mut BuiltTopology,
        method: &Method,
        load: &Load,
        key: TrialKey,
    ) -> Result<TrialRecord, LabError> {
        let flow = flow(built, load, Some(method));
        // At the edges of the measured part: data sent before and after it does not count.
        let mut looks = Vec::with_capacity(2);
        let topology = built.topology.clone();
        // What is read within the measured part may have passed the path long before: it lay in socket buffers.
        let first = CounterSnapshot::take(&topology)?;
        let delivered = run(built, &flow, built.workload.connections, &mut || {
            looks.push(CounterSnapshot::take(&topology));
        })?;
        let mut looks = looks.into_iter();
        let (Some(before), Some(after)) = (looks.next(), looks.next()) else {
            unreachable!("a stream has a start and an end")
        };
        let usage = after?.since(&before?, &method.cpus);
        let all = CounterSnapshot::take(&topology)?.since(&first, &method.cpus).traffic;
        let void = built.detour(&all, &TransferredAmounts::stream(delivered.total_bytes.1))?;
        let void = void.or_else(|| kept_from_cpus(&usage));
        // Where the machine was kept from running, what did not arrive says nothing of the path.
        if void.is_none() {
            broken(built, &delivered)?;
        }
        let is_udp = built.workload.kind.is_udp();
        let starved = || starved_sender(load, &delivered.threads).filter(|_| is_udp);
        let void = void.or_else(starved).or_else(|| idle(&delivered));
        Ok(record(&delivered, &usage, is_udp, key, void))
    }
}

/// What is to flow. Without a method it is only tried.
fn flow(built: &BuiltTopology, load: &Load, method: Option<&Method>) -> Flow {
    let carries = if built.workload.kind.is_udp() {
        Carries::Datagrams { packet_bytes: load.body_bytes, rate_per_s: load.rate_per_s }
    } else {
        Carries::Segments { write_bytes: load.body_bytes }
    };
    let NodeCpus { client, server } = &built.topology.shape.cpus;
    let patience = built.topology.shape.wires.patience();
    Flow {
        carries,
        warmup: method.map_or(Duration::ZERO, |method| patience.warmup(method.warmup)),
        duration: method.map_or(TRY, |method| patience.slice(method.slice)),
        quiet: QUIET + 2 * patience.answer(),
        sender_cpus: client.clone(),
        receiver_cpus: server.clone(),
    }
}

/// Opens both ends where they belong, and lets it flow. `edge` is called when the measured part begins and ends.
fn run(
    built: &BuiltTopology,
    flow: &Flow,
    flows: u32,
    edge: &mut dyn FnMut(),
) -> Result<Delivered, LabError> {
    let to = built.topology.address;
    let receiver = receive(built, flow)?;
    let sender = built.inside(SocketRole::Client)?.run(|| match flow.carries {
        Carries::Segments { .. } => Sender::segments(to, flows as usize, CONNECT),
        Carries::Datagrams { .. } => Sender::datagrams(to, flows as usize),
    })?;
    let sender = sender.map_err(|error| match error {
        LoadError::Connect { .. } => {
            LabError::Broken { candidate: built.name.clone(), what: format!("could not {error}") }
        }
        error => built.load_error(error),
    })?;
    stream::run(sender, receiver, flow, edge).map_err(|error| built.load_error(error))
}

/// Opens the receiver's end. In a namespace of ours no other program has the port; but what this process has forked
/// meanwhile holds the listener of before until it executes its program. (Those of datagrams share their port.)
fn receive(built: &BuiltTopology, flow: &Flow) -> Result<Receiver, LabError> {
    let to = built.topology.address;
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let listen = SocketAddr::new(any, SERVER_PORT);
    let threads = flow.receiver_cpus.len();
    let deadline = Instant::now() + FREED;
    loop {
        let receiver = built.inside(SocketRole::Server)?.run(|| match flow.carries {
            Carries::Segments { .. } => Receiver::segments(listen),
            Carries::Datagrams { .. } => Receiver::datagrams(listen, threads),
        })?;
        match receiver {
            Err(LoadError::System { why, .. })
                if why.kind() == ErrorKind::AddrInUse && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(1));
            }
            receiver => return receiver.map_err(|error| built.load_error(error)),
        }
    }
}

/// A path that carries nothing, or that loses bytes of TCP, is broken. One that loses datagrams is only bad; and if
/// hardly any was sent, that is the sender's fault.
fn broken(built: &BuiltTopology, delivered: &Delivered) -> Result<(), LabError> {
    let (sent, arrived) = delivered.total_bytes;
    let few = delivered.packets.sent < 100;
    let whole = if built.workload.kind.is_udp() { arrived > 0 || few } else { arrived == sent };
    if whole {
        return Ok(());
    }
    let what = format!("{arrived} of {sent} bytes of a stream arrived");
    Err(LabError::Broken { candidate: built.name.clone(), what })
}

fn record(
    delivered: &Delivered,
    usage: &Usage,
    is_udp: bool,
    key: TrialKey,
    void: Option<Void>,
) -> TrialRecord {
    let packets = delivered.packets;
    TrialRecord {
        duration_ns: u64::try_from(delivered.duration.as_nanos()).unwrap_or(u64::MAX),
        intended: packets.intended,
        sent: packets.sent,
        answered: packets.received,
        answered_in_time: packets.in_time,
        carried: Some(Transfer {
            bytes: delivered.bytes,
            objects_ns: None,
            packets: is_udp.then_some(Packets {
                sent: packets.sent,
                received: packets.received,
                in_time: packets.in_time,
                reordered: packets.reordered,
                gap_max_ns: packets.gap_max_ns,
            }),
        }),
        void,
        ..usage.of_trial(key, &delivered.threads)
    }
}

/// Void if nothing arrived because nothing was sent: other programs had the sender's CPUs all the time.
fn idle(delivered: &Delivered) -> Option<Void> {
    let starved = delivered.threads.iter().map(ThreadCost::starved).fold(0.0, f64::max);
    let run_queue_permille = (starved * 1000.0) as u32;
    (delivered.bytes == 0)
        .then_some(Void::GeneratorStarved { run_queue_permille, limit_permille: STARVED_LIMIT_PERMILLE })
}
