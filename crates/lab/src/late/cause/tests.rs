//! Made-up answers and events.

use proptest::prelude::*;

use super::*;
use crate::late::evidence::Stages;

const CLIENT: u16 = 0;
const SERVER: u16 = 1;
const PORT: u16 = 40_000;
const USUAL: Usual = Usual { median_ns: 100, limit_ns: 500 };

/// Sent when intended, on a connection that had long been free.
fn answer(intended_ns: u64, response_ns: u64) -> AnsweredRequest {
    AnsweredRequest {
        intended_ns,
        sent_ns: intended_ns,
        received_ns: intended_ns + response_ns,
        free_ns: 0,
        port: PORT,
        cpu: CLIENT,
    }
}

fn at(cpu: u16, from_ns: u64, until_ns: u64) -> CpuInterval {
    CpuInterval { cpu, from_ns, until_ns }
}

fn resent(at_ns: u64, kind: RetransmitKind) -> Resent {
    Resent { port: PORT, at_ns, kind, by_server: false }
}

#[track_caller]
fn check(answers: &[AnsweredRequest], evidence: &SliceEvents, expected: &[Cause]) {
    let found: Vec<Cause> = causes(answers, USUAL, evidence).into_iter().map(|(_, cause)| cause).collect();
    assert_eq!(found, expected);
}

/// Where nothing was seen but where the exchange was when.
fn staged(arrived_ns: u64, read_ns: u64, back_ns: u64, until_ns: u64) -> SliceEvents {
    let mut evidence = SliceEvents::default();
    let stages = Stages {
        arrived_ns: Some(arrived_ns),
        read_ns: Some(read_ns),
        answered_ns: Some(back_ns + 5),
        back_ns: Some(back_ns),
        until_ns,
        server_cpu: Some(SERVER),
    };
    evidence.add_exchange(PORT, stages);
    evidence
}

#[test]
fn what_nothing_explains_is_unknown_and_what_is_not_late_has_no_cause() {
    check(&[answer(1_000, 900), answer(1_000, 400)], &SliceEvents::default(), &[Cause::Unknown]);
}

#[test]
fn each_cause_is_found_alone() {
    let of = |evidence: SliceEvents, cause: Cause| check(&[answer(1_000, 900)], &evidence, &[cause]);
    let none = SliceEvents::default;
    of(SliceEvents { stalls: vec![at(CLIENT, 1_100, 1_800)], ..none() }, Cause::Stall);
    of(SliceEvents { softirqs: vec![at(SERVER, 1_100, 1_800)], ..none() }, Cause::Softirq);
    of(SliceEvents { server_waits: vec![at(SERVER, 1_100, 1_800)], ..none() }, Cause::ServerWaited);
    of(SliceEvents { client_waits: vec![at(CLIENT, 1_100, 1_800)], ..none() }, Cause::Generator);
    of(SliceEvents { resent: vec![resent(1_700, RetransmitKind::TimeOut)], ..none() }, Cause::TimeOut);
    of(SliceEvents { resent: vec![resent(1_700, RetransmitKind::Probe)], ..none() }, Cause::Probe);
    of(SliceEvents { resent: vec![resent(1_700, RetransmitKind::Fast)], ..none() }, Cause::FastRetransmit);
    of(SliceEvents { drops: vec![(PORT, 1_050)], ..none() }, Cause::Drop);
    of(staged(1_010, 1_020, 1_880, 1_890), Cause::Server);
    of(staged(1_010, 1_850, 1_880, 1_890), Cause::Queue);
    of(staged(1_010, 1_020, 1_040, 1_890), Cause::Generator);
    of(staged(1_850, 1_860, 1_880, 1_890), Cause::Unknown);
}

#[test]
fn what_happened_elsewhere_explains_nothing() {
    let of = |evidence: SliceEvents| check(&[answer(1_000, 900)], &evidence, &[Cause::Unknown]);
    let none = SliceEvents::default;
    of(SliceEvents {
        resent: vec![Resent { port: PORT + 1, ..resent(1_700, RetransmitKind::TimeOut) }],
        ..none()
    });
    of(SliceEvents { resent: vec![resent(2_500, RetransmitKind::TimeOut)], ..none() });
    of(SliceEvents { drops: vec![(PORT + 1, 1_050), (0, 1_050)], ..none() });
    of(SliceEvents { client_waits: vec![at(7, 1_100, 1_800)], ..none() });
    of(SliceEvents { softirqs: vec![at(SERVER, 2_000, 3_000)], ..none() });
    // Both of its CPUs are known.
    let elsewhere = SliceEvents { softirqs: vec![at(7, 1_000, 1_900)], ..staged(1_850, 1_860, 1_880, 1_890) };
    of(elsewhere);
}

#[test]
fn a_stall_explains_what_seems_long_because_of_it() {
    let all = SliceEvents {
        stalls: vec![at(SERVER, 1_050, 1_850)],
        softirqs: vec![at(SERVER, 1_040, 1_860)],
        server_waits: vec![at(SERVER, 1_040, 1_870)],
        resent: vec![resent(1_860, RetransmitKind::TimeOut)],
        ..staged(1_030, 1_870, 1_880, 1_890)
    };
    check(&[answer(1_000, 900)], &all, &[Cause::Stall]);
    let without = SliceEvents { stalls: vec![], resent: vec![], ..all };
    check(&[answer(1_000, 900)], &without, &[Cause::Softirq]);
    let without = SliceEvents { softirqs: vec![], ..without };
    check(&[answer(1_000, 900)], &without, &[Cause::ServerWaited]);
}

#[test]
fn a_probe_that_was_lost_too_leaves_most_to_the_time_out() {
    let evidence = SliceEvents {
        resent: vec![resent(1_200, RetransmitKind::Probe), resent(1_850, RetransmitKind::TimeOut)],
        ..SliceEvents::default()
    };
    check(&[answer(1_000, 900)], &evidence, &[Cause::TimeOut]);
    // The timer explains the wait; why the packet was dropped is said beside it.
    let evidence = SliceEvents { drops: vec![(PORT, 1_010)], ..evidence };
    check(&[answer(1_000, 900)], &evidence, &[Cause::TimeOut]);
}

#[test]
fn an_answer_that_was_lost_waited_since_the_server_sent_it() {
    let mut evidence = staged(1_010, 1_020, 1_880, 1_890);
    evidence.resent = vec![Resent { by_server: true, ..resent(1_870, RetransmitKind::Probe) }];
    let stages = Stages {
        arrived_ns: Some(1_010),
        read_ns: Some(1_020),
        answered_ns: Some(1_700),
        back_ns: Some(1_880),
        until_ns: 1_890,
        server_cpu: None,
    };
    let mut slow = SliceEvents { resent: evidence.resent.clone(), ..SliceEvents::default() };
    slow.add_exchange(PORT, stages);
    check(&[answer(1_000, 900)], &slow, &[Cause::Server]);
}

#[test]
fn a_queue_has_the_cause_of_what_it_began_with() {
    let evidence = SliceEvents { server_waits: vec![at(SERVER, 1_000, 3_000)], ..SliceEvents::default() };
    let answers = [answer(1_000, 2_100), answer(2_900, 900), answer(3_500, 700), answer(9_000, 700)];
    check(
        &answers,
        &evidence,
        &[Cause::ServerWaited, Cause::ServerWaited, Cause::ServerWaited, Cause::Unknown],
    );
    // A time-out holds up one connection.
    let evidence =
        SliceEvents { resent: vec![resent(2_900, RetransmitKind::TimeOut)], ..SliceEvents::default() };
    let other = AnsweredRequest { port: PORT + 1, ..answer(2_500, 900) };
    check(&[answer(1_000, 2_000), other], &evidence, &[Cause::TimeOut, Cause::Unknown]);
}

#[test]
fn a_request_that_waited_for_its_connection_has_the_cause_of_the_one_before() {
    let evidence =
        SliceEvents { resent: vec![resent(2_900, RetransmitKind::TimeOut)], ..SliceEvents::default() };
    let waited = AnsweredRequest { free_ns: 3_000, sent_ns: 3_001, ..answer(1_500, 1_600) };
    check(&[answer(1_000, 2_000), waited], &evidence, &[Cause::TimeOut, Cause::TimeOut]);
    check(&[waited], &SliceEvents::default(), &[Cause::Queue]);
}

fn interval() -> impl Strategy<Value = CpuInterval> {
    (0..2_u16, 0..5_000_u64, 0..2_000_u64).prop_map(|(cpu, from, length)| at(cpu, from, from + length))
}

fn made_up() -> impl Strategy<Value = SliceEvents> {
    let intervals = || prop::collection::vec(interval(), 0..6);
    let again = prop::collection::vec(
        (
            0..5_000_u64,
            prop::sample::select(vec![RetransmitKind::TimeOut, RetransmitKind::Probe, RetransmitKind::Fast]),
        ),
        0..4,
    );
    (intervals(), intervals(), intervals(), intervals(), again).prop_map(
        |(stalls, softirqs, server_waits, client_waits, mut sent)| {
            sent.sort_by_key(|(at_ns, _)| *at_ns);
            let resent = sent.into_iter().map(|(at_ns, kind)| resent(at_ns, kind)).collect();
            SliceEvents { stalls, softirqs, server_waits, client_waits, resent, ..SliceEvents::default() }
        },
    )
}

proptest! {
    #[test]
    fn every_late_answer_has_one_cause(
        evidence in made_up(),
        times in prop::collection::vec((0..5_000_u64, 1..3_000_u64), 0..20),
    ) {
        let answers: Vec<AnsweredRequest> = times.into_iter().map(|(intended, took)| answer(intended, took)).collect();
        let found = causes(&answers, USUAL, &evidence);
        let late = answers.iter().filter(|answer| answer.response_ns() > USUAL.limit_ns).count();
        prop_assert_eq!(found.len(), late);
    }

    #[test]
    fn the_order_of_events_and_answers_does_not_matter(
        evidence in made_up(),
        times in prop::collection::btree_map(0..5_000_u64, 501..3_000_u64, 0..10),
    ) {
        let mut answers: Vec<AnsweredRequest> = times.into_iter().map(|(intended, took)| answer(intended, took)).collect();
        let found = causes(&answers, USUAL, &evidence);
        answers.reverse();
        let mut turned = evidence;
        turned.stalls.reverse();
        turned.softirqs.reverse();
        turned.server_waits.reverse();
        turned.client_waits.reverse();
        prop_assert_eq!(causes(&answers, USUAL, &turned), found);
    }

    #[test]
    fn a_stall_of_all_its_time_is_the_cause_whatever_else_was_seen(evidence in made_up(), took in 501..3_000_u64) {
        let stalled = SliceEvents { stalls: vec![at(SERVER, 0, 10_000)], ..evidence };
        let found = causes(&[answer(1_000, took)], USUAL, &stalled);
        prop_assert_eq!(found[0].1, Cause::Stall);
    }

    #[test]
    fn a_cause_was_seen(evidence in made_up(), took in 501..3_000_u64) {
        let none = |intervals: &[CpuInterval]| intervals.is_empty();
        let (_, cause) = causes(&[answer(1_000, took)], USUAL, &evidence)[0];
        let seen = match cause {
            Cause::Stall => !none(&evidence.stalls),
            Cause::Softirq => !none(&evidence.softirqs),
            Cause::ServerWaited => !none(&evidence.server_waits),
            Cause::Generator => !none(&evidence.client_waits),
            Cause::TimeOut | Cause::Probe | Cause::FastRetransmit => !evidence.resent.is_empty(),
            Cause::Drop | Cause::Server | Cause::Queue => false,
            Cause::Unknown => true,
        };
        prop_assert!(seen, "{cause:?} of {evidence:?}");
    }
}
