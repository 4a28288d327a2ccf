//! A trial of several clients: what each got is added up.

use record::{Handshakes, Histogram, Line, TrialRecord, Void, Witnessed};

use crate::made;

/// A trial in which the i-th of fifty requests took `base_ns` and i microseconds.
fn trial(round: u32) -> TrialRecord {
    let Line::Round(round) = made::round(round) else { unreachable!("it makes a round") };
    round.trials[1].clone()
}

fn quantile_ns(histogram: &Histogram, quantile: f64) -> u64 {
    let mut hdr = Histogram::empty_hdr();
    histogram.add_to(&mut hdr);
    hdr.value_at_quantile(quantile)
}

#[test]
fn percentiles_are_those_of_all_answers() {
    // Of the second client each takes 100 µs longer.
    let (mut merged, near, far) = (trial(0), trial(0), trial(100));
    let witnessed = Witnessed { intended: 51, ..Witnessed::default() };
    merged.witnessed = Some(witnessed);
    merged.add_client(&far);
    let response = &merged.latencies.response;
    assert_eq!((merged.intended, merged.sent, merged.answered, merged.missed), (102, 102, 100, 2));
    assert_eq!((merged.answered_in_time, merged.unanswered()), (98, 2));
    assert_eq!((response.count(), merged.duration_ns), (100, near.duration_ns));
    let of = |trial: &TrialRecord, quantile| quantile_ns(&trial.latencies.response, quantile);
    // The slower half of all is that of the far client.
    assert_eq!(of(&merged, 0.25), of(&near, 0.5));
    assert_eq!(of(&merged, 0.5), of(&near, 1.0));
    assert_eq!(of(&merged, 0.75), of(&far, 0.5));
    assert_eq!(of(&merged, 0.99), of(&far, 0.98));
    assert_eq!(merged.client_cpu.user_ns, 20_000_000);
    assert_eq!(merged.server_cpu, near.server_cpu, "only one of them looks at the server's machine");
    assert_eq!(merged.counters.retransmits, 2);
    assert!(merged.witnessed.is_none() && merged.void.is_none());
}

#[test]
fn a_trial_is_void_if_it_is_on_one_client_and_says_on_which() {
    let why = || Void::OnClient {
        machine: "ssh://c".to_owned(),
        why: Box::new(Void::GeneratorLate { late_p99_ns: 300_000, limit_ns: 150_000 }),
    };
    let void =
        TrialRecord { void: Some(why()), handshakes: Some(Handshakes { full: 2, resumed: 1 }), ..trial(1) };
    let mut merged = trial(0);
    merged.add_client(&void);
    merged.add_client(&trial(2));
    assert_eq!((merged.void.clone(), merged.handshakes), (Some(why()), void.handshakes));
    let mut own = TrialRecord { void: Some(Void::ClientBusy { busy_permille: 995 }), ..trial(0) };
    own.add_client(&void);
    assert_eq!(own.void, Some(Void::ClientBusy { busy_permille: 995 }), "the first reason stays");
    let text = serde_json::to_string(&merged).unwrap();
    let named = r#""void":{"on_client":{"machine":"ssh://c","why":{"generator_late":{"late_p99_ns":300000"#;
    assert!(text.contains(named), "{text}");
    assert_eq!(serde_json::from_str::<TrialRecord>(&text).unwrap(), merged);
}

/// Whatever the length of the two parts: one of thirty in 150 ms does 200 a second, one of ten in 100 ms does 100.
#[test]
fn rates_of_clients_add_up() {
    let part = |answered_in_time, duration_ns, loop_ns| TrialRecord {
        answered_in_time,
        duration_ns,
        loop_ns,
        ..trial(0)
    };
    let rate = |trial: &TrialRecord| trial.answered_in_time as f64 * 1e9 / trial.throughput_ns() as f64;
    let both = [
        // At a rate, each to the end of its own last period.
        [part(10, 100_000_000, None), part(30, 150_000_000, None)],
        // In a closed loop, by the times between answers.
        [part(10, 90_000_000, Some(100_000_000)), part(30, 90_000_000, Some(150_000_000))],
    ];
    for [mut one, other] in both {
        one.add_client(&other);
        assert!((rate(&one) - 300.0).abs() < 0.01, "{one:?}");
    }
    let mut equal = part(10, 100_000_000, None);
    equal.add_client(&part(10, 100_000_000, None));
    assert_eq!((equal.loop_ns, rate(&equal)), (None, 200.0));
    let mut silent = part(0, 100_000_000, None);
    silent.add_client(&part(0, 150_000_000, None));
    assert_eq!((silent.loop_ns, silent.throughput_ns()), (None, 150_000_000));
}
