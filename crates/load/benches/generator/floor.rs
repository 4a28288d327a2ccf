//! The least that a generator can be: sockets, an epoll, a clock. It looks at no byte of an answer but counts them,
//! knows of no error that it could survive, and keeps a single histogram, so no honest generator on epoll is faster.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use linux::clock;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{RecvFlags, SendFlags};
use rustix::time::Timespec;

use crate::Failure;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n";

struct Loop {
    epoll: OwnedFd,
    sockets: Vec<TcpStream>,
    /// Bytes of a whole answer; all are alike.
    answer_bytes: usize,
    /// Bytes that came of each socket's answer.
    received: Vec<usize>,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
}

/// Requests per second with each connection always busy.
pub(crate) fn saturate(address: SocketAddr, connections: usize, slice: Duration) -> Result<f64, Failure> {
    let mut bare = Loop::connect(address, connections)?;
    let start_ns = clock::now_ns();
    let end_ns = start_ns + slice.as_nanos() as u64;
    for socket in 0..connections {
        bare.send(socket)?;
    }
    let mut answered = 0_u64;
    while clock::now_ns() < end_ns {
        bare.wait(end_ns.saturating_sub(clock::now_ns()))?;
        for event in 0..bare.events.len() {
            if let Some(socket) = bare.answered(event)? {
                answered += 1;
                bare.send(socket)?;
            }
        }
    }
    Ok(answered as f64 / ((clock::now_ns() - start_ns) as f64 / 1e9))
}

/// The median of received − intended at a constant rate, in microseconds. Never sleeps.
pub(crate) fn constant(
    address: SocketAddr,
    connections: usize,
    slice: Duration,
    rate_per_s: u64,
) -> Result<f64, Failure> {
    let mut bare = Loop::connect(address, connections)?;
    let period_ns = 1_000_000_000 / rate_per_s;
    let requests = slice.as_nanos() as u64 / period_ns;
    let mut times_ns: Vec<u64> = Vec::with_capacity(requests as usize);
    let mut free: VecDeque<usize> = (0..connections).collect();
    let mut intended_ns = vec![0; connections];
    let start_ns = clock::now_ns();
    let mut sent = 0;
    while (times_ns.len() as u64) < requests {
        let due_ns = start_ns + sent * period_ns;
        if sent < requests
            && due_ns <= clock::now_ns()
            && let Some(socket) = free.pop_front()
        {
            intended_ns[socket] = due_ns;
            bare.send(socket)?;
            sent += 1;
        }
        bare.wait(0)?;
        for event in 0..bare.events.len() {
            if let Some(socket) = bare.answered(event)? {
                times_ns.push(clock::now_ns() - intended_ns[socket]);
                free.push_back(socket);
            }
        }
    }
    times_ns.sort_unstable();
    Ok(times_ns[times_ns.len() / 2] as f64 / 1000.0)
}

impl Loop {
    fn connect(address: SocketAddr, connections: usize) -> Result<Loop, Failure> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut buffer = vec![0; 65_536];
        let mut sockets = Vec::with_capacity(connections);
        let mut answer_bytes = 0;
        for index in 0..connections {
            let mut socket = TcpStream::connect(address)?;
            socket.set_nodelay(true)?;
            if index == 0 {
                answer_bytes = learn(&mut socket, &mut buffer)?;
            }
            socket.set_nonblocking(true)?;
            epoll::add(&epoll, &socket, EventData::new_u64(index as u64), EventFlags::IN | EventFlags::ET)?;
            sockets.push(socket);
        }
        let events = Vec::with_capacity(256);
        Ok(Loop { epoll, sockets, answer_bytes, received: vec![0; connections], events, buffer })
    }

    fn send(&self, socket: usize) -> Result<(), Failure> {
        match rustix::net::send(&self.sockets[socket], REQUEST, SendFlags::NOSIGNAL)? {
            sent if sent == REQUEST.len() => Ok(()),
            sent => Err(format!("the kernel took {sent} bytes of a request").into()),
        }
    }

    fn wait(&mut self, timeout_ns: u64) -> Result<(), Failure> {
        let timeout = Timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as i64,
            tv_nsec: (timeout_ns % 1_000_000_000) as i64,
        };
        self.events.clear();
        epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout))?;
        Ok(())
    }

    /// Reads what an event tells of. The socket, if its answer is complete.
    fn answered(&mut self, event: usize) -> Result<Option<usize>, Failure> {
        let socket = { self.events[event].data }.u64() as usize;
        let (bytes, _) = rustix::net::recv(&self.sockets[socket], &mut self.buffer[..], RecvFlags::empty())?;
        if bytes == 0 {
            return Err("the responder closed a connection".into());
        }
        self.received[socket] += bytes;
        let complete = self.received[socket] >= self.answer_bytes;
        if complete {
            self.received[socket] -= self.answer_bytes;
        }
        Ok(complete.then_some(socket))
    }
}

/// Asks once, and reads until nothing more comes for a while.
fn learn(socket: &mut TcpStream, buffer: &mut [u8]) -> Result<usize, Failure> {
    socket.write_all(REQUEST)?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut bytes = 0;
    while let Ok(more @ 1..) = socket.read(buffer) {
        bytes += more;
    }
    if bytes == 0 { Err("the responder did not answer".into()) } else { Ok(bytes) }
}
