//! Runs with a number of requests instead of a duration.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use load::serve::ResponderConfig;
use load::{Client, Expect, LoadError, Outcome, Pool, Run, Schedule, Target, WhenBusy};

use crate::responder::with_server;
use crate::servers::{OK, at, check, client, converse, serve, target};

fn some(requests: u64) -> Run {
    Run { requests: Some(requests), schedule: Schedule::Saturate, ..at(1.0, 1) }
}

#[track_caller]
fn run(clients: &mut [Client], run: &Run) -> Outcome {
    let outcome = load::run(clients, run).unwrap();
    check(&outcome);
    outcome
}

#[test]
fn as_many_are_answered_as_were_asked_for() {
    for (fresh, depth) in [(false, 1), (false, 8), (true, 1)] {
        // Numbers of requests that three threads cannot share evenly, or that leave some threads without any.
        for requests in [1, 2, 1000] {
            let served = with_server(&ResponderConfig::default(), |server| {
                let target = Target::get(server.addresses()[0], "a", "/100", Expect::default());
                let pool = Pool { fresh, depth, ..Pool::of(3, Duration::from_secs(5)) };
                let mut clients: Vec<Client> = (0..3).map(|_| Client::open(&target, pool).unwrap()).collect();
                let outcome = run(&mut clients, &some(requests));
                assert_eq!((outcome.intended, outcome.answered), (requests, requests), "{outcome:?}");
                assert_eq!((outcome.answered_in_schedule, outcome.faults.count()), (requests, 0));
                assert!(outcome.answered_per_s() > 0.0);
            });
            assert_eq!(served.answered, requests);
        }
    }
}

#[test]
fn at_a_rate_they_take_as_long_as_they_do() {
    let address = serve(|request| request.answer(OK));
    let schedule = Schedule::Constant { rate_per_s: 500.0 };
    let outcome = run(&mut [client(address, 2), client(address, 2)], &Run { schedule, ..some(101) });
    assert_eq!((outcome.intended, outcome.answered), (101, 101));
    assert_eq!(outcome.duration, Duration::from_millis(202));
}

#[test]
fn what_cannot_be_is_refused() {
    let address = serve(|request| request.answer(OK));
    let random = Schedule::Poisson { rate_per_s: 100.0, seed: 1 };
    for wrong in [Run { schedule: random, ..some(5) }, some(0)] {
        assert!(matches!(load::run(&mut [client(address, 1)], &wrong), Err(LoadError::Shape(_))));
    }
    let fresh = Pool { fresh: true, connections_max: 9, ..Pool::of(1, Duration::from_secs(1)) };
    let mut fresh = [Client::open(&target(address), fresh).unwrap()];
    let grow = Run { when_busy: WhenBusy::Grow, ..at(100.0, 10) };
    assert!(matches!(load::run(&mut fresh, &grow), Err(LoadError::Shape(_))));
}

/// The run ends, reports the requests never sent, and names the cause.
#[test]
fn a_server_that_falls_silent_ends_it() {
    let silent = Arc::new(AtomicBool::new(false));
    let (hush, over) = (Arc::clone(&silent), Arc::new((Mutex::new(false), Condvar::new())));
    let waits = Arc::clone(&over);
    let address = serve(move |request| {
        if request.number >= 40 {
            hush.store(true, Ordering::Relaxed);
            let ended = waits.0.lock().unwrap();
            drop(waits.1.wait_while(ended, |ended| !*ended).unwrap());
            return false;
        }
        request.answer(OK)
    });
    let silence = Run { drain: Duration::from_millis(300), ..some(1000) };
    let outcome = run(&mut [client(address, 4)], &silence);
    *over.0.lock().unwrap() = true;
    over.1.notify_all();
    assert!(silent.load(Ordering::Relaxed));
    assert_eq!((outcome.intended, outcome.answered), (1000, 40), "{outcome:?}");
    assert_eq!((outcome.missed.unanswered, outcome.missed.unsent), (4, 956), "{outcome:?}");
    let check = &load::checks::checks(&outcome, &Schedule::Saturate)[1];
    assert_eq!((check.id, check.passed), ("answered", Some(false)));
    assert!(check.text.contains("956 were never sent"), "{}", check.text);
    assert!(check.text.contains("the server does not answer"), "{}", check.text);
}

/// The port has no listener any more, so the rest cannot even be sent.
#[test]
fn a_server_that_is_gone_ends_it() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let streams: Vec<TcpStream> = (0..2).map(|_| listener.accept().unwrap().0).collect();
        let requests = AtomicU64::new(0);
        for stream in &streams {
            converse(stream, &requests, &|request| request.answer(OK) && request.on_connection < 9);
        }
    });
    let silence = Run { drain: Duration::from_millis(300), ..some(1000) };
    let outcome = run(&mut [client(address, 2)], &silence);
    server.join().unwrap();
    let missed = &outcome.missed;
    assert_eq!((outcome.intended, missed.unanswered), (1000, 0), "{outcome:?}");
    assert!(missed.unsent > 900 && outcome.faults.refused > 0, "{outcome:?}");
    let text = &load::checks::checks(&outcome, &Schedule::Saturate)[1].text;
    assert!(text.contains("nothing listened there any more"), "{text}");
}
