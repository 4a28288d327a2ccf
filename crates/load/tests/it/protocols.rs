//! Other than the simplest requests, over other sockets than TCP's.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use load::{Address, Ask, Client, Expect, HttpRequest, LoadError, Pool, Run, Schedule, Sizes, Target};

use crate::servers::{OK, at, run, serve};

const FIVE: Expect = Expect { status: 200, body_bytes: Some(5) };

fn http(address: SocketAddr, requests: Vec<HttpRequest>) -> Target {
    Target { address: Address::Tcp(address), tls: None, ask: Ask::Http(requests) }
}

fn raw(address: Address, request_bytes: u32, response_bytes: u32) -> Target {
    Target { address, tls: None, ask: Ask::Raw(Sizes { request_bytes, response_bytes }) }
}

fn connect(target: &Target, connections: usize) -> Client {
    Client::connect(target, connections, Duration::from_secs(5)).unwrap()
}

#[test]
fn an_answer_to_head_has_no_body() {
    let address = serve(|request| request.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"));
    let method = "HEAD".to_owned();
    let head =
        HttpRequest { method, ..HttpRequest::get("a", "/", Expect { status: 200, body_bytes: Some(0) }) };
    let outcome = run(&mut [connect(&http(address, vec![head]), 2)], &at(500.0, 100));
    assert_eq!((outcome.answered, outcome.faults.count()), (50, 0));
}

#[test]
fn several_requests_are_asked_as_often_as_they_weigh() {
    // The answers differ in length, and each must meet the expectation of its own request.
    let seen: Arc<Mutex<HashMap<Vec<u8>, u64>>> = Arc::default();
    let counts = Arc::clone(&seen);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, seen) = (stream.unwrap(), Arc::clone(&seen));
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                    let line = buffer[..bytes].split(|byte| *byte == b'\r').next().unwrap().to_vec();
                    let body = if line.starts_with(b"POST") { "x" } else { "hello" };
                    *seen.lock().unwrap().entry(line).or_default() += 1;
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    stream.write_all((head + body).as_bytes()).unwrap();
                }
            });
        }
    });
    let get = HttpRequest { weight: 3, ..HttpRequest::get("a", "/get", FIVE) };
    let post = HttpRequest {
        method: "POST".to_owned(),
        body: b"12345".to_vec(),
        expect: Expect { status: 200, body_bytes: Some(1) },
        ..HttpRequest::get("a", "/post", FIVE)
    };
    let outcome = run(&mut [connect(&http(address, vec![get, post]), 4)], &at(4000.0, 250));
    assert_eq!((outcome.answered, outcome.unexpected.count()), (1000, 0));
    let counts = counts.lock().unwrap();
    let [get, post] = ["GET /get HTTP/1.1", "POST /post HTTP/1.1"].map(|line| counts[line.as_bytes()]);
    assert_eq!(get + post, 1000);
    assert!((680..820).contains(&get), "{get}");
}

#[test]
fn a_unix_socket_carries_http() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(1..) = stream.read(&mut buffer) {
                    stream.write_all(OK).unwrap();
                }
            });
        }
    });
    let ask = Ask::Http(vec![HttpRequest::get("a", "/", FIVE)]);
    let target = Target { address: Address::Unix(path), tls: None, ask };
    let outcome = run(&mut [connect(&target, 4)], &at(1000.0, 200));
    assert_eq!((outcome.answered, outcome.faults.count()), (200, 0));

    let absent = Target { address: Address::Unix(dir.path().join("absent")), ..target };
    let refused = Client::connect(&absent, 1, Duration::from_secs(1));
    assert!(matches!(refused, Err(LoadError::Connect { .. })), "{refused:?}");
}

#[test]
fn bytes_are_answered_by_bytes() {
    const REQUEST: usize = 100;
    const RESPONSE: usize = 70_000;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut request = [0; REQUEST];
                while stream.read_exact(&mut request).is_ok() {
                    stream.write_all(&[7; RESPONSE]).unwrap();
                }
            });
        }
    });
    let target = raw(Address::Tcp(address), REQUEST as u32, RESPONSE as u32);
    let outcome = run(&mut [connect(&target, 3)], &at(300.0, 200));
    assert_eq!((outcome.answered, outcome.faults.count()), (60, 0));
    // Several requests in one write, and answers split at any point.
    let pool = Pool { depth: 4, ..Pool::of(2, Duration::from_secs(5)) };
    let saturate = Run { schedule: Schedule::Saturate, ..at(1.0, 100) };
    let outcome = run(&mut [Client::open(&target, pool).unwrap()], &saturate);
    assert!(outcome.answered > 8);
    assert_eq!((outcome.sent, outcome.faults.count()), (outcome.answered, 0));
}

/// A UDP server. The closure gets the number of a datagram and returns how often to answer it.
fn datagrams(times: impl Fn(u64) -> usize + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        for count in 0.. {
            let (bytes, peer) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!(bytes, 64);
            for _ in 0..times(count) {
                socket.send_to(&buffer[..32], peer).unwrap();
            }
        }
    });
    address
}

/// Until something is known of how long answers take, none of them is presumed lost after a millisecond.
#[test]
fn the_first_datagram_has_time_to_be_answered() {
    let slow = datagrams(|_| {
        thread::sleep(Duration::from_millis(60));
        1
    });
    let saturate =
        Run { schedule: Schedule::Saturate, presumed_lost: Some(Duration::from_millis(1)), ..at(1.0, 100) };
    let outcome = run(&mut [connect(&raw(Address::Udp(slow), 64, 32), 1)], &saturate);
    assert!(outcome.answered > 0 && outcome.sent <= 3, "{} of {}", outcome.answered, outcome.sent);
    assert_eq!((outcome.answered, outcome.strays), (outcome.sent, 0));
}

#[test]
fn datagrams_are_answered_by_datagrams() {
    let target = raw(Address::Udp(datagrams(|_| 1)), 64, 32);
    let outcome = run(&mut [connect(&target, 4)], &at(1000.0, 200));
    assert_eq!((outcome.answered, outcome.missed.count(), outcome.strays), (200, 0, 0));
    let wrong = raw(Address::Udp(datagrams(|_| 1)), 64, 33);
    let outcome = run(&mut [connect(&wrong, 4)], &at(100.0, 100));
    assert_eq!((outcome.answered, outcome.unexpected.length), (0, 10));
}

#[test]
fn a_lost_datagram_is_missed_and_one_that_comes_twice_is_a_stray() {
    // Of every four answers one is lost and one is sent twice.
    let address = datagrams(|count| match count % 4 {
        0 => 0,
        1 => 2,
        _ => 1,
    });
    let target = raw(Address::Udp(address), 64, 32);
    let timeout = Some(Duration::from_millis(500));
    let outcome = run(&mut [connect(&target, 12)], &Run { timeout, ..at(100.0, 400) });
    assert_eq!((outcome.answered, outcome.missed.count()), (30, 10));
    assert_eq!((outcome.strays, outcome.faults.count()), (10, 0));
    assert!(outcome.missed.ages.min() >= 499_000_000);
}

#[test]
fn a_lost_datagram_is_one_request_without_an_answer() {
    for connections in [1, 3] {
        let lost = Arc::new(AtomicU64::new(0));
        let count_lost = Arc::clone(&lost);
        let address = datagrams(move |count| {
            let loses = count % 25 == 7;
            count_lost.fetch_add(u64::from(loses), Ordering::Relaxed);
            usize::from(!loses)
        });
        let target = raw(Address::Udp(address), 64, 32);
        let presumed_lost = Some(Duration::from_millis(20));
        let outcome = run(&mut [connect(&target, connections)], &Run { presumed_lost, ..at(500.0, 1000) });
        assert_eq!((outcome.intended, outcome.sent, lost.load(Ordering::Relaxed)), (500, 500, 20));
        assert_eq!((outcome.answered, outcome.missed.count(), outcome.strays), (480, 20, 0));
    }
}

#[test]
fn a_datagram_that_only_is_late_still_counts() {
    const LATE: Duration = Duration::from_millis(300);
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = raw(Address::Udp(server.local_addr().unwrap()), 64, 32);
    thread::spawn(move || {
        let mut buffer = [0; 64];
        for count in 0_u64.. {
            let (_, peer) = server.recv_from(&mut buffer).unwrap();
            let (answer, server) = (buffer, server.try_clone().unwrap());
            // One of ten answers takes its time, and does not hold up the next ones.
            let late = if count % 10 == 3 { LATE } else { Duration::ZERO };
            thread::spawn(move || {
                thread::sleep(late);
                server.send_to(&answer[..32], peer).unwrap();
            });
        }
    });
    let presumed_lost = Some(Duration::from_millis(20));
    let outcome = run(&mut [connect(&target, 1)], &Run { presumed_lost, ..at(100.0, 1000) });
    assert_eq!((outcome.answered, outcome.missed.count(), outcome.strays), (100, 0, 0));
    assert!(outcome.service.max() >= 299_000_000);
    // The requests behind a late one wait until it is taken for lost, and not for its answer.
    assert!(outcome.response.value_at_quantile(0.8) < 299_000_000);
}

#[test]
fn a_port_without_a_listener_is_reported_for_datagrams_too() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let outcome = run(&mut [connect(&raw(Address::Udp(address), 64, 64), 1)], &at(100.0, 100));
    assert_eq!((outcome.answered, outcome.missed.count()), (0, 10));
    assert!(outcome.faults.refused >= 1);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let over_udp =
        Target { address: Address::Udp(address), ..http(address, vec![HttpRequest::get("a", "/", FIVE)]) };
    for target in [over_udp, http(address, vec![]), raw(Address::Udp(address), 4, 64)] {
        let refused = Client::connect(&target, 1, Duration::from_secs(1));
        assert!(matches!(refused, Err(LoadError::Shape(_))), "{refused:?}");
    }
}

#[test]
fn stamps_split_the_service_time() {
    let stamped = Pool { stamps: true, ..Pool::of(4, Duration::from_secs(5)) };
    let address = serve(|request| {
        thread::sleep(Duration::from_millis(2));
        request.answer(OK)
    });
    let tcp = Target::get(address, "a", "/", FIVE);
    // The kernel enables timestamps some time after the first socket asks for them, and disables them after
    // the last.
    let mut first = [Client::open(&tcp, stamped).unwrap()];
    let deadline = Instant::now() + Duration::from_secs(20);
    while run(&mut first, &at(500.0, 20)).split.unwrap().wire.len() < 10 {
        assert!(Instant::now() < deadline, "the kernel sets no timestamps");
    }
    for target in [tcp.clone(), raw(Address::Udp(datagrams(|_| 1)), 64, 32)] {
        let outcome = run(&mut [Client::open(&target, stamped).unwrap()], &at(500.0, 200));
        assert_eq!((outcome.answered, outcome.faults.count()), (100, 0));
        let split = outcome.split.unwrap();
        assert!(split.wire.len() >= 90 && split.wire.len() == split.client.len(), "{}", split.wire.len());
        assert!(split.wire.max() <= outcome.service.max());
    }
    // The server's two milliseconds count for the wire, not for the client.
    let outcome = run(&mut [Client::open(&tcp, stamped).unwrap()], &at(100.0, 200));
    assert!(outcome.split.unwrap().wire.min() >= 2_000_000);
    let deep = Client::open(&tcp, Pool { depth: 2, ..stamped });
    assert!(matches!(deep, Err(LoadError::Shape(_))), "{deep:?}");
}
