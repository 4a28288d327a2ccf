//! The responder, asked by hand and by the generator.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use linux::CpuSet;
use load::response::{Parser, Response};
use load::serve::{BODY_BYTES_MAX, Config, Served, Server};
use load::{Client, Expect, LoadError, Run, Schedule, Target};

use crate::servers::{at, run};

/// Runs a responder around the closure.
fn with_server(listen: &str, cpus: CpuSet, ask: impl FnOnce(SocketAddr)) -> Served {
    let server =
        Server::bind(&Config { listen: vec![listen.parse().unwrap()], body_bytes: 100, cpus }).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| server.run(&stop));
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ask(server.addresses()[0])));
        stop.store(true, Ordering::Relaxed);
        let served = running.join().unwrap().unwrap();
        asked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        served
    })
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Reads until that many responses have come, or the server closes.
fn responses(stream: &mut TcpStream, count: usize) -> Vec<Response> {
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

fn ok(body_bytes: u64) -> Response {
    Response { status: 200, body_bytes, keep_alive: true }
}

#[test]
fn paths_are_sizes_and_others_are_not_found() {
    let served = with_server("127.0.0.1:0", CpuSet::default(), |address| {
        let mut stream = connect(address);
        for (path, bytes) in [("/", 100), ("/0", 0), ("/4096", 4096), ("/1048576", u64::from(BODY_BYTES_MAX))]
        {
            write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            assert_eq!(responses(&mut stream, 1), [ok(bytes)], "{path}");
        }
        write!(stream, "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(responses(&mut stream, 1), [Response { status: 404, body_bytes: 0, keep_alive: true }]);
    });
    assert_eq!(served, Served { connections: 1, answered: 4, refused: 1 });
}

#[test]
fn requests_may_come_byte_by_byte_or_many_at_once() {
    with_server("127.0.0.1:0", CpuSet::default(), |address| {
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
    with_server("127.0.0.1:0", CpuSet::default(), |address| {
        let mut stream = connect(address);
        let mut asked = Vec::new();
        for index in 0..60 {
            let bytes = 1_000_000 - index;
            write!(stream, "GET /{bytes} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            asked.push(ok(bytes));
        }
        // Meanwhile others are served.
        thread::sleep(Duration::from_millis(100));
        let mut other = connect(address);
        write!(other, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(responses(&mut other, 1), [ok(100)]);
        assert_eq!(responses(&mut stream, 60), asked);
    });
}

#[test]
fn a_connection_ends_when_it_was_asked_to() {
    with_server("127.0.0.1:0", CpuSet::default(), |address| {
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
        let served = with_server(listen, cpus, |address| {
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
fn both_families_share_a_port() {
    let listen = |text: &str| text.parse().unwrap();
    let config = Config { listen: vec![listen("0.0.0.0:0")], body_bytes: 1, cpus: CpuSet::default() };
    let port = Server::bind(&config).unwrap().addresses()[0].port();
    let listen = vec![listen(&format!("0.0.0.0:{port}")), listen(&format!("[::]:{port}"))];
    let server = Server::bind(&Config { listen, ..config }).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| server.run(&stop));
        let asked = [format!("127.0.0.1:{port}"), format!("[::1]:{port}")].map(|address| {
            let mut stream = connect(address.parse().unwrap());
            write!(stream, "GET /8 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            responses(&mut stream, 1)
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(running.join().unwrap().unwrap().connections, 2);
        assert_eq!(asked, [vec![ok(8)], vec![ok(8)]]);
    });
}

#[test]
fn an_address_that_is_not_here_is_an_error() {
    let config =
        Config { listen: vec!["192.0.2.1:0".parse().unwrap()], body_bytes: 1, cpus: CpuSet::default() };
    assert!(matches!(Server::bind(&config), Err(LoadError::Listen { .. })));
    let large =
        Config { listen: vec!["127.0.0.1:0".parse().unwrap()], body_bytes: BODY_BYTES_MAX + 1, ..config };
    assert!(matches!(Server::bind(&large), Err(LoadError::Shape(_))));
    let nowhere = Config { listen: vec![], body_bytes: 1, cpus: CpuSet::default() };
    assert!(matches!(Server::bind(&nowhere), Err(LoadError::Shape(_))));
}
