//! gRPC calls, against tonic's server and from tonic's client.

mod judge;

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use load::serve::ResponderConfig;
use load::{Address, Ask, Client, LoadError, Outcome, Pool, Run, Schedule, Target, Wait};
use tonic::Code;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;

use self::judge::{Tonic, Verbatim, runtime};
use crate::responder::with_server;
use crate::servers::{OK, at, run, serve};

fn target(address: std::net::SocketAddr, body_bytes: u32) -> Target {
    Target { address: Address::Tcp(address), tls: None, ask: Ask::Grpc { body_bytes } }
}

fn client(target: &Target, connections: usize) -> Client {
    Client::connect(target, connections, Duration::from_secs(5)).unwrap()
}

fn saturate(requests: u64) -> Run {
    Run { requests: Some(requests), schedule: Schedule::Saturate, ..at(1.0, 1) }
}

#[track_caller]
fn all_good(outcome: &Outcome, calls: u64) {
    assert_eq!((outcome.intended, outcome.answered), (calls, calls), "{outcome:?}");
    assert_eq!((outcome.faults.count(), outcome.reconnects), (0, 0), "{:?}", outcome.first_fault);
}

/// At a rate and in a closed loop, over many connections. The sizes fit into a frame, need several frames, or
/// exceed a flow control window. The connections stay from run to run.
#[test]
fn the_librarys_own_server_answers_every_call() {
    let tonic = Tonic::start(|_| Some(Code::Ok));
    for body_bytes in [0, 1, 100, 20_000, 300_000] {
        let mut client = client(&target(tonic.address, body_bytes), 8);
        let before = tonic.calls.load(Ordering::Relaxed);
        all_good(&run(std::slice::from_mut(&mut client), &at(200.0, 200)), 40);
        all_good(&load::run(std::slice::from_mut(&mut client), &saturate(200)).unwrap(), 200);
        all_good(&run(std::slice::from_mut(&mut client), &at(200.0, 100)), 20);
        assert_eq!(tonic.calls.load(Ordering::Relaxed) - before, 260);
    }
}

/// A connection carries many calls, and each has to give back its share of the flow control windows.
#[test]
fn windows_do_not_run_dry() {
    let tonic = Tonic::start(|_| Some(Code::Ok));
    all_good(&load::run(&mut [client(&target(tonic.address, 100_000), 1)], &saturate(300)).unwrap(), 300);
    let served = with_server(&grpc(), |server| {
        let target = target(server.addresses()[0], 100_000);
        all_good(&load::run(&mut [client(&target, 1)], &saturate(300)).unwrap(), 300);
    });
    assert_eq!((served.connections, served.answered), (1, 300));
}

#[test]
fn outcomes_are_counted_by_their_codes() {
    let tonic = Tonic::start(|number| match number % 4 {
        0 => Some(Code::Unavailable),
        1 => Some(Code::ResourceExhausted),
        _ => Some(Code::Ok),
    });
    let outcome = run(&mut [client(&target(tonic.address, 100), 4)], &at(500.0, 200));
    assert_eq!((outcome.answered, outcome.unexpected.status), (50, 50), "{outcome:?}");
    let mut codes = [0; 17];
    (codes[Code::Unavailable as usize], codes[Code::ResourceExhausted as usize]) = (25, 25);
    assert_eq!(outcome.unexpected.grpc, codes);
    // The connections are not at fault.
    assert_eq!((outcome.faults.count(), outcome.reconnects, outcome.missed.count()), (0, 0, 0));
    let check = &load::checks::checks(&outcome, &Schedule::Constant { rate_per_s: 500.0 })[1];
    assert_eq!((check.id, check.passed), ("answered", Some(false)));
    assert!(check.text.contains("25 with code 8, 25 with code 14"), "{}", check.text);
}

/// The run ends by itself. It reports the calls lost with the server and those that could no longer be sent.
#[test]
fn a_server_that_dies_is_reported() {
    let mut tonic = Tonic::start(|number| (number < 20).then_some(Code::Ok));
    let mut client = client(&target(tonic.address, 100), 4);
    let endless = Run { drain: Duration::from_secs(3), ..saturate(1 << 40) };
    let outcome = thread::scope(|scope| {
        let running = scope.spawn(|| load::run(std::slice::from_mut(&mut client), &endless));
        // Each connection waits for an answer that will not come.
        while tonic.calls.load(Ordering::Relaxed) < 24 {
            thread::yield_now();
        }
        tonic.end();
        running.join().unwrap().unwrap()
    });
    crate::servers::check(&outcome);
    let (faults, missed) = (&outcome.faults, &outcome.missed);
    assert_eq!((outcome.answered, missed.lost, missed.unsent), (20, 4, (1 << 40) - 24));
    assert_eq!(faults.closed + faults.reset, 4, "{faults:?}");
    assert!(faults.refused > 0 && faults.malformed == 0, "{faults:?} {:?}", outcome.first_fault);
    let text = &load::checks::checks(&outcome, &Schedule::Saturate)[2].text;
    assert!(text.contains("nothing listened there any more"), "{text}");
}

/// The server's answer to the preface may come before or after the connections count as made.
#[test]
fn a_server_without_http_2_is_reported() {
    let address = serve(|request| request.answer(OK));
    let opened = Client::connect(&target(address, 100), 2, Duration::from_secs(5));
    match opened.and_then(|client| load::run(&mut [client], &at(100.0, 100))) {
        Err(LoadError::Connect { why, .. }) => {
            assert!(why.to_string().contains("HTTP/2"), "{why}");
        }
        ran => {
            let outcome = ran.unwrap();
            assert_eq!(outcome.answered, 0);
            assert!(outcome.faults.malformed > 0, "{:?}", outcome.faults);
        }
    }
}

fn grpc() -> ResponderConfig {
    ResponderConfig { listen: vec!["grpc:127.0.0.1:0".parse().unwrap()], ..ResponderConfig::default() }
}

#[test]
fn our_responder_answers_as_many_as_are_called() {
    let served = with_server(&grpc(), |server| {
        let target = target(server.addresses()[0], 1000);
        let mut clients = [client(&target, 4), client(&target, 4)];
        all_good(&run(&mut clients, &at(500.0, 200)), 100);
        let saturate = Run { wait: Wait::Sleep, ..Run::new(Schedule::Saturate, Duration::from_millis(200)) };
        let outcome = run(&mut clients, &saturate);
        assert!(outcome.answered > 8 && outcome.answered == outcome.sent, "{outcome:?}");
    });
    assert_eq!((served.connections, served.refused), (8, 0));
}

/// tonic's client accepts our responder as a gRPC server.
#[test]
fn the_librarys_own_client_is_answered() {
    let served = with_server(&grpc(), |server| {
        let address = server.addresses()[0];
        runtime().block_on(async {
            let channel =
                Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
            let mut client = tonic::client::Grpc::new(channel);
            for (path, bytes, expected) in [
                ("/hostgap.Echo/Unary", 0, Code::Ok),
                ("/hostgap.Echo/Unary", 5, Code::Ok),
                ("/hostgap.Echo/Unary", 300_000, Code::Ok),
                ("/hostgap.Echo/Unary", 2 << 20, Code::ResourceExhausted),
                ("/hostgap.Echo/Other", 5, Code::Unimplemented),
            ] {
                client.ready().await.unwrap();
                let message = Bytes::from(vec![b'y'; bytes]);
                let request = tonic::Request::new(message.clone());
                let answer = client.unary(request, PathAndQuery::from_static(path), Verbatim).await;
                match answer {
                    Ok(answer) => assert_eq!((Code::Ok, answer.into_inner()), (expected, message)),
                    Err(status) => assert_eq!(status.code(), expected, "{status:?}"),
                }
            }
        });
    });
    assert_eq!((served.answered, served.refused), (3, 2));
}

#[test]
fn what_cannot_be_is_refused() {
    let closed = ([127, 0, 0, 1], 1).into();
    let pool = Pool::of(1, Duration::from_secs(1));
    let good = target(closed, 1);
    for (target, pool) in [
        (good.clone(), Pool { depth: 2, ..pool }),
        (good.clone(), Pool { fresh: true, ..pool }),
        (good.clone(), Pool { stamps: true, ..pool }),
        (target(closed, load::GRPC_BODY_BYTES_MAX + 1), pool),
        (Target { address: Address::Udp(closed), ..good.clone() }, pool),
    ] {
        assert!(matches!(Client::open(&target, pool), Err(LoadError::Shape(_))), "{target:?} {pool:?}");
    }
    assert!(matches!(Client::open(&good, pool), Err(LoadError::Connect { .. })));
    let faults = load::serve::Faults { errors: 0.5, ..load::serve::Faults::default() };
    assert!(load::serve::Server::bind(&ResponderConfig { faults, ..grpc() }).is_err());
}
