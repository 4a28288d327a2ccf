//! The responder, with requests written by hand and from the generator.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use load::response::{Parser, Response};
use load::serve::{BODY_BYTES_MAX, Faults, Raw, ResponderConfig, ServeError, Served, Server};
use load::{Client, Expect, Run, Schedule, Target};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::servers::{at, run};

/// Runs a responder around the closure.
pub(crate) fn with_server(config: &ResponderConfig, ask: impl FnOnce(&Server)) -> Served {
    let server = Server::bind(config).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| server.run(&stop));
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ask(&server)));
        stop.store(true, Ordering::Relaxed);
        let served = running.join().unwrap().unwrap();
        asked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        served
    })
}

/// The same without faults, on a free port of 127.0.0.1.
fn with_plain(ask: impl FnOnce(SocketAddr)) -> Served {
    with_server(&ResponderConfig::default(), |server| ask(server.addresses()[0]))
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Reads until `count` responses have arrived or the server closes.
pub(crate) fn responses(stream: &mut impl Read, count: usize) -> Vec<Response> {
    let mut parser = Parser::default();
    let mut responses = Vec::new();
    let mut buffer = vec![0; 65_536];
    while responses.len() < count {
        let bytes = stream.read(&mut buffer).unwrap();
        if bytes == 0 {
            break;
        }
        let mut rest = &buffer[..bytes];
        while let Some((used, response)) = parser.feed(rest, false).unwrap() {
            responses.push(response);
            rest = &rest[used..];
        }
    }
    responses
}

pub(crate) fn ok(body_bytes: u64) -> Response {
    Response { status: 200, body_bytes, keep_alive: true }
}

#[test]
fn paths_are_sizes_and_others_are_not_found() {
    let served = with_plain(|address| {
        let mut stream = connect(address);
        for (path, bytes) in [("/", 100), ("/0", 0), ("/4096", 4096), ("/1048576", u64::from(BODY_BYTES_MAX))]
        {
            write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            assert_eq!(responses(&mut stream, 1), [ok(bytes)], "{path}");
        }
        write!(stream, "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(responses(&mut stream, 1), [Response { status: 404, body_bytes: 0, keep_alive: true }]);
    });
    assert_eq!(served, Served { connections: 1, answered: 4, refused: 1, ..Served::default() });
}

#[test]
fn requests_may_come_byte_by_byte_or_many_at_once() {
    with_plain(|address| {
        let request = b"GET /7 HTTP/1.1\r\nHost: a\r\n\r\n";
        let mut stream = connect(address);
        for byte in request {
            stream.write_all(&[*byte]).unwrap();
            thread::sleep(Duration::from_micros(200));
        }
        assert_eq!(responses(&mut stream, 1), [ok(7)]);
        let many = request.repeat(10_000);
        let mut writer = stream.try_clone().unwrap();
        let writing = thread::spawn(move || writer.write_all(&many).unwrap());
        assert_eq!(responses(&mut stream, 10_000), vec![ok(7); 10_000]);
        writing.join().unwrap();
    });
}

#[test]
fn a_peer_that_reads_late_gets_everything_in_order() {
    with_plain(|address| {
        let mut stream = connect(address);
        let mut asked = Vec::new();
        for index in 0..60 {
            let bytes = 1_000_000 - index;
            write!(stream, "GET /{bytes} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            asked.push(ok(bytes));
        }
        // Other connections are served meanwhile: the first answer has begun, and no buffer holds sixty of them.
        assert_eq!(stream.peek(&mut [0]).unwrap(), 1);
        let mut other = connect(address);
        write!(other, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(responses(&mut other, 1), [ok(100)]);
        assert_eq!(responses(&mut stream, 60), asked);
    });
}

#[test]
fn a_connection_ends_when_it_was_asked_to() {
    with_plain(|address| {
        let closed = |status, body_bytes| vec![Response { status, body_bytes, keep_alive: false }];
        for (request, expected) in [
            ("GET /3 HTTP/1.1\r\nConnection: close\r\n\r\nGET /4 HTTP/1.1\r\n\r\n", closed(200, 3)),
            ("GET /3 HTTP/1.0\r\n\r\n", closed(200, 3)),
            ("BREW / HTTP/1.1\r\n\r\n", closed(405, 0)),
            ("\0\0\0\0", closed(400, 0)),
        ] {
            let mut stream = connect(address);
            stream.write_all(request.as_bytes()).unwrap();
            assert_eq!(responses(&mut stream, 9), expected, "{request:?}");
        }
        let mut stream = connect(address);
        write!(stream, "HEAD /5 HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.contains("Content-Length: 5\r\n") && text.ends_with("\r\n\r\n"), "{text}");
    });
}

#[test]
fn the_generator_and_the_responder_agree() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let cpus = linux::cpu::allowed().unwrap();
        let config =
            ResponderConfig { listen: vec![listen.parse().unwrap()], cpus, ..ResponderConfig::default() };
        let served = with_server(&config, |server| {
            let address = server.addresses()[0];
            let expect = Expect { status: 200, body_bytes: Some(4096) };
            let target = Target::get(address, "a", "/4096", expect);
            let mut clients = [Client::connect(&target, 16, Duration::from_secs(5)).unwrap()];
            let outcome = run(&mut clients, &at(2000.0, 300));
            assert_eq!((outcome.answered, outcome.faults.count()), (600, 0));
            let saturate = Run { schedule: Schedule::Saturate, ..at(1.0, 200) };
            let outcome = run(&mut clients, &saturate);
            assert_eq!(outcome.answered, outcome.sent);
        });
        assert_eq!(served.connections, 16);
        assert!(served.answered > 600);
    }
}

#[test]
fn connections_are_accepted_again_once_others_have_ended() {
    // Each test has a process of its own, and both ends of a connection are files of it.
    let set_limit = |files| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum }).unwrap();
    };
    let mut limit = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 + 40;
    let ask = |mut stream: &TcpStream| {
        stream.write_all(b"GET /1 HTTP/1.1\r\n\r\n").unwrap();
        stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0)
    };
    with_plain(|address| {
        set_limit(limit);
        let mut others = Vec::new();
        let waiting = loop {
            let Ok(stream) = TcpStream::connect(address) else {
                limit += 1;
                set_limit(limit);
                continue;
            };
            stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            if !ask(&stream) {
                break stream;
            }
            others.push(stream);
        };
        let busy = others.pop().unwrap();
        busy.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        waiting.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let is_over = AtomicBool::new(false);
        let (asked, is_asked) = mpsc::channel();
        let is_answered = thread::scope(|scope| {
            // There is hardly a moment without an event.
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) && ask(&busy) {
                    asked.send(()).unwrap();
                }
            });
            is_asked.recv().unwrap();
            drop(others);
            let is_answered = (&waiting).read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0);
            is_over.store(true, Ordering::Relaxed);
            is_answered
        });
        assert!(is_answered);
    });
}

#[test]
fn both_families_share_a_port() {
    let listen = |text: &str| text.parse().unwrap();
    let config = ResponderConfig { listen: vec![listen("0.0.0.0:0")], ..ResponderConfig::default() };
    let port = Server::bind(&config).unwrap().addresses()[0].port();
    let listen = vec![listen(&format!("0.0.0.0:{port}")), listen(&format!("[::]:{port}"))];
    let mut asked = Vec::new();
    let served = with_server(&ResponderConfig { listen, ..config }, |_| {
        for address in [format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
            let mut stream = connect(address.parse().unwrap());
            write!(stream, "GET /8 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            asked.extend(responses(&mut stream, 1));
        }
    });
    assert_eq!((served.connections, asked), (2, vec![ok(8); 2]));
}

#[test]
fn bodies_of_requests_are_read_away() {
    let served = with_plain(|address| {
        let mut stream = connect(address);
        let sized = format!("POST /1 HTTP/1.1\r\nContent-Length: 100000\r\n\r\n{}", "GET ".repeat(25_000));
        let chunked = "PUT /2 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\nA: b\r\n\r\n";
        let empty = "PATCH /3 HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
        let all = [&sized, chunked, empty, "GET /4 HTTP/1.1\r\n\r\n"].concat();
        stream.write_all(all.as_bytes()).unwrap();
        assert_eq!(responses(&mut stream, 4), [ok(1), ok(2), ok(3), ok(4)]);
        for byte in chunked.bytes() {
            stream.write_all(&[byte]).unwrap();
        }
        assert_eq!(responses(&mut stream, 1), [ok(2)]);
        // A client that asks for permission to send its body gets it.
        let head = "POST /5 HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut interim = [0; 25];
        stream.read_exact(&mut interim).unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(b"ab").unwrap();
        assert_eq!(responses(&mut stream, 1), [ok(5)]);
        let bad = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n";
        stream.write_all(bad.as_bytes()).unwrap();
        assert_eq!(responses(&mut stream, 9), [Response { status: 400, body_bytes: 0, keep_alive: false }]);
    });
    assert_eq!((served.answered, served.refused), (6, 1));
}

#[test]
fn what_is_asked_again_is_answered_as_itself() {
    with_plain(|address| {
        let mut stream = connect(address);
        // Heads with a common beginning, twice each, and one cut where the previous one ends.
        for (path, bytes) in [("/7", 7), ("/7", 7), ("/77", 77), ("/77", 77), ("/7", 7)] {
            write!(stream, "GET {path} HTTP/1.1\r\n\r\nGET {path} HTTP/1.1\r\nA: b\r\n\r\n").unwrap();
            assert_eq!(responses(&mut stream, 2), [ok(bytes), ok(bytes)], "{path}");
        }
        write!(stream, "GET /7 HTTP/1.0\r\n\r\nGET /7 HTTP/1.0\r\n\r\n").unwrap();
        assert_eq!(responses(&mut stream, 9), [Response { keep_alive: false, ..ok(7) }]);
    });
}

#[test]
fn what_no_responder_can_be_is_an_error() {
    let listen =
        |text: &str| ResponderConfig { listen: vec![text.parse().unwrap()], ..ResponderConfig::default() };
    assert!(matches!(Server::bind(&listen("192.0.2.1:0")), Err(ServeError::Listen { .. })));
    let raw = |request_bytes, response_bytes| Raw { request_bytes, response_bytes };
    let errors = Faults { errors: 0.1, ..Faults::default() };
    for (config, says) in [
        (ResponderConfig { body_bytes: BODY_BYTES_MAX + 1, ..ResponderConfig::default() }, "1048576 bytes"),
        (ResponderConfig { listen: vec![], ..ResponderConfig::default() }, "an address"),
        (ResponderConfig { raw: raw(0, 1), ..listen("tcp:127.0.0.1:0") }, "1 to 1048576 bytes, not 0"),
        (ResponderConfig { raw: raw(1, 0), ..listen("tcp:127.0.0.1:0") }, "1 to 1048576 bytes, not 0"),
        (ResponderConfig { raw: raw(1, 65_508), ..listen("udp:127.0.0.1:0") }, "1 to 65507 bytes over UDP"),
        (listen("https:127.0.0.1:0"), "certificate"),
        (ResponderConfig { faults: errors, ..listen("udp:127.0.0.1:0") }, "no address here speaks HTTP"),
        (
            ResponderConfig {
                faults: Faults { cuts: 1.1, ..Faults::default() },
                ..ResponderConfig::default()
            },
            "100 %",
        ),
    ] {
        match Server::bind(&config) {
            Err(ServeError::Config(text)) => assert!(text.contains(says), "{text}"),
            other => panic!("{says}: {other:?}"),
        }
    }
}
