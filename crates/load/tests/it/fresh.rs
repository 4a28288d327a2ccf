//! A connection for each request.

use std::time::Duration;

use load::serve::{Certificate, ResponderConfig};
use load::{
    Address, Ask, Client, Expect, HttpRequest, LoadError, Pool, Run, RunVerdict, Schedule, Sessions, Sizes,
    Target, Tls, Trust, Wait,
};

use crate::responder::with_server;
use crate::servers::{OK, at, run, serve};

/// A client that closes after each answer, and asks the server to close with `Connection: close`.
fn fresh(address: Address, tls: Option<Tls>, connections: usize) -> Client {
    let expect = Expect { status: 200, body_bytes: Some(100) };
    let ask = Ask::Http(vec![HttpRequest::get("localhost", "/100", expect).closing()]);
    let pool = Pool { fresh: true, ..Pool::of(connections, Duration::from_secs(5)) };
    Client::open(&Target { address, tls, ask }, pool).unwrap()
}

#[test]
fn each_request_has_a_connection_of_its_own() {
    let served = with_server(&ResponderConfig::default(), |server| {
        let mut client = fresh(Address::Tcp(server.addresses()[0]), None, 4);
        for _ in 0..2 {
            let outcome = run(std::slice::from_mut(&mut client), &at(500.0, 200));
            assert_eq!((outcome.intended, outcome.answered, outcome.faults.count()), (100, 100, 0));
            assert_eq!((outcome.reconnects, outcome.handshakes.full), (100, 0));
            assert_eq!((outcome.service.len(), outcome.lag.len()), (100, 100));
        }
    });
    // The extra connection was the check that the server listens.
    assert_eq!((served.connections, served.answered), (201, 200));
}

#[test]
fn as_many_go_as_can() {
    let mut answered = 0;
    let served = with_server(&ResponderConfig::default(), |server| {
        let mut client = fresh(Address::Tcp(server.addresses()[0]), None, 3);
        let saturate = Run { wait: Wait::Sleep, ..Run::new(Schedule::Saturate, Duration::from_millis(200)) };
        let outcome = run(std::slice::from_mut(&mut client), &saturate);
        assert_eq!((outcome.sent, outcome.faults.count(), outcome.missed.count()), (outcome.answered, 0, 0));
        assert_eq!((outcome.response.len(), outcome.lag.max()), (outcome.answered, 0));
        answered = outcome.answered;
    });
    assert!(answered > 3);
    assert_eq!((served.connections, served.answered), (answered + 1, answered));
}

#[test]
fn a_server_that_does_not_close_is_left() {
    // The server answers and waits for another request, which does not come.
    let address = serve(|request| {
        assert_eq!(request.on_connection, 0);
        request.answer(OK)
    });
    let target = Target::get(address, "a", "/", Expect::default());
    let pool = Pool { fresh: true, ..Pool::of(2, Duration::from_secs(5)) };
    let outcome = run(&mut [Client::open(&target, pool).unwrap()], &at(500.0, 100));
    assert_eq!((outcome.answered, outcome.faults.count()), (50, 0));
}

/// Such a server waits for the client's end, or its own was lost on the way.
#[test]
fn a_server_that_says_close_and_does_not_is_left_after_a_while() {
    let address = serve(|request| {
        request.answer(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
    });
    let target = Target::get(address, "a", "/", Expect::default());
    let pool = Pool { fresh: true, ..Pool::of(4, Duration::from_secs(5)) };
    let mut clients = [Client::open(&target, pool).unwrap()];
    let outcome = run(&mut clients, &at(10.0, 1500));
    assert_eq!((outcome.answered, outcome.faults.count()), (15, 0), "{outcome:?}");
    assert!(outcome.reconnects > 4, "{outcome:?}");
    // No place comes free in less than a second, and that is said as it is.
    let outcome = run(&mut clients, &Run { drain: Duration::from_millis(200), ..at(100.0, 600) });
    assert_eq!((outcome.answered, outcome.missed.unsent), (4, 56), "{outcome:?}");
    assert_eq!((outcome.short.ending, outcome.short.count()), (4, 4));
    let verdict = RunVerdict::new(&outcome, &Schedule::Constant { rate_per_s: 100.0 }, None, false);
    let rate = verdict.checks.iter().find(|check| check.id == "rate").unwrap();
    assert!(rate.text.contains("had been answered and not been closed by the server"), "{}", rate.text);
}

#[test]
fn a_server_that_closes_at_once_is_a_fault_of_each_request() {
    let address =
        serve(|request| request.answer_and_close(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"));
    let target = Target::get(address, "a", "/", Expect::default());
    let pool = Pool { fresh: true, ..Pool::of(4, Duration::from_secs(5)) };
    let outcome = run(&mut [Client::open(&target, pool).unwrap()], &at(100.0, 100));
    assert_eq!((outcome.answered, outcome.missed.count(), outcome.faults.count()), (0, 10, 10));
}

#[test]
fn sessions_are_resumed_or_forgotten() {
    let certificate = Certificate::self_signed().unwrap();
    let listen = vec!["https:127.0.0.1:0".parse().unwrap()];
    let config = ResponderConfig { listen, certificate: Some(certificate), ..ResponderConfig::default() };
    with_server(&config, |server| {
        let tls = Tls::new("localhost", Trust::Anyone).unwrap();
        for (sessions, reuses) in [(Sessions::Resumed, true), (Sessions::Forgotten, false)] {
            let address = Address::Tcp(server.addresses()[0]);
            let mut client = fresh(address, Some(tls.with_sessions(sessions)), 4);
            let outcome = run(std::slice::from_mut(&mut client), &at(100.0, 300));
            assert_eq!((outcome.answered, outcome.faults.count()), (30, 0), "{:?}", outcome.first_fault);
            let handshakes = outcome.handshakes;
            assert_eq!(handshakes.full + handshakes.resumed, 30);
            // Each of the four connections may need a full handshake until the first tickets have arrived.
            assert!(if reuses { handshakes.full <= 4 } else { handshakes.resumed == 0 }, "{handshakes:?}");
        }
    });
}

#[test]
fn what_has_no_connection_cannot_have_a_fresh_one() {
    let pool = Pool { fresh: true, ..Pool::of(1, Duration::from_secs(1)) };
    let ask = Ask::Raw(Sizes { request_bytes: 64, response_bytes: 64 });
    let udp = Target { address: Address::Udp(([127, 0, 0, 1], 9).into()), tls: None, ask };
    assert!(matches!(Client::open(&udp, pool), Err(LoadError::Shape(_))));
    let closed = Target::get(([127, 0, 0, 1], 1).into(), "a", "/", Expect::default());
    assert!(matches!(Client::open(&closed, pool), Err(LoadError::Connect { .. })));
    let deep = Pool { depth: 2, ..pool };
    assert!(matches!(Client::open(&closed, deep), Err(LoadError::Shape(_))));
}
