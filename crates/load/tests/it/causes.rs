//! The cause that a run reports for requests that were not sent in time or not answered.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use load::checks::{CheckResult, checks};
use load::{
    Address, Ask, Client, Dropped, Outcome, Overdue, Pool, Protocol, Run, Short, Sizes, Target, WhenBusy,
};
use proptest::prelude::*;
use rustix::net::sockopt;

use crate::servers::{OK, Request, at, client, run, serve, target};

/// The text of a check that failed.
#[track_caller]
fn failed(outcome: &Outcome, run: &Run, id: &str) -> String {
    let check: CheckResult = checks(outcome, &run.schedule).into_iter().find(|check| check.id == id).unwrap();
    assert_eq!(check.passed, Some(false), "{check:?}");
    check.text
}

/// Checks the account of a run that waited for answers.
#[track_caller]
fn waited_for_answers(outcome: &Outcome, connections: u64) {
    let Overdue { total_ns, answers_ns, connections_ns } = outcome.backlog;
    // The thread's own time for a few requests is small, however busy the machine is.
    assert!(answers_ns * 2 > total_ns && connections_ns == 0, "{outcome:?}");
    assert_eq!(outcome.short, Short { waiting: connections, ..Short::default() });
}

#[test]
fn a_server_that_never_answers_is_the_cause() {
    let address = serve(|_| true);
    let mute = Run { drain: Duration::from_millis(100), ..at(500.0, 1_000) };
    let outcome = run(&mut [client(address, 3)], &mute);
    assert_eq!((outcome.sent, outcome.missed.unanswered, outcome.missed.unsent), (3, 3, 497));
    assert_eq!(outcome.silent, 3);
    waited_for_answers(&outcome, 3);
    // The shares of the thread's time are shares of the schedule: the wait for answers comes after it.
    let thread = &outcome.threads[0];
    assert!(thread.in_schedule.wall_ns >= 1_000_000_000, "{thread:?}");
    assert!(thread.wall_ns >= thread.in_schedule.wall_ns + 100_000_000, "{thread:?}");
    let text = failed(&outcome, &mute, "rate");
    assert!(text.contains("no connection was free, all 3 waited for answers"), "{text}");
    assert!(text.contains("the server answered none of the 3 requests"), "{text}");
    assert!(!text.contains("generator") && !text.contains("CPU"), "{text}");

    let drop = Run { when_busy: WhenBusy::Drop, ..mute };
    let outcome = run(&mut [client(address, 3)], &drop);
    assert_eq!(outcome.sent, 3);
    // However late the thread dealt with them, no connection had become free meanwhile. The exceptions are
    // the first requests, some of which may have been due while the thread did not run.
    let Dropped { answers, connections, late } = outcome.dropped;
    assert_eq!((answers + late, connections), (497, 0));
    assert!(answers > late, "{outcome:?}");
    let text = failed(&outcome, &drop, "rate");
    assert!(text.contains("(497 were dropped): no connection was free"), "{text}");
}

#[test]
fn while_a_lost_answer_is_waited_for_the_cpus_are_looked_at() {
    let address = serve(|_| true);
    let presumed_lost = |time| Some(Duration::from_millis(time));
    let mute = Run { presumed_lost: presumed_lost(1), drain: Duration::from_secs(2), ..at(100.0, 100) };
    let looked = run(&mut [client(address, 1), client(address, 1)], &mute).late_look;
    assert!(looked.is_some_and(|stat| !stat.cpus.is_empty()));
    // Not before it should have come.
    let mute = Run { presumed_lost: presumed_lost(3_600_000), drain: Duration::from_millis(50), ..mute };
    assert_eq!(run(&mut [client(address, 1)], &mute).late_look, None);
}

#[test]
fn a_server_that_stops_answering_on_the_way_is_the_cause() {
    let address = serve(|request| request.number >= 200 || request.answer(OK));
    for (when_busy, depth) in [(WhenBusy::Wait, 1), (WhenBusy::Pipeline, 4), (WhenBusy::Grow, 1)] {
        let half = Run { when_busy, drain: Duration::from_millis(100), ..at(1_000.0, 1_000) };
        let pool = Pool { depth, connections_max: 8, ..Pool::of(4, Duration::from_secs(5)) };
        let outcome = run(&mut [Client::open(&target(address), pool).unwrap()], &half);
        waited_for_answers(&outcome, if when_busy == WhenBusy::Grow { 8 } else { 4 });
        let text = failed(&outcome, &half, "answered");
        assert!(text.contains("had no answer when waiting ended"), "{text}");
        assert!(text.contains("the server does not answer"), "{text}");
    }
}

#[test]
fn what_was_made_up_for_is_no_cause() {
    // One slow answer in the middle delays the requests after it, but all of them are still sent within the
    // schedule.
    let address = serve(|request| {
        if request.number == 100 {
            thread::sleep(Duration::from_millis(500));
        }
        request.answer(OK)
    });
    let outcome = run(&mut [client(address, 1)], &at(100.0, 3_000));
    assert!(outcome.overdue.answers_ns >= 100_000_000, "{outcome:?}");
    assert!(outcome.backlog.answers_ns < outcome.overdue.answers_ns / 2, "{outcome:?}");
}

#[test]
fn a_server_that_is_gone_is_the_cause() {
    // All connections are reset at one request, and the port has no listener any more.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let streams: Vec<TcpStream> = listener.incoming().take(3).map(Result::unwrap).collect();
        for stream in &streams {
            sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
        }
        // The first request on the first connection gets no answer and ends the server.
        streams[0].peek(&mut [0]).unwrap();
    });
    let gone = Run { drain: Duration::from_millis(100), ..at(500.0, 1_000) };
    let outcome = run(&mut [client(address, 3)], &gone);
    let Overdue { total_ns, answers_ns, connections_ns } = outcome.backlog;
    assert!(connections_ns * 2 > total_ns && answers_ns * 2 < total_ns, "{outcome:?}");
    assert!(outcome.faults.refused > 0 && outcome.missed.lost >= 1, "{outcome:?}");
    assert!(outcome.first_fault.is_some());
    let text = failed(&outcome, &gone, "rate");
    assert!(text.contains("had broken or could not be made"), "{text}");
    assert!(text.contains("the server was gone") && !text.contains("generator"), "{text}");
    let text = failed(&outcome, &gone, "errors");
    assert!(text.contains(" refused") && text.contains(" after the start: "), "{text}");
    assert!(text.contains("nothing listened there any more"), "{text}");
}

#[test]
fn a_generator_that_has_too_much_to_do_is_the_cause() {
    let address = serve(|request| request.answer(OK));
    // A thousand requests intended within one microsecond, each with a free connection. They wait for system
    // calls.
    let beyond = Run { duration: Duration::from_micros(1), ..at(1e9, 0) };
    let outcome = run(&mut [client(address, 1_000)], &beyond);
    assert_eq!((outcome.backlog.answers_ns, outcome.backlog.connections_ns), (0, 0));
    assert!(failed(&outcome, &beyond, "rate").contains("the generator "), "{outcome:?}");
}

#[test]
fn connections_that_are_not_accepted_are_distinguished_from_slow_ones() {
    // The kernel accepts all connections, and the program only one.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let number = AtomicU64::new(0);
        crate::servers::converse(&stream, &number, &|request: Request<'_>| request.answer(OK));
    });
    let limited = Run { drain: Duration::from_millis(200), ..at(100.0, 300) };
    let outcome = run(&mut [client(address, 4)], &limited);
    assert_eq!((outcome.silent, outcome.missed.unanswered), (3, 3));
    let text = failed(&outcome, &limited, "answered");
    assert!(text.contains("3 had no answer when waiting ended (3 connections never had one)"), "{text}");
}

#[test]
fn errors_alone_are_no_answers_to_judge_by() {
    let address =
        serve(|request| request.answer(b"HTTP/1.1 503 Unavailable\r\nContent-Length: 4\r\n\r\noops"));
    let errors = at(500.0, 200);
    let pool = Pool { stamps: true, ..Pool::of(4, Duration::from_secs(5)) };
    let outcome = run(&mut [Client::open(&target(address), pool).unwrap()], &errors);
    assert!(outcome.split.as_ref().is_some_and(|split| split.wire.is_empty()), "{outcome:?}");
    for check in checks(&outcome, &errors.schedule) {
        if ["late", "stationarity", "independence"].contains(&check.id) {
            assert_eq!(check.passed, None, "{check:?}");
        }
    }
    let text = failed(&outcome, &errors, "answered");
    assert!(
        text.contains("the first with status 503 and 4 bytes") && text.contains("--expect-status"),
        "{text}"
    );
}

/// A UDP server; a closure turns each datagram into its answers.
fn datagrams(answers: impl Fn(u64, &[u8]) -> Vec<Vec<u8>> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        for number in 0.. {
            let Ok((bytes, peer)) = socket.recv_from(&mut buffer) else { return };
            for answer in answers(number, &buffer[..bytes]) {
                // The peer may already be gone.
                let _ = socket.send_to(&answer, peer);
            }
        }
    });
    address
}

fn udp(address: SocketAddr, sockets: usize) -> Client {
    let ask = Ask::Raw(Sizes { request_bytes: 64, response_bytes: 64 });
    let target = Target { address: Address::Udp(address), tls: None, ask };
    Client::connect(&target, sockets, Duration::from_secs(5)).unwrap()
}

#[test]
fn datagrams_that_are_lost_hold_their_sockets() {
    let address = datagrams(|_, _| vec![]);
    let timeout = Some(Duration::from_secs(20));
    let lossy = Run { timeout, drain: Duration::from_millis(50), ..at(500.0, 500) };
    let outcome = run(&mut [udp(address, 4)], &lossy);
    assert_eq!(outcome.protocol, Protocol::Datagrams);
    waited_for_answers(&outcome, 4);
    let texts = ["rate", "answered"].map(|id| failed(&outcome, &lossy, id)).join("; ");
    assert!(texts.contains("no socket was free, all 4 waited for answers"), "{texts}");
    assert!(texts.contains("lost on the way, or the server does not answer"), "{texts}");
    assert!(!texts.contains("connection") && !texts.contains("status"), "{texts}");
}

#[test]
fn an_unreachable_port_is_reported_as_such() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let short = Run { drain: Duration::from_millis(50), ..at(100.0, 300) };
    let outcome = run(&mut [udp(address, 2)], &short);
    assert!(outcome.faults.refused > 0 && outcome.answered == 0, "{outcome:?}");
    let text = failed(&outcome, &short, "errors");
    assert!(text.contains("the port is unreachable: nothing listened there"), "{text}");
    assert!(!text.contains("onnection"), "{text}");
}

/// Checks what holds for the report of every run.
#[track_caller]
fn sane(outcome: &Outcome, run: &Run) {
    for check in checks(outcome, &run.schedule) {
        for nonsense in ["NaN", "inf"] {
            assert!(!check.text.contains(nonsense), "{check:?}");
        }
        for (name, figure) in &check.figures {
            let is_share = name.ends_with("_share") && *name != "moved_share";
            assert!(!figure.is_nan() && (!is_share || (0.0..=1.0).contains(figure)), "{check:?}");
        }
    }
    let shares: f64 = checks(outcome, &run.schedule)[0]
        .figures
        .iter()
        .filter(|(name, _)| ["answers_share", "connections_share", "generator_share"].contains(name))
        .map(|(_, share)| share)
        .sum();
    assert!(shares == 0.0 || (shares - 1.0).abs() < 1e-9, "{shares}");
}

/// Short runs of all kinds.
fn runs() -> impl Strategy<Value = (Run, Pool, usize)> {
    let schedule = prop_oneof![
        (50.0..50_000.0).prop_map(|rate_per_s| load::Schedule::Constant { rate_per_s }),
        (50.0..50_000.0, 0_u64..99)
            .prop_map(|(rate_per_s, seed)| load::Schedule::Poisson { rate_per_s, seed }),
        Just(load::Schedule::Saturate),
    ];
    let when_busy = prop_oneof![
        Just(WhenBusy::Wait),
        Just(WhenBusy::Pipeline),
        Just(WhenBusy::Grow),
        Just(WhenBusy::Drop)
    ];
    let wait = prop_oneof![Just(load::Wait::Sleep), Just(load::Wait::Hybrid)];
    let timeout = prop::option::of((2_u64..20).prop_map(Duration::from_millis));
    let shape = (1_usize..6, 0_usize..9, 1_usize..6, any::<bool>(), 1_usize..3);
    (schedule, when_busy, wait, timeout, 0_u64..30, shape).prop_map(
        |(schedule, when_busy, wait, timeout, drain_ms, (connections, more, depth, fresh, threads))| {
            let is_rate = schedule != load::Schedule::Saturate;
            let when_busy = if is_rate { when_busy } else { WhenBusy::Wait };
            let drain = Duration::from_millis(drain_ms);
            let run = Run { when_busy, wait, timeout, drain, ..at(1.0, 20) };
            let fresh = fresh && when_busy != WhenBusy::Grow;
            let depth = if fresh { 1 } else { depth };
            let pool = Pool::of(connections, Duration::from_secs(20));
            let pool = Pool { connections_max: connections + more, depth, fresh, ..pool };
            (Run { schedule, ..run }, pool, threads)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every request is counted once, whatever the server does.
    #[test]
    fn every_request_is_accounted_for_once(
        (what, pool, threads) in runs(),
        actions in prop::collection::vec(0_u8..9, 1..12),
    ) {
        let address = serve(move |request| match actions[request.number as usize % actions.len()] {
            0..=3 => request.answer(OK),
            4 => true,
            5 => request.answer_and_close(OK),
            6 => request.answer(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
            7 => request.answer_and_close(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"),
            _ => request.answer(&OK.repeat(2)),
        });
        let mut clients: Vec<Client> =
            (0..threads).map(|_| Client::open(&target(address), pool).unwrap()).collect();
        for _ in 0..2 {
            let outcome = run(&mut clients, &what);
            sane(&outcome, &what);
        }
    }

    #[test]
    fn every_datagram_is_accounted_for_once(
        (what, pool, threads) in runs(),
        actions in prop::collection::vec(0_u8..7, 1..12),
    ) {
        let address = datagrams(move |number, asked| match actions[number as usize % actions.len()] {
            0..=2 => vec![asked.to_vec()],
            3 => vec![],
            4 => vec![asked.to_vec(); 2],
            5 => vec![asked[..20].to_vec()],
            _ => vec![b"garbage".to_vec(), vec![0xff; 64]],
        });
        let mut clients: Vec<Client> = (0..threads).map(|_| udp(address, pool.connections)).collect();
        let when_busy = match what.when_busy {
            WhenBusy::Grow => WhenBusy::Wait,
            other => other,
        };
        let what = Run { when_busy, ..what };
        for _ in 0..2 {
            let outcome = run(&mut clients, &what);
            sane(&outcome, &what);
        }
    }
}
