//! Races of every kind of workload.

use serde_json::Value;

use crate::race::against_the_schema;
use crate::sandbox::{Sandbox, check, check_race, json, sandbox};

/// A short race of one workload on a few paths, as JSON that matches its schema.
fn raced(sandbox: &Sandbox, args: &[&str]) -> Value {
    raced_in(sandbox, "2", args)
}

/// The same in one round, for what each answer shows.
fn raced_once(sandbox: &Sandbox, args: &[&str]) -> Value {
    raced_in(sandbox, "1", args)
}

fn raced_in(sandbox: &Sandbox, rounds: &str, args: &[&str]) -> Value {
    let output = sandbox.run_race(&[&["--rounds", rounds, "--seed", "7", "--json"], args].concat());
    check_race(&output, "");
    let result = json(&output);
    assert_eq!(against_the_schema(&result), Vec::<String>::new());
    result
}

/// The candidates' entries at a load, without those that have no valid trial.
fn rates(result: &Value, load: usize) -> Vec<&Value> {
    let candidates = result["candidates"].as_array().unwrap();
    let rates = candidates.iter().map(|candidate| &candidate["rates"][load]);
    rates.filter(|rate| rate["trials"].as_u64().unwrap() > 0).collect()
}

/// Whether anything was answered. On a busy machine all of it may come when the time of the measurement is over.
fn has_answers(rate: &Value) -> bool {
    rate["service_ns"]["count"].as_u64().unwrap() > 0
}

#[test]
fn requests_and_answers_of_bytes_cross_every_kind_of_path() {
    let sandbox = sandbox();
    for kind in ["tcp-rr", "udp-rr"] {
        let paths = ["--paths", "docker,bridge+vxlan,macvlan", "--workload", kind];
        let args = [&paths[..], &["--body", "64,1400", "--rate", "1k", "--connections", "4"]].concat();
        let result = raced_once(&sandbox, &args);
        assert_eq!(result["experiment"]["workload"]["kind"], kind);
        assert!(result["server"].as_str().unwrap().starts_with("hostgap serve"));
        for load in 0..4 {
            for rate in rates(&result, load) {
                assert_eq!(
                    (&rate["connection_errors"], &rate["unexpected"]),
                    (&0.into(), &0.into()),
                    "{rate}"
                );
                assert!(has_answers(rate), "{rate}");
                assert!(rate.get("carried").is_none());
            }
        }
        sandbox.assert_nothing_left();
    }
}

/// One of 25 requests gets no answer: 2 % are lost on each way. The only connection asks all of them.
#[test]
fn a_lost_datagram_is_one_request_without_an_answer() {
    if let Some(why) = linux::features::probe().unwrap().missing.get(&linux::features::Feature::Netem) {
        return testkit::skip(&format!("netem not available: {why}"));
    }
    let sandbox = sandbox();
    let args = ["--paths", "macvlan", "--workload", "udp-rr", "--loss", "2%", "--connections", "1"];
    let output = sandbox.run_race(&[&args[..], &["--rate", "50%", "--rounds", "1", "--seed", "7"]].concat());
    check_race(&output, "");
    let race = record::RaceRecord::read(&sandbox.record()).unwrap();
    let is_at_rate = |load: usize| race.loads[load].rate_per_s.is_some();
    let trials: Vec<_> = race.rounds[0].trials.iter().filter(|trial| is_at_rate(trial.load)).collect();
    let sum = |part: fn(&record::TrialRecord) -> u64| trials.iter().map(|trial| part(trial)).sum::<u64>();
    let (intended, sent, missed) =
        (sum(|trial| trial.intended), sum(|trial| trial.sent), sum(|trial| trial.missed));
    assert_eq!(sent, intended, "requests were never sent");
    // 39.6 of a thousand, and five standard deviations of that.
    let expected = 0.0396 * intended as f64;
    assert!((missed as f64 - expected).abs() < 5.0 * expected.sqrt(), "{missed} of {intended}");
    sandbox.assert_nothing_left();
}

#[test]
fn calls_cross_every_kind_of_path() {
    let sandbox = sandbox();
    let args = ["--paths", "docker,bridge+vxlan,macvlan", "--workload", "grpc", "--connections", "4"];
    let result = raced_once(&sandbox, &[&args[..], &["--body", "64,20k", "--rate", "500"]].concat());
    assert_eq!(result["experiment"]["workload"]["kind"], "grpc");
    assert!(result["server"].as_str().unwrap().starts_with("hostgap serve"));
    // For each size: its capacity, the closed loop, and the rate.
    assert_eq!(result["capacities"].as_array().unwrap().len(), 2);
    for load in 0..4 {
        for rate in rates(&result, load) {
            assert_eq!((&rate["connection_errors"], &rate["unexpected"]), (&0.into(), &0.into()), "{rate}");
            assert!(has_answers(rate), "{rate}");
        }
    }
    check(
        &sandbox.run_race(&["--workload", "grpc", "--tls"]),
        2,
        "only HTTP (http, connect, download) has it",
    );
    check(&sandbox.run_race(&["--workload", "grpc", "--server", "nginx"]), 2, "and answers none");
    sandbox.assert_nothing_left();
}

#[test]
fn streams_are_read_by_what_arrives() {
    let sandbox = sandbox();
    let paths = ["--paths", "docker,bridge+vxlan,macvlan", "--ipv6"];
    let result = raced(&sandbox, &[&paths[..], &["--workload", "tcp-stream", "--connections", "2"]].concat());
    assert!(result["capacities"].as_array().unwrap().is_empty());
    for rate in rates(&result, 0) {
        assert!(rate["carried"]["mbit_per_s"].as_f64().unwrap() > 1.0, "{rate}");
        assert!(rate["cpu_us_per_request"].is_number());
    }
    let udp = ["--workload", "udp-stream", "--body", "64,1400", "--rate", "2k"];
    let result = raced(&sandbox, &[&paths[..], &udp].concat());
    assert_eq!(result["loads"].as_array().unwrap().len(), 4);
    for rate in rates(&result, 1) {
        let carried = &rate["carried"];
        let [sent, received] =
            ["sent_packets_per_s", "received_packets_per_s"].map(|of| carried[of].as_f64().unwrap());
        assert!(sent > 0.0 && received > 0.0 && sent <= 2000.0, "{carried}");
        let loss = carried["loss"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&loss), "{carried}");
    }
    sandbox.assert_nothing_left();
}

#[test]
fn packets_are_read_by_the_cpu_time_of_one() {
    let sandbox = sandbox();
    let args = ["--workload", "packets", "--paths", "xdp-drop,nft-input-ct", "--body", "64,1514"];
    let result = raced(&sandbox, &args);
    assert_eq!(result["loads"].as_array().unwrap().len(), 2);
    let names: Vec<&str> =
        result["candidates"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["host", "host again", "xdp-drop", "nft-input-ct"]);
    for rate in rates(&result, 0).into_iter().chain(rates(&result, 1)) {
        let frames = &rate["frames"];
        assert!(frames["generator_ns_per_packet"].as_f64().unwrap() > 0.0, "{rate}");
        assert!(frames["packets"].as_u64().unwrap() > 0 && rate["cpu_us_per_request"].is_null(), "{rate}");
    }
    let packets = |args: &[&str]| sandbox.run_race(&[&["--workload", "packets"], args].concat());
    check(&packets(&["--paths", "xdp-dorp"]), 2, "did you mean xdp-drop?");
    check(&packets(&["--paths", "docker"]), 2, "`docker` is no filter of packets");
    check(&packets(&["--body", "59"]), 2, "60 to 1514 is expected");
    check(&packets(&["--rate", "5k"]), 2, "frames are made as fast as they are judged");
    let shown = packets(&["--paths", "nft-ingress", "--show-commands"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success() && text.contains("hook ingress device \"eth0\""), "{text}");
    assert!(
        text.contains("# remove: ") && !text.contains("# serve: ") && !text.contains("rps_cpus"),
        "{text}"
    );
    sandbox.assert_nothing_left();
}

#[test]
fn downloads_run_to_their_end() {
    let sandbox = sandbox();
    let args = ["--paths", "docker,bridge+vxlan", "--workload", "download", "--body", "300k,3M"];
    let result = raced(&sandbox, &[&args[..], &["--connections", "3", "--objects", "2"]].concat());
    assert_eq!(result["loads"].as_array().unwrap().len(), 2);
    for load in 0..2 {
        for rate in rates(&result, load) {
            let trials = rate["trials"].as_u64().unwrap();
            assert_eq!(rate["response_ns"]["count"], 6 * trials, "{rate}");
            assert!(rate["carried"]["object_ms_mean"].as_f64().unwrap() > 0.0);
            assert!(rate["carried"]["mbit_per_s"].as_f64().unwrap() > 0.0);
        }
    }
    check(
        &sandbox.run_race(&["--workload", "download", "--duration", "10s"]),
        2,
        "--duration does not apply to downloads",
    );
    check(
        &sandbox.run_race(&["--workload", "tcp-stream", "--rate", "5k"]),
        2,
        "a stream of bytes goes as fast as it can",
    );
    sandbox.assert_nothing_left();
}

#[test]
fn connections_are_made_anew_and_sessions_resumed_or_not() {
    let sandbox = sandbox();
    let args =
        ["--paths", "docker,bridge+vxlan", "--workload", "connect", "--rate", "200", "--connections", "4"];
    let result = raced_once(&sandbox, &args);
    assert!(rates(&result, 1).iter().all(|rate| rate.get("handshakes").is_none()));
    for (more, reuses) in [(vec!["--tls"], true), (vec!["--tls", "--no-session-reuse"], false)] {
        let result = raced(&sandbox, &[&args[..], &more].concat());
        for rate in rates(&result, 0).into_iter().chain(rates(&result, 1)) {
            let [full, resumed] = ["full", "resumed"].map(|of| rate["handshakes"][of].as_u64().unwrap());
            assert!(if reuses { resumed > full } else { resumed == 0 && full > 0 }, "{rate}");
        }
    }
    // Over HTTP/1.0 our own responder closes without being asked.
    let old = ["--http", "1.0", "--server", "hostgap"];
    let result = raced_once(&sandbox, &[&args[..], &old].concat());
    assert_eq!(result["experiment"]["workload"]["http"], "1.0");
    for rate in rates(&result, 1) {
        assert_eq!((&rate["connection_errors"], &rate["unexpected"]), (&0.into(), &0.into()), "{rate}");
    }
    check(
        &sandbox.run_race(&["--http", "1.0"]),
        2,
        "`workload.http` is 1.0: only a connection for each request",
    );
    check(&sandbox.run_race(&["--workload", "connect", "--http", "3"]), 2, "`3` is no version of HTTP");
    // On connections that stay open, only the records mention TLS.
    let result =
        raced_once(&sandbox, &["--paths", "docker", "--tls", "--rate", "500", "--server", "hostgap"]);
    for rate in rates(&result, 1) {
        assert!(rate.get("handshakes").is_none() && has_answers(rate));
    }
    sandbox.assert_nothing_left();
}

/// At 20 requests/s a slice of a tenth of a second has two on average, and one in seven has none.
#[test]
fn all_of_a_round_get_the_same_random_arrivals() {
    let sandbox = sandbox();
    let args = ["--paths", "docker", "--arrivals", "poisson", "--rate", "20,2k", "--connections", "4"];
    let result = raced_in(&sandbox, "8", &args);
    assert_eq!(result["experiment"]["workload"]["arrivals"], "poisson");
    let race = record::RaceRecord::read(&sandbox.record()).unwrap();
    for load in [1, 2] {
        let due = |round: &record::Round| -> Vec<u64> {
            round.trials.iter().filter(|trial| trial.load == load).map(|trial| trial.intended).collect()
        };
        let rounds: Vec<Vec<u64>> = race.rounds.iter().map(due).collect();
        assert!(rounds.iter().all(|due| due.iter().all(|one| *one == due[0])), "{rounds:?}");
        let numbers: std::collections::BTreeSet<u64> = rounds.iter().map(|due| due[0]).collect();
        assert!(numbers.len() > 1, "{rounds:?}");
    }
    sandbox.assert_nothing_left();
}

/// Even on a machine with nginx, our own responder spends the CPU time.
#[test]
fn a_request_costs_the_server_what_the_workload_says() {
    let sandbox = sandbox();
    let costs = |cpu_us: u32| {
        let file = sandbox.out().join("costly.toml");
        let workload = format!("workload = {{ connections = 1, cpu_us = {cpu_us} }}");
        let text = format!("schema = 1\nname = \"costly\"\nrates = [\"50%\"]\nbuilds = 1\n{workload}\n");
        std::fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        let result = raced_once(&sandbox, &[file, "--paths", "bridge+direct", "--no-realtime"]);
        assert!(result["server"].as_str().unwrap().starts_with("hostgap serve"), "{}", result["server"]);
        result
    };
    let most = |result: &Value| result["capacities"][0]["rate_per_s"].as_f64().unwrap();
    // The dear one takes longer than the slice from which the search for the capacity starts.
    let (cheap, dear) = (costs(1), costs(200_000));
    let cpus: linux::CpuSet = dear["machine"]["server_cpus"].as_str().unwrap().parse().unwrap();
    // A CPU can do 5 of them in a second, and a slice may end with answers to requests from before it began.
    assert!(most(&dear) <= 10.0 * cpus.len() as f64 && most(&cheap) > 20.0 * most(&dear), "{dear}");
    sandbox.assert_nothing_left();
}

/// A server of datagrams is there when it answers, and that may take longer than a look at it.
#[test]
fn slow_answers_to_datagrams_are_waited_for() {
    let sandbox = sandbox();
    let file = sandbox.out().join("slow.toml");
    let workload = "workload = { kind = \"udp-rr\", connections = 1, cpu_us = 60000 }";
    let text = format!("schema = 1\nname = \"slow\"\nrates = [\"10%\"]\nbuilds = 1\n{workload}\n");
    std::fs::write(&file, text).unwrap();
    let result = raced_once(&sandbox, &[file.to_str().unwrap(), "--paths", "docker", "--no-realtime"]);
    // Asked one after another, each of the server's CPUs answers 17 in a second.
    let most = result["capacities"][0]["rate_per_s"].as_f64().unwrap();
    assert!(most <= 17.0, "{most}");
    assert!(rates(&result, 0).into_iter().any(has_answers), "{result}");
    sandbox.assert_nothing_left();
}

/// The server of one candidate holds its answers back, and no other's does. Even on a machine with nginx, our own
/// responder answers all.
#[test]
fn a_planted_delay_is_in_its_candidate_alone() {
    let sandbox = sandbox();
    let file = sandbox.out().join("planted.toml");
    let planted = |name: &str, delay: &str| {
        format!(
            "[[candidates]]\npath = \"host\"\nname = \"{name}\"\nplant = {{ share = \"100%\", delay = \"{delay}\" }}\n"
        )
    };
    let text = ["schema = 1\nname = \"planted\"\nrates = [50]\nslice_ms = 1000\nbuilds = 1\n".to_owned()];
    let text = [&text[..], &[planted("control", "0us"), planted("late", "300ms")]].concat().concat();
    std::fs::write(&file, text).unwrap();
    let result = raced(&sandbox, &[file.to_str().unwrap()]);
    assert!(result["server"].as_str().unwrap().starts_with("hostgap serve"), "{}", result["server"]);
    let late = &result["candidates"][3];
    assert!(
        late["stands_for"].as_str().unwrap().ends_with("100% of its answers 300ms late, on purpose"),
        "{late}"
    );
    let median = |rate: &Value| rate["service_ns"]["p50"].as_f64().unwrap();
    // The closed loop is the first load. It has many answers, so no pause of the machine decides it.
    let medians: Vec<bool> = rates(&result, 0).into_iter().map(|rate| median(rate) >= 300e6).collect();
    assert_eq!(medians, [false, false, false, true], "{result}");
    let at_the_rate = &late["rates"][1];
    assert!(!has_answers(at_the_rate) || median(at_the_rate) >= 300e6, "{at_the_rate}");
    sandbox.assert_nothing_left();
}
