//! The responder on a TCP/IP stack of our own, smoltcp, behind a [`Port`]: frames come and go past the kernel's stack.
//!
//! It gives the same answers as the responder on sockets. One thread does everything: it takes frames, runs the stack,
//! answers and sends. The stack visits every connection for each packet, so this is for dozens of connections.

mod connection;
mod datagrams;
mod device;
mod ethernet;
mod neighbours;
mod port;
mod vhost_user;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time;

use bpf::afxdp::Carried;
use linux::{IfName, clock};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IPV4_HEADER_LEN, IPV6_HEADER_LEN, IpAddress, IpCidr, UDP_HEADER_LEN};

use super::answers::Answers;
use super::idle::Waits;
use super::request::LastRequest;
use super::work::CpuWork;
use super::{Listen, ResponderConfig, ServeError, Served, StackConfig};
use connection::{Connection, Desk};
use datagrams::Datagrams;
use device::Packets;
use port::{Port, XdpPort};
pub use vhost_user::SWITCH_PATIENCE;
use vhost_user::VhostUserPort;

/// Connections at the same time. A stack that visits each of them for every packet is slow before.
const CONNECTIONS_MAX: usize = 1024;
/// Sockets that wait for a connection. The stack has no queue of connections to accept: each takes
/// one of these sockets.
const WAITING: usize = 32;
/// Packets that are taken before answers are made, no more than sockets wait.
const BATCH: usize = WAITING;
/// The longest packet of a stack of ours, in bytes: what a frame has room for.
const MTU_MAX: u32 = (linux::xdp::FRAME_BYTES_MAX - ethernet::ETHERNET) as u32;
/// The MTUs that the port of a switch may have, in bytes: from what IPv6 asks for to what a buffer has room for.
const SWITCH_MTU: RangeInclusive<u32> = 1280..=(linux::vring::FRAME_BYTES_MAX - ethernet::ETHERNET) as u32;

/// The least and the most that is slept. After the most it is looked whether the responder is to end.
const RETRY: Duration = Duration::from_micros(20);
const TICK: Duration = Duration::from_millis(50);

/// What answers on a stack, whatever its port.
pub(super) trait AnswersAlone: fmt::Debug + Send {
    /// Answers until it is to end.
    fn run(self: Box<Self>, ends: &dyn Fn() -> bool) -> Result<Served, ServeError>;
}

/// A stack behind a port, with what answers on it.
struct OnStack<P> {
    packets: Packets<P>,
    interface: Interface,
    sockets: SocketSet<'static>,
    service: Service,
    desk: Desk,
    waits: Waits,
    started_ns: u64,
    /// Until then nothing is to be done but for what comes.
    due: Instant,
}

/// The protocol that is served, with its connections.
enum Service {
    Http { port: u16, connections: Vec<Connection> },
    Datagrams { handle: SocketHandle, datagrams: Datagrams },
}

/// Opens a port, and writes the addresses that the stack has there into the configuration.
pub(super) fn open(
    config: &mut ResponderConfig,
    stack: &StackConfig,
) -> Result<Box<dyn AnswersAlone>, ServeError> {
    match stack {
        StackConfig::AfXdp { link, receive_cpu } => Ok(Box::new(at_link(config, link, *receive_cpu)?)),
        StackConfig::VhostUser { socket, mtu } => Ok(Box::new(at_switch(config, socket, *mtu)?)),
    }
}

/// A port at a link of the calling thread's namespace, whose addresses are the stack's.
fn at_link(
    config: &mut ResponderConfig,
    link: &IfName,
    receive_cpu: Option<u16>,
) -> Result<OnStack<XdpPort>, ServeError> {
    let found = port::find(link)?;
    let mut at = Vec::new();
    for listen in &mut config.listen {
        let address = listen.address_mut().expect("the configuration was checked");
        if address.ip().is_unspecified() {
            let same = |found: &&IpAddr| found.is_ipv4() == address.is_ipv4();
            let ip = found.addresses.iter().find(same).ok_or_else(|| {
                let version = if address.is_ipv4() { 4 } else { 6 };
                ServeError::Config(format!("link {link} has no address of IPv{version}"))
            })?;
            address.set_ip(*ip);
        }
        at.push(address.ip());
    }
    let mtu = found.mtu.min(MTU_MAX) as usize;
    if let Some(why) = too_long(config, mtu) {
        return Err(ServeError::Config(why));
    }
    let (carried, number) = match &config.listen[0] {
        Listen::Udp(address) => (Carried::Udp, address.port()),
        listen => (Carried::Tcp, listen.address().expect("the configuration was checked").port()),
    };
    let port = XdpPort::open(found.ifindex, receive_cpu, &at, (carried, number))?;
    Ok(OnStack::new(port, mtu, config))
}

/// A port of a switch, where the stack has the addresses of the configuration.
fn at_switch(
    config: &ResponderConfig,
    socket: &Path,
    mtu: u32,
) -> Result<OnStack<VhostUserPort>, ServeError> {
    if let Some(why) = too_long(config, mtu as usize) {
        return Err(ServeError::Config(why));
    }
    let port = VhostUserPort::open(socket, &addresses(config))?;
    Ok(OnStack::new(port, mtu as usize, config))
}

fn addresses(config: &ResponderConfig) -> Vec<IpAddr> {
    config.listen.iter().filter_map(Listen::address).map(|address| address.ip()).collect()
}

/// Why datagrams of the configured size do not go over a link with an MTU; `None`: they do. A stack of ours sends no
/// fragments, so it would drop them or make frames that are longer than the link's.
fn too_long(config: &ResponderConfig, mtu: usize) -> Option<String> {
    let is_datagrams = |listen: &Listen| matches!(listen, Listen::Udp(_));
    if config.echo || !config.listen.iter().any(is_datagrams) {
        return None;
    }
    let is_ipv6 = config.listen.iter().filter_map(Listen::address).any(|address| address.is_ipv6());
    let headers = UDP_HEADER_LEN + if is_ipv6 { IPV6_HEADER_LEN } else { IPV4_HEADER_LEN };
    let most = mtu.saturating_sub(headers);
    let bytes = config.raw.response_bytes;
    (bytes as usize > most).then(|| {
        format!("a stack of our own sends datagrams of at most {most} bytes over this link, not {bytes}")
    })
}

/// Why a stack of ours cannot be what is asked for; `None`: it can.
pub(super) fn refused(config: &ResponderConfig) -> Option<String> {
    let refused = |why: &str| Some(format!("a stack of our own {why}"));
    let is_one = |kind: fn(&Listen) -> bool| config.listen.iter().all(kind);
    if !is_one(|listen| matches!(listen, Listen::Http(_)))
        && !is_one(|listen| matches!(listen, Listen::Udp(_)))
    {
        return refused("speaks HTTP or udp:, at all addresses the same");
    }
    let addresses: Vec<SocketAddr> = config.listen.iter().filter_map(Listen::address).collect();
    if addresses.iter().any(|address| address.port() == 0 || address.port() != addresses[0].port()) {
        return refused("has one port, which is not 0");
    }
    let of_family = |v4: bool| addresses.iter().filter(|address| address.is_ipv4() == v4).count();
    if of_family(true) > 1 || of_family(false) > 1 {
        return refused("has one address of a family");
    }
    if config.faults.any() {
        return refused("has no known delays and faults");
    }
    if let Some(StackConfig::VhostUser { mtu, .. }) = &config.stack {
        if addresses.iter().any(|address| address.ip().is_unspecified()) {
            return refused("has no link at a switch whose addresses it could take: they are to be said");
        }
        if !SWITCH_MTU.contains(mtu) {
            let (least, most) = (SWITCH_MTU.start(), SWITCH_MTU.end());
            return Some(format!("a port of a switch has an MTU of {least} to {most} bytes here, not {mtu}"));
        }
    }
    None
}

impl<P> fmt::Debug for OnStack<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnStack").finish_non_exhaustive()
    }
}

impl<P: Port> AnswersAlone for OnStack<P> {
    fn run(mut self: Box<Self>, ends: &dyn Fn() -> bool) -> Result<Served, ServeError> {
        while !ends() {
            let limit_ns = self.turn()?;
            self.packets.port.wait(self.waits.sleeps_ns(limit_ns))?;
        }
        Ok(self.desk.served)
    }
}

impl<P: Port> OnStack<P> {
    /// A stack with the addresses and the port of the configuration.
    fn new(port: P, mtu: usize, config: &ResponderConfig) -> OnStack<P> {
        let mut packets = Packets::new(port, mtu, &addresses(config));
        let mut settings = Config::new(HardwareAddress::Ip);
        settings.random_seed = clock::now_ns();
        let mut interface = Interface::new(settings, &mut packets, Instant::ZERO);
        for address in addresses(config) {
            add_address(&mut interface, address);
        }
        let mut sockets = SocketSet::new(Vec::new());
        let port = config.listen.iter().find_map(Listen::address).map_or(0, |address| address.port());
        let service = match config.listen.first() {
            Some(Listen::Udp(_)) => {
                let handle = sockets.add(datagrams::bound(port));
                let raw = (!config.echo).then_some(config.raw);
                Service::Datagrams { handle, datagrams: Datagrams::new(raw) }
            }
            _ => Service::Http { port, connections: Vec::new() },
        };
        let desk = Desk {
            answers: Answers::new(config.body_bytes, 0),
            last: LastRequest::default(),
            work: CpuWork::new(config.cpu_time),
            served: Served::default(),
        };
        let (waits, started_ns) = (Waits::new(config.idle), clock::now_ns());
        OnStack { packets, interface, sockets, service, desk, waits, started_ns, due: Instant::ZERO }
    }

    /// Takes what came, answers and sends. Returns how long nothing is to be done but for what comes, in nanoseconds.
    fn turn(&mut self) -> Result<u64, ServeError> {
        self.spare();
        let came = self.take();
        let now = self.now();
        if came == 0 && now < self.due && !self.packets.has_answered() {
            return Ok((self.due - now).total_micros() * 1000);
        }
        self.desk.answers.tick();
        if came > 0 {
            self.waits.worked();
        }
        self.serve();
        while self.interface.poll_egress(now, &mut self.packets, &mut self.sockets)
            == PollResult::SocketStateChanged
        {
            // What has left makes room for more of an answer.
            self.serve();
        }
        self.packets.port.flush()?;
        // What could not leave for want of room is tried again soon.
        let delay = self.interface.poll_delay(now, &self.sockets).unwrap_or(TICK);
        self.due = now + delay.clamp(RETRY, TICK);
        Ok(if came == BATCH { 0 } else { (self.due - now).total_micros() * 1000 })
    }

    /// Lets the stack have a batch of packets. How many it were.
    fn take(&mut self) -> usize {
        let now = self.now();
        let mut one = || self.interface.poll_ingress_single(now, &mut self.packets, &mut self.sockets);
        (0..BATCH).take_while(|_| one() != PollIngressSingleResult::None).count()
    }

    fn serve(&mut self) {
        match &mut self.service {
            Service::Http { port, connections } => {
                for connection in connections {
                    let socket = self.sockets.get_mut::<tcp::Socket<'_>>(connection.handle);
                    if !connection.serve(socket, &mut self.desk) {
                        connection::listen(socket, *port);
                        *connection = Connection::new(connection.handle);
                    }
                }
            }
            Service::Datagrams { handle, datagrams } => {
                datagrams.serve(self.sockets.get_mut::<udp::Socket<'_>>(*handle), &mut self.desk);
            }
        }
    }

    /// Makes sure that sockets wait for connections.
    fn spare(&mut self) {
        let Service::Http { port, connections } = &mut self.service else { return };
        let waiting = connections.iter().filter(|connection| {
            self.sockets.get::<tcp::Socket<'_>>(connection.handle).state() == tcp::State::Listen
        });
        for _ in waiting.count()..WAITING {
            if connections.len() < CONNECTIONS_MAX {
                connections.push(Connection::new(self.sockets.add(connection::listening(*port))));
            }
        }
    }

    fn now(&self) -> Instant {
        let elapsed = time::Duration::from_nanos(clock::now_ns() - self.started_ns);
        Instant::from_micros(i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX))
    }
}

/// Gives the stack an address, from which everything can be reached: where to, the device knows.
fn add_address(interface: &mut Interface, address: IpAddr) {
    let length = if address.is_ipv4() { 32 } else { 128 };
    interface.update_ip_addrs(|addresses| {
        let added = addresses.push(IpCidr::new(IpAddress::from(address), length));
        added.expect("there is room for one address of a family");
    });
    let routes = interface.routes_mut();
    let added = match address {
        IpAddr::V4(v4) => routes.add_default_ipv4_route(v4),
        IpAddr::V6(v6) => routes.add_default_ipv6_route(v6),
    };
    added.expect("there is room for one route of a family");
}
