//! HTTP/1.0: the connection ends with the answer, and sometimes the answer ends with the connection.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use load::serve::ResponderConfig;
use load::{
    Address, Ask, Client, Expect, HttpRequest, HttpVersion, LoadError, Pool, Run, Schedule, Target, Wait,
};
use rustix::net::sockopt;

use crate::responder::with_server;
use crate::servers::{self, at, run, serve};

const FIVE: Expect = Expect { status: 200, body_bytes: Some(5) };

fn target(address: SocketAddr, path: &str, expect: Expect) -> Target {
    let request = HttpRequest { version: HttpVersion::Http10, ..HttpRequest::get("localhost", path, expect) };
    Target { address: Address::Tcp(address), tls: None, ask: Ask::Http(vec![request.closing()]) }
}

fn client(target: &Target, connections: usize) -> Client {
    let pool = Pool { fresh: true, ..Pool::of(connections, Duration::from_secs(5)) };
    Client::open(target, pool).unwrap()
}

#[test]
fn our_responder_answers_and_closes() {
    let served = with_server(&ResponderConfig::default(), |server| {
        let expect = Expect { status: 200, body_bytes: Some(100) };
        let target = target(server.addresses()[0], "/100", expect);
        let outcome = run(&mut [client(&target, 4)], &at(500.0, 200));
        assert_eq!((outcome.answered, outcome.faults.count(), outcome.reconnects), (100, 0, 100));
    });
    // The extra connection was the check that the server listens.
    assert_eq!((served.connections, served.answered), (101, 100));
}

/// An HTTP/1.0 server need not declare a length.
#[test]
fn an_answer_without_a_length_ends_with_its_connection() {
    let address = serve(|request| request.answer_and_close(b"HTTP/1.0 200 OK\r\nServer: x\r\n\r\nhello"));
    let outcome = run(&mut [client(&target(address, "/", FIVE), 4)], &at(500.0, 200));
    assert_eq!((outcome.answered, outcome.faults.count(), outcome.unexpected.count()), (100, 0, 0));
    let six = Expect { body_bytes: Some(6), ..FIVE };
    let outcome = run(&mut [client(&target(address, "/", six), 4)], &at(500.0, 20));
    assert_eq!((outcome.answered, outcome.unexpected.length), (0, 10));
    assert_eq!(outcome.unexpected.first, Some((200, 5)));
}

#[test]
fn as_many_go_as_can() {
    let address = serve(|request| request.answer_and_close(b"HTTP/1.0 200 OK\r\n\r\nhello"));
    let saturate = Run { wait: Wait::Sleep, ..Run::new(Schedule::Saturate, Duration::from_millis(200)) };
    let outcome = run(&mut [client(&target(address, "/", FIVE), 3)], &saturate);
    assert!(outcome.answered > 3, "{outcome:?}");
    assert_eq!((outcome.sent, outcome.faults.count()), (outcome.answered, 0));
}

#[test]
fn a_server_that_closes_at_once_is_a_fault_of_each_request() {
    let address = serve(|_| false);
    let outcome = run(&mut [client(&target(address, "/", FIVE), 4)], &at(100.0, 100));
    assert_eq!((outcome.answered, outcome.missed.lost, outcome.faults.closed), (0, 10, 10));
}

/// Sends the beginning of an answer and makes the kernel reset the connection instead of closing it.
fn reset_within(mut stream: &TcpStream, beginning: &[u8]) {
    stream.write_all(beginning).unwrap();
    // Closing without lingering resets the connection (socket(7)).
    sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

/// Where the end of the connection ends the answer, a reset does not.
#[test]
fn a_reset_in_the_middle_of_a_body_is_an_error() {
    for beginning in
        [&b"HTTP/1.0 200 OK\r\n\r\nhello"[..], b"HTTP/1.0 200 OK\r\nContent-Length: 10\r\n\r\nhello"]
    {
        let address = serve(move |request| {
            reset_within(request.stream, beginning);
            false
        });
        let outcome = run(&mut [client(&target(address, "/", Expect::default()), 4)], &at(100.0, 100));
        assert_eq!((outcome.answered, outcome.unexpected.count()), (0, 0), "{outcome:?}");
        assert_eq!((outcome.missed.lost, outcome.faults.reset), (10, 10), "{:?}", outcome.first_fault);
    }
}

#[test]
fn it_takes_a_connection_for_each_request() {
    let address = serve(|request| request.answer_and_close(b"HTTP/1.0 200 OK\r\n\r\nhello"));
    let old = target(address, "/", FIVE);
    assert!(matches!(Client::connect(&old, 1, Duration::from_secs(1)), Err(LoadError::Shape(_))));
    let mut stays = servers::client(address, 1);
    assert!(matches!(stays.ask_for(old.ask), Err(LoadError::Shape(_))));
}
