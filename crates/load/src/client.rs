//! The connections of one thread.

mod opening;

use std::collections::VecDeque;
use std::time::Duration;

use linux::netns::Netns;
use linux::rdma::VerbsWait;

use crate::ask::{Asks, ReplyForm};
use crate::connection::{Connection, ConnectionState};
use crate::error::system;
use crate::poller::{Poller, Tag};
use crate::response::Learned;
use crate::{Address, Ask, ConnectionError, LoadError, Pool, Target};

/// Bytes that one read can take. Larger bodies take several.
const BUFFER_BYTES: usize = 65_536;

/// How often it is tried again to get a place in a queue of connections that is full.
pub(crate) const QUEUE_WAIT_NS: u64 = 1_000_000;

/// Permanent connections to one target, kept open from run to run, for one thread at a time.
///
/// It stays in the network namespace in which it was made: make it inside [`Netns::run`], use it from any thread. A
/// thread of a run enters that namespace only if it is in another, so a plain user needs no privilege.
#[derive(Debug)]
pub struct Client {
    pub(crate) target: Target,
    pub(crate) asks: Asks,
    pub(crate) connections: Vec<Connection>,
    /// Connections without open requests, the longest unused first, from run to run: at a low rate all have their turn.
    /// Each index is in it at most once, so it never grows. A connection in it may have broken since.
    idle: VecDeque<u32>,
    /// Connections on which something is open and more may be, likewise.
    roomy: VecDeque<u32>,
    /// Connections that are down, and when they are tried again; in order of time. Each index is in it at most once, so
    /// it never grows either.
    pub(crate) retry: VecDeque<(u64, u32)>,
    pub(crate) buffer: Box<[u8]>,
    /// For requests that are sent together, and for datagrams.
    pub(crate) scratch: Vec<u8>,
    pub(crate) learned: Learned,
    /// The number of the next datagram. Goes on from run to run, so that a late answer is known as one.
    pub(crate) number: u64,
    /// How long answers took on average, in the last run that had any.
    pub(crate) mean_ns: Option<u64>,
    /// Requests that may be open on one connection in this run.
    pub(crate) limit: usize,
    pub(crate) poller: Poller,
    netns: Netns,
    pool: Pool,
    /// No run has begun since every connection was looked at.
    is_ready: bool,
}

impl Client {
    /// Opens a number of connections, like [`Client::open`].
    ///
    /// # Errors
    /// Those of [`Client::open`].
    pub fn connect(target: &Target, connections: usize, timeout: Duration) -> Result<Client, LoadError> {
        Client::open(target, Pool::of(connections, timeout))
    }

    /// Opens the connections, in the namespace of the calling thread, and waits until all are there.
    ///
    /// # Errors
    /// If one is refused, or not there within the time given; if a request for the target cannot be made; if there
    /// are to be no connections, or more than 2³², or more than this process may have open files.
    pub fn open(target: &Target, pool: Pool) -> Result<Client, LoadError> {
        pool.check(target)?;
        let connections_max = pool.connections_max.max(pool.connections);
        let asks = Asks::of(target)?;
        let mut connections = Vec::with_capacity(connections_max);
        let wanted = 0..pool.connections as u32;
        connections.extend(wanted.map(|index| Connection::new(index, asks.reply, pool.depth)));
        let mut scratch = Vec::with_capacity(asks.longest().saturating_mul(pool.depth));
        if let ReplyForm::Datagram = asks.reply {
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
            mean_ns: None,
            limit: 1,
            poller: Poller::new().map_err(system("create an epoll"))?,
            netns: Netns::current()?,
            pool: Pool { connections_max, ..pool },
            is_ready: false,
        };
        client.look_at_all()?;
        // It may be long until the first run.
        client.is_ready = false;
        if pool.fresh {
            client.check_server()?;
        }
        Ok(client)
    }

    /// From now on sends other requests to the same server, over the existing connections.
    ///
    /// # Errors
    /// If such a request cannot be made, or if its answers need another parser: HTTP instead of plain bytes, or plain
    /// bytes of another length. Then the client is unchanged.
    pub fn ask_for(&mut self, ask: Ask) -> Result<(), LoadError> {
        let target = Target { ask, ..self.target.clone() };
        self.pool.check(&target)?;
        let asks = Asks::of(&target)?;
        if asks.reply != self.asks.reply {
            return Err(LoadError::Shape("connections keep the kind of answer that they were opened for"));
        }
        // A run does not allocate. Datagrams have their bytes in here, and their length.
        if asks.reply == ReplyForm::Datagram {
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

    /// The local port of each connection; `None` where it has no socket, or one without ports.
    pub fn local_ports(&self) -> Vec<Option<u16>> {
        self.connections.iter().map(Connection::local_port).collect()
    }

    /// Whether the kernel stamps packets.
    pub(crate) fn stamps(&self) -> bool {
        self.pool.stamps
    }

    /// Whether answers are polled for, and no thread is woken for them.
    pub fn polls(&self) -> bool {
        matches!(&self.target.address, Address::Verbs(by) if by.wait == VerbsWait::Polling)
    }

    /// Whether each request opens a new connection.
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

    /// Makes every connection usable: what was closed meanwhile, or holds bytes of an answer that came too late
    /// for its run, is replaced by a new one. A run begins with it. That takes a system call for each connection,
    /// so whoever counts what a run costs can have it done before; what happens to a connection from then on, the
    /// run takes note of.
    ///
    /// # Errors
    /// Those of [`Client::open`] for connections that have to be replaced.
    pub fn make_ready(&mut self) -> Result<(), LoadError> {
        self.in_netns(Client::look_at_all)?
    }

    /// The same at the beginning of a run, unless it has been done.
    pub(crate) fn begin(&mut self) -> Result<(), LoadError> {
        if !self.is_ready {
            self.look_at_all()?;
        }
        self.is_ready = false;
        Ok(())
    }

    /// Closes what cannot be used again: an answer to this run's request must not be taken for one of the next run.
    pub(crate) fn close_leftovers(&mut self) {
        for connection in &mut self.connections {
            if self.pool.fresh || connection.phase != ConnectionState::Up || !connection.open.is_empty() {
                connection.close();
            }
        }
    }

    /// Starts to connect again; the connection is usable after an event.
    pub(crate) fn reopen(&mut self, index: u32) -> Result<(), ConnectionError> {
        self.connections[index as usize].open(&self.poller, &self.target, self.pool.stamps)
    }

    /// Makes room for a connection more, if there may be one.
    pub(crate) fn grow(&mut self) -> Option<u32> {
        if self.connections.len() >= self.pool.connections_max {
            return None;
        }
        let index = self.connections.len() as u32;
        self.connections.push(Connection::new(index, self.asks.reply, self.pool.depth));
        Some(index)
    }

    /// Has a connection that is down tried again at an instant, or when that was arranged before.
    pub(crate) fn retry_at(&mut self, at_ns: u64, index: u32) {
        let connection = &mut self.connections[index as usize];
        if !std::mem::replace(&mut connection.in_retry, true) {
            let place = self.retry.partition_point(|(other_ns, _)| *other_ns <= at_ns);
            self.retry.insert(place, (at_ns, index));
        }
    }

    /// The next connection that is to be tried again by now.
    pub(crate) fn take_retry(&mut self, now_ns: u64) -> Option<u32> {
        let (_, index) = self.retry.front().copied().filter(|(at_ns, _)| *at_ns <= now_ns)?;
        self.retry.pop_front();
        self.connections[index as usize].in_retry = false;
        Some(index)
    }

    /// A connection that can take a request: an idle one, else one with room.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let waits = self.idle_phase();
        while let Some(index) = self.idle.pop_front() {
            let connection = &mut self.connections[index as usize];
            connection.in_idle = false;
            if connection.phase == waits && connection.taken() == 0 {
                return Some(index);
            }
        }
        while let Some(index) = self.roomy.pop_front() {
            let connection = &mut self.connections[index as usize];
            connection.in_roomy = false;
            if connection.phase == ConnectionState::Up && connection.taken() < self.limit {
                return Some(index);
            }
        }
        None
    }

    /// Puts a connection where [`Client::take`] finds it, if it has room.
    pub(crate) fn offer(&mut self, index: u32) {
        let waits = self.idle_phase();
        let connection = &mut self.connections[index as usize];
        if connection.phase != waits || connection.taken() >= self.limit {
            return;
        }
        if connection.taken() > 0 {
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
    fn idle_phase(&self) -> ConnectionState {
        if self.pool.fresh { ConnectionState::Down } else { ConnectionState::Up }
    }

    /// True if [`Client::take`] may find something.
    pub(crate) fn has_room(&self) -> bool {
        !self.idle.is_empty() || !self.roomy.is_empty()
    }

    /// True if every connection waits for a request.
    pub(crate) fn is_all_idle(&self) -> bool {
        self.idle.len() == self.connections.len()
    }

    /// The index of the connection with a tag, unless it has another socket since.
    pub(crate) fn tagged(&self, tag: Tag) -> Option<u32> {
        self.connections.get(tag.index as usize)?.is_tagged(tag).then_some(tag.index)
    }

    fn count(&self, test: impl Fn(&Connection) -> bool) -> usize {
        self.connections.iter().filter(|connection| test(connection)).count()
    }
}
