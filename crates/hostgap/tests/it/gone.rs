//! Searches and sweeps of `hostgap load` whose server does not answer or disappears.

use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::Value;

use crate::blame::{brief, line, mute, says};
use crate::load::{end, serve};
use crate::sandbox::{HOSTGAP, check, json, kill, sandbox, stderr, stdout};

#[test]
fn a_search_ends_where_nothing_answers() {
    let sandbox = sandbox();
    let search = ["--find-max", "--slo", "p90<50ms"];
    let output = brief(&sandbox, &mute(), &search);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let printed = stdout(&output);
    says(
        &printed,
        &[
            "no rate was found that meets p90 < 50.0 ms: no answer of the server was as expected: of 4 requests 0",
        ],
    );
    // A server whose answers are all errors ends the search too.
    let (server, url) = serve(&sandbox, &["--errors", "100%"]);
    let value = json(&brief(&sandbox, &url, &[&search[..], &["--json"]].concat()));
    assert_eq!((&value["max_rps"], &value["tried"]), (&Value::Null, &Value::Array(vec![])));
    says(value["ended"].as_str().unwrap(), &["no answer of the server was as expected", "status 503"]);
    end(server, Signal::TERM);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    check(&brief(&sandbox, &format!("http://{closed}/"), &search), 1, "Connection refused");
}

#[test]
fn a_search_ends_when_its_server_dies() {
    let sandbox = sandbox();
    let (mut server, url) = serve(&sandbox, &[]);
    let args = ["--find-max", "--slo", "p90<50s", "--duration", "1s", "--warmup", "0s", "--timeout", "500ms"];
    let mut load = sandbox.command(HOSTGAP).args(["load", &url]).args(args).spawn().unwrap();
    line(load.stderr.as_mut().unwrap());
    kill(server.id(), Signal::KILL);
    server.wait().unwrap();
    let output = load.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let printed = stdout(&output);
    assert!(printed.starts_with("no rate was found that meets p90 < 50.0 s: "), "{printed}");
    // The server died either within a step, which then had no answer at all, or between two steps.
    assert!(
        printed.contains("disappeared: could not connect")
            || printed.contains("no answer of the server was as expected"),
        "{printed}"
    );
}

#[test]
fn rates_that_were_run_are_not_lost_with_the_server() {
    let sandbox = sandbox();
    let (mut server, url) = serve(&sandbox, &[]);
    let usual = ["--duration", "1s", "--warmup", "5s", "--timeout", "500ms", "--connections", "4"];
    // The first rate is not valid, and a line says so as soon as it is over.
    let log = sandbox.out().join("run.hlog");
    let log = log.to_str().unwrap();
    let load = ["load", &url, "--json", "--rate", "100,100", "--expect-body", "7", "--hlog", log];
    let mut load = sandbox.command(HOSTGAP).args(load).args(usual).spawn().unwrap();
    while !line(load.stderr.as_mut().unwrap()).contains("not valid") {}
    // The warm-up before the second rate is running now.
    kill(server.id(), Signal::KILL);
    server.wait().unwrap();
    let output = load.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("could not connect"), "{}", stderr(&output));
    assert_eq!(json(&output)["runs"].as_array().unwrap().len(), 1);
    assert_eq!(std::fs::read_to_string(log).unwrap().matches("Tag=response").count(), 1);
}

#[test]
fn a_search_waits_for_answers_that_take_longer_than_its_steps() {
    let sandbox = sandbox();
    let (server, url) = serve(&sandbox, &["--delay", "700ms"]);
    let args = ["--find-max", "--slo", "p50<50s", "--timeout", "30s", "--duration", "1s", "--warmup", "0s"];
    let output = sandbox.hostgap(&[&["load", &url, "--connections", "4", "--json"], &args[..]].concat());
    let value = json(&output);
    let tried = value["tried"].as_array().unwrap();
    // Each of four connections answers every 700 ms.
    assert!(tried.iter().any(|tried| tried["rate_rps"].as_f64() > Some(1.0)), "{value}");
    end(server, Signal::TERM);
}
