//! Downloads: clients that each fetch a number of objects, one after the other, a new connection for each, and are done
//! when they have them. There is no schedule and no end but the last byte.
//!
//! It is what ApacheBench does without `-k`. Connections of one thread are read in turn, a buffer each, so that none
//! waits until another has all of its object.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use linux::cpu::Scheduling;
use linux::{CpuSet, Netns, clock};
use rustix::event::epoll::EventFlags;

use crate::ask::{Asks, ReplyForm};
use crate::client_socket::Received;
use crate::connection::{Connection, ConnectionState, OpenRequest};
use crate::error::system;
use crate::outcome::histogram;
use crate::poller::{Poller, Ready};
use crate::response::{Learned, Response};
use crate::thread::ThreadPlacement;
use crate::{ConnectionError, Handshakes, Histogram, LoadError, Target, ThreadCost};

/// Bytes that one read can take.
const BUFFER_BYTES: usize = 262_144;
/// The longest sleep, after which the time limit is checked.
const LOOK_NS: u64 = 50_000_000;

/// How much is fetched, and by whom.
#[derive(Debug, Clone)]
pub struct Download {
    /// Clients, at least one; each has one connection at a time.
    pub clients: usize,
    /// Objects of each, at least one.
    pub objects: u32,
    /// The time limit for all downloads together.
    pub limit: Duration,
    /// CPUs of each thread, among which the clients are divided; empty: one thread, anywhere.
    pub threads: Vec<CpuSet>,
    /// The scheduling class of the threads.
    pub scheduling: Scheduling,
}

/// The result of the downloads.
#[derive(Debug, Clone)]
pub struct Downloaded {
    /// When the first connection was begun, in nanoseconds of [`linux::clock`].
    pub started_ns: u64,
    /// When the last byte had come.
    pub ended_ns: u64,
    /// Objects that came whole, as expected.
    pub objects: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// From the beginning of the connection to the last byte of an object, in nanoseconds.
    pub times: Histogram<u64>,
    /// All of those added up, in nanoseconds.
    pub times_ns: u64,
    /// How connections in TLS began.
    pub handshakes: Handshakes,
    /// CPU time and context switches of each thread, in the order of the threads.
    pub threads: Vec<ThreadCost>,
}

/// Fetches all objects, with connections that are made in a namespace.
///
/// # Errors
/// An object did not arrive, differed from the expectation, or ran out of time; the request cannot be made; a CPU or a
/// scheduling class is not available.
pub fn download(target: &Target, order: &Download, netns: &Netns) -> Result<Downloaded, LoadError> {
    if order.clients == 0 || order.objects == 0 {
        return Err(LoadError::Shape("a download has at least one client and one object"));
    }
    let anywhere = [CpuSet::default()];
    let places = if order.threads.is_empty() { &anywhere[..] } else { &order.threads };
    let threads = places.len().min(order.clients);
    let deadline_ns = clock::now_ns().saturating_add(order.limit.as_nanos() as u64);
    let results: Vec<Result<(Downloaded, ThreadCost), LoadError>> = thread::scope(|scope| {
        let running: Vec<_> = places[..threads]
            .iter()
            .enumerate()
            .map(|(index, cpus)| {
                let clients = order.clients / threads + usize::from(index < order.clients % threads);
                let placement = ThreadPlacement::on(cpus, order.scheduling);
                let work = move || Clients::new(target, clients, order)?.run(deadline_ns);
                scope.spawn(move || inside(netns, || placement.work(work)))
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("a thread of a download does not panic"))
            .collect()
    });
    let mut total = Downloaded::new();
    for result in results {
        let (downloaded, cost) = result?;
        total.merge(&downloaded);
        total.threads.push(cost);
    }
    Ok(total)
}

/// In a namespace; a plain user who is in it already needs no privilege.
fn inside<T>(netns: &Netns, work: impl FnOnce() -> Result<T, LoadError>) -> Result<T, LoadError> {
    if Netns::current()?.inode()? == netns.inode()? {
        return work();
    }
    netns.try_clone()?.run(work)?
}

/// A client: how many objects it has to fetch yet, and since when it is at this one.
#[derive(Debug)]
struct Fetching {
    connection: Connection,
    left: u32,
    since_ns: u64,
    /// Its index stands in the queue of those with something to read.
    queued: bool,
}

/// Why a download ended before it was done.
enum Stop {
    Fault(ConnectionError),
    Unexpected(Response),
    Late,
}

impl<E: Into<ConnectionError>> From<E> for Stop {
    fn from(fault: E) -> Stop {
        Stop::Fault(fault.into())
    }
}

/// The clients of one thread.
struct Clients<'a> {
    target: &'a Target,
    asks: Asks,
    poller: Poller,
    clients: Vec<Fetching>,
    readable: VecDeque<u32>,
    busy: usize,
    buffer: Box<[u8]>,
    scratch: Vec<u8>,
    learned: Learned,
    downloaded: Downloaded,
    wanted: u64,
}

impl<'a> Clients<'a> {
    fn new(target: &'a Target, clients: usize, order: &Download) -> Result<Clients<'a>, LoadError> {
        let asks = Asks::of(target)?;
        if asks.reply != ReplyForm::Http {
            return Err(LoadError::Shape("objects are fetched over HTTP"));
        }
        let fetching = |index| Fetching {
            connection: Connection::new(index, ReplyForm::Http, 1),
            left: order.objects,
            since_ns: 0,
            queued: false,
        };
        Ok(Clients {
            target,
            asks,
            poller: Poller::new().map_err(system("create an epoll"))?,
            clients: (0..clients as u32).map(fetching).collect(),
            readable: VecDeque::with_capacity(clients),
            busy: clients,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            scratch: Vec::new(),
            learned: Learned::new(),
            downloaded: Downloaded::new(),
            wanted: clients as u64 * u64::from(order.objects),
        })
    }

    fn run(mut self, deadline_ns: u64) -> Result<Downloaded, LoadError> {
        self.downloaded.started_ns = clock::now_ns();
        for index in 0..self.clients.len() as u32 {
            self.begin(index).map_err(|stop| self.failed(&stop))?;
        }
        while self.busy > 0 {
            let now_ns = clock::now_ns();
            if now_ns >= deadline_ns {
                return Err(self.failed(&Stop::Late));
            }
            let patience_ns = if self.readable.is_empty() { LOOK_NS.min(deadline_ns - now_ns) } else { 0 };
            self.poller.wait(patience_ns);
            for event in 0..self.poller.len() {
                self.on_event(self.poller.ready(event)).map_err(|stop| self.failed(&stop))?;
            }
            for _ in 0..self.readable.len() {
                let Some(index) = self.readable.pop_front() else { break };
                self.clients[index as usize].queued = false;
                self.read(index).map_err(|stop| self.failed(&stop))?;
            }
        }
        Ok(self.downloaded)
    }

    /// Starts the connection of the next object.
    fn begin(&mut self, index: u32) -> Result<(), Stop> {
        let client = &mut self.clients[index as usize];
        client.since_ns = clock::now_ns();
        client.connection.open(&self.poller, self.target, false)?;
        let since_ns = client.since_ns;
        let open = OpenRequest {
            intended_ns: since_ns,
            sent_ns: since_ns,
            free_ns: since_ns,
            ordinal: 0,
            number: 0,
            kind: 0,
        };
        client.connection.open.push_back(open);
        Ok(())
    }

    fn on_event(&mut self, Ready { tag, flags }: Ready) -> Result<(), Stop> {
        let Some(client) = self.clients.get_mut(tag.index as usize) else { return Ok(()) };
        if !client.connection.is_tagged(tag) {
            return Ok(());
        }
        match client.connection.phase {
            ConnectionState::Down => return Ok(()),
            ConnectionState::Connecting => {
                if !client.connection.progress()? {
                    return Ok(());
                }
                self.downloaded.handshakes.count(client.connection.resumed());
                let bytes = self.asks.kinds[0].bytes.len();
                client.connection.send(bytes, &self.asks, &mut self.scratch)?;
            }
            ConnectionState::Up if flags.contains(EventFlags::OUT) => {
                client.connection.send_rest(&self.asks, &mut self.scratch)?;
            }
            ConnectionState::Up => {}
        }
        self.queue(tag.index);
        Ok(())
    }

    fn queue(&mut self, index: u32) {
        let client = &mut self.clients[index as usize];
        if !client.queued {
            client.queued = true;
            self.readable.push_back(index);
        }
    }

    /// Reads once; the rest is read in the next turn.
    fn read(&mut self, index: u32) -> Result<(), Stop> {
        let client = &mut self.clients[index as usize];
        if client.connection.phase != ConnectionState::Up {
            return Ok(());
        }
        match client.connection.receive(&mut self.buffer)? {
            Received::Empty => return Ok(()),
            Received::Bytes(bytes) => {
                if client.connection.open.is_empty() {
                    return Err(ConnectionError::Unasked.into());
                }
                let found = client.connection.feed(&self.buffer[..bytes], false, &mut self.learned)?;
                if let Some((used, response)) = found {
                    if used < bytes {
                        return Err(ConnectionError::Unasked.into());
                    }
                    self.complete(index, response)?;
                }
            }
            Received::End => return self.on_end(index),
        }
        // A restarted connection waits for its own event.
        if self.clients[index as usize].connection.phase == ConnectionState::Up {
            self.queue(index);
        }
        Ok(())
    }

    fn on_end(&mut self, index: u32) -> Result<(), Stop> {
        let connection = &mut self.clients[index as usize].connection;
        if !connection.open.is_empty() {
            let response = connection.end()?.ok_or(ConnectionError::Closed)?;
            self.complete(index, response)?;
        }
        self.go_on(index)
    }

    /// An object is there. Its connection ends when the server closes it, as it was asked to.
    fn complete(&mut self, index: u32, response: Response) -> Result<(), Stop> {
        let now_ns = clock::now_ns();
        let client = &mut self.clients[index as usize];
        client.connection.open.pop_front();
        client.left -= 1;
        let expect = self.asks.kinds[0].expect;
        let length_is_right = expect.body_bytes.is_none_or(|bytes| bytes == response.body_bytes);
        if response.status != expect.status || !length_is_right {
            return Err(Stop::Unexpected(response));
        }
        let took_ns = now_ns - client.since_ns;
        self.downloaded.objects += 1;
        self.downloaded.bytes += response.body_bytes;
        self.downloaded.times.saturating_record(took_ns);
        self.downloaded.times_ns += took_ns;
        self.downloaded.ended_ns = now_ns;
        if response.keep_alive { self.go_on(index) } else { Ok(()) }
    }

    /// To the next object, if there is one.
    fn go_on(&mut self, index: u32) -> Result<(), Stop> {
        let client = &mut self.clients[index as usize];
        client.connection.close();
        if client.left > 0 {
            return self.begin(index);
        }
        self.busy -= 1;
        Ok(())
    }

    fn failed(&self, stop: &Stop) -> LoadError {
        LoadError::Download {
            address: self.target.address.clone(),
            objects: self.downloaded.objects,
            wanted: self.wanted,
            why: match stop {
                Stop::Fault(fault) => fault.to_string(),
                Stop::Unexpected(Response { status, body_bytes, .. }) => {
                    format!("the server answered with status {status} and {body_bytes} bytes")
                }
                Stop::Late => "there was no time left".to_owned(),
            },
        }
    }
}

impl Downloaded {
    fn new() -> Downloaded {
        Downloaded {
            started_ns: u64::MAX,
            ended_ns: 0,
            objects: 0,
            bytes: 0,
            times: histogram(),
            times_ns: 0,
            handshakes: Handshakes::default(),
            threads: Vec::new(),
        }
    }

    /// From the first connection's beginning to the last byte.
    pub fn wall(&self) -> Duration {
        Duration::from_nanos(self.ended_ns.saturating_sub(self.started_ns))
    }

    /// Bits of bodies per second of that time.
    pub fn bits_per_s(&self) -> f64 {
        let wall = self.wall();
        if wall.is_zero() { 0.0 } else { self.bytes as f64 * 8.0 / wall.as_secs_f64() }
    }

    fn merge(&mut self, other: &Downloaded) {
        self.started_ns = self.started_ns.min(other.started_ns);
        self.ended_ns = self.ended_ns.max(other.ended_ns);
        self.objects += other.objects;
        self.bytes += other.bytes;
        self.times.add(&other.times).expect("all histograms have the same bounds");
        self.times_ns += other.times_ns;
        self.handshakes.add(other.handshakes);
    }
}
