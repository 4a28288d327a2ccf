//! A switch with DPDK in each node, and servers that share memory with it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::NodeCpus;
use linux::features::{Feature, probe};
use linux::ovs::{Dpdk, NewBridge, NewPort, Switch};
use linux::{IfName, Mac, Netns};
use record::Placement;
use rustix::process::Signal;
use serde_json::Value;
use testkit::{World, run};

use crate::ending::ended;
use crate::load::end;
use crate::sandbox::{HOSTGAP, Sandbox, check, check_race, json, kill, sandbox, stderr, text, until};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const NAME: &str = "ovs-dpdk+direct, vhost-user";

/// Whether this machine lacks such a switch. If so, the skip is recorded.
fn is_missing() -> bool {
    let needs = [Feature::Veth, Feature::AfXdp, Feature::OpenVSwitchAfXdp, Feature::OpenVSwitchDpdk];
    let unmet = probe().expect("a namespace can be made").unmet(&needs);
    if let Some(unmet) = unmet.first() {
        testkit::skip(&unmet.to_string());
    }
    !unmet.is_empty()
}

fn experiment(sandbox: &Sandbox, placement: &str, workload: &str, rounds: u32) -> PathBuf {
    let file = sandbox.out().join("dpdk.toml");
    let text = format!(
        "schema = 1\nname = \"dpdk\"\nplacement = \"{placement}\"\nrates = [500]\nrounds = {rounds}\nbuilds = 1\n\
         workload = {{ {workload} }}\n[[candidates]]\npath = \"ovs-dpdk+direct\"\nstack.kind = \"vhost-user\"\n\
         required = true\n"
    );
    std::fs::write(&file, text).unwrap();
    file
}

/// Every trial was made, and requests were answered in those that count.
#[track_caller]
fn answered(rate: &Value) {
    assert_eq!((&rate["connection_errors"], &rate["unexpected"]), (&0.into(), &0.into()), "{rate}");
    let trials = ["trials", "void_trials"].map(|key| rate[key].as_u64().unwrap());
    assert!(trials.iter().sum::<u64>() > 0, "{rate}");
    assert!(trials[0] == 0 || rate["achieved_rps"].as_f64().is_some_and(|rps| rps > 0.0), "{rate}");
}

/// A race checks after each trial that packets between nodes passed the switches, and that the nodes' own stacks
/// delivered next to none.
#[test]
fn requests_are_answered_over_shared_memory() {
    if is_missing() {
        return;
    }
    let sandbox = sandbox();
    for (placement, cores, workload) in [
        (Placement::TwoNodes, 4, "kind = \"http\", connections = 8, body_bytes = [4096]"),
        (Placement::SameNode, 3, "kind = \"udp-rr\", connections = 2, ipv6 = true"),
    ] {
        let name = if cores == 4 { "two_nodes" } else { "same_node" };
        let file = experiment(&sandbox, name, workload, 2);
        let output = sandbox.run_race(&[file.to_str().unwrap(), "--seed", "7", "--json"]);
        check_race(&output, "");
        let result: Value = json(&output);
        let candidates = result["candidates"].as_array().unwrap();
        let found = candidates.iter().find(|candidate| candidate["name"] == NAME);
        let rates = found.unwrap_or_else(|| panic!("{result}"))["rates"].as_array().unwrap();
        rates.iter().for_each(answered);
        // On a machine of a few CPUs it is said before the first packet, and there is no verdict.
        let allowed = linux::cpu::allowed().unwrap();
        let spare = NodeCpus::split_beside(&allowed, true, placement).spare(&allowed, placement);
        let is_crowded = spare.len() < cores - 2;
        let says = format!("not ranked below {cores} cores, since the switches poll: {NAME}");
        assert_eq!(stderr(&output).contains(&says), is_crowded, "{}", stderr(&output));
        if is_crowded {
            assert!(rates[0]["verdict"].is_null(), "{result}");
            let reason = rates[0]["verdict_reason"].as_str().unwrap();
            assert_eq!(reason, "threads of its switches poll, and share CPUs with client and server");
        }
        sandbox.assert_nothing_left();
        assert!(!sandbox.in_run("hostgap-ovs").exists() && !sandbox.in_run("dpdk").exists());
    }
}

/// It would compare how the scheduler shares CPUs between clients, servers and threads that poll.
#[test]
fn a_search_is_refused_where_a_race_would_not_rank() {
    if is_missing() {
        return;
    }
    let (sandbox, allowed) = (sandbox(), linux::cpu::allowed().unwrap());
    let two = allowed.iter().take(2).map(|cpu| cpu.to_string()).collect::<Vec<_>>().join(",");
    let search = ["tune", "search", "--path", "ovs-dpdk+direct", "--knobs", "txqueuelen=500", "--cpus", &two];
    check(&sandbox.hostgap(&search), 2, "not ranked below 4 cores, since the switches poll: ovs-dpdk+direct");
    sandbox.assert_nothing_left();
}

#[test]
fn a_server_that_dies_ends_the_race_with_its_name_and_leaves_nothing() {
    if is_missing() {
        return;
    }
    let sandbox = sandbox();
    let file = experiment(&sandbox, "same_node", "kind = \"http\", connections = 4", 1000);
    let race = sandbox.start_race(&[file.to_str().unwrap()]);
    sandbox.until_a_round_is_done();
    for (pid, _) in sandbox.pids().into_iter().filter(|(_, line)| line.contains(" --vhost-user ")) {
        kill(pid, Signal::KILL);
    }
    ended(&sandbox, race, "the server of ovs-dpdk+direct, vhost-user ended by itself (signal: 9 (SIGKILL))");
    assert!(!sandbox.in_run("hostgap-ovs").exists());
}

/// On a busy machine a switch may take seconds until it calls its server and both have agreed.
#[test]
fn a_switch_that_takes_long_to_call_its_server_is_waited_for() {
    if is_missing() {
        return;
    }
    let sandbox = sandbox();
    let file = experiment(&sandbox, "same_node", "kind = \"http\", connections = 4", 1);
    let race = sandbox.start_race(&[file.to_str().unwrap()]);
    // It calls once a second: most likely not yet.
    let serves = || sandbox.processes().iter().any(|line| line.contains(" --vhost-user "));
    until("the server runs", serves);
    let pid_of =
        |dir: PathBuf| std::fs::read_to_string(dir.join("ovs-vswitchd.pid")).ok()?.trim().parse().ok();
    let switches = || -> Vec<u32> {
        let switches = std::fs::read_dir(sandbox.in_run("hostgap-ovs")).into_iter().flatten();
        switches.filter_map(|dir| pid_of(dir.unwrap().path())).collect()
    };
    until("the switch runs", || !switches().is_empty());
    let pids = switches();
    pids.iter().for_each(|pid| kill(*pid, Signal::STOP));
    // Longer than a server on a link is waited for.
    std::thread::sleep(Duration::from_secs(8));
    pids.iter().for_each(|pid| kill(*pid, Signal::CONT));
    check_race(&race.wait_with_output().unwrap(), "");
    sandbox.assert_nothing_left();
}

#[test]
fn a_killed_race_is_cleaned_up_with_its_switches() {
    if is_missing() {
        return;
    }
    let sandbox = sandbox();
    let file = experiment(&sandbox, "two_nodes", "kind = \"http\", connections = 4", 1000);
    let mut race = sandbox.start_race(&[file.to_str().unwrap()]);
    sandbox.until_a_round_is_done();
    assert!(sandbox.in_run("hostgap-ovs").exists());
    kill(race.id(), Signal::KILL);
    race.wait().unwrap();
    check(&sandbox.hostgap(&["clean"]), 0, "");
    sandbox.assert_nothing_left();
    assert!(!sandbox.in_run("hostgap-ovs").exists());
}

/// A switch with a port that leads to a socket, and an address on the same Ethernet.
fn start(switch: &Switch, netns: &Netns, socket: &Path) {
    switch.start(netns, Some(&Dpdk::default())).unwrap();
    let [bridge, port] = ["hgbr9", "hgp9"].map(|name| IfName::new(name).unwrap());
    let mut database = switch.database().unwrap();
    let (mac, mtu, datapath) = (Mac::from_id(1, 9), 1500, "netdev");
    database.add_bridge(NewBridge { name: &bridge, mac, mtu, datapath }).unwrap();
    let options = BTreeMap::from([("vhost-server-path".to_owned(), socket.display().to_string())]);
    let (kind, protected) = ("dpdkvhostuserclient", false);
    let new = NewPort { bridge: &bridge, name: &port, kind, options: &options, protected };
    database.add_port(new).unwrap();
    run(netns, "ip", &["address", "add", "192.0.2.1/24", "dev", "hgbr9"]);
    run(netns, "ip", &["link", "set", "hgbr9", "up"]);
}

fn stop(switch: &Switch, netns: &Netns) {
    switch.end().unwrap();
    switch.remove().unwrap();
    for link in ["hgbr9", "ovs-netdev"] {
        run(netns, "ip", &["link", "delete", link]);
    }
}

/// It listens before there is a switch, and goes on with the next.
#[test]
fn a_server_waits_for_its_switch_and_outlives_it() {
    if is_missing() {
        return;
    }
    let (_sandbox, world) = (sandbox(), World::new());
    let netns = world.add("a");
    let switch = Switch::named(world.name("a").as_str());
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("pod.sock");
    let mut command = Command::new(HOSTGAP);
    command.args(["serve", "--listen", "192.0.2.2:80", "--vhost-user"]).arg(&socket);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = netns.run(|| command.spawn()).unwrap().unwrap();
    let mut line = String::new();
    BufReader::with_capacity(1, server.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "listening on http://192.0.2.2:80/\n");
    let address: SocketAddr = (IpAddr::from(Ipv4Addr::new(192, 0, 2, 2)), 80).into();
    for _ in 0..2 {
        start(&switch, &netns, &socket);
        // The switch connects once a second, and before it has nobody answers for the address.
        let mut stream = loop {
            match netns.run(|| TcpStream::connect_timeout(&address, PATIENCE)).unwrap() {
                Err(error) if error.kind() == std::io::ErrorKind::HostUnreachable => {}
                connected => break connected.unwrap(),
            }
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /3000 HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(&"x".repeat(3000)), "{answer}");
        stop(&switch, &netns);
    }
    assert_eq!(end(server, Signal::TERM).trim(), "2 connections, 2 requests answered, 0 refused");
    assert!(!socket.exists());
}

/// Programs that only say which version they are, before those of this machine.
fn of_version(sandbox: &Sandbox, version: &str) -> String {
    let dir = sandbox.out().join("bin");
    std::fs::create_dir(&dir).unwrap();
    for name in ["ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vswitchd-dpdk"] {
        // Written by another process: a program that is open for writing cannot be run.
        let script =
            format!("printf '#!/bin/sh\necho \"{name} (Open vSwitch) {version}\"\n' >$0; chmod 755 $0");
        text(sandbox.command("sh").args(["-ec", &script]).arg(dir.join(name)));
    }
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap())
}

#[test]
fn an_older_switch_is_refused_with_its_version() {
    for (version, [af_xdp, dpdk]) in
        [("2.13.8", [true, true]), ("3.0.5", [false, true]), ("3.1.0", [false; 2])]
    {
        let sandbox = sandbox();
        let path = of_version(&sandbox, version);
        let said = text(sandbox.command(HOSTGAP).arg("paths").env("PATH", &path));
        let bin = sandbox.out().join("bin");
        for (is_refused, feature, needs, program) in [
            (af_xdp, "in user space", "2.14", "ovs-vswitchd"),
            (dpdk, "with DPDK", "3.1", "ovs-vswitchd-dpdk"),
        ] {
            let needs =
                format!("Open vSwitch {feature} not available: needs Open vSwitch {needs} or newer, for ");
            let is = format!(", and {} is {version}\n", bin.join(program).display());
            let says = said.split(&needs).nth(1).is_some_and(|rest| rest.contains(&is));
            assert_eq!(says, is_refused, "{needs}…{is} in {said}");
        }
        if dpdk {
            let file = experiment(&sandbox, "two_nodes", "kind = \"http\"", 1);
            let race = sandbox
                .command(HOSTGAP)
                .arg("race")
                .arg(&file)
                .arg("--out")
                .arg(sandbox.out())
                .env("PATH", &path)
                .output()
                .unwrap();
            check(&race, 4, &format!("/bin/ovs-vswitchd-dpdk is {version}"));
        }
        sandbox.assert_nothing_left();
    }
}

#[test]
fn it_is_shown_with_its_commands_and_wants_its_switch() {
    let sandbox = sandbox();
    let file = experiment(&sandbox, "two_nodes", "kind = \"http\"", 1);
    let output = sandbox.hostgap(&["race", file.to_str().unwrap(), "--show-commands"]);
    if !is_missing() {
        assert!(output.status.success(), "{output:?}");
        let shown = String::from_utf8(output.stdout).unwrap();
        let socket = Switch::named("hg-ovs-dpdk-direct--vhost-user-n2-1").dir().join("hgp1.sock");
        let serve = format!(
            "hostgap serve --listen 10.244.2.2:80 --listen [fd00:244:0:2::2]:80 --vhost-user {}",
            socket.display()
        );
        for expected in
            ["other_config:dpdk-init", " ovs-vswitchd-dpdk --detach ", "type=dpdkvhostuserclient", &serve]
        {
            assert!(shown.contains(expected), "{expected:?} is not in {shown}");
        }
    }
    let elsewhere = std::fs::read_to_string(&file).unwrap().replace("ovs-dpdk+direct", "ovs-afxdp+direct");
    std::fs::write(&file, elsewhere).unwrap();
    check(&sandbox.hostgap(&["race", file.to_str().unwrap()]), 2, "take `path = \"ovs-dpdk+direct\"`");
}
