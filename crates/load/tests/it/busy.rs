//! What happens to requests for which no connection is free.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use load::{Client, ConnectionError, LoadError, Pool, Run, Schedule, WhenBusy};

use crate::servers::{OK, at, client, run, serve, target};

fn pool(address: SocketAddr, pool: Pool) -> Client {
    Client::open(&target(address), pool).unwrap()
}

fn of(connections: usize) -> Pool {
    Pool::of(connections, Duration::from_secs(5))
}

/// A server that takes `ms` milliseconds for an answer.
fn slow(ms: u64) -> SocketAddr {
    serve(move |request| {
        thread::sleep(Duration::from_millis(ms));
        request.answer(OK)
    })
}

/// A server that answers only once `many` requests have arrived, and then answers all of them.
fn together(many: u64) -> SocketAddr {
    let (asked, all) = (Mutex::new(0), Condvar::new());
    serve(move |request| {
        let mut asked = asked.lock().unwrap();
        *asked += 1;
        all.notify_all();
        drop(all.wait_while(asked, |asked| *asked < many).unwrap());
        request.answer(OK)
    })
}

#[test]
fn a_dropped_request_is_counted_and_delays_no_other() {
    let drop = Run { when_busy: WhenBusy::Drop, ..at(1000.0, 300) };
    let outcome = run(&mut [client(slow(20), 1)], &drop);
    // At most one request in 20 ms finds the connection free.
    assert!((1..=16).contains(&outcome.sent), "{}", outcome.sent);
    assert_eq!(outcome.dropped.count(), 300 - outcome.sent);
    assert_eq!((outcome.missed.count(), outcome.answered), (0, outcome.sent));
}

#[test]
fn samples_are_those_of_the_requests_that_were_sent() {
    let drop = Run { when_busy: WhenBusy::Drop, ..at(2000.0, 500) };
    let outcome = run(&mut [client(slow(1), 1)], &drop);
    let samples = &outcome.series[0].samples;
    assert!(outcome.dropped.count() > 0 && outcome.answered == outcome.sent, "{outcome:?}");
    assert_eq!(samples.len() as u64, outcome.sent);
    assert!(samples.iter().all(|sample| sample.response_ns.is_some()));
}

#[test]
fn a_pipeline_takes_requests_behind_others() {
    // The first answer comes once half of the requests have arrived, one behind the other.
    let patient = serve(|request| match request.number {
        0..49 => true,
        49 => (0..50).all(|_| request.answer(OK)),
        _ => request.answer(OK),
    });
    let slow = slow(5);
    let run_with = |address, depth, when_busy| {
        let pipeline = Run { when_busy, ..at(1000.0, 100) };
        run(&mut [pool(address, Pool { depth, ..of(1) })], &pipeline)
    };
    let outcome = run_with(patient, 200, WhenBusy::Pipeline);
    assert_eq!(outcome.answered, 100);
    // Eight may be open at a time. The others wait.
    let outcome = run_with(slow, 8, WhenBusy::Pipeline);
    assert_eq!(outcome.answered, 100);
    assert!(outcome.sent_in_schedule <= 8 + 100 / 5 + 1, "{}", outcome.sent_in_schedule);
    // Without `Pipeline`, the depth is not used.
    let outcome = run_with(slow, 8, WhenBusy::Wait);
    assert!(outcome.sent_in_schedule <= 100 / 5 + 1, "{}", outcome.sent_in_schedule);
}

#[test]
fn a_saturated_pipeline_is_kept_full() {
    let address = serve(|request| request.answer(OK));
    let saturate = Run { schedule: Schedule::Saturate, ..at(1.0, 200) };
    let outcome = run(&mut [pool(address, Pool { depth: 16, ..of(3) })], &saturate);
    assert!(outcome.answered > 100, "{}", outcome.answered);
    assert_eq!((outcome.sent, outcome.faults.count()), (outcome.answered, 0));
    assert_eq!(outcome.response, outcome.service);
}

/// One answer fits into the time. Their rate is none of what fits.
#[test]
fn a_closed_loop_has_the_rate_of_its_answers() {
    let saturate = Run { schedule: Schedule::Saturate, ..at(1.0, 600) };
    let outcome = run(&mut [client(slow(360), 2)], &saturate);
    // Little's law.
    let at_once = outcome.answered_per_s() * outcome.service.mean() / 1e9;
    assert!((at_once / 2.0 - 1.0).abs() < 0.2, "{at_once}: {:?}", outcome.intervals);
}

#[test]
fn connections_are_added_for_requests_that_would_wait() {
    let grow = Run { when_busy: WhenBusy::Grow, ..at(1000.0, 40) };
    let mut clients = [pool(together(40), Pool { connections_max: 100, ..of(1) })];
    let outcome = run(&mut clients, &grow);
    // The first answer comes once all 40 have arrived, each on its own connection.
    assert_eq!((outcome.answered, outcome.grown), (40, 39));
    assert_eq!(clients[0].connections(), 40);
    assert_eq!(outcome.missed.count(), 0);
    // The next run has the same connections.
    let outcome = run(&mut clients, &grow);
    assert_eq!((outcome.answered, outcome.grown), (40, 0));

    // Once no connection can be added, requests wait as usual.
    let outcome = run(&mut [pool(slow(400), Pool { connections_max: 4, ..of(1) })], &grow);
    assert_eq!((outcome.answered, outcome.grown), (40, 3));
    assert!(outcome.sent_in_schedule <= 4);
}

#[test]
fn an_answer_that_does_not_come_in_time_costs_its_connection() {
    static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
    let address = serve(|request| {
        if request.on_connection == 0 {
            CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        }
        // Every fourth request is never answered.
        request.number % 4 == 3 || request.answer(OK)
    });
    // Long enough that a server without CPU time does not look like one that never answers.
    let timeout = Some(Duration::from_secs(1));
    let outcome = run(&mut [client(address, 8)], &Run { timeout, ..at(100.0, 400) });
    assert_eq!((outcome.answered, outcome.missed.count()), (30, 10));
    assert_eq!((outcome.faults.timeout, outcome.faults.count()), (10, 10));
    assert_eq!(outcome.first_fault.unwrap().fault, ConnectionError::Timeout);
    assert!(outcome.missed.ages.min() >= 990_000_000);
    assert!(CONNECTIONS.load(Ordering::Relaxed) > 8);
}

#[test]
fn poisson_arrivals_are_random_and_known_in_advance() {
    let address = serve(|request| request.answer(OK));
    let at = |seed| Run { schedule: Schedule::Poisson { rate_per_s: 2000.0, seed }, ..at(1.0, 500) };
    let outcome = run(&mut [client(address, 16)], &at(1));
    // 1000 on average, with a standard deviation of √1000.
    assert!((800..1200).contains(&outcome.intended), "{}", outcome.intended);
    assert_eq!(outcome.answered, outcome.intended);
    assert_eq!(run(&mut [client(address, 16)], &at(1)).intended, outcome.intended);
    let others = [2, 3, 4].map(|seed| run(&mut [client(address, 16)], &at(seed)).intended);
    assert!(others.iter().any(|other| *other != outcome.intended));
    // The samples of the run, in order.
    let samples = &outcome.series[0].samples;
    assert_eq!(samples.len() as u64, outcome.intended);
    let short = samples.iter().filter(|sample| sample.gap_ns < 250_000).count() as f64;
    // 1 − e^(−1/2) = 0.39 of the gaps are shorter than half the mean. At a constant rate none would be.
    assert!(short / samples.len() as f64 > 0.3, "{short} of {}", samples.len());
    assert!(samples.iter().all(|sample| sample.response_ns.is_some()));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let address = serve(|request| request.answer(OK));
    for when_busy in [WhenBusy::Drop, WhenBusy::Grow] {
        let saturate = Run { schedule: Schedule::Saturate, when_busy, ..at(1.0, 10) };
        let refused = load::run(&mut [client(address, 1)], &saturate);
        assert!(matches!(refused, Err(LoadError::Shape(_))));
    }
    let refused = load::run(&mut [client(address, 1)], &Run { timeout: Some(Duration::ZERO), ..at(1.0, 10) });
    assert!(matches!(refused, Err(LoadError::Shape(_))));
    let refused = Client::open(&target(address), Pool { depth: 0, ..of(1) });
    assert!(matches!(refused, Err(LoadError::Shape(_))));
}
