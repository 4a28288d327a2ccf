//! The connections of one thread.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use linux::netns::Netns;
use linux::{clock, process};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::ask::{Asks, Reply};
use crate::connection::{Connection, Phase};
use crate::error::system;
use crate::response::Learned;
use crate::{Address, Ask, Fault, LoadError, Target};

/// Bytes that one read can take. Larger bodies take several.
const BUFFER_BYTES: usize = 65_536;

/// Events fetched at once.
pub(crate) const EVENTS: usize = 256;

/// How many connections a client has, and how much each takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Connections that are made before the first request, at least one.
    pub connections: usize,
    /// Connections that there may be when a run opens more ([`crate::WhenBusy::Grow`]).
    pub connections_max: usize,
    /// Requests that may be open on one connection at a time, at least one. More than one is HTTP pipelining.
    pub depth: usize,
    /// How long the connections may take to come about.
    pub timeout: Duration,
    /// The kernel stamps packets, so that the time on the wire can be told from the client's own. For plain TCP and
    /// UDP with a depth of one; costs two system calls a request.
    pub stamps: bool,
    /// Each request opens a connection of its own, and its time begins with that. The server is asked to close it, as
    /// a client that keeps none would; so ports are free again at once. Needs a depth of one.
    pub fresh: bool,
}

impl Pool {
    /// A number of connections, one request on each at a time, no more than those.
    pub fn of(connections: usize, timeout: Duration) -> Pool {
        Pool { connections, connections_max: connections, depth: 1, timeout, stamps: false, fresh: false }
    }
}

/// Permanent connections to one target, kept open from run to run, for one thread at a time.
///
/// It stays in the network namespace in which it was made: make it inside [`Netns::run`], use it from any thread. A
/// thread of a run enters that namespace only if it is in another, so a plain user needs no privilege.
#[derive(Debug)]
pub struct Client {
    pub(crate) target: Target,
    pub(crate) asks: Asks,
    pub(crate) connections: Vec<Connection>,
    /// Connections on which nothing is open, the longest unused first. Each index is in it at most once, so it never
    /// grows. One may have broken since.
    idle: VecDeque<u32>,
    /// Connections on which something is open and more may be, likewise.
    roomy: VecDeque<u32>,
    /// Connections that are down, and when they are tried again; in order of time. Never grows either.
    pub(crate) retry: VecDeque<(u64, u32)>,
    pub(crate) buffer: Box<[u8]>,
    /// For requests that are sent together, and for datagrams.
    pub(crate) scratch: Vec<u8>,
    pub(crate) learned: Learned,
    /// The number of the next datagram. Goes on from run to run, so that a late answer is known as one.
    pub(crate) number: u64,
    /// Requests that may be open on one connection in this run.
    pub(crate) limit: usize,
    epoll: OwnedFd,
    netns: Netns,
    pool: Pool,
}

impl Client {
    /// Opens a number of connections, as [`Client::open`].
    ///
    /// # Errors
    /// As [`Client::open`].
    pub fn connect(target: &Target, connections: usize, timeout: Duration) -> Result<Client, LoadError> {
        Client::open(target, Pool::of(connections, timeout))
    }

    /// Opens the connections, in the namespace of the calling thread, and waits until all are there.
    ///
    /// # Errors
    /// If one is refused, or not there within the time given; if a request for the target cannot be made; if there
    /// are to be no connections, or more than 2³², or more than this process may have open files.
    pub fn open(target: &Target, pool: Pool) -> Result<Client, LoadError> {
        let connections_max = pool.connections_max.max(pool.connections);
        if pool.connections == 0 || pool.depth == 0 || u32::try_from(connections_max).is_err() {
            return Err(LoadError::Shape("a client needs at least one connection"));
        }
        if pool.fresh && (pool.depth > 1 || matches!(target.address, Address::Udp(_))) {
            return Err(LoadError::Shape("a connection for each request carries one, and UDP has none"));
        }
        if pool.stamps
            && (pool.depth > 1 || target.tls.is_some() || matches!(target.address, Address::Unix(_)))
        {
            return Err(LoadError::Shape("packets are stamped for plain TCP and UDP, one request at a time"));
        }
        let asks = target.asks()?;
        let mut connections = Vec::with_capacity(connections_max);
        connections.resize_with(pool.connections, || Connection::new(asks.reply, pool.depth));
        let mut scratch = Vec::with_capacity(asks.longest().saturating_mul(pool.depth));
        if let Reply::Datagram = asks.reply {
            scratch.extend_from_slice(&asks.kinds[0].bytes);
        }
        let mut client = Client {
            target: target.clone(),
            asks,
            connections,
            idle: VecDeque::with_capacity(connections_max),
            roomy: VecDeque::with_capacity(if pool.depth > 1 { connections_max } else { 0 }),
            retry: VecDeque::with_capacity(connections_max),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            scratch,
            learned: Learned::new(),
            number: 0,
            limit: 1,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("create an epoll"))?,
            netns: Netns::current()?,
            pool: Pool { connections_max, ..pool },
        };
        client.make_ready()?;
        if pool.fresh {
            // Whether anybody is there is known before the first run, as it is of connections that stay.
            client.reopen(0).map_err(|fault| client.refused(&fault))?;
            client.wait_until_up()?;
            client.close_leftovers();
        }
        Ok(client)
    }

    /// From now on asks the same server for something else, over the connections that there are.
    ///
    /// # Errors
    /// If such a request cannot be made, or if its answers would have to be read in another way than those so far:
    /// HTTP instead of plain bytes, or plain bytes of another length. Then nothing has changed.
    pub fn ask_for(&mut self, ask: Ask) -> Result<(), LoadError> {
        let target = Target { ask, ..self.target.clone() };
        let asks = target.asks()?;
        if asks.reply != self.asks.reply {
            return Err(LoadError::Shape("connections keep the kind of answer that they were opened for"));
        }
        // A run does not allocate. Datagrams have their bytes in here, and their length.
        if asks.reply == Reply::Datagram {
            self.scratch.clear();
            self.scratch.extend_from_slice(&asks.kinds[0].bytes);
        } else {
            self.scratch.reserve(asks.longest().saturating_mul(self.pool.depth));
        }
        (self.target, self.asks) = (target, asks);
        Ok(())
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Whether the kernel stamps packets.
    pub(crate) fn stamps(&self) -> bool {
        self.pool.stamps
    }

    /// Whether each request opens a connection of its own.
    pub(crate) fn is_fresh(&self) -> bool {
        self.pool.fresh
    }

    /// How many requests may be open on one connection.
    pub(crate) fn depth(&self) -> usize {
        self.pool.depth
    }

    /// Runs the closure with the calling thread in the connections' namespace.
    pub(crate) fn in_netns<T>(&mut self, inside: impl FnOnce(&mut Client) -> T) -> Result<T, LoadError> {
        if Netns::current()?.inode()? == self.netns.inode()? {
            return Ok(inside(self));
        }
        let netns = self.netns.try_clone()?;
        Ok(netns.run(|| inside(self))?)
    }

    /// Makes every connection usable: what was closed meanwhile, or holds bytes of an answer that came too late for
    /// its run, is made anew.
    pub(crate) fn make_ready(&mut self) -> Result<(), LoadError> {
        self.retry.clear();
        if self.pool.fresh {
            self.connections.iter_mut().for_each(Connection::close);
        } else {
            for index in 0..self.connections.len() as u32 {
                if !self.connections[index as usize].is_clean() {
                    self.reopen(index).map_err(|fault| self.refused(&fault))?;
                }
            }
            self.wait_until_up()?;
        }
        self.idle.clear();
        self.roomy.clear();
        for (index, connection) in self.connections.iter_mut().enumerate() {
            connection.in_idle = true;
            connection.in_roomy = false;
            self.idle.push_back(index as u32);
        }
        Ok(())
    }

    /// Waits until everything that is on its way is there.
    fn wait_until_up(&mut self) -> Result<(), LoadError> {
        let deadline_ns = clock::now_ns().saturating_add(self.pool.timeout.as_nanos() as u64);
        let mut events = Vec::with_capacity(EVENTS);
        let mut missing = self.count(|connection| connection.phase == Phase::Connecting);
        while missing > 0 {
            missing -= self.established(&mut events, deadline_ns)?;
        }
        Ok(())
    }

    /// Closes what cannot be used again: an answer to this run's request must not be taken for one of the next run.
    pub(crate) fn close_leftovers(&mut self) {
        for connection in &mut self.connections {
            if self.pool.fresh || connection.phase != Phase::Up || !connection.open.is_empty() {
                connection.close();
            }
        }
    }

    /// Starts connecting.
    pub(crate) fn reopen(&mut self, index: u32) -> Result<(), Fault> {
        self.connections[index as usize].open(index, &self.epoll, &self.target, self.pool.stamps)
    }

    /// Starts a connection more, if there may be one.
    pub(crate) fn grow(&mut self) -> Option<(u32, Result<(), Fault>)> {
        if self.connections.len() >= self.pool.connections_max {
            return None;
        }
        let index = self.connections.len() as u32;
        self.connections.push(Connection::new(self.asks.reply, self.pool.depth));
        Some((index, self.reopen(index)))
    }

    /// A connection that can take a request. If nothing is idle, one with room.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let waits = self.idle_phase();
        while let Some(index) = self.idle.pop_front() {
            let connection = &mut self.connections[index as usize];
            connection.in_idle = false;
            if connection.phase == waits && connection.open.is_empty() {
                return Some(index);
            }
        }
        while let Some(index) = self.roomy.pop_front() {
            let connection = &mut self.connections[index as usize];
            connection.in_roomy = false;
            if connection.phase == Phase::Up && connection.open.len() < self.limit {
                return Some(index);
            }
        }
        None
    }

    /// Puts a connection where [`Client::take`] finds it, if it has room.
    pub(crate) fn offer(&mut self, index: u32) {
        let waits = self.idle_phase();
        let connection = &mut self.connections[index as usize];
        if connection.phase != waits || connection.open.len() >= self.limit {
            return;
        }
        if !connection.open.is_empty() {
            if !connection.in_roomy {
                connection.in_roomy = true;
                self.roomy.push_back(index);
            }
        } else if !connection.in_idle {
            connection.in_idle = true;
            self.idle.push_back(index);
        }
    }

    /// How a connection waits for a request: made, or not yet made.
    fn idle_phase(&self) -> Phase {
        if self.pool.fresh { Phase::Down } else { Phase::Up }
    }

    /// True if [`Client::take`] may find something.
    pub(crate) fn has_room(&self) -> bool {
        !self.idle.is_empty() || !self.roomy.is_empty()
    }

    /// True if every connection waits for a request.
    pub(crate) fn is_all_idle(&self) -> bool {
        self.idle.len() == self.connections.len()
    }

    /// Fetches as many events as there is room for, and waits for the first at most for a time. Being interrupted by
    /// a signal is like no event.
    pub(crate) fn poll(&self, events: &mut Vec<epoll::Event>, timeout_ns: u64) {
        let timeout = Timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as i64,
            tv_nsec: (timeout_ns % 1_000_000_000) as i64,
        };
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => panic!("an epoll of our own, a valid buffer and a valid timeout: {errno}"),
        }
    }

    /// Waits once for events and counts the connections that are established now.
    fn established(&mut self, events: &mut Vec<epoll::Event>, deadline_ns: u64) -> Result<usize, LoadError> {
        let now_ns = clock::now_ns();
        if now_ns >= deadline_ns {
            return Err(self.late());
        }
        let mut established = 0;
        self.poll(events, deadline_ns - now_ns);
        for event in events {
            let Some(index) = Connection::of_event(&self.connections, *event) else { continue };
            let connection = &mut self.connections[index as usize];
            if connection.phase == Phase::Connecting {
                connection.since_ns = now_ns;
                let up = connection.progress().map_err(|fault| self.refused(&fault))?;
                established += usize::from(up);
            }
        }
        Ok(established)
    }

    fn refused(&self, fault: &Fault) -> LoadError {
        let address = self.target.address.clone();
        match fault {
            Fault::System(errno) if *errno == Errno::MFILE.raw_os_error() => {
                LoadError::Files { wanted: self.connections.len(), limit: process::open_files_max() }
            }
            Fault::System(errno) => {
                LoadError::Connect { address, source: io::Error::from_raw_os_error(*errno) }
            }
            fault => LoadError::Connect { address, source: io::Error::other(fault.to_string()) },
        }
    }

    fn late(&self) -> LoadError {
        LoadError::ConnectTimeout {
            address: self.target.address.clone(),
            connected: self.count(|connection| connection.phase == Phase::Up),
            wanted: self.connections.len(),
            waited: self.pool.timeout,
        }
    }

    fn count(&self, test: impl Fn(&Connection) -> bool) -> usize {
        self.connections.iter().filter(|connection| test(connection)).count()
    }
}
