//! Searches for settings: one that finds a planted gain, one that finds none, and invalid ones.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::Signal;

use crate::sandbox::{HOSTGAP, Sandbox, check, check_race, json, kill, sandbox, stderr, until, until_within};

/// Requests and answers of 8000 bytes, to a client whose receive buffer holds little more than a segment.
/// With the kernel's default it gets twenty times as many answers, whatever else the machine does.
const SMALL: &str = "schema = 1\nname = \"small\"\nslice_ms = 40\nwarmup_ms = 5\n[workload]\nkind = \"tcp-rr\"\n\
                     body_bytes = [8000]\nconnections = 32\n[[candidates]]\npath = \"host\"\nname = \"small\"\n\
                     tune.client.tcp_rmem = \"2304 2304 2304\"\n";

fn command(sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = sandbox.command(HOSTGAP);
    command.args(["tune", "search", "--out"]).arg(sandbox.out()).args(args);
    command
}

fn search(sandbox: &Sandbox, args: &[&str]) -> Output {
    command(sandbox, args).output().unwrap()
}

/// The record renders to the same result as the search itself, and its page lies beside it.
fn rendered_again(sandbox: &Sandbox, output: &Output, result: &serde_json::Value) {
    let printed = stderr(output);
    let record = PathBuf::from(printed.lines().find_map(|line| line.strip_prefix("record: ")).unwrap());
    let again = sandbox.hostgap(&["report", "--json", record.to_str().unwrap()]);
    assert_eq!(json(&again), *result);
    let shown = sandbox.hostgap(&["report", record.to_str().unwrap()]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.starts_with("throughput of ") && text.contains("\ncalibration ("), "{text}");
    let page = std::fs::read_to_string(record.with_file_name("report.html")).unwrap();
    assert!(page.contains("Search for settings: throughput of "), "{}", page.len());
    std::fs::write(&record, "{\n}\n").unwrap();
    let cut = sandbox.hostgap(&["report", record.to_str().unwrap()]);
    assert!(
        !cut.status.success() && stderr(&cut).contains("could not find a search in "),
        "{}",
        stderr(&cut)
    );
}

fn small(sandbox: &Sandbox) -> PathBuf {
    let file = sandbox.out().join("small.toml");
    std::fs::write(&file, SMALL).unwrap();
    file
}

/// Searches in a closed loop for a gain that is large enough to be found on a busy machine, with more time if
/// that needs it. Returns `None` if even that is too little: then the search has refused the machine, and said
/// what is wrong with it.
fn of_small(sandbox: &Sandbox, file: &str, knobs: &str) -> Option<serde_json::Value> {
    let mut why = String::new();
    for budget in ["60s", "2m", "5m"] {
        let args = [
            "--objective",
            "throughput",
            "--budget",
            budget,
            "--resolve",
            "900%",
            "--knobs",
            knobs,
            "--json",
        ];
        let output = search(sandbox, &[&[file], &args[..]].concat());
        let result = json(&output);
        sandbox.assert_nothing_left();
        check_race(&output, "record: ");
        rendered_again(sandbox, &output, &result);
        if result["answer"]["verdict"] != "not_searched" {
            return Some(result);
        }
        result["answer"]["why"].as_str().unwrap().clone_into(&mut why);
    }
    let unfit = ["the machine was too busy", "scatters by", "differs from itself"];
    assert!(unfit.iter().any(|words| why.contains(words)), "{why}");
    None
}

#[test]
fn what_is_planted_is_found_and_what_breaks_is_named() {
    let sandbox = sandbox();
    let file = small(&sandbox);
    // With two ports there cannot be 32 connections to one address.
    let knobs = "client.tcp_rmem=4096 131072 6291456;tcp_dsack=0;client.ip_local_port_range=1024 1025";
    let Some(result) = of_small(&sandbox, file.to_str().unwrap(), knobs) else { return };
    let answer = &result["answer"];
    assert_eq!(answer["verdict"], "better", "{answer:#}");
    let holds = |option: u64| answer["arm"].as_array().unwrap().contains(&option.into());
    assert!(holds(0) && !holds(2), "{answer:#}");
    assert!(answer["ratio"]["low"].as_f64().unwrap() > 1.0, "{answer:#}");
    assert_eq!(answer["tune"]["client"]["tcp_rmem"], "4096 131072 6291456");
    let stages = result["stages"].as_array().unwrap();
    let mut names: Vec<&str> = stages.iter().map(|stage| stage["name"].as_str().unwrap()).collect();
    // A noisy machine is calibrated twice.
    names.dedup();
    assert_eq!(names[..3], ["calibration", "race", "confirmation"]);
    // The reported gain comes from the stage on which no choice depended: the confirmation, or the one that
    // checked the rest.
    let last = stages.iter().rfind(|stage| stage["name"] != "ablation").unwrap();
    let judged = last["arms"].as_array().unwrap().iter().find(|arm| arm["arm"] == answer["arm"]).unwrap();
    assert!(
        (judged["ratio"]["value"].as_f64().unwrap() - answer["ratio"]["value"].as_f64().unwrap()).abs()
            < 1e-9
    );
    let broken = |arm: &&serde_json::Value| arm["arm"].as_array().unwrap().contains(&2.into());
    let raced = stages.iter().find(|stage| stage["name"] == "race").unwrap();
    let mut arms = raced["arms"].as_array().unwrap().iter().filter(broken);
    assert!(
        arms.all(|arm| arm["broken"].as_str().is_some_and(|why| why.contains("could not load"))),
        "{result:#}"
    );
    // Every visit is in the record.
    let blocks: u64 = stages.iter().map(|stage| stage["blocks"].as_u64().unwrap()).sum();
    assert_eq!(result["blocks"].as_array().unwrap().len() as u64, blocks);
}

#[test]
fn where_everything_harms_nothing_helps() {
    let sandbox = sandbox();
    let file = sandbox.out().join("plain.toml");
    std::fs::write(&file, SMALL.replace("tune.client.tcp_rmem = \"2304 2304 2304\"\n", "")).unwrap();
    let knobs = "client.tcp_rmem=2304 2304 2304,2304 2304 4096";
    let Some(result) = of_small(&sandbox, file.to_str().unwrap(), knobs) else { return };
    let answer = &result["answer"];
    assert_eq!(answer["verdict"], "nothing_helps", "{answer:#}");
    assert!(answer["tune"].is_null(), "{answer:#}");
}

/// A search that runs until its stderr has these words; then the user ends it.
fn until_it_says(sandbox: &Sandbox, args: &[&str], words: &str) -> String {
    let said = sandbox.out().join("said");
    let read = || std::fs::read_to_string(&said).unwrap_or_default();
    let mut command = command(sandbox, args);
    let mut child = command.stderr(std::fs::File::create(&said).unwrap()).spawn().unwrap();
    until_within(Duration::from_secs(300), words, || {
        read().contains(words) || child.try_wait().unwrap().is_some()
    });
    if child.try_wait().unwrap().is_none() {
        kill(child.id(), Signal::INT);
        child.wait().unwrap();
    }
    sandbox.assert_nothing_left();
    let text = read();
    assert!(text.contains(words), "{text}");
    text
}

#[test]
fn settings_that_contradict_each_other_are_in_no_arm() {
    let sandbox = sandbox();
    let knobs = ["--objective", "throughput", "--budget", "10m", "--knobs"];
    let together = [&knobs[..], &["channels=1,2;xps_cpus=0;1|0"]].concat();
    let why =
        "not tried together: channels=1 and xps_cpus=0;1: xps_cpus cannot be \"0;1\" beside channels = 1: ";
    let said = until_it_says(&sandbox, &together, why);
    assert_eq!(said.matches("not tried together").count(), 1, "{said}");
    // With what the incumbent has, a setting cannot be made at all.
    let file = sandbox.out().join("two-lists.toml");
    let lists = "path = \"host\"\ntune.channels = 2\ntune.xps_cpus = \"0;1\"\n";
    let text = format!("schema = 1\nname = \"two-lists\"\n[[candidates]]\n{lists}");
    std::fs::write(&file, text).unwrap();
    let beside = [&[file.to_str().unwrap()], &knobs[..], &["channels=1;tcp_sack=0"]].concat();
    let why = "channels=1 cannot be set here: xps_cpus cannot be \"0;1\" beside channels = 1: ";
    until_it_says(&sandbox, &beside, why);
}

#[test]
fn a_signal_leaves_what_was_seen_and_nothing_else() {
    let sandbox = sandbox();
    let file = small(&sandbox);
    let args =
        ["--objective", "throughput", "--arrivals", "poisson", "--budget", "10m", "--knobs", "tcp_sack=0"];
    let child = command(&sandbox, &[&[file.to_str().unwrap()], &args[..]].concat()).spawn().unwrap();
    until("servers or pods stand", || !sandbox.namespaces().is_empty());
    kill(child.id(), Signal::INT);
    let output = child.wait_with_output().unwrap();
    check(&output, 130, "interrupted");
    sandbox.assert_nothing_left();
    let record = stderr(&output);
    let record = record.lines().find_map(|line| line.strip_prefix("record: "));
    if let Some(record) = record {
        let text = std::fs::read_to_string(record).unwrap();
        let record = serde_json::from_str::<serde_json::Value>(&text).unwrap();
        assert!(record["answer"].is_null(), "{text}");
        assert_eq!(record["experiment"]["workload"]["arrivals"], "poisson", "{text}");
    }
}

#[test]
fn what_cannot_be_searched_is_refused_before_anything_is_built() {
    let sandbox = sandbox();
    let file = small(&sandbox);
    let file = file.to_str().unwrap();
    let bad: [(&[&str], i32, &str); 18] = [
        (&[], 2, "--knobs"),
        (&["--knobs", ";"], 2, "--knobs names no knob"),
        (&["--knobs", "tcp_sack"], 2, "\"tcp_sack\" has no value"),
        (&["--knobs", "tcp_sack="], 2, "tcp_sack without a value"),
        (&["--knobs", "tcp_sakc=0"], 2, "did you mean \"tcp_sack\"?"),
        (&["--knobs", "tcp_sack=7"], 2, "tcp_sack cannot be \"7\": 0 or 1 is expected"),
        (&["--knobs", "tcp_tw_recycle=1"], 2, "tcp_tw_recycle cannot be set"),
        (&["--knobs", "tcp_sack=0;tcp_sack=1"], 2, "tcp_sack twice"),
        (&["--knobs", "tcp_sack=0,0"], 2, "tcp_sack=0 twice"),
        (&["--knobs", "rps_sock_flow_entries=32768"], 2, "all of this machine shares it"),
        (&["--knobs", "tcp_sack=0", "--budget", "0s"], 2, "more than zero"),
        (&["--knobs", "tcp_sack=0", "--budget", "5s"], 2, "a budget of 5s: a search among 1 settings takes"),
        (&["--knobs", "tcp_sack=0", "--objective", "mean"], 2, "`mean` is no objective"),
        (&["--knobs", "tcp_sack=0", "--resolve", "5"], 2, "`5` is not a gain"),
        (&["--knobs", "tcp_sack=0", "--resolve", "400%"], 2, "a gain of 400 %: p99 can fall by 90 % at most"),
        (&["--knobs", "tcp_sack=0", "--path", "dokcer"], 2, "did you mean \"docker\"?"),
        (&[file, "--knobs", "tcp_sack=0", "--candidate", "large"], 2, "no candidate \"large\": small"),
        (&["--workload", "tcp-stream", "--knobs", "tcp_sack=0"], 2, "tcp-stream has no response times"),
    ];
    for (args, code, says) in bad {
        check(&search(&sandbox, args), code, says);
        sandbox.assert_nothing_left();
    }
    let left: Vec<_> = std::fs::read_dir(sandbox.out()).unwrap().collect();
    assert_eq!(left.len(), 1, "the file alone: {left:?}");
}
