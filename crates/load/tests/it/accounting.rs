//! Every request is accounted for, at its intended time.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use load::{Ask, Client, Expect, HttpRequest, Live, LoadError, Run, Schedule, Sizes, Wait};

use crate::servers::{OK, at, check, client, run, serve, target};

#[test]
fn a_good_server_answers_everything() {
    let address = serve(|request| request.answer(OK));
    for wait in [Wait::Sleep, Wait::Hybrid, Wait::Spin] {
        let outcome = run(&mut [client(address, 8)], &Run { wait, ..at(2000.0, 300) });
        assert_eq!((outcome.intended, outcome.sent, outcome.answered), (600, 600, 600), "{wait:?}");
        assert_eq!((outcome.faults.count(), outcome.reconnects), (0, 0));
        assert_eq!(outcome.duration, Duration::from_millis(300));
        assert!(outcome.kept() > 0.0);
    }
}

#[test]
fn connections_ask_for_something_else() {
    // A new connection would count from 0 again. The answer's length shows the count of this connection.
    let address = serve(|request| {
        let body = "x".repeat(1 + usize::from(request.on_connection >= 100));
        request.answer(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
    });
    let expecting = |body_bytes| {
        let expect = Expect { status: 200, body_bytes: Some(body_bytes) };
        Ask::Http(vec![HttpRequest::get("x", &format!("/{body_bytes}"), expect)])
    };
    let mut clients = [client(address, 1)];
    for body_bytes in [1, 2] {
        clients[0].ask_for(expecting(body_bytes)).unwrap();
        let outcome = run(&mut clients, &at(500.0, 200));
        assert_eq!((outcome.answered, outcome.unexpected.count(), outcome.reconnects), (100, 0, 0));
    }
    let raw = Ask::Raw(Sizes { request_bytes: 1, response_bytes: 1 });
    assert!(matches!(clients[0].ask_for(raw), Err(LoadError::Shape(_))));
    assert_eq!(run(&mut clients, &at(500.0, 20)).answered, 10, "a refusal changes nothing");
}

#[test]
fn threads_share_one_schedule() {
    let address = serve(|request| request.answer(OK));
    let mut clients = [client(address, 3), client(address, 1), client(address, 2)];
    // 1001 requests over three threads: 334, 334, 333.
    let outcome = run(&mut clients, &at(2002.0, 500));
    assert_eq!(outcome.answered, 1001);
    assert_eq!(outcome.threads.len(), 3);
    for thread in &outcome.threads {
        assert!(thread.in_schedule.wall_ns >= 500_000_000 && thread.in_schedule.cpu_ns > 0, "{thread:?}");
        // Before the start all wait for the last to be ready, and for a millisecond more.
        assert!(thread.wall_ns >= thread.in_schedule.wall_ns + 1_000_000, "{thread:?}");
    }
}

#[test]
fn a_frozen_server_shows_in_response_and_hides_in_service() {
    const FREEZE: Duration = Duration::from_millis(200);
    let started = OnceLock::new();
    let address = serve(move |request| {
        let since = started.get_or_init(Instant::now).elapsed();
        let thaw = Duration::from_millis(500) + FREEZE;
        if since > Duration::from_millis(500) && since < thaw {
            thread::sleep(thaw - since);
        }
        request.answer(OK)
    });
    let outcome = run(&mut [client(address, 5)], &at(1000.0, 2000));
    assert_eq!(outcome.answered, 2000);
    // 10 % of the intended instants lie in the freeze, and their waits are spread evenly from 0 to 200 ms:
    // p99 is 180 ms, p95 is 100 ms. Only 5 requests, one on each connection, were in flight: 0.25 %.
    let ms = |histogram: &hdrhistogram::Histogram<u64>, quantile| {
        histogram.value_at_quantile(quantile) / 1_000_000
    };
    // If this machine stalled too, every time is longer by that.
    let late = outcome.late.max() / 1_000_000;
    assert!((150..600 + late).contains(&ms(&outcome.response, 0.99)), "{} ms", ms(&outcome.response, 0.99));
    assert!(ms(&outcome.response, 0.95) >= 70, "{} ms", ms(&outcome.response, 0.95));
    assert!(ms(&outcome.response, 0.5) < 70 + late);
    assert!(ms(&outcome.service, 0.99) < 90 + late, "{} ms", ms(&outcome.service, 0.99));
    assert!(outcome.lag.max() >= 150_000_000);
    // The part of the lag that is not the generator's own belongs to the frozen server: 200 requests that
    // wait 100 ms each.
    let sum_s = |histogram: &hdrhistogram::Histogram<u64>| histogram.mean() * histogram.len() as f64 / 1e9;
    assert!(sum_s(&outcome.lag) - sum_s(&outcome.late) >= 10.0, "{:?}", outcome.lag);
    assert!(outcome.backlog_max >= 100, "{}", outcome.backlog_max);
}

#[test]
fn a_slow_server_is_waited_for_in_order() {
    let address = serve(|request| {
        thread::sleep(Duration::from_millis(2));
        request.answer(OK)
    });
    // 200 requests, 1 ms apart, take 2 ms each over one connection. The last one waits at least 200 ms,
    // behind 100 others.
    let mut clients = [client(address, 1)];
    let outcome = run(&mut clients, &at(1000.0, 200));
    assert_eq!(outcome.answered, 200);
    assert!(outcome.response.max() >= 199_000_000);
    // Only the 199 requests behind the first can count, however long the last of them waits after the
    // schedule's end.
    assert!((99..200).contains(&outcome.backlog_max), "{}", outcome.backlog_max);
    assert!(outcome.sent_in_schedule <= 101);
    assert!(outcome.answered_in_schedule <= 100);
    assert!(outcome.kept() < 0.6);
    assert!(outcome.ended_ns - outcome.started_ns >= 400_000_000);
    // All but the first waited for the connection, not for the generator.
    assert!(outcome.lag.value_at_quantile(0.5) >= 49_000_000);
    assert!(outcome.late.value_at_quantile(0.5) * 10 < outcome.lag.value_at_quantile(0.5));

    // Without time to drain, unsent requests are missed, each with its age.
    let outcome = run(&mut clients, &Run { drain: Duration::ZERO, ..at(1000.0, 200) });
    assert!(outcome.answered <= 101);
    assert!(outcome.missed.count() >= 99);
    assert!(outcome.missed.ages.max() >= 90_000_000);
    assert!(outcome.sent < outcome.intended);
}

#[test]
fn a_generator_that_cannot_keep_up_is_late_itself() {
    let address = serve(|request| request.answer(OK));
    // 200 requests intended within 200 ns, with a free connection for each. They wait only for the 199 system
    // calls.
    let mut clients = [client(address, 200)];
    let outcome = run(&mut clients, &Run { duration: Duration::from_nanos(200), ..at(1e9, 0) });
    assert_eq!(outcome.answered, 200);
    assert_eq!(outcome.late, outcome.lag);
    assert!(outcome.late.max() >= 10_000, "{} ns", outcome.late.max());
}

#[test]
fn saturating_keeps_every_connection_busy() {
    let address = serve(|request| request.answer(OK));
    let saturate = Run { schedule: Schedule::Saturate, ..at(1.0, 300) };
    let outcome = run(&mut [client(address, 4), client(address, 4)], &saturate);
    assert!(outcome.answered > 100);
    assert_eq!(outcome.sent, outcome.answered);
    assert_eq!((outcome.lag.max(), outcome.late.max()), (0, 0));
    assert_eq!(outcome.response, outcome.service);
    assert_eq!(outcome.rate_per_s, None);
}

#[test]
fn a_run_can_be_stopped_and_watched() {
    let address = serve(|request| request.answer(OK));
    let live = Live::default();
    let mut clients = [client(address, 2)];
    let outcome = thread::scope(|scope| {
        let running = scope.spawn(|| load::run_live(&mut clients, &at(1000.0, 600_000), &live).unwrap());
        while live.answered() < 50 {
            thread::sleep(Duration::from_millis(10));
        }
        live.stop();
        running.join().unwrap()
    });
    check(&outcome);
    assert_eq!(live.answered(), outcome.answered);
    assert_eq!(live.sent(), outcome.sent);
    assert_eq!(outcome.missed.count(), 0);
    assert!(outcome.duration < Duration::from_secs(60));
}

#[test]
fn very_low_rates_are_possible() {
    let address = serve(|request| request.answer(OK));
    let outcome = run(&mut [client(address, 1)], &at(0.5, 100));
    assert_eq!(outcome.answered, 1);
}

#[test]
fn what_cannot_be_run_is_an_error() {
    let address = serve(|request| request.answer(OK));
    let mut clients = [client(address, 1)];
    for rate in [0.0, -5.0, f64::NAN] {
        assert!(matches!(load::run(&mut clients, &at(rate, 10)), Err(LoadError::Rate(_))));
    }
    assert!(matches!(load::run(&mut [], &at(1.0, 10)), Err(LoadError::Shape(_))));
    let two_places = vec![linux::CpuSet::from_iter([0]); 2];
    let wrong = Run { threads: two_places, ..at(1.0, 10) };
    assert!(matches!(load::run(&mut clients, &wrong), Err(LoadError::Shape(_))));
    let nowhere = Run { threads: vec![linux::CpuSet::from_iter([4095])], ..at(1.0, 10) };
    assert!(matches!(load::run(&mut clients, &nowhere), Err(LoadError::Linux(_))));
    assert!(matches!(Client::connect(&target(address), 0, Duration::ZERO), Err(LoadError::Shape(_))));
}
