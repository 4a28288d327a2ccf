//! The loop of one thread of the responder.

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};
use rustix::time::Timespec;

use super::Served;
use super::answers::Answers;
use super::peer::{Flushed, Peer};
use super::request;
use crate::LoadError;
use crate::error::system;

/// How often the wish to end is looked at when nothing happens.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

const EVENTS: usize = 256;
const INPUT_BYTES: usize = 65_536;

/// Output that is gathered before it is sent: pipelined requests are answered by one `send`, but a peer that asks for
/// much and reads nothing does not fill the memory.
const OUTPUT_BYTES: usize = 262_144;

/// Event data from here on are listeners; peers have their index.
const LISTENERS: u64 = 1 << 63;

pub(super) struct Responder<'a> {
    epoll: OwnedFd,
    listeners: &'a [OwnedFd],
    /// Listeners that are not watched, because there are no descriptors or no memory for more connections.
    paused: Vec<usize>,
    peers: Vec<Option<Peer>>,
    vacant: Vec<usize>,
    answers: Answers,
    input: Box<[u8]>,
    output: Vec<u8>,
    served: Served,
}

impl<'a> Responder<'a> {
    pub(super) fn new(listeners: &'a [OwnedFd], body_bytes: u32) -> Result<Responder<'a>, LoadError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("create an epoll"))?;
        for index in 0..listeners.len() {
            watch_listener(&epoll, listeners, index).map_err(system("watch the listening socket"))?;
        }
        Ok(Responder {
            epoll,
            listeners,
            paused: Vec::new(),
            peers: Vec::new(),
            vacant: Vec::new(),
            answers: Answers::new(body_bytes),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            output: Vec::with_capacity(OUTPUT_BYTES),
            served: Served::default(),
        })
    }

    pub(super) fn run(mut self, ends: &dyn Fn() -> bool) -> Result<Served, LoadError> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        while !ends() {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&TICK)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(system("wait for requests")(errno)),
            }
            self.answers.tick();
            for event in &events {
                match { event.data }.u64() {
                    data if data >= LISTENERS => self.accept((data - LISTENERS) as usize),
                    index => self.on_peer(index as usize, event.flags),
                }
            }
            if events.is_empty() {
                self.paused.retain(|index| watch_listener(&self.epoll, self.listeners, *index).is_err());
            }
        }
        Ok(self.served)
    }

    fn accept(&mut self, index: usize) {
        let listener = &self.listeners[index];
        loop {
            match rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.welcome(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // The listener would stay ready and keep the loop turning. Those who wait are accepted when it
                    // is quiet again.
                    if epoll::delete(&self.epoll, listener).is_ok() {
                        self.paused.push(index);
                    }
                    return;
                }
                // The peer went away before it was accepted, and other errors of that one connection (accept(2)).
                Err(_) => {}
            }
        }
    }

    /// A peer that cannot be watched is dropped, and thereby told.
    fn welcome(&mut self, socket: OwnedFd) {
        let index = self.vacant.pop().unwrap_or(self.peers.len());
        let data = EventData::new_u64(index as u64);
        let watched = sockopt::set_tcp_nodelay(&socket, true)
            .and_then(|()| epoll::add(&self.epoll, &socket, data, EventFlags::IN));
        let peer = watched.is_ok().then(|| Peer::new(socket));
        self.served.connections += u64::from(peer.is_some());
        match (index == self.peers.len(), peer) {
            (true, None) => {}
            (true, peer) => self.peers.push(peer),
            (false, None) => self.vacant.push(index),
            (false, peer) => self.peers[index] = peer,
        }
    }

    fn on_peer(&mut self, index: usize, flags: EventFlags) {
        let Some(mut peer) = self.peers.get_mut(index).and_then(Option::take) else { return };
        match self.serve(&mut peer, index, flags) {
            Ok(true) => self.peers[index] = Some(peer),
            // Over, or broken: dropping the socket tells the peer.
            Ok(false) | Err(_) => self.vacant.push(index),
        }
    }

    /// Does what can be done for a peer. False: the connection is over.
    fn serve(&mut self, peer: &mut Peer, index: usize, flags: EventFlags) -> Result<bool, Errno> {
        if flags.contains(EventFlags::OUT) {
            if peer.send_rest()? == Flushed::Blocked {
                return Ok(true);
            }
            self.watch(peer, index, EventFlags::IN)?;
            let held = std::mem::take(&mut peer.held);
            return self.answer(peer, index, &held);
        }
        let mut input = std::mem::take(&mut self.input);
        let on = self.read(peer, index, &mut input);
        self.input = input;
        on
    }

    fn read(&mut self, peer: &mut Peer, index: usize, input: &mut [u8]) -> Result<bool, Errno> {
        match peer.receive(input)? {
            None => Ok(true),
            Some(0) => Ok(false),
            Some(bytes) if peer.held.is_empty() => self.answer(peer, index, &input[..bytes]),
            Some(bytes) => {
                let mut held = std::mem::take(&mut peer.held);
                held.extend_from_slice(&input[..bytes]);
                self.answer(peer, index, &held)
            }
        }
    }

    /// Answers the requests in the input, in order, and holds the rest.
    fn answer(&mut self, peer: &mut Peer, index: usize, input: &[u8]) -> Result<bool, Errno> {
        let mut used = 0;
        while !peer.closing {
            let complete = self.answer_one(peer, &input[used..]);
            let Some(bytes) = complete else { break };
            used += bytes;
            if self.output.len() >= OUTPUT_BYTES && self.flush(peer, index)? == Flushed::Blocked {
                peer.held = input[used..].to_vec();
                return Ok(true);
            }
        }
        if !peer.closing {
            peer.held.extend_from_slice(&input[used..]);
        }
        Ok(self.flush(peer, index)? == Flushed::Blocked || !peer.closing)
    }

    /// Writes one answer to the output. How many bytes of input that took; `None` if there is no whole request.
    fn answer_one(&mut self, peer: &mut Peer, input: &[u8]) -> Option<usize> {
        if input.is_empty() {
            return None;
        }
        let (bytes, keep_alive) = match request::parse(input) {
            Ok(None) => return None,
            Ok(Some(request)) => {
                match self.answers.body_bytes(request.path) {
                    Some(body_bytes) => {
                        let answer = self.answers.ok(body_bytes, request.keep_alive, request.with_body);
                        self.output.extend_from_slice(answer);
                        self.served.answered += 1;
                    }
                    None => self.refuse(404, request.keep_alive),
                }
                (request.bytes, request.keep_alive)
            }
            Err(status) => {
                self.refuse(status, false);
                (input.len(), false)
            }
        };
        peer.closing = !keep_alive;
        Some(bytes)
    }

    fn refuse(&mut self, status: u16, keep_alive: bool) {
        self.output.extend_from_slice(&self.answers.refusal(status, keep_alive));
        self.served.refused += 1;
    }

    fn flush(&mut self, peer: &mut Peer, index: usize) -> Result<Flushed, Errno> {
        let flushed = peer.send(&self.output);
        self.output.clear();
        if flushed? == Flushed::Blocked {
            self.watch(peer, index, EventFlags::OUT)?;
            return Ok(Flushed::Blocked);
        }
        Ok(Flushed::All)
    }

    fn watch(&self, peer: &Peer, index: usize, flags: EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, &peer.socket, EventData::new_u64(index as u64), flags)
    }
}

fn watch_listener(epoll: &OwnedFd, listeners: &[OwnedFd], index: usize) -> Result<(), Errno> {
    let data = EventData::new_u64(LISTENERS + index as u64);
    epoll::add(epoll, &listeners[index], data, EventFlags::IN)
}
