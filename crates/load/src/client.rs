//! The connections of one thread.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use linux::clock;
use linux::netns::Netns;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::connection::{Connection, Phase};
use crate::error::system;
use crate::{LoadError, Target};

/// Bytes that one read can take. Larger bodies take several.
const BUFFER_BYTES: usize = 65_536;

/// Events fetched at once.
pub(crate) const EVENTS: usize = 256;

/// Permanent connections to one target, kept open from run to run, for one thread at a time.
///
/// It stays in the network namespace in which it was made: make it inside [`Netns::run`], use it from any thread. A
/// thread of a run enters that namespace only if it is in another, so a plain user needs no privilege.
#[derive(Debug)]
pub struct Client {
    pub(crate) target: Target,
    pub(crate) request: Vec<u8>,
    pub(crate) connections: Vec<Connection>,
    /// Free connections, the longest unused first. Each index is in it at most once, so it never grows.
    pub(crate) free: VecDeque<u32>,
    /// Connections that are down, and when they are tried again; in order of time. Never grows either.
    pub(crate) retry: VecDeque<(u64, u32)>,
    pub(crate) buffer: Box<[u8]>,
    epoll: OwnedFd,
    netns: Netns,
    timeout: Duration,
}

impl Client {
    /// Opens the connections, in the namespace of the calling thread, and waits until all are there.
    ///
    /// # Errors
    /// If one is refused, or not there within the time given; if a request for the target cannot be made; if there
    /// are to be no connections, or more than 2³².
    pub fn connect(target: &Target, connections: usize, timeout: Duration) -> Result<Client, LoadError> {
        if connections == 0 || u32::try_from(connections).is_err() {
            return Err(LoadError::Shape("a client needs at least one connection"));
        }
        let mut client = Client {
            target: target.clone(),
            request: target.request()?,
            connections: std::iter::repeat_with(Connection::new).take(connections).collect(),
            free: VecDeque::with_capacity(connections),
            retry: VecDeque::with_capacity(connections),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("create an epoll"))?,
            netns: Netns::current()?,
            timeout,
        };
        client.make_ready()?;
        Ok(client)
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.connections.len()
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
        let mut missing = 0;
        for index in 0..self.connections.len() as u32 {
            if !self.connections[index as usize].is_clean() {
                missing += 1;
                self.open(index).map_err(|errno| self.refused(errno))?;
            }
        }
        let deadline_ns = clock::now_ns().saturating_add(self.timeout.as_nanos() as u64);
        let mut events = Vec::with_capacity(EVENTS);
        while missing > 0 {
            missing -= self.established(&mut events, deadline_ns)?;
        }
        self.free.clear();
        for (index, connection) in self.connections.iter_mut().enumerate() {
            connection.queued = true;
            self.free.push_back(index as u32);
        }
        Ok(())
    }

    /// Closes what cannot be used again: an answer to this run's request must not be taken for one of the next run.
    pub(crate) fn close_leftovers(&mut self) {
        for connection in &mut self.connections {
            if !matches!(connection.phase, Phase::Free { .. }) {
                connection.close();
            }
        }
    }

    /// Starts connecting.
    pub(crate) fn open(&mut self, index: u32) -> Result<(), Errno> {
        self.connections[index as usize].open(index, &self.epoll, self.target.address)
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
            if matches!(connection.phase, Phase::Connecting) {
                connection.finish_connect().map_err(|errno| self.refused(errno))?;
                self.connections[index as usize].phase = Phase::Free { since_ns: now_ns };
                established += 1;
            }
        }
        Ok(established)
    }

    fn refused(&self, errno: Errno) -> LoadError {
        LoadError::Connect { address: self.target.address, source: io::Error::from(errno) }
    }

    fn late(&self) -> LoadError {
        let free = |connection: &&Connection| matches!(connection.phase, Phase::Free { .. });
        LoadError::ConnectTimeout {
            address: self.target.address,
            connected: self.connections.iter().filter(free).count(),
            wanted: self.connections.len(),
            waited: self.timeout,
        }
    }
}
