//! `hostgap load` that is interrupted, or stopped for a while.

use std::time::Duration;

use rustix::process::Signal;

use crate::load::{end, serve};
use crate::sandbox::{HOSTGAP, Sandbox, check, json, kill, sandbox, stdout, text, until};

/// Waits until the server of this address has answered a client that is still connected.
fn until_answered(sandbox: &Sandbox, url: &str) {
    let port = url.trim_end_matches('/').rsplit_once(':').unwrap().1;
    let of_server = ["-Htin", "state", "established", "sport", "=", &format!(":{port}")];
    until("something is answered", || text(sandbox.command("ss").args(of_server)).contains("bytes_acked:"));
}

#[test]
fn an_interrupt_shows_what_was_measured() {
    let sandbox = sandbox();
    let (server, url) = serve(&sandbox, &[]);
    let load = sandbox
        .command(HOSTGAP)
        .args(["load", &url, "--rate", "200", "--duration", "10m", "--warmup", "0s", "--json"])
        .spawn()
        .unwrap();
    until_answered(&sandbox, &url);
    kill(load.id(), Signal::INT);
    let output = load.wait_with_output().unwrap();
    check(&output, 130, "");
    assert!(json(&output)["answered"].as_u64().unwrap() > 0, "{}", stdout(&output));
    end(server, Signal::INT);
}

/// It stands still for longer than the rest of the run and the timeout.
#[test]
fn a_generator_that_was_stopped_reads_what_has_come() {
    let sandbox = sandbox();
    let (server, url) = serve(&sandbox, &[]);
    for patience in ["--timeout", "--request-timeout"] {
        let args = ["--rate", "200", "--duration", "1s", "--warmup", "0s", patience, "1s", "--json"];
        let load = sandbox.command(HOSTGAP).args(["load", &url]).args(args).spawn().unwrap();
        until_answered(&sandbox, &url);
        kill(load.id(), Signal::STOP);
        std::thread::sleep(Duration::from_secs(3));
        kill(load.id(), Signal::CONT);
        let value = json(&load.wait_with_output().unwrap());
        assert_eq!((&value["answered"], &value["missed"]), (&200.into(), &0.into()), "{value}");
    }
    end(server, Signal::INT);
}
