//! Requests that no socket takes at once.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use load::serve::{Certificate, ResponderConfig, Server};
use load::{Address, Ask, Client, Expect, HttpRequest, Pool, Run, Schedule, Sizes, Target, Tls, Trust};

use crate::responder::with_server;
use crate::servers::{OK, at, run};

/// More than a Unix socket holds, so that its reader has not seen the end when it answers.
const BODY_BYTES: usize = 900_000;

/// Serves each connection of a Unix socket in a thread.
fn on_unix(path: &Path, converse: impl Fn(UnixStream) + Send + Sync + 'static) -> Address {
    let listener = UnixListener::bind(path).unwrap();
    let converse: &'static _ = Box::leak(Box::new(converse));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || converse(stream));
        }
    });
    Address::Unix(path.to_owned())
}

fn post(body_bytes: usize) -> HttpRequest {
    let request = HttpRequest::get("a", "/", Expect::default());
    HttpRequest { method: "POST".to_owned(), body: vec![b'x'; body_bytes], ..request }
}

/// Answers as soon as the head is there, and reads the body after that.
fn answer_the_head(mut stream: UnixStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        if line == "\r\n" {
            if stream.write_all(OK).is_err() {
                return;
            }
            let body = io::copy(&mut lines.by_ref().take(BODY_BYTES as u64), &mut io::sink());
            if body.is_err() {
                return;
            }
        }
        line.clear();
    }
}

#[test]
fn an_answer_before_the_end_of_its_request_is_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let address = on_unix(&dir.path().join("socket"), answer_the_head);
    for fresh in [false, true] {
        let request = if fresh { post(BODY_BYTES).closing() } else { post(BODY_BYTES) };
        let target = Target { address: address.clone(), tls: None, ask: Ask::Http(vec![request]) };
        let pool = Pool { fresh, ..Pool::of(2, Duration::from_secs(5)) };
        let outcome = run(&mut [Client::open(&target, pool).unwrap()], &at(20.0, 500));
        assert_eq!((outcome.answered, outcome.faults.count()), (10, 0), "{outcome:?}");
    }
}

#[test]
fn bytes_that_are_answered_before_they_are_sent_are_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let address = on_unix(&dir.path().join("socket"), |mut stream| {
        let mut request = vec![0; 1 << 20];
        let (first, rest) = request.split_at_mut(1);
        while stream.read_exact(first).is_ok() {
            if stream.write_all(b"y").is_err() || stream.read_exact(rest).is_err() {
                return;
            }
        }
    });
    let ask = Ask::Raw(Sizes { request_bytes: 1 << 20, response_bytes: 1 });
    let target = Target { address, tls: None, ask };
    let client = Client::connect(&target, 1, Duration::from_secs(5)).unwrap();
    let outcome = run(&mut [client], &at(20.0, 500));
    assert_eq!((outcome.answered, outcome.faults.count()), (10, 0), "{outcome:?}");
}

/// Over HTTPS, at a responder.
fn with_https(work: impl FnOnce(Target)) {
    let certificate = Some(Certificate::self_signed().unwrap());
    let listen = vec!["https:127.0.0.1:0".parse().unwrap()];
    with_server(&ResponderConfig { listen, certificate, ..ResponderConfig::default() }, |server: &Server| {
        let tls = Some(Tls::new("localhost", Trust::Anyone).unwrap());
        let ask = Ask::Http(vec![HttpRequest::get("localhost", "/", Expect::default())]);
        work(Target { address: Address::Tcp(server.addresses()[0]), tls, ask });
    });
}

#[test]
fn a_tls_session_takes_a_request_of_any_length() {
    with_https(|target| {
        let target = Target { ask: Ask::Http(vec![post(100_000)]), ..target };
        let client = Client::connect(&target, 2, Duration::from_secs(5)).unwrap();
        let outcome = run(&mut [client], &at(50.0, 200));
        assert_eq!((outcome.answered, outcome.faults.count()), (10, 0), "{outcome:?}");
    });
}

#[test]
fn a_tls_session_takes_a_whole_pipeline() {
    with_https(|target| {
        let pool = Pool { depth: 4096, ..Pool::of(1, Duration::from_secs(5)) };
        let saturate = Run { schedule: Schedule::Saturate, ..at(1.0, 100) };
        let outcome = run(&mut [Client::open(&target, pool).unwrap()], &saturate);
        assert!(outcome.answered >= 4096, "{outcome:?}");
        assert_eq!((outcome.faults.count(), outcome.missed.count()), (0, 0));
    });
}

#[test]
fn a_connection_that_breaks_as_it_comes_up_is_one_fault() {
    let dir = tempfile::tempdir().unwrap();
    // The first connection is the check that the server listens.
    let address = on_unix(&dir.path().join("socket"), drop);
    let ask = Ask::Http(vec![HttpRequest::get("a", "/", Expect::default()).closing()]);
    let pool = Pool { fresh: true, ..Pool::of(8, Duration::from_secs(5)) };
    let client = Client::open(&Target { address, tls: None, ask }, pool).unwrap();
    let outcome = run(&mut [client], &at(1000.0, 500));
    assert_eq!((outcome.missed.lost, outcome.faults.other), (outcome.faults.count(), 0), "{outcome:?}");
}
