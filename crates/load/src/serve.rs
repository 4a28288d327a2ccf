//! A responder: a fixed answer to every request, as fast as one thread per CPU can send it.
//!
//! It replaces nginx where that is not installed. Its answers look like nginx's for a static file: a head of about 250
//! bytes, so that a body of 100 bytes is about 350 bytes on the wire. `/` has the default size, `/N` has N bytes up to
//! [`BODY_BYTES_MAX`], other paths are not found. The body of a request is read and discarded.
//!
//! It also speaks two protocols that consist only of sizes ([`Raw`]):
//! - **TCP**: after each `request_bytes` bytes from the peer, `response_bytes` bytes are sent. Their values do not
//!   matter; only the counts separate requests.
//! - **UDP**: each datagram, of any size, is answered by one of `response_bytes` bytes. Its first 8 bytes, or as many
//!   as both have, are those of the request, so that a client can number its requests; the rest does not matter.
//!
//! By RDMA verbs it answers as over TCP, a message for a message ([`MessagesConfig`]).
//!
//! Over HTTP/2 without TLS it also serves gRPC: `/hostgap.Echo/Unary` answers with the message of the call.
//!
//! It can also add known faults: delays, freezes, errors and cuts ([`Faults`]) whose effect on latency follows by
//! arithmetic, so that a generator can be tested with it.
//!
//! Each thread has its own listening socket on the same address (`SO_REUSEPORT`; a Unix socket is shared). Threads
//! share only the flag that ends them.

mod answering;
mod answers;
mod calls;
mod certificate;
mod datagrams;
mod date;
mod delayed_answers;
mod ending;
mod error;
mod faults;
mod idle;
mod injector;
mod line;
mod listen;
mod listener;
mod message_loop;
mod messages;
mod peer;
mod request;
mod request_head;
mod responder;
mod session;
mod stack;
mod upload;
mod work;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use linux::{CpuSet, IfName, clock};

pub use answers::BODY_BYTES_MAX;
pub use certificate::Certificate;
pub use error::ServeError;
pub use faults::{DELAY_MAX, Delay, Faults, Freeze, Mixture, Trickle};
pub use idle::Idle;
pub use listen::{Listen, NoListen};
pub use messages::MessagesConfig;
pub use stack::SWITCH_PATIENCE;
pub use work::CPU_TIME;

use crate::thread::ThreadPlacement;
use injector::Injector;
use listener::{Listener, SocketFile};
use messages::Messages;
use responder::Responder;
use stack::AnswersAlone;

/// The greatest payload of a UDP datagram over IPv4: 65 535 bytes less the headers of IP and UDP.
pub const DATAGRAM_BYTES_MAX: u32 = 65_507;

/// The setup of a responder. The default is plain HTTP on a free port of 127.0.0.1, a body of 100 bytes, and no
/// faults.
#[derive(Debug, Clone)]
pub struct ResponderConfig {
    /// The addresses to listen on, each with its protocol.
    pub listen: Vec<Listen>,
    /// Bytes of the body of `/`, up to [`BODY_BYTES_MAX`].
    pub body_bytes: u32,
    /// Sizes on raw addresses.
    pub raw: Raw,
    /// Instead of those: a raw request over TCP begins with its own length, [`crate::Sizes::LENGTH_BYTES`] bytes, least
    /// significant first, and is answered by as many bytes; a datagram is answered by one as long.
    pub echo: bool,
    /// What it shows on HTTPS addresses, which need one.
    pub certificate: Option<Certificate>,
    /// CPU time in user space that each request costs before it is answered, within [`CPU_TIME`]; zero: none beside
    /// what the answer takes. A delay counts from its end.
    pub cpu_time: Duration,
    /// What goes wrong on purpose.
    pub faults: Faults,
    /// One pinned thread for each of these; empty: one thread, anywhere. On a stack of ours it is one
    /// thread, on the first.
    pub cpus: CpuSet,
    /// What threads do while nothing comes.
    pub idle: Idle,
    /// The stack of our own that answers instead of the kernel's.
    pub stack: Option<StackConfig>,
    /// By what messages of RDMA verbs come and go, at addresses for them, which need it.
    pub messages: Option<MessagesConfig>,
}

/// A stack of our own, which answers instead of the kernel's: HTTP, or raw datagrams, at one port of one address of
/// each family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StackConfig {
    /// It takes frames from a link by AF_XDP before the kernel's stack sees them.
    ///
    /// Addresses that are not said are the link's. The link keeps them: the kernel answers ARP requests and neighbour
    /// solicitations for them, and gets all other packets.
    AfXdp {
        /// The link. Its driver needs XDP, as that of veth has it.
        link: IfName,
        /// The CPU on which the kernel hands frames over; `None`: the one that received them.
        receive_cpu: Option<u16>,
    },
    /// It has the port of a switch in user space to itself, by vhost-user, and answers for its addresses itself.
    VhostUser {
        /// The socket, to which the switch connects. Its file is made, and removed at the end.
        socket: PathBuf,
        /// Bytes of a packet without the Ethernet header.
        mtu: u32,
    },
}

/// Sizes of requests and responses without content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raw {
    /// Bytes of a request over TCP, 1 to [`BODY_BYTES_MAX`]. Over UDP each datagram is a request, whatever its size.
    pub request_bytes: u32,
    /// Bytes of a response, 1 to [`BODY_BYTES_MAX`], over UDP to [`DATAGRAM_BYTES_MAX`].
    pub response_bytes: u32,
}

/// A responder that listens, in the namespace of the thread that bound it. Connections wait until it runs.
///
/// The files of its Unix sockets are removed when it is dropped.
#[derive(Debug)]
pub struct Server {
    /// With the addresses that were taken.
    config: ResponderConfig,
    threads: Vec<ThreadSetup>,
    messages: Option<Messages>,
    _files: Vec<SocketFile>,
}

/// The CPUs of one thread, and where it listens.
#[derive(Debug)]
struct ThreadSetup {
    cpus: Option<CpuSet>,
    listens: Listens,
}

/// Where a thread listens.
#[derive(Debug)]
enum Listens {
    Sockets(Vec<Listener>),
    /// Taken by the one run that a stack has.
    Stack(Mutex<Option<Box<dyn AnswersAlone>>>),
}

/// What a responder did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Served {
    /// Connections accepted since the start.
    pub connections: u64,
    /// Requests answered with 200, and raw ones answered.
    pub answered: u64,
    /// Requests answered with an error.
    pub refused: u64,
    /// TLS handshakes and sessions that failed, because the peer broke the protocol or does not trust the certificate.
    pub broken_tls: u64,
    /// Datagrams that were not answered because the socket or the queue of delayed ones was full.
    pub dropped: u64,
    /// What was done on purpose.
    pub injected: Injected,
}

/// What a responder did because of its [`Faults`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Injected {
    /// Answers held back by a delay.
    pub delays: u64,
    /// Freezes that something waited for, of each thread.
    pub freezes: u64,
    /// Answers replaced by status 503; they are among those refused.
    pub errors: u64,
    /// Connections closed after half an answer, and datagrams not answered. On a connection the answer is also among
    /// those answered or refused.
    pub cuts: u64,
    /// The same, but reset.
    pub resets: u64,
}

impl Server {
    /// Binds the addresses.
    ///
    /// # Errors
    /// If there is no address, one is in use or not this machine's, a size or fault is out of range, or HTTPS is
    /// requested without a certificate.
    pub fn bind(config: &ResponderConfig) -> Result<Server, ServeError> {
        config.check().map_err(ServeError::Config)?;
        let mut config = config.clone();
        let mut server_files = Vec::new();
        let mut threads: Vec<ThreadSetup> = Vec::new();
        let mut cpus: Vec<_> = config.cpus.iter().map(|cpu| Some(CpuSet::from_iter([cpu]))).collect();
        if cpus.is_empty() {
            cpus.push(None);
        }
        let messages = config.messages.as_ref().map(Messages::open).transpose()?;
        if let Some(stack) = config.stack.clone() {
            let stack = stack::open(&mut config, &stack)?;
            cpus.truncate(1);
            let listens = Listens::Stack(Mutex::new(Some(stack)));
            threads.extend(cpus.pop().map(|cpus| ThreadSetup { cpus, listens }));
            return Ok(Server { config, threads, messages, _files: server_files });
        }
        for cpus in cpus {
            let first = threads.first().and_then(|thread| match &thread.listens {
                Listens::Sockets(listeners) => Some(listeners.as_slice()),
                Listens::Stack(_) => None,
            });
            let listeners = listener::listeners(&mut config.listen, first, &mut server_files)?;
            threads.push(ThreadSetup { cpus, listens: Listens::Sockets(listeners) });
        }
        Ok(Server { config, threads, messages, _files: server_files })
    }

    /// Where it listens, with the ports that were taken, in the order of the configuration.
    pub fn listening(&self) -> &[Listen] {
        &self.config.listen
    }

    /// The Internet addresses among those, in their order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.config.listen.iter().filter_map(Listen::address).collect()
    }

    /// Answers until the flag is set, which is checked every 50 ms. Freezes count from the call.
    ///
    /// # Errors
    /// If a thread cannot have its CPU, or the kernel refuses an epoll. Then all threads end.
    pub fn run(&self, stop: &AtomicBool) -> Result<Served, ServeError> {
        let started_ns = clock::now_ns();
        let failed = AtomicBool::new(false);
        let ends = || stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
        thread::scope(|scope| {
            let (failed, ends) = (&failed, &ends);
            let mut threads = Vec::new();
            for index in 0..self.threads.len() {
                threads.push(scope.spawn(move || {
                    let served = self.thread(index, started_ns, ends);
                    failed.fetch_or(served.is_err(), Ordering::Relaxed);
                    served
                }));
            }
            threads.into_iter().try_fold(Served::default(), |total, thread| {
                let served = thread.join().expect("a thread of the responder does not panic")?;
                Ok(total.plus(served))
            })
        })
    }

    fn thread(
        &self,
        index: usize,
        started_ns: u64,
        ends: &(dyn Fn() -> bool + Sync),
    ) -> Result<Served, ServeError> {
        let thread = &self.threads[index];
        ThreadPlacement { cpus: thread.cpus.as_ref(), scheduling: None }.take()?;
        let listeners = match &thread.listens {
            Listens::Sockets(listeners) => listeners,
            Listens::Stack(stack) => {
                let stack = stack.lock().unwrap_or_else(PoisonError::into_inner).take();
                return stack.map_or(Ok(Served::default()), |stack| stack.run(ends));
            }
        };
        let injector = Injector::start(&self.config.faults, index, started_ns);
        Ok(Responder::new(listeners, &self.config, injector, self.messages.clone())?.run(ends))
    }
}

impl ResponderConfig {
    /// Returns the first error in it.
    fn check(&self) -> Result<(), String> {
        let any = |wanted: fn(&Listen) -> bool| self.listen.iter().any(wanted);
        let Raw { request_bytes, response_bytes } = self.raw;
        let datagrams = any(|listen| matches!(listen, Listen::Udp(_)));
        let response_bytes_max = if datagrams { DATAGRAM_BYTES_MAX } else { BODY_BYTES_MAX };
        if self.listen.is_empty() {
            return Err("an address to listen on is needed".to_owned());
        }
        if self.body_bytes > BODY_BYTES_MAX {
            return Err(format!("a body of at most {BODY_BYTES_MAX} bytes is possible"));
        }
        if !(1..=BODY_BYTES_MAX).contains(&request_bytes) {
            return Err(format!("a raw request has 1 to {BODY_BYTES_MAX} bytes, not {request_bytes}"));
        }
        if !(1..=response_bytes_max).contains(&response_bytes) {
            let over = if datagrams { " over UDP" } else { "" };
            return Err(format!(
                "a raw response has 1 to {response_bytes_max} bytes{over}, not {response_bytes}"
            ));
        }
        if self.faults.any() && any(|listen| matches!(listen, Listen::Grpc(_))) {
            return Err("known delays and faults are for HTTP, tcp: and udp:, and not for gRPC".to_owned());
        }
        if !self.cpu_time.is_zero() && !CPU_TIME.contains(&self.cpu_time) {
            let (least, most) = (CPU_TIME.start().as_micros(), CPU_TIME.end().as_micros());
            return Err(format!("a request costs {least} to {most} µs of CPU time"));
        }
        if let Some(why) = messages::refused(self) {
            return Err(why);
        }
        if self.certificate.is_none() && any(|listen| matches!(listen, Listen::Https(_))) {
            return Err("HTTPS needs a certificate".to_owned());
        }
        if self.faults.errors > 0.0 && any(Listen::is_raw) && !any(|listen| !listen.is_raw()) {
            return Err("an error is an HTTP status, and no address here speaks HTTP".to_owned());
        }
        if let Some(why) = self.stack.as_ref().and_then(|_| stack::refused(self)) {
            return Err(why);
        }
        self.faults.check()
    }
}

impl Default for ResponderConfig {
    fn default() -> ResponderConfig {
        ResponderConfig {
            listen: vec![Listen::Http((Ipv4Addr::LOCALHOST, 0).into())],
            body_bytes: 100,
            raw: Raw::default(),
            echo: false,
            certificate: None,
            cpu_time: Duration::ZERO,
            faults: Faults::default(),
            cpus: CpuSet::default(),
            idle: Idle::Sleep,
            stack: None,
            messages: None,
        }
    }
}

impl Default for Raw {
    /// Requests and responses of 64 bytes.
    fn default() -> Raw {
        Raw { request_bytes: 64, response_bytes: 64 }
    }
}

impl Served {
    fn plus(self, other: Served) -> Served {
        Served {
            connections: self.connections + other.connections,
            answered: self.answered + other.answered,
            refused: self.refused + other.refused,
            broken_tls: self.broken_tls + other.broken_tls,
            dropped: self.dropped + other.dropped,
            injected: self.injected.plus(other.injected),
        }
    }
}

impl Injected {
    fn plus(self, other: Injected) -> Injected {
        Injected {
            delays: self.delays + other.delays,
            freezes: self.freezes + other.freezes,
            errors: self.errors + other.errors,
            cuts: self.cuts + other.cuts,
            resets: self.resets + other.resets,
        }
    }
}
