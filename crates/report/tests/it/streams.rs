//! Races whose results are not the times of requests.

use record::{Frames, Handshakes, Machines, Packets, RaceRecord, Transfer, Void, Workload, WorkloadKind};
use report::{Style, Verdict, analyse, html, json, table};

use crate::made::{Plan, Truth};

/// A race in which a path carries less in proportion to its slowness.
fn race(kind: WorkloadKind, rates: Vec<Option<f64>>) -> RaceRecord {
    let contenders = vec![Truth::of("docker", 1.5), Truth::of("macvlan", 1.0)];
    let mut race = Plan { loads: rates, ..Plan::of(11, contenders) }.race();
    race.header.experiment.workload = Workload::of(kind);
    race.header.experiment.published.clear();
    race.capacities.clear();
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials) {
        let packets = Packets {
            sent: 2 * trial.answered,
            received: trial.answered,
            in_time: trial.answered_in_time,
            reordered: 1,
            gap_max_ns: 70_000,
        };
        let is_udp = kind == WorkloadKind::UdpStream;
        trial.carried = Some(Transfer {
            bytes: 1000 * trial.answered,
            objects_ns: (kind == WorkloadKind::Download).then_some(2_000_000 * trial.answered),
            packets: is_udp.then_some(packets),
        });
        if kind.is_stream() {
            trial.latencies = record::Latencies::default();
        }
    }
    race
}

fn is_in_step_with_the_schema(race: &RaceRecord) -> serde_json::Value {
    let schema = serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json(&analyse(race))).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&value).map(|error| format!("{error} at {}", error.instance_path())).collect();
    assert_eq!(errors, Vec::<String>::new());
    value
}

#[track_caller]
fn check(race: &RaceRecord, says: &[&str]) {
    let summary = analyse(race);
    let verdicts = [2, 3].map(|at: usize| summary.candidates[at].rates[0].verdict);
    assert_eq!(verdicts, [Some(Verdict::Worse), Some(Verdict::Indistinguishable)]);
    // 1 ÷ 1.5, apart from the scatter.
    let ratio = summary.candidates[2].rates[0].rps_ratio.unwrap();
    assert!((0.6..0.73).contains(&ratio.value), "{ratio:?}");
    let text = table(&summary, Style { colour: false, width: 160 });
    for part in says {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(!text.contains("p99") && !text.contains("req/s"), "{text}");
    let page = html::page(&summary);
    assert!(page.contains("What arrived") && !page.contains("id=\"curves\""), "{text}");
}

#[test]
fn streams_of_datagrams_are_read_by_packets_and_loss() {
    let race = race(WorkloadKind::UdpStream, vec![None, Some(20_000.0)]);
    check(&race, &["packets/s × host", "received/s", "lost", "50 %", "CPU µs/packet"]);
    let value = is_in_step_with_the_schema(&race);
    let rate = &value["candidates"][0]["rates"][1];
    assert_eq!(rate["carried"]["loss"], 0.5);
    assert!(rate["carried"]["received_packets_per_s"].as_f64().unwrap() > 0.0);
    // A lost packet is not a request that waits for its answer.
    assert_eq!((&rate["missed"], &rate["response_ns"]["count"]), (&0.into(), &0.into()));
    assert!(rate["verdict_reason"].as_str().unwrap().contains("divided by"));
    let reason = value["candidates"][2]["rates"][0]["verdict_reason"].as_str().unwrap();
    assert!(reason.starts_with("packets/s decides"), "{reason}");
}

#[test]
fn streams_of_bytes_and_downloads_are_read_by_bandwidth() {
    let stream = race(WorkloadKind::TcpStream, vec![None]);
    check(&stream, &["Workload tcp-stream: bytes over TCP", "Mbit/s × host", "CPU µs/MB", "Mbit/s ±"]);
    let value = is_in_step_with_the_schema(&stream);
    let rate = &value["candidates"][0]["rates"][0];
    assert!(rate["achieved_rps"].is_null() && rate["carried"]["object_ms_mean"].is_null());
    // 66 000 thousands of bytes a second.
    let mbit = rate["carried"]["mbit_per_s"].as_f64().unwrap();
    assert!((480.0..576.0).contains(&mbit), "{mbit}");

    let download = race(WorkloadKind::Download, vec![None]);
    check(&download, &["Workload download: downloads by 8 clients", "mean object time", "2.00 ms"]);
    assert_eq!(
        is_in_step_with_the_schema(&download)["candidates"][0]["rates"][0]["carried"]["object_ms_mean"],
        2.0
    );
}

/// A race of packets, each of which takes 100 ns on the host after it was made, and 1.5 times as long
/// with the first filter.
fn packets() -> RaceRecord {
    let mut race = race(WorkloadKind::Packets, vec![None]);
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials) {
        let (made, net_ns) = (trial.answered_in_time, trial.duration_ns);
        let frames = Frames {
            made,
            judged: made,
            sunk: 0,
            cpu_ns: net_ns + 200 * made,
            alone: 2 * made,
            alone_cpu_ns: 400 * made,
        };
        assert_eq!(frames.net_ns(), net_ns);
        (trial.carried, trial.frames) = (None, Some(frames));
    }
    race
}

#[test]
fn packets_are_read_by_the_cpu_time_of_one() {
    let race = packets();
    let summary = analyse(&race);
    let verdicts = [2, 3].map(|at: usize| summary.candidates[at].rates[0].verdict);
    assert_eq!(verdicts, [Some(Verdict::Worse), Some(Verdict::Indistinguishable)]);
    let [host, dearer] = [0, 2].map(|at: usize| summary.candidates[at].rates[0].frames.unwrap());
    let ratio = dearer.ns_per_packet / host.ns_per_packet;
    assert!((1.4..1.6).contains(&ratio), "{host:?} {dearer:?}");
    assert_eq!(host.generator_ns_per_packet, 200.0);
    let text = table(&summary, Style { colour: false, width: 160 });
    for part in ["ns/packet", "to make it", "packets/CPU s × host", "packets/CPU s ±", "host's is socket"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(!text.contains("req/s") && !text.contains("CPU µs"), "{text}");
    let page = html::page(&summary);
    assert!(page.contains("What a packet cost") && !page.contains("id=\"cpu\""));
    let value = is_in_step_with_the_schema(&race);
    assert_eq!(value["candidates"][0]["rates"][0]["frames"]["generator_ns_per_packet"], 200.0);
}

#[test]
fn lost_frames_void_a_trial_and_say_how_many() {
    let mut race = packets();
    let lost = |sunk| Some(Void::FramesLost { made: 2048, judged: 2047, sunk });
    let mut trials = race.rounds[0].trials.iter_mut().filter(|trial| trial.entrant == 2);
    trials.next().unwrap().void = lost(Some(1000));
    race.rounds[1].trials.iter_mut().find(|trial| trial.entrant == 3).unwrap().void = lost(None);
    let short = Some(Void::FloodShort { sent: 12, due: 2_000 });
    race.rounds[1].trials.iter_mut().find(|trial| trial.entrant == 2).unwrap().void = short;
    let summary = analyse(&race);
    let reason = |at: usize| summary.candidates[at].rates[0].void_reasons[0].reason.clone();
    assert_eq!(
        reason(2),
        "frames were lost or others came: of 2048 that were sent 2047 were judged and 1000 arrived"
    );
    assert!(reason(3).ends_with("2047 were judged"), "{}", reason(3));
    let reasons = &summary.candidates[2].rates[0].void_reasons;
    let short = reasons.iter().find(|of| of.reason.starts_with("the flood was short"));
    assert_eq!(short.unwrap().reason, "the flood was short: 12 of its 2000 frames were sent");
    is_in_step_with_the_schema(&race);
}

#[test]
fn counted_packets_have_instructions_each() {
    let mut race = packets();
    race.header.experiment.vm =
        Some(Machines { kernels: vec!["debian:6.12".to_owned()], exact: true, ..Machines::default() });
    let summary = analyse(&race);
    let text = table(&summary, Style { colour: false, width: 160 });
    assert!(text.contains("instructions of a packet") && text.contains("instructions a packet"), "{text}");
    assert!(text.contains("the least is ") && !text.contains("request"), "{text}");
    let page = html::page(&summary);
    assert!(page.contains("Instructions per packet") && page.contains("Frames of "), "{text}");
}

#[test]
fn handshakes_are_shown_where_there_are_any() {
    let mut race = Plan { loads: vec![Some(20_000.0)], ..Plan::of(3, vec![Truth::of("docker", 1.2)]) }.race();
    race.header.experiment.workload =
        Workload { tls: true, session_reuse: Some(false), ..Workload::of(WorkloadKind::Connect) };
    for trial in race.rounds.iter_mut().flat_map(|round| &mut round.trials) {
        trial.handshakes = Some(Handshakes { full: 150, resumed: 450 });
    }
    let text = table(&analyse(&race), Style { colour: false, width: 120 });
    assert!(text.contains("75 % of 18000 TLS handshakes resumed a session"), "{text}");
    assert!(text.contains("TLS, full handshakes only."), "{text}");
    let value = is_in_step_with_the_schema(&race);
    assert_eq!(value["candidates"][2]["rates"][0]["handshakes"]["full"], 4500);
}
