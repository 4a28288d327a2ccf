//! The minimal generator: sockets, an epoll and a clock. It only counts the bytes of answers, treats every
//! error as fatal, and keeps a single histogram, so no honest generator on epoll is faster.

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
use crate::saturation::Slice;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n";

struct Loop {
    epoll: OwnedFd,
    sockets: Vec<TcpStream>,
    /// The length of an answer. All answers have the same.
    answer_bytes: usize,
    /// Bytes received so far of each socket's current answer.
    received: Vec<usize>,
    events: Vec<epoll::Event>,
    buffer: Vec<u8>,
    /// The most requests that are ever sent together.
    requests: Vec<u8>,
}

/// What the loop does when there is no work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// Sleeps until the next instant or an event.
    Sleep,
    /// Polls again at once.
    Poll,
}

/// Keeps `depth` requests open on each connection all the time.
pub(crate) fn saturate(
    address: SocketAddr,
    connections: usize,
    depth: usize,
    slice: Duration,
) -> Result<Slice, Failure> {
    let mut bare = Loop::connect(address, connections, depth)?;
    let start_ns = clock::now_ns();
    let start_cpu_ns = thread_cpu_ns();
    let end_ns = start_ns + slice.as_nanos() as u64;
    for socket in 0..connections {
        bare.send(socket, depth)?;
    }
    let mut answered = 0;
    while clock::now_ns() < end_ns {
        bare.wait(end_ns.saturating_sub(clock::now_ns()))?;
        for event in 0..bare.events.len() {
            let (socket, answers) = bare.answered(event)?;
            answered += answers;
            if answers > 0 {
                bare.send(socket, answers)?;
            }
        }
    }
    let seconds = (clock::now_ns() - start_ns) as f64 / 1e9;
    let cpu_ns = thread_cpu_ns() - start_cpu_ns;
    Ok(Slice { per_s: answered as f64 / seconds, cpu_s: cpu_ns as f64 / 1e3 / answered as f64 })
}

fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The median of received − intended at a constant rate, in microseconds.
pub(crate) fn constant(
    address: SocketAddr,
    connections: usize,
    slice: Duration,
    rate_per_s: u64,
    idle: Idle,
) -> Result<f64, Failure> {
    let mut bare = Loop::connect(address, connections, 1)?;
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
            bare.send(socket, 1)?;
            sent += 1;
        }
        bare.wait(match idle {
            Idle::Poll => 0,
            // With no free connection or no request left, only an answer can end the wait.
            Idle::Sleep if free.is_empty() || sent == requests => slice.as_nanos() as u64,
            Idle::Sleep => (start_ns + sent * period_ns).saturating_sub(clock::now_ns()),
        })?;
        for event in 0..bare.events.len() {
            if let (socket, 1) = bare.answered(event)? {
                times_ns.push(clock::now_ns() - intended_ns[socket]);
                free.push_back(socket);
            }
        }
    }
    times_ns.sort_unstable();
    Ok(times_ns[times_ns.len() / 2] as f64 / 1000.0)
}

impl Loop {
    fn connect(address: SocketAddr, connections: usize, depth: usize) -> Result<Loop, Failure> {
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
        let (received, requests) = (vec![0; connections], REQUEST.repeat(depth));
        Ok(Loop { epoll, sockets, answer_bytes, received, events, buffer, requests })
    }

    fn send(&self, socket: usize, requests: usize) -> Result<(), Failure> {
        let bytes = &self.requests[..requests * REQUEST.len()];
        match rustix::net::send(&self.sockets[socket], bytes, SendFlags::NOSIGNAL)? {
            sent if sent == bytes.len() => Ok(()),
            sent => Err(format!("the kernel took {sent} of {} bytes", bytes.len()).into()),
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

    /// Reads the socket of an event; returns its index and the number of answers completed.
    fn answered(&mut self, event: usize) -> Result<(usize, usize), Failure> {
        let socket = { self.events[event].data }.u64() as usize;
        let mut answers = 0;
        loop {
            let room = &mut self.buffer[..];
            let (bytes, _) = rustix::net::recv(&self.sockets[socket], &mut *room, RecvFlags::empty())?;
            if bytes == 0 {
                return Err("the server closed a connection".into());
            }
            self.received[socket] += bytes;
            answers += self.received[socket] / self.answer_bytes;
            self.received[socket] %= self.answer_bytes;
            // An edge is reported once, and a full buffer may have left bytes behind.
            if bytes < self.buffer.len() {
                return Ok((socket, answers));
            }
        }
    }
}

/// Sends one request, and reads until no more bytes come for a while.
fn learn(socket: &mut TcpStream, buffer: &mut [u8]) -> Result<usize, Failure> {
    socket.write_all(REQUEST)?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut bytes = 0;
    while let Ok(more @ 1..) = socket.read(buffer) {
        bytes += more;
    }
    if bytes == 0 { Err("the responder did not answer".into()) } else { Ok(bytes) }
}
