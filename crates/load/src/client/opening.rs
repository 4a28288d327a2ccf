//! Connections are made, and waited for, before a run begins.

use std::time::Duration;
use std::{io, thread};

use linux::{clock, process};
use rustix::io::Errno;

use super::{Client, QUEUE_WAIT_NS};
use crate::connection::{Connection, ConnectionState};
use crate::intervals::AnswerTimes;
use crate::{ConnectionError, LoadError};

impl Client {
    pub(super) fn look_at_all(&mut self) -> Result<(), LoadError> {
        self.retry.clear();
        self.connections.iter_mut().for_each(|connection| connection.in_retry = false);
        if self.pool.fresh {
            self.connections.iter_mut().for_each(Connection::close);
        } else {
            let deadline_ns = self.deadline_ns();
            self.connect_all(deadline_ns)?;
            // Some may have ended while the others were made, and an edge is reported only once.
            self.connect_all(deadline_ns)?;
        }
        self.poller.clear();
        self.line_up();
        self.is_ready = true;
        Ok(())
    }

    /// All connections are idle, and the one that has been so for longest is the next.
    fn line_up(&mut self) {
        let next = self.idle.front().copied().unwrap_or(0);
        self.idle.clear();
        self.roomy.clear();
        for connection in &mut self.connections {
            (connection.in_idle, connection.in_roomy) = (true, false);
            connection.times = AnswerTimes::default();
        }
        self.idle.extend((next..self.connections.len() as u32).chain(0..next));
    }

    /// Makes the connections that cannot be used, and waits until they are there.
    fn connect_all(&mut self, deadline_ns: u64) -> Result<(), LoadError> {
        while !self.start_all()? {
            let now_ns = clock::now_ns();
            if now_ns >= deadline_ns {
                return Err(self.late());
            }
            self.established(deadline_ns.min(now_ns + QUEUE_WAIT_NS))?;
        }
        self.wait_until_up(deadline_ns)
    }

    /// Checks before the first run that the server answers, as opening permanent connections does.
    pub(super) fn check_server(&mut self) -> Result<(), LoadError> {
        let deadline_ns = self.deadline_ns();
        while let Err(fault) = self.reopen(0) {
            if !fault.is_full() {
                return Err(self.refused(&fault));
            }
            if clock::now_ns() >= deadline_ns {
                return Err(self.late());
            }
            thread::sleep(Duration::from_nanos(QUEUE_WAIT_NS));
        }
        self.wait_until_up(deadline_ns)?;
        self.close_leftovers();
        Ok(())
    }

    /// Until when connections that are started now may take.
    fn deadline_ns(&self) -> u64 {
        clock::now_ns().saturating_add(self.pool.timeout.as_nanos() as u64)
    }

    /// Starts every connection that cannot be used. False: there was no room for one in the server's queue.
    fn start_all(&mut self) -> Result<bool, LoadError> {
        for index in 0..self.connections.len() as u32 {
            let connection = &mut self.connections[index as usize];
            if connection.phase == ConnectionState::Connecting || connection.is_clean() {
                continue;
            }
            match self.reopen(index) {
                Ok(()) => {}
                Err(fault) if fault.is_full() => return Ok(false),
                Err(fault) => return Err(self.refused(&fault)),
            }
        }
        Ok(true)
    }

    /// Waits until all connections in progress are established.
    fn wait_until_up(&mut self, deadline_ns: u64) -> Result<(), LoadError> {
        let mut missing = self.count(|connection| connection.phase == ConnectionState::Connecting);
        while missing > 0 {
            if clock::now_ns() >= deadline_ns {
                return Err(self.late());
            }
            missing -= self.established(deadline_ns)?;
        }
        Ok(())
    }

    /// Waits once for events and counts the connections that are established now.
    fn established(&mut self, until_ns: u64) -> Result<usize, LoadError> {
        let now_ns = clock::now_ns();
        let mut established = 0;
        self.poller.wait(until_ns.saturating_sub(now_ns));
        for event in 0..self.poller.len() {
            let Some(index) = self.tagged(self.poller.ready(event).tag) else { continue };
            let connection = &mut self.connections[index as usize];
            if connection.phase == ConnectionState::Connecting {
                connection.since_ns = now_ns;
                let up = connection.progress().map_err(|fault| self.refused(&fault))?;
                established += usize::from(up);
            }
        }
        Ok(established)
    }

    fn refused(&self, fault: &ConnectionError) -> LoadError {
        let address = self.target.address.clone();
        match fault {
            ConnectionError::System(errno) if *errno == Errno::MFILE.raw_os_error() => {
                LoadError::Files { wanted: self.connections.len(), limit: process::open_files_max() }
            }
            ConnectionError::System(errno) => {
                LoadError::Connect { address, why: io::Error::from_raw_os_error(*errno) }
            }
            fault => LoadError::Connect { address, why: io::Error::other(fault.to_string()) },
        }
    }

    fn late(&self) -> LoadError {
        LoadError::ConnectTimeout {
            address: self.target.address.clone(),
            connected: self.count(|connection| connection.phase == ConnectionState::Up),
            wanted: self.connections.len(),
            waited: self.pool.timeout,
        }
    }
}
