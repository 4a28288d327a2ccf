//! Servers that behave as our responder cannot. Each keeps its port until the test's process ends.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use load::{Client, Expect, Outcome, Overdue, Run, Schedule, Target, Wait};

/// The answer of every good server here.
pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// One request on a connection, and how to answer it.
pub(crate) struct Request<'a> {
    pub(crate) stream: &'a TcpStream,
    /// Counts the requests of all connections, from 0.
    pub(crate) number: u64,
    /// Counts the requests of this connection, from 0.
    pub(crate) on_connection: u64,
}

impl Request<'_> {
    pub(crate) fn answer(&self, bytes: &[u8]) -> bool {
        (&mut &*self.stream).write_all(bytes).is_ok()
    }

    /// Sends the last answer of this connection.
    pub(crate) fn answer_and_close(&self, bytes: &[u8]) -> bool {
        self.answer(bytes);
        false
    }
}

/// Starts a server in the namespace of the calling thread. The handler returns whether the connection
/// continues.
pub(crate) fn serve(handle: impl Fn(Request<'_>) -> bool + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let handle: &'static _ = Box::leak(Box::new(handle));
    let requests: &'static AtomicU64 = Box::leak(Box::default());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || converse(&stream, requests, handle));
        }
    });
    address
}

pub(crate) fn converse(stream: &TcpStream, requests: &AtomicU64, handle: &impl Fn(Request<'_>) -> bool) {
    stream.set_nodelay(true).unwrap();
    let mut lines = BufReader::new(stream).split(b'\n');
    for on_connection in 0.. {
        // Requests have no body, so an empty line ends them.
        if !lines.by_ref().map_while(Result::ok).any(|line| line == b"\r") {
            return;
        }
        let number = requests.fetch_add(1, Ordering::Relaxed);
        if !handle(Request { stream, number, on_connection }) {
            return;
        }
    }
}

pub(crate) fn target(address: SocketAddr) -> Target {
    Target::get(address, "test", "/", Expect { status: 200, body_bytes: Some(5) })
}

pub(crate) fn client(address: SocketAddr, connections: usize) -> Client {
    Client::connect(&target(address), connections, Duration::from_secs(5)).unwrap()
}

/// A run that waits long enough for any answer that will come.
pub(crate) fn at(rate_per_s: f64, duration_ms: u64) -> Run {
    Run {
        drain: Duration::from_secs(10),
        wait: Wait::Sleep,
        ..Run::new(Schedule::Constant { rate_per_s }, Duration::from_millis(duration_ms))
    }
}

/// Runs the clients, and checks what must hold for every outcome.
#[track_caller]
pub(crate) fn run(clients: &mut [Client], run: &Run) -> Outcome {
    let outcome = load::run(clients, run).unwrap();
    check(&outcome);
    if let Schedule::Constant { rate_per_s } = run.schedule {
        let rate = load::schedule::Rate::new(rate_per_s).unwrap();
        assert_eq!(outcome.intended, rate.due_within(run.duration.as_nanos() as u64));
    }
    outcome
}

#[track_caller]
pub(crate) fn check(outcome: &Outcome) {
    let Outcome { intended, sent, answered, missed, dropped, .. } = outcome;
    let unexpected = outcome.unexpected.count();
    assert_eq!(*intended, answered + unexpected + missed.count() + dropped.count(), "{outcome:?}");
    assert_eq!(*intended, sent + missed.unsent + dropped.count(), "{outcome:?}");
    assert_eq!(
        *sent,
        answered + unexpected + missed.unanswered + missed.expired + missed.lost,
        "{outcome:?}"
    );
    assert!(missed.stuck <= missed.unanswered, "{outcome:?}");
    let Overdue { total_ns, answers_ns, connections_ns } = outcome.overdue;
    let backlog = outcome.backlog;
    assert!(backlog.total_ns <= total_ns && backlog.answers_ns <= answers_ns, "{outcome:?}");
    assert!(backlog.connections_ns <= connections_ns, "{outcome:?}");
    // A thread is in one state at a time. Only waits for promised connections overlap.
    let threads = outcome.threads.len() as u64;
    assert!(answers_ns + connections_ns <= threads * outcome.duration.as_nanos() as u64, "{outcome:?}");
    assert!(outcome.grown > 0 || answers_ns + connections_ns <= total_ns, "{outcome:?}");
    assert_eq!(outcome.response.len(), outcome.answered);
    assert_eq!(outcome.service.len(), outcome.answered);
    assert!(outcome.split.iter().all(|split| split.wire.len() <= *answered), "{outcome:?}");
    assert_eq!(outcome.lag.len(), outcome.sent);
    assert_eq!(outcome.late.len(), outcome.sent);
    assert!(outcome.late.max() <= outcome.lag.max());
    assert!(outcome.answered_in_schedule <= outcome.answered);
    assert!(outcome.sent <= outcome.intended && outcome.sent_in_schedule <= outcome.sent);
    assert!(outcome.response.max() >= outcome.service.max());
    assert!(outcome.backlog_max < outcome.intended.max(1), "{} of {}", outcome.backlog_max, outcome.intended);
    assert!(outcome.ended_ns > outcome.started_ns);
}
