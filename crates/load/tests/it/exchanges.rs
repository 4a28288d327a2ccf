//! The log of a run's requests agrees with the counts and histograms of the same run.

use std::time::Duration;

use load::{Client, Exchange, Histogram, Live, Outcome, Run, Schedule, WhenBusy, run_logged};

use crate::servers::{OK, at, client, serve};

fn logged(clients: &mut [Client], run: &Run) -> (Outcome, Vec<Exchange>) {
    let mut exchanges = Vec::new();
    let outcome = run_logged(clients, run, &Live::default(), &mut |block| {
        exchanges.extend_from_slice(block);
    });
    let outcome = outcome.unwrap();
    assert_eq!(outcome.unlogged, 0);
    (outcome, exchanges)
}

/// Checks that every request that was due is logged once, at its instant.
#[track_caller]
fn complete(outcome: &Outcome, exchanges: &[Exchange], between_ns: u64) {
    let mut intended: Vec<u64> =
        exchanges.iter().map(|exchange| exchange.intended_ns - outcome.started_ns).collect();
    intended.sort_unstable();
    assert_eq!(intended, (0..outcome.intended).map(|k| k * between_ns).collect::<Vec<_>>());
    let answered = exchanges.iter().filter(|exchange| exchange.response_ns().is_some()).count();
    assert_eq!(answered as u64, outcome.answered);
    let sent = exchanges.iter().filter(|exchange| exchange.late_ns().is_some()).count();
    assert_eq!(sent as u64, outcome.sent);
}

fn recorded(values: impl Iterator<Item = u64>, like: &Histogram<u64>) -> Histogram<u64> {
    let mut histogram = Histogram::new_from(like);
    values.for_each(|value| histogram.saturating_record(value));
    histogram
}

#[test]
fn times_are_those_of_the_histograms() {
    let address = serve(|request| request.answer(OK));
    let mut clients = [client(address, 3), client(address, 2)];
    let (outcome, exchanges) = logged(&mut clients, &at(2000.0, 300));
    complete(&outcome, &exchanges, 500_000);
    let response = recorded(exchanges.iter().filter_map(Exchange::response_ns), &outcome.response);
    assert!(response == outcome.response);
    let late = recorded(exchanges.iter().filter_map(Exchange::late_ns), &outcome.late);
    assert!(late == outcome.late);
    for exchange in &exchanges {
        // Request k belongs to client k mod 2. Each client counts its own connections.
        let ordinal = (exchange.intended_ns - outcome.started_ns) / 500_000;
        assert_eq!(u64::from(exchange.client), ordinal % 2);
        assert!(exchange.connection < if exchange.client == 0 { 3 } else { 2 });
    }
}

#[test]
fn what_has_no_answer_is_there_too() {
    // On each connection the first request is answered, the second gets an unexpected answer, and the others
    // get none.
    let address = serve(|request| match request.on_connection {
        0 => request.answer(OK),
        1 => request.answer(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"),
        _ => true,
    });
    for when_busy in [WhenBusy::Wait, WhenBusy::Drop] {
        let run = Run { when_busy, drain: Duration::from_millis(1), ..at(1000.0, 200) };
        let (outcome, exchanges) = logged(&mut [client(address, 2)], &run);
        complete(&outcome, &exchanges, 1_000_000);
        assert_eq!((outcome.answered, outcome.unexpected.count()), (2, 2), "{when_busy:?}");
        let nowhere = exchanges.iter().filter(|exchange| exchange.connection == Exchange::NOWHERE);
        assert_eq!(nowhere.count() as u64, outcome.intended - outcome.sent);
    }
}

/// A slice of a race is short. Each continues where the one before it ended, or most connections would never be used.
#[test]
fn runs_one_after_another_go_round_all_connections() {
    let address = serve(|request| request.answer(OK));
    let mut clients = [client(address, 9)];
    let mut used = Vec::new();
    for _ in 0..3 {
        clients[0].make_ready().unwrap();
        let (_, exchanges) = logged(&mut clients, &Run { requests: Some(3), ..at(1000.0, 3) });
        used.extend(exchanges.iter().map(|exchange| exchange.connection));
    }
    used.sort_unstable();
    assert_eq!(used, (0..9).collect::<Vec<_>>());
}

#[test]
fn without_a_rate_no_request_is_due() {
    let address = serve(|request| request.answer(OK));
    let run = Run::new(Schedule::Saturate, Duration::from_millis(50));
    let (outcome, exchanges) = logged(&mut [client(address, 2)], &run);
    assert!(outcome.answered > 0 && exchanges.is_empty());
}
