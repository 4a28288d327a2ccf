//! Settings of candidates between machines: each side's are made on its machine while the candidate stands.

use std::process::Output;
use std::time::Duration;

use rustix::process::Signal;
use testkit::run;

use super::{Machines, Three, assert_nothing_left, machines, three};
use crate::sandbox::{check, check_race, json, kill, stderr, stdout, until, until_within};

const SETTINGS: &str = r#"
schema = 1
name = "settings of two machines"
rounds = 2
builds = 2
rates = [200]

[workload]
server = "hostgap"
connections = 4

[[candidates]]
path = "host"
name = "set host"
tune = { initcwnd = 16, client.tcp_slow_start_after_idle = 0, server.somaxconn = 777, server.channels = 2, server.rps_cpus = "0" }

[[candidates]]
path = "ptp+direct"
name = "set pods"
tune.tcp_sack = 0

[[candidates]]
path = "host"
name = "another MTU"
tune.mtu = 1400

[[candidates]]
path = "host"
name = "what a first namespace has"
tune.server.rps_sock_flow_entries = 1024
"#;

impl Machines {
    /// The experiment as a file.
    fn settings(&self, text: &str) -> String {
        let file = self.sandbox.out().join("settings.toml");
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    fn parameter(&self, machine: &str, name: &str) -> String {
        run(&self.world.open(machine), "sysctl", &["-n", name]).trim().to_owned()
    }

    /// What the server's machine has while the set host stands.
    fn until_the_host_is_set(&self) {
        until("the server's machine has the settings of its side", || {
            self.parameter("b", "net.core.somaxconn") == "777"
        });
    }

    fn race_of(&self, file: &str, machines: &[&str]) -> std::process::Child {
        let ssh = format!("ssh -F {}", self.sandbox.out().join("ssh_config").display());
        let mut race = self.hostgap(&["race", file, "--ssh", &ssh, "--json", "--cpus", "0"]);
        race.args(["--server-cpus", "1", "--out"]).arg(self.sandbox.out().join("results")).args(machines);
        race.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        race.spawn().unwrap()
    }
}

/// What is wrong of the candidates' figures and reasons; the race itself may have been disturbed.
#[track_caller]
fn assert_raced(output: &Output) {
    check_race(output, "connecting to ssh://b");
    let result = json(output);
    let of = |name: &str| {
        let all = result["candidates"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}: {result}"))
    };
    assert!(super::visits(of("set host")) > 0 && super::visits(of("set pods")) > 0, "{}", stderr(output));
    for (name, reason) in [
        ("another MTU", "mtu = 1400: the wire between machines is raced as it is"),
        ("what a first namespace has", "rps_sock_flow_entries = 1024: it has no such setting"),
    ] {
        assert!(of(name).to_string().contains(reason), "{}", of(name));
    }
}

#[test]
fn each_side_is_set_while_the_candidate_stands() {
    let Some(machines) = machines() else { return };
    let race = machines.race_of(&machines.settings(SETTINGS), &["--server", "ssh://b"]);
    machines.until_the_host_is_set();
    let route = |machine: &str, to: &str| {
        run(&machines.world.open(machine), "ip", &["route", "show", "exact", &format!("{to}/32")])
    };
    // The client's side is built first.
    let seen = [
        machines.parameter("a", "net.ipv4.tcp_slow_start_after_idle"),
        machines.parameter("b", "net.ipv4.tcp_slow_start_after_idle"),
        route("a", "10.9.0.2"),
    ];
    until("its routes and its card are set, too", || {
        let queue = ["/sys/class/net/eth0/queues/rx-0/rps_cpus"];
        let netns = machines.world.name("b");
        let cpus = run(
            &machines.world.open("b"),
            "ip",
            &[&["netns", "exec", netns.as_str(), "cat"], &queue[..]].concat(),
        );
        route("b", "10.9.0.1").contains("initcwnd 16") && cpus.trim() == "1"
    });
    until("the next candidate does not have it", || machines.parameter("b", "net.core.somaxconn") != "777");
    assert_raced(&race.wait_with_output().unwrap());
    assert_eq!((seen[0].as_str(), seen[1].as_str()), ("0", "1"), "each side has its own");
    assert!(seen[2].contains("src 10.9.0.1") && seen[2].contains("initcwnd 16"), "{}", seen[2]);
    machines.assert_as_before();
}

/// Settings that no card has together: it would have one queue, and two lists of CPUs are for at least two.
const CONTRADICTION: &str = r#"
[[candidates]]
path = "ptp+direct"
name = "one queue for two lists"
tune.server = { channels = 1, xps_cpus = "0;1" }
"#;

/// Settings that the cards of these machines do not have.
const LACKED: &str = r#"
[[candidates]]
path = "host"
name = "two lists for one queue"
tune.xps_cpus = "0;1"

[[candidates]]
path = "host"
name = "two queues of one"
tune.server.rss_indirection = 2

[[candidates]]
path = "ptp+direct"
name = "more queues than there can be"
tune.channels = 1024

[[candidates]]
path = "host"
name = "CPUs that do not run"
tune.client.xps_cpus = "0,4000"
tune.server = { rps_cpus = "4000-4001", irq_affinity = "4000" }
"#;

#[test]
fn settings_that_contradict_each_other_are_refused_with_the_candidate_s_name() {
    let Some(Three { machines, client, .. }) = &three() else { return };
    let file = machines.settings(&[SETTINGS, CONTRADICTION].concat());
    for of in [&["--server", "ssh://b"][..], &["--client", "ssh://a", "--server", "ssh://b"]] {
        let output = machines.race_of(&file, of).wait_with_output().unwrap();
        let said = check(
            &output,
            2,
            "the settings of one queue for two lists: xps_cpus cannot be \"0;1\" beside channels = 1",
        );
        assert!(!said.contains("connecting to"), "{said}");
    }
    assert_nothing_left(machines, client);
}

#[test]
fn what_the_cards_do_not_have_is_left_out_before_the_race() {
    let Some(machines) = machines() else { return };
    let file = machines.settings(&[SETTINGS, LACKED].concat());
    let output =
        machines.race_of(&file, &["--server", "ssh://b", "--show-commands"]).wait_with_output().unwrap();
    check(&output, 0, "connecting to ssh://b");
    let shown = stdout(&output);
    for why in [
        "cannot run: xps_cpus = 0;1: there is 1 queue, which 2 lists of CPUs cannot share out evenly; \
         the server's machine: xps_cpus = 0;1: there is 1 queue, ",
        "cannot run: the server's machine: rss_indirection = 2: ",
        "cannot run: channels = 1024: the number of queues of eth0 can be ",
        "; the server's machine: channels = 1024: the number of queues of eth0 can be ",
        "cannot run: xps_cpus = 0,4000: CPU 4000 is not online; online are 0",
        "; the server's machine: irq_affinity = 4000: CPU 4000 is not online; online are 0",
        "; the server's machine: rps_cpus = 4000-4001: CPUs 4000-4001 are not online; online are 0",
    ] {
        assert!(shown.contains(why), "{why}: {shown}");
    }
    machines.assert_as_before();
}

#[test]
fn whoever_is_killed_the_machines_have_the_values_of_before() {
    let Some(Three { machines, client, .. }) = &three() else { return };
    let file = machines.settings(&SETTINGS.replace("rounds = 2", "rounds = 2000"));
    let far = ["--server", "ssh://b"];
    // The process there: the one that watches it takes everything back.
    let race = machines.race_of(&file, &far);
    machines.until_the_host_is_set();
    kill(machines.worker().unwrap(), Signal::KILL);
    check(&race.wait_with_output().unwrap(), 1, "use ssh://b: ");
    machines.assert_as_before();
    // The race here: the next start, or `hostgap clean`, does so on this machine.
    let mut race = machines.race_of(&file, &far);
    machines.until_the_host_is_set();
    kill(race.id(), Signal::KILL);
    race.wait().unwrap();
    until("the other machine is as before", || machines.far.owners().is_empty());
    check(&machines.hostgap(&["clean"]).output().unwrap(), 0, "");
    machines.assert_as_before();
    // The client's machine leads, and the user ends the race.
    let race = machines.race_of(&file, &["--client", "ssh://a", "--server", "ssh://b"]);
    machines.until_the_host_is_set();
    kill(race.id(), Signal::INT);
    check(&race.wait_with_output().unwrap(), 130, "interrupted");
    assert_nothing_left(machines, client);
}

/// What another program sets meanwhile is its own: it stays, and the user is told.
#[test]
fn what_a_stranger_has_set_since_is_left_and_named() {
    let Some(machines) = machines() else { return };
    let before = machines.parameter("b", "net.core.somaxconn");
    let file = machines.settings(&SETTINGS.replace("rounds = 2", "rounds = 2000"));
    let race = machines.race_of(&file, &["--server", "ssh://b"]);
    // If it is set between two visits, the next one makes it 777 again.
    until_within(Duration::from_secs(600), "the candidate has left", || {
        if machines.parameter("b", "net.core.somaxconn") == "777" {
            machines.set_on_b("net.core.somaxconn=999");
        }
        machines.count_in_records("\"broken\":[{") > 0
    });
    assert_eq!(machines.parameter("b", "net.core.somaxconn"), "999");
    kill(race.id(), Signal::INT);
    let said = check(&race.wait_with_output().unwrap(), 130, "set host broke in round ");
    // A line of its own if the candidate stood already, or else the end of why it does not.
    let left = "sysctl -w net.core.somaxconn=777: left alone, changed since: 999";
    let lines: Vec<&str> = said.lines().filter(|line| line.contains(left)).collect();
    assert!(lines.iter().any(|line| line.starts_with("set host") && line.contains("on ssh://b: ")), "{said}");
    machines.set_on_b(&format!("net.core.somaxconn={before}"));
    machines.assert_as_before();
}
