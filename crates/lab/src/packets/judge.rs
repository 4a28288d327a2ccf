//! What judges the frames of a topology while it stands, and makes them.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, UdpSocket};
use std::num::NonZero;
use std::thread;
use std::time::{Duration, Instant};

use bpf::Unpinned;
use bpf::packets::{Filter, PacketPrograms, Seen, Source};
use datapath::{Family, NodeSpec};
use linux::netlink::Netlink;
use linux::netns::Netns;
use linux::{IfName, clock, nft};
use record::{Frames, PacketFilter};

use super::frame::{Endpoint, frame};
use super::{onward, table};
use crate::family::on_underlay;
use crate::ports::SERVER_PORT;
use crate::{ByRole, LabError};

/// Frames of a call; a veth link takes them in batches of 64. A call has a cost of its own, some
/// microseconds of CPU time.
const BURST: u32 = 8192;
/// The same where frames wait in a socket's buffer until the call has returned. More would not stay in the CPU's
/// caches, as they do where a reader keeps up.
const SOCKET_BURST: u32 = 2048;
/// Bytes of that buffer: a frame in it takes a page and a few hundred bytes.
const SOCKET_BYTES: usize = 16 << 20;
/// How long the last frames of a trial are waited for. They are judged before the call that makes them returns, unless
/// the kernel has handed them to its own thread.
const LATE: Duration = Duration::from_secs(2);

/// The programs and the socket of a topology whose frames are judged.
#[derive(Debug)]
pub(crate) struct Judge {
    filter: PacketFilter,
    near: Netns,
    far: Netns,
    ends: ByRole<Endpoint>,
    programs: PacketPrograms,
    /// They are detached when this is dropped.
    _attached: Vec<Unpinned>,
    /// Where frames end that nothing takes before.
    socket: Option<UdpSocket>,
    table: Option<nft::Table>,
}

/// Where frames were counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    seen: Seen,
    /// By the rule of nftables; 0 without one.
    by_rule: u64,
}

/// What became of frames, as [`Frames`] has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fate {
    pub(super) judged: u64,
    sunk: u64,
}

impl Judge {
    /// Attaches what a filter is at the links of two nodes that stand. With a port it is about UDP to it alone.
    pub(crate) fn new(
        filter: PacketFilter,
        port: Option<NonZero<u16>>,
        nodes: &ByRole<NodeSpec>,
    ) -> Result<Judge, LabError> {
        let open = |node: &NodeSpec| Netns::open(node.place.name().expect("the lab's nodes have namespaces"));
        let (near, far) = (open(&nodes.client)?, open(&nodes.server)?);
        let programs = port.map_or_else(PacketPrograms::load, PacketPrograms::load_for)?;
        let (wire, [on, end]) = (&nodes.client.wire, onward());
        near.run(|| programs.send_over(index(wire)?))??;
        if filter == PacketFilter::XdpRedirect {
            far.run(|| programs.redirect_to(index(&on)?))??;
        }
        let places = [
            (&near, wire, (filter == PacketFilter::XdpTx).then_some(Filter::Sink)),
            (&far, &end, (filter == PacketFilter::XdpRedirect).then_some(Filter::Sink)),
            (&far, &nodes.server.wire, program(filter)),
        ];
        let mut attached = Vec::new();
        for (netns, link, program) in places {
            if let Some(program) = program {
                attached.push(netns.run(|| programs.attach(program, index(link)?))??);
            }
        }
        let to = port.map_or(SERVER_PORT, NonZero::get);
        let ends = ByRole {
            client: endpoint(&near, &nodes.client, SERVER_PORT)?,
            server: endpoint(&far, &nodes.server, to)?,
        };
        let socket = has_socket(filter).then(|| socket(&far, to)).transpose()?;
        let table = table(filter, port, &nodes.server.wire);
        Ok(Judge { filter, near, far, ends, programs, _attached: attached, socket, table })
    }

    /// Makes frames of a size until they took so much CPU time of the calling thread, in turn sent over the wire and
    /// not sent. Then waits until the last was judged, or nothing more comes.
    pub(crate) fn flood(&self, bytes: u32, cpu_time: Duration) -> Result<Frames, LabError> {
        let before = self.counted()?;
        let (frames, read) = self.burst(bytes, cpu_time)?;
        let Fate { judged, sunk } = self.account(frames.made, before, read, LATE)?;
        Ok(Frames { judged, sunk, ..frames })
    }

    /// The same before a trial; what becomes of the frames is not asked.
    pub(crate) fn warm_up(&self, bytes: u32, cpu_time: Duration) -> Result<(), LabError> {
        self.burst(bytes, cpu_time).map(drop)
    }

    /// Returns frames that are not accounted for, and how many were read from the socket.
    fn burst(&self, bytes: u32, cpu_time: Duration) -> Result<(Frames, u64), LabError> {
        let frame = self.frame(bytes);
        let cpu_ns = cpu_time.as_nanos() as u64;
        let burst = if self.socket.is_some() { SOCKET_BURST } else { BURST };
        let mut frames = Frames::default();
        let mut read = 0;
        self.within(|| {
            while frames.cpu_ns + frames.alone_cpu_ns < cpu_ns || frames.made == 0 {
                frames.alone_cpu_ns += self.programs.generate(Source::Alone, &frame, burst)?;
                frames.alone += u64::from(burst);
                let (cpu_ns, read_now) = self.send_burst(&frame, burst)?;
                frames.cpu_ns += cpu_ns;
                frames.made += u64::from(burst);
                read += read_now;
            }
            Ok(())
        })?;
        Ok((frames, read))
    }

    /// The frame of so many bytes that is sent.
    pub(super) fn frame(&self, bytes: u32) -> Vec<u8> {
        frame(self.ends.client, self.ends.server, bytes as usize)
    }

    /// Does something where frames are made: in the namespace of the wire's near end.
    pub(super) fn within<T>(&self, work: impl FnOnce() -> Result<T, LabError>) -> Result<T, LabError> {
        self.near.run(work)?
    }

    /// Sends copies of a frame over the wire and reads what has arrived. Returns the CPU time of both in nanoseconds,
    /// and how many were read.
    pub(super) fn send_burst(&self, frame: &[u8], frames: u32) -> Result<(u64, u64), LabError> {
        let sending = self.programs.generate(Source::Wire, frame, frames)?;
        let before = clock::thread_cpu_ns();
        let read = self.read()?;
        Ok((sending + clock::thread_cpu_ns() - before, read))
    }

    /// What became of frames that were sent.
    pub(super) fn account(
        &self,
        sent: u64,
        before: Counted,
        mut read: u64,
        patience: Duration,
    ) -> Result<Fate, LabError> {
        let deadline = Instant::now() + patience;
        loop {
            let now = self.counted()?;
            read += self.read()?;
            let by_program = now.seen.judged - before.seen.judged;
            let judged = match self.filter {
                PacketFilter::Socket => read,
                PacketFilter::XdpPass => by_program.min(read),
                _ if self.table.is_some() => now.by_rule - before.by_rule,
                _ => by_program,
            };
            let fate = Fate { judged, sunk: now.seen.sunk - before.seen.sunk };
            if fate.is_whole(self.filter, sent) || Instant::now() >= deadline {
                return Ok(fate);
            }
            thread::yield_now();
        }
    }

    pub(super) fn counted(&self) -> Result<Counted, LabError> {
        let by_rule = self.table.as_ref().map_or(Ok(0), |table| nft::counted(&self.far, table))?;
        Ok(Counted { seen: self.programs.seen()?, by_rule })
    }

    /// Reads what has arrived at the socket, one datagram a call, as most servers do. Returns how many there were.
    pub(super) fn read(&self) -> Result<u64, LabError> {
        let Some(socket) = &self.socket else { return Ok(0) };
        let mut buffer = [0; 2048];
        let mut read = 0;
        loop {
            match socket.recv(&mut buffer) {
                Ok(_) => read += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(read),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read from a UDP socket", &error)),
            }
        }
    }
}

impl Fate {
    fn is_whole(self, filter: PacketFilter, sent: u64) -> bool {
        self.judged == sent && (!sends_on(filter) || self.sunk == sent)
    }
}

/// True if each frame met its filter once, and arrived where the filter sent it.
pub(crate) fn is_whole(filter: PacketFilter, frames: &Frames) -> bool {
    Fate { judged: frames.judged, sunk: frames.sunk }.is_whole(filter, frames.made)
}

/// True for filters after which a frame goes on.
pub(crate) fn sends_on(filter: PacketFilter) -> bool {
    matches!(filter, PacketFilter::XdpTx | PacketFilter::XdpRedirect)
}

fn has_socket(filter: PacketFilter) -> bool {
    matches!(filter, PacketFilter::Socket | PacketFilter::XdpPass)
}

/// The program of a filter that is one.
pub(crate) fn program(filter: PacketFilter) -> Option<Filter> {
    match filter {
        PacketFilter::XdpDrop => Some(Filter::XdpDrop),
        PacketFilter::XdpTx => Some(Filter::XdpTx),
        PacketFilter::XdpRedirect => Some(Filter::XdpRedirect),
        PacketFilter::XdpGeneric => Some(Filter::XdpGeneric),
        PacketFilter::TcDrop => Some(Filter::TcDrop),
        PacketFilter::XdpPass => Some(Filter::XdpPass),
        PacketFilter::Socket
        | PacketFilter::NftIngress
        | PacketFilter::NftRaw
        | PacketFilter::NftInput
        | PacketFilter::NftInputCt => None,
    }
}

fn index(link: &IfName) -> linux::Result<u32> {
    Netlink::open()?.index_of(link)
}

fn endpoint(netns: &Netns, node: &NodeSpec, port: u16) -> Result<Endpoint, LabError> {
    let link = Netlink::open_in(netns)?.link(&node.wire)?;
    let mac = link.and_then(|link| link.mac).expect("a veth link that stands has an address");
    match on_underlay(node, Family::V4) {
        IpAddr::V4(ip) => Ok(Endpoint { mac, at: SocketAddrV4::new(ip, port) }),
        IpAddr::V6(_) => unreachable!("an address of IPv4 was asked for"),
    }
}

fn socket(netns: &Netns, port: u16) -> Result<UdpSocket, LabError> {
    let any = SocketAddr::from(([0, 0, 0, 0], port));
    let open = || {
        let socket = UdpSocket::bind(any)?;
        socket.set_nonblocking(true)?;
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES)?;
        Ok(socket)
    };
    netns.run(open)?.map_err(|error: io::Error| failed("open a UDP socket", &error))
}

fn failed(what: &str, error: &io::Error) -> LabError {
    LabError::Packets { what: what.to_owned(), why: error.to_string() }
}
