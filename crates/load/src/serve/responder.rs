//! The loop of one thread of the responder.

use std::os::fd::OwnedFd;

use linux::clock;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};

use super::answers::{Answers, BODY_BYTES_MAX};
use super::calls::Calls;
use super::ending::Ending;
use super::error::system;
use super::idle;
use super::injector::Injector;
use super::listener::{Listener, Speaks};
use super::messages::Messages;
use super::peer::{Flushed, Peer, PeerProtocol, Waits};
use super::request::LastRequest;
use super::session::{Opened, Session};
use super::work::CpuWork;
use super::{Certificate, DATAGRAM_BYTES_MAX, Raw, ResponderConfig, ServeError, Served};
use crate::poller::{Poller, Ready, Tag};
use crate::verbs::HELLO_BYTES;

/// How often the stop flag is checked when idle, and how long listeners are not watched for want of descriptors.
const TICK_NS: u64 = 50_000_000;

const INPUT_BYTES: usize = 65_536;

/// The generation of listeners, which no peer has.
const LISTENER: u32 = 0;

pub(super) struct Responder<'a> {
    pub(super) poller: Poller,
    pub(super) listeners: &'a [Listener],
    /// Listeners that are not watched, because there are no descriptors or no memory for more connections.
    paused: Vec<usize>,
    /// When they are watched again, whatever else there is to do.
    resume_ns: u64,
    certificate: Option<&'a Certificate>,
    pub(super) peers: Vec<Option<Peer>>,
    vacant: Vec<u32>,
    /// The generation of the last peer.
    generation: u32,
    pub(super) answers: Answers,
    /// The previous request, for comparison.
    pub(super) last: LastRequest,
    /// Bytes of a request and of its answer on raw connections; `None`: the request declares them.
    pub(super) raw: Option<Raw>,
    input: Box<[u8]>,
    pub(super) output: Vec<u8>,
    /// The datagram sent to UDP peers, except its first bytes.
    pub(super) datagram: Vec<u8>,
    pub(super) served: Served,
    waits: idle::Waits,
    /// The device of messages by RDMA verbs, where they are answered.
    pub(super) messages: Option<Messages>,
    /// What each request costs beside its answer.
    pub(super) work: Option<CpuWork>,
    /// Without faults there is none, and no clock is read.
    pub(super) injector: Option<Injector>,
}

impl<'a> Responder<'a> {
    pub(super) fn new(
        listeners: &'a [Listener],
        config: &'a ResponderConfig,
        injector: Option<Injector>,
        messages: Option<Messages>,
    ) -> Result<Responder<'a>, ServeError> {
        let poller = Poller::new().map_err(system("create an epoll"))?;
        for index in 0..listeners.len() {
            watch_listener(&poller, listeners, index).map_err(system("watch the listening socket"))?;
        }
        let response_bytes_max = if config.echo { BODY_BYTES_MAX } else { config.raw.response_bytes };
        Ok(Responder {
            poller,
            listeners,
            paused: Vec::new(),
            resume_ns: 0,
            certificate: config.certificate.as_ref(),
            peers: Vec::new(),
            vacant: Vec::new(),
            generation: LISTENER,
            answers: Answers::new(config.body_bytes, response_bytes_max),
            last: LastRequest::default(),
            raw: (!config.echo).then_some(config.raw),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            output: Vec::new(),
            datagram: vec![b'x'; response_bytes_max.min(DATAGRAM_BYTES_MAX) as usize],
            served: Served::default(),
            waits: idle::Waits::new(config.idle),
            messages,
            work: CpuWork::new(config.cpu_time),
            injector,
        })
    }

    pub(super) fn run(mut self, ends: &dyn Fn() -> bool) -> Served {
        while !ends() {
            let limit_ns = self.injector.as_ref().map_or(TICK_NS, |injector| injector.timeout_ns(TICK_NS));
            let came = self.await_something(limit_ns);
            self.answers.tick();
            if came || !self.poller.is_empty() {
                self.waits.worked();
            }
            for event in 0..self.poller.len() {
                self.keep_time(ends);
                let ready = self.poller.ready(event);
                if ready.tag.generation == LISTENER {
                    self.on_listener(ready.tag.index as usize);
                } else {
                    self.on_peer(ready);
                }
            }
            self.keep_time(ends);
            if !self.paused.is_empty() && clock::now_ns() >= self.resume_ns {
                self.paused.retain(|index| watch_listener(&self.poller, self.listeners, *index).is_err());
            }
        }
        let injected = self.injector.map(|injector| injector.injected).unwrap_or_default();
        Served { injected, ..self.served }
    }

    /// Waits for events at sockets, or serves messages that are polled for; true if there were any.
    fn await_something(&mut self, limit_ns: u64) -> bool {
        let sleeps_ns = self.waits.sleeps_ns(limit_ns);
        if !self.messages.as_ref().is_some_and(Messages::are_polled) {
            self.poller.wait(sleeps_ns);
            return false;
        }
        self.serve_messages(sleeps_ns)
    }

    fn on_listener(&mut self, index: usize) {
        match self.listeners[index].speaks {
            Speaks::Udp => self.on_datagrams(index),
            Speaks::Http | Speaks::HttpUnix | Speaks::Https | Speaks::Tcp | Speaks::Grpc | Speaks::Verbs => {
                self.accept(index);
            }
        }
    }

    fn accept(&mut self, index: usize) {
        let listener = &self.listeners[index];
        loop {
            match rustix::net::accept_with(&listener.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.welcome(socket, listener.speaks),
                Err(Errno::AGAIN) => return,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // The listener would stay ready and keep the loop turning. Those that wait are accepted after a
                    // while.
                    if self.poller.delete(&listener.socket).is_ok() {
                        self.paused.push(index);
                        self.resume_ns = clock::now_ns() + TICK_NS;
                    }
                    return;
                }
                // The peer went away before it was accepted, and other errors of that one connection (accept(2)).
                Err(_) => {}
            }
            if listener.shared {
                return;
            }
        }
    }

    /// A peer that epoll cannot watch, or that cannot be written to, is dropped, which closes its connection.
    fn welcome(&mut self, socket: OwnedFd, speaks: Speaks) {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() as u32 - 1
        });
        self.generation = self.generation.wrapping_add(1).max(LISTENER + 1);
        match self.peer(socket, speaks, Tag { index, generation: self.generation }) {
            Some(peer) => {
                self.served.connections += 1;
                self.peers[index as usize] = Some(peer);
            }
            None => self.vacant.push(index),
        }
    }

    fn peer(&self, socket: OwnedFd, speaks: Speaks, tag: Tag) -> Option<Peer> {
        let protocol = match speaks {
            Speaks::Grpc => PeerProtocol::Calls(Box::new(Calls::new(socket.try_clone().ok()?))),
            Speaks::Http | Speaks::HttpUnix | Speaks::Https => PeerProtocol::Http { upload: None },
            Speaks::Tcp | Speaks::Udp => self.raw_protocol(),
            Speaks::Verbs => PeerProtocol::Greeting { hello: [0; HELLO_BYTES], got: 0 },
        };
        let session = match speaks {
            Speaks::Https => Some(Box::new(Session::new(self.certificate?.accept().ok()?))),
            Speaks::Http | Speaks::HttpUnix | Speaks::Tcp | Speaks::Udp | Speaks::Grpc | Speaks::Verbs => {
                None
            }
        };
        if speaks != Speaks::HttpUnix {
            sockopt::set_tcp_nodelay(&socket, true).ok()?;
        }
        let peer = Peer::new(socket, tag, protocol, session);
        // A peer that does its own reading and writing is registered for every change, edge-triggered.
        let both = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let events = if speaks == Speaks::Grpc { both } else { peer.waits.events() };
        self.poller.add(&peer.socket, tag, events).ok()?;
        Some(peer)
    }

    /// At the beginning of a request.
    pub(super) fn raw_protocol(&self) -> PeerProtocol {
        PeerProtocol::Raw { partial: 0, whole: self.raw.map(|raw| raw.request_bytes as usize) }
    }

    /// Takes a peer out, if it is still there.
    pub(super) fn take(&mut self, tag: Tag) -> Option<Peer> {
        self.peers.get_mut(tag.index as usize)?.take_if(|peer| peer.tag == tag)
    }

    fn on_peer(&mut self, Ready { tag, flags }: Ready) {
        let Some(mut peer) = self.take(tag) else { return };
        let on = match peer.protocol {
            PeerProtocol::Calls(_) => self.serve_calls(&mut peer),
            PeerProtocol::Greeting { .. } => self.greet(&mut peer),
            PeerProtocol::Http { .. } | PeerProtocol::Raw { .. } => self.serve(&mut peer, flags),
        };
        self.settle(peer, on);
    }

    /// Keeps a peer whose connection continues, and drops any other.
    pub(super) fn settle(&mut self, peer: Peer, on: Result<bool, Errno>) {
        let index = peer.tag.index;
        match on {
            Ok(true) => self.peers[index as usize] = Some(peer),
            Ok(false) => {
                peer.part();
                self.vacant.push(index);
            }
            // Broken: dropping the socket closes the connection.
            Err(_) => self.vacant.push(index),
        }
    }

    /// Does what can be done for a peer. False: the connection is over.
    pub(super) fn serve(&mut self, peer: &mut Peer, flags: EventFlags) -> Result<bool, Errno> {
        match peer.waits {
            Waits::Room if flags.contains(EventFlags::OUT) => {
                if peer.send_rest()? == Flushed::Blocked {
                    return Ok(true);
                }
                self.watch(peer, Waits::Input)?;
                let held = std::mem::take(&mut peer.held);
                self.answer(peer, &held)
            }
            Waits::Input | Waits::Room => {
                let mut input = std::mem::take(&mut self.input);
                let on = self.read(peer, &mut input);
                self.input = input;
                on
            }
            // No event was requested, so this one means that the connection broke.
            Waits::Time => Ok(false),
        }
    }

    fn read(&mut self, peer: &mut Peer, input: &mut [u8]) -> Result<bool, Errno> {
        let input = match peer.receive(input)? {
            None => return Ok(true),
            Some(0) => return self.on_end(peer),
            Some(bytes) => &input[..bytes],
        };
        if peer.session.is_some() {
            return self.read_records(peer, input);
        }
        if peer.held.is_empty() {
            return self.answer(peer, input);
        }
        let mut held = std::mem::take(&mut peer.held);
        held.extend_from_slice(input);
        self.answer(peer, &held)
    }

    fn read_records(&mut self, peer: &mut Peer, records: &[u8]) -> Result<bool, Errno> {
        let mut plain = std::mem::take(&mut peer.held);
        let opened = peer.session.as_mut().map(|session| session.open(records, &mut plain));
        let Some(Ok(opened)) = opened else {
            self.served.broken_tls += 1;
            // The alert with the reason, for the peer.
            peer.send(&[])?;
            return Ok(false);
        };
        peer.has_ended = opened == Opened::Ended;
        self.answer(peer, &plain)
    }

    /// The peer has finished sending, but may still wait for answers.
    pub(super) fn on_end(&mut self, peer: &mut Peer) -> Result<bool, Errno> {
        peer.ending = peer.ending.or(Some(Ending::Close));
        if peer.is_over() {
            return Ok(false);
        }
        if peer.waits == Waits::Input {
            // An end stays readable, and would keep the loop turning.
            self.watch(peer, Waits::Time)?;
        }
        Ok(true)
    }

    pub(super) fn watch(&self, peer: &mut Peer, waits: Waits) -> Result<(), Errno> {
        peer.waits = waits;
        self.poller.modify(&peer.socket, peer.tag, waits.events())
    }
}

fn watch_listener(poller: &Poller, listeners: &[Listener], index: usize) -> Result<(), Errno> {
    let tag = Tag { index: index as u32, generation: LISTENER };
    poller.add(&listeners[index].socket, tag, EventFlags::IN)
}
