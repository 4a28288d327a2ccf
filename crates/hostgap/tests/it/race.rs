//! Races from the command line to the JSON: loads, sweeps, ends by a budget or when enough is known, one race after
//! another.

use std::io::{BufRead, BufReader, Read};
use std::process::Output;

use rustix::process::Signal;

use crate::sandbox::{check, check_race, json, kill, sandbox, stdout, until};

/// The violations of `docs/report.schema.json` in a result.
pub(crate) fn against_the_schema(result: &serde_json::Value) -> Vec<String> {
    let schema = include_str!("../../../../docs/report.schema.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    validator.iter_errors(result).map(|error| format!("{error} at {}", error.instance_path())).collect()
}

#[test]
fn a_short_race_gives_the_json_that_is_documented() {
    let sandbox = sandbox();
    let output = sandbox.run_race(&[
        "--paths",
        "docker,macvlan",
        "--rounds",
        "2",
        "--rate",
        "2k",
        "--seed",
        "7",
        "--by-cpu",
        "--json",
    ]);
    check_race(&output, "");
    let result = json(&output);
    assert_eq!(result["schema"], 2);
    assert_eq!(against_the_schema(&result), Vec::<String>::new());
    let names: Vec<&str> =
        result["candidates"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["host", "host again", "docker", "macvlan"]);
    for candidate in result["candidates"].as_array().unwrap() {
        let rate =
            candidate["rates"].as_array().unwrap().iter().find(|r| r["requested_rps"] == 2000.0).unwrap();
        // Slices of 100 ms at 2000/s: every request is accounted for, whatever else the machine does.
        let trials = rate["trials"].as_u64().unwrap();
        assert!(trials <= 2);
        // Requests that were due near a stall of the machine are left out of the other figures.
        let all =
            if rate["stalls"].is_null() { &rate["response_ns"] } else { &rate["stalls"]["response_ns"] };
        assert_eq!(all["count"].as_u64().unwrap_or(0), 200 * trials, "{rate}");
        assert_eq!(all["p50"].is_u64(), trials > 0, "{rate}");
        assert!(rate["response_ns"]["count"].as_u64() <= Some(200 * trials), "{rate}");
        // Absent where no trial counts.
        let by_cpu = rate["by_cpu"].as_array().map(Vec::as_slice).unwrap_or_default();
        let nodes: Vec<&str> = by_cpu.iter().map(|cpu| cpu["node"].as_str().unwrap()).collect();
        assert!(trials == 0 || (nodes.contains(&"client") && nodes.contains(&"server")), "{rate}");
    }
    let capacities = result["capacities"].as_array().unwrap();
    assert_eq!(capacities.len(), 1);
    for capacity in capacities {
        assert!(capacity["rate_per_s"].as_f64().unwrap() >= 2000.0);
    }
    assert!(sandbox.record().with_file_name("report.html").exists());
    sandbox.assert_nothing_left();
}

#[test]
fn a_race_until_something_is_known_goes_on_with_what_is_not() {
    let sandbox = sandbox();
    // An interval from half to double of the host's answers per second is soon reached. The rate has no
    // target.
    let output = sandbox.run_race(&[
        "--paths",
        "macvlan",
        "--quick",
        "--rate",
        "1k",
        "--until",
        "req/s:100%",
        "--budget",
        "2h",
        "--json",
    ]);
    check_race(&output, "every comparison is settled");
    let result = json(&output);
    assert_eq!(against_the_schema(&result), Vec::<String>::new());
    let until = &result["until"];
    assert_eq!((&until["ended"], &until["looks"][0]["builds"]), (&"settled".into(), &4.into()), "{until}");
    let rated = &until["comparisons"][1];
    assert_eq!((&rated["why"], &rated["builds"]), (&"not_asked".into(), &4.into()), "{until}");
    let record = record::RaceRecord::read(&sandbox.record()).unwrap();
    let builds = result["progress"]["builds"].as_u64().unwrap();
    assert_eq!(record.rounds.len() as u64, 2 * builds);
    for round in &record.rounds {
        let loads: std::collections::BTreeSet<usize> = round.trials.iter().map(|trial| trial.load).collect();
        assert_eq!(loads.contains(&1), round.build < 4, "round {} visited the loads {loads:?}", round.round);
    }
    let again = sandbox.hostgap(&["report", "--json", sandbox.record().to_str().unwrap()]);
    assert_eq!(json(&again), result);
    sandbox.assert_nothing_left();
}

#[test]
fn a_budget_ends_a_race_that_could_go_on() {
    let sandbox = sandbox();
    let output = sandbox.run_race(&[
        "--paths", "macvlan", "--quick", "--rate", "1k", "--until", "p99:0.1%", "--budget", "1s", "--json",
    ]);
    check_race(&output, "capacity of host");
    let result = json(&output);
    // The search for the capacity takes longer than that, and the first build is always raced.
    assert_eq!(result["progress"]["builds"], 1, "{}", result["progress"]);
    assert_eq!(
        (&result["until"]["ended"], &result["until"]["looks"]),
        (&"budget".into(), &serde_json::json!([]))
    );
    sandbox.assert_nothing_left();
}

#[test]
fn bodies_rates_and_ipv6_make_loads() {
    let sandbox = sandbox();
    let output = sandbox.run_race(&[
        "--paths",
        "bridge+vxlan,ptp+direct",
        "--rounds",
        "1",
        "--rate",
        "1k,10%",
        "--body",
        "100,4k",
        "--ipv6",
        "--json",
    ]);
    check_race(&output, "");
    let result = json(&output);
    let loads = result["loads"].as_array().unwrap();
    let fixed = loads.iter().filter(|load| load["requested_rps"] == 1000.0).count();
    let shares = loads.iter().filter(|load| load["of_capacity"] == 0.1).count();
    assert_eq!((loads.len(), fixed, shares), (6, 2, 2), "{loads:?}");
    assert!(loads.iter().any(|load| load["body_bytes"] == 4096));
    sandbox.assert_nothing_left();
}

#[test]
fn a_sweep_over_connections_has_a_point_for_each_and_they_are_there() {
    let sandbox = sandbox();
    let file = sandbox.out().join("sweep.toml");
    let text = "schema = 1\nname = \"x\"\nrounds = 2\nbuilds = 2\nrates = [1000]\n\
                sweep = { over = \"connections\", values = [1, 64] }\ncandidates = [{ path = \"macvlan\" }]\n";
    std::fs::write(&file, text).unwrap();
    let output = sandbox.run_race(&[file.to_str().unwrap(), "--json"]);
    check_race(&output, "");
    let result = json(&output);
    assert_eq!(against_the_schema(&result), Vec::<String>::new());
    assert_eq!(
        (&result["sweep"]["over"], &result["sweep"]["unit"]),
        (&"connections".into(), &"connections".into())
    );
    // By Little's law, the answers per second times their response time give the number of connections in a
    // closed loop. The median stands in for the mean here.
    let in_flight = |name: &str| {
        let candidate =
            result["candidates"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
        let closed = candidate["rates"]
            .as_array()
            .unwrap()
            .iter()
            .find(|rate| rate["requested_rps"].is_null())
            .unwrap();
        Some(closed["achieved_rps"].as_f64()? * closed["response_ns"]["p50"].as_f64()? / 1e9)
    };
    if let (Some(one), Some(many)) = (in_flight("macvlan 1 connection"), in_flight("macvlan 64 connections"))
    {
        assert!(many > 4.0 * one, "{one} and {many} requests are in flight instead of 1 and 64");
        let chart = &result["sweep"]["charts"][0];
        assert_eq!((&chart["statistic"], &chart["lines"][0]["name"]), (&"req/s".into(), &"macvlan".into()));
        let values: Vec<f64> = chart["lines"][0]["points"]
            .as_array()
            .unwrap()
            .iter()
            .map(|point| point["value"].as_f64().unwrap())
            .collect();
        assert_eq!(values, [1.0, 64.0]);
        assert_eq!(chart["levels"][0]["candidate"], "host");
    }
    sandbox.assert_nothing_left();
}

#[test]
fn our_own_responder_serves_where_it_is_asked_to() {
    let sandbox = sandbox();
    let output = sandbox.run_race(&[
        "--paths",
        "bridge+direct",
        "--rounds",
        "1",
        "--rate",
        "1k",
        "--server",
        "hostgap",
        "--json",
    ]);
    check_race(&output, "");
    let result = json(&output);
    // One version for the program, its records and its server.
    let version = stdout(&sandbox.hostgap(&["--version"]));
    let version = version.trim_end().strip_prefix("hostgap ").unwrap();
    assert_eq!(result["hostgap"], version);
    assert_eq!(result["server"], format!("hostgap serve {version}"));
    sandbox.assert_nothing_left();
}

#[test]
fn a_record_renders_again_and_the_same_without_a_kernel() {
    let sandbox = sandbox();
    let first = sandbox.run_race(&["--paths", "macvlan", "--rounds", "2", "--rate", "1k", "--json"]);
    let record = sandbox.record();
    let again = sandbox.hostgap(&["report", "--json", record.to_str().unwrap()]);
    assert_eq!(json(&first), json(&again));

    // A record that was cut off in the middle of a line still has its finished rounds.
    let text = std::fs::read(&record).unwrap();
    let rounds: Vec<usize> =
        text.windows(10).enumerate().filter(|(_, w)| w == b"{\"round\":{").map(|(at, _)| at).collect();
    let cut = sandbox.out().join("cut.jsonl");
    std::fs::write(&cut, &text[..rounds[1] + 30]).unwrap();
    let output = sandbox.hostgap(&["report", "--json", cut.to_str().unwrap()]);
    check(&output, 0, "");
    let result = json(&output);
    assert_eq!(result["progress"]["rounds"], 1);
    assert_eq!(against_the_schema(&result), Vec::<String>::new());

    // A record without one of its rounds is shown, but not as a complete race.
    let text = String::from_utf8(text).unwrap();
    let kept: Vec<&str> =
        text.lines().filter(|line| !line.contains("\"line\":{\"round\":{\"round\":0,")).collect();
    std::fs::write(&cut, kept.join("\n")).unwrap();
    let output = sandbox.hostgap(&["report", cut.to_str().unwrap()]);
    check(&output, 3, "cut.jsonl is incomplete: missing rounds: 1");
    let note = "round 0 (counted from 0) is missing: the record is not whole";
    assert!(stdout(&output).contains(note), "{}", stdout(&output));
    let page = std::fs::read_to_string(sandbox.out().join("report.html")).unwrap();
    assert!(page.contains(note), "the page has no note");
}

#[test]
fn a_second_race_says_that_it_waits_and_then_runs() {
    let sandbox = sandbox();
    let mut first = sandbox.start_race(&["--paths", "macvlan", "--rounds", "400", "--rate", "1k"]);
    until("the first race has namespaces", || !sandbox.namespaces().is_empty());
    let mut second = sandbox.start_race(&["--paths", "macvlan", "--rounds", "1", "--rate", "1k"]);
    let (mut printed, mut lines) = (String::new(), BufReader::new(second.stderr.take().unwrap()));
    while !printed.contains("another race") {
        assert!(lines.read_line(&mut printed).unwrap() > 0, "it does not wait: {printed}");
    }
    kill(first.id(), Signal::INT);
    assert_eq!(first.wait().unwrap().code(), Some(130));
    lines.read_to_string(&mut printed).unwrap();
    let second = Output { stderr: printed.into_bytes(), ..second.wait_with_output().unwrap() };
    check_race(&second, "another race");
    sandbox.assert_nothing_left();
}
