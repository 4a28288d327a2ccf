//! Several clients' machines against one server: `a`, where a race is started or which leads it, and `c`.

use std::process::{Child, Command, Output};
use std::time::Duration;

use record::{RaceRecord, TrialRecord, Void};
use rustix::process::Signal;
use testkit::{Dump, dump, run};

use super::{Three, assert_nothing_left, copied, plug, sshd_program, start_sshd, three, visits};
use crate::sandbox::{OwnRun, check, check_race, json, kill, own_run, stderr, stdout, until, until_within};

/// Three machines, and a fourth one with a client: `c`.
struct Clients {
    three: Three,
    /// The `/run` of `c`.
    far: OwnRun,
    daemon: Child,
    before: Dump,
}

const HERE: [&str; 6] = ["--client", "here", "--client", "ssh://c", "--server", "ssh://b"];
const LED: [&str; 6] = ["--client", "ssh://a", "--client", "ssh://c", "--server", "ssh://b"];

fn clients() -> Option<Clients> {
    let three = three()?;
    let world = &three.machines.world;
    plug(world, 3);
    let far = own_run();
    let (netns, dir) = (world.name("c"), three.machines.sandbox.out());
    let daemon = start_sshd(&sshd_program().unwrap(), &far, netns.as_str(), dir);
    let before = dump(&world.open("c"));
    Some(Clients { far, daemon, before, three })
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = (self.daemon.kill(), self.daemon.wait());
    }
}

impl Clients {
    fn output(&self, args: &[&[&str]]) -> Output {
        self.three.machines.output(&args.concat())
    }

    /// The process that has a client on `c`.
    fn caller(&self) -> Option<u32> {
        copied(&self.far, " remote --connection ")
    }

    /// Whether `c` has connections to a server of the host.
    fn calls(&self) -> bool {
        const ESTABLISHED: &str = "01";
        let table = run(&self.three.machines.world.open("c"), "cat", &["/proc/net/tcp"]);
        table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|socket| {
            let port = socket[2].split_once(':').and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
            socket[3] == ESTABLISHED && port.is_some_and(|port| (18_000..19_000).contains(&port))
        })
    }

    /// The record of the only race.
    fn record(&self) -> RaceRecord {
        let results = self.three.machines.sandbox.out().join("results");
        let races: Vec<_> = std::fs::read_dir(results).unwrap().map(|race| race.unwrap().path()).collect();
        let [race] = &races[..] else { panic!("{races:?}") };
        RaceRecord::read(&race.join("race.jsonl")).unwrap()
    }

    #[track_caller]
    fn assert_as_before(&self) {
        assert_nothing_left(&self.three.machines, &self.three.client);
        until("c has nothing of it", || {
            let runs = self.far.processes().iter().any(|line| line.contains(" remote "));
            !runs && self.far.owners().is_empty() && self.far.namespaces().is_empty()
        });
        self.before.assert_same(&dump(&self.three.machines.world.open("c")), "c");
    }
}

/// What arrives at servers of the host, by the machine that sends it, as the server's machine counts it.
struct Arrived<'a>(&'a Clients);

impl Arrived<'_> {
    fn begin(clients: &Clients) -> Arrived<'_> {
        let arrived = Arrived(clients);
        for part in [
            "add table ip arrived",
            "add counter ip arrived a",
            "add counter ip arrived c",
            "add chain ip arrived in { type filter hook input priority -200 ; }",
            "add rule ip arrived in ip saddr 10.9.0.1 tcp dport 18000-18001 counter name a",
            "add rule ip arrived in ip saddr 10.9.0.3 tcp dport 18000-18001 counter name c",
        ] {
            arrived.nft(part);
        }
        arrived
    }

    fn packets(&self, from: &str) -> u64 {
        let listed = self.nft(&format!("list counter ip arrived {from}"));
        let mut words = listed.split_whitespace().skip_while(|word| *word != "packets");
        words.nth(1).unwrap().parse().unwrap()
    }

    fn nft(&self, words: &str) -> String {
        run(&self.0.three.machines.world.open("b"), "nft", &words.split(' ').collect::<Vec<_>>())
    }
}

impl Drop for Arrived<'_> {
    fn drop(&mut self) {
        let netns = self.0.three.machines.world.name("b");
        let delete = ["netns", "exec", netns.as_str(), "nft", "delete table ip arrived"];
        let _ = Command::new("ip").args(delete).status();
    }
}

/// The trials at a rate in which both clients did their parts.
fn at_rate(race: &RaceRecord) -> Vec<&TrialRecord> {
    let all = race.rounds.iter().flat_map(|round| &round.trials);
    let whole = |trial: &&TrialRecord| race.loads[trial.load].rate_per_s.is_some() && trial.intended > 0;
    all.filter(whole).collect()
}

#[test]
fn two_clients_share_the_load_and_all_are_as_before() {
    let Some(clients) = clients() else { return };
    let paths = ["--paths", "bridge+vxlan,ptp+direct,ebpf+direct,docker", "--rounds", "1", "--no-realtime"];
    let arrived = Arrived::begin(&clients);
    let output = clients.output(&[&HERE, &paths, &["--json"]]);
    let packets = ["a", "c"].map(|from| arrived.packets(from));
    drop(arrived);
    check_race(&output, "connecting to ssh://c");
    let result = json(&output);
    for candidate in result["candidates"].as_array().unwrap() {
        assert!(visits(candidate) > 0, "{candidate}: {}", stderr(&output));
    }
    assert_eq!(result["candidates"].as_array().unwrap().len(), 6, "{result}");
    let facts = &result["machine"]["facts"];
    assert_eq!(facts["clients"], "2: the leading one 2 of 4 connections, ssh://c 2");
    assert!(facts["clients began apart"].as_str().unwrap().contains(" in the median trial, "), "{facts}");
    assert!(facts["client's machine ssh://c"].as_str().unwrap().contains("eth0: MTU 1500"), "{facts}");
    // Each sends half of 200 requests/s, for a tenth of a second.
    let record = clients.record();
    let trials = at_rate(&record);
    assert!(!trials.is_empty());
    for trial in trials {
        assert!((18..=22).contains(&trial.intended), "{trial:?}");
        assert_eq!(trial.latencies.response.count(), trial.answered, "{trial:?}");
        assert!(trial.witnessed.is_none());
        // Both clocks are this machine's, so that whatever is seen is within what may be wrong, and the line's delay.
        let apart = trial.clients_apart.unwrap();
        assert!(apart.error_ns > 0 && apart.ns < 60_000_000_000, "{apart:?}");
    }
    // The server's machine has received what the record counts, and from both.
    let of_host = record.rounds.iter().flat_map(|round| &round.trials).filter(|trial| trial.entrant < 2);
    let answered: u64 = of_host.map(|trial| trial.answered).sum();
    let [leading, other] = packets;
    assert!(answered > 0 && leading + other >= answered, "{leading} + {other} of {answered}");
    assert!(leading < 9 * other && other < 9 * leading, "{leading} and {other}");
    let examined = clients.three.machines.doctor();
    let examined =
        examined["machines"].as_array().unwrap().iter().map(|one| one["machine"].as_str().unwrap());
    assert_eq!(examined.collect::<Vec<_>>(), ["this machine", "ssh://c", "ssh://b"]);
    clients.assert_as_before();
    let shown = clients.output(&[&HERE, &["--paths", "ptp+direct", "--show-commands"]]);
    check(&shown, 0, "connecting to ssh://c");
    let text = stdout(&shown);
    for line in ["# on the client's machine", "# on the machine of client 2", "# on the server's machine"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    clients.assert_as_before();
}

#[test]
fn a_client_that_dies_ends_a_trial_and_not_the_race() {
    let Some(clients) = clients() else { return };
    let machines = &clients.three.machines;
    // Most of the time is that of trials.
    let file = machines.sandbox.out().join("long.toml");
    std::fs::write(&file, "schema = 1\nname = \"long\"\nslice_ms = 1000\nrounds = 1000\n").unwrap();
    let long = [file.to_str().unwrap(), "--paths", "ptp+direct", "--no-realtime"];
    let lost = || machines.count_in_records("{\"client_lost\":{\"machine\":\"ssh://c\"");
    for led in [HERE, LED] {
        let (before, earlier) = (machines.rounds(), lost());
        let race = machines.race(&[&led[..], &long].concat()).spawn().unwrap();
        machines.until_rounds(before + 1);
        // One that dies between two trials costs none; then another one is killed.
        while lost() == earlier {
            let rounds = machines.rounds();
            until_within(Duration::from_secs(600), "c calls the server", || clients.calls());
            kill(clients.caller().unwrap(), Signal::KILL);
            machines.until_rounds(rounds + 1);
        }
        let rounds = machines.rounds();
        machines.until_rounds(rounds + 1);
        kill(race.id(), Signal::INT);
        check(&race.wait_with_output().unwrap(), 130, "interrupted");
        clients.assert_as_before();
    }
}

/// It neither dies nor is its connection cut: only that it says nothing shows that it has stopped.
#[test]
fn a_client_that_stops_answering_is_lost_and_started_again() {
    let Some(clients) = clients() else { return };
    let machines = &clients.three.machines;
    let file = machines.sandbox.out().join("long.toml");
    std::fs::write(&file, "schema = 1\nname = \"long\"\nslice_ms = 1000\nrounds = 1000\n").unwrap();
    let long = [file.to_str().unwrap(), "--paths", "ptp+direct", "--no-realtime"];
    let race = machines.race(&[&LED[..], &long].concat()).spawn().unwrap();
    machines.until_rounds(1);
    until_within(Duration::from_secs(600), "c calls the server", || clients.calls());
    let of_c = |line: &str| line.starts_with("ssh ") && line.contains(" c exec ");
    let connections = || machines.sandbox.pids().into_iter().filter(|(_, line)| of_c(line));
    let (connection, _) = connections().next().expect("c is reached");
    let stopped = clients.caller().unwrap();
    kill(stopped, Signal::STOP);
    until_within(Duration::from_secs(600), "its connection is given up", || {
        connections().all(|(pid, _)| pid != connection)
    });
    // It still has its machine. What it had built there the process that watches it takes back.
    kill(stopped, Signal::KILL);
    let rounds = machines.rounds();
    machines.until_rounds(rounds + 1);
    kill(race.id(), Signal::INT);
    check(&race.wait_with_output().unwrap(), 130, "interrupted");
    let record = clients.record();
    let trials = record.rounds.iter().flat_map(|round| &round.trials);
    let lost = trials.filter_map(|trial| match &trial.void {
        Some(Void::ClientLost { machine, what }) => Some((machine.as_str(), what.as_str())),
        _ => None,
    });
    // Between two trials it costs none.
    for of in lost {
        assert_eq!(of, ("ssh://c", "it has not answered for 30 s"));
    }
    clients.assert_as_before();
}

#[test]
fn a_client_s_machine_that_stays_away_ends_the_race_with_its_name() {
    let Some(mut clients) = clients() else { return };
    let endless = ["--paths", "ptp+direct", "--rounds", "1000", "--no-realtime"];
    let race = clients.three.machines.race(&[&LED[..], &endless].concat()).spawn().unwrap();
    clients.three.machines.until_rounds(1);
    clients.daemon.kill().unwrap();
    clients.daemon.wait().unwrap();
    until("c has its client", || clients.caller().is_some());
    kill(clients.caller().unwrap(), Signal::KILL);
    until_within(Duration::from_secs(600), "the client is gone", || clients.caller().is_none());
    let said = check(&race.wait_with_output().unwrap(), 1, "use ssh://c: ");
    assert!(said.contains("finished round") && !said.contains("use ssh://a"), "{said}");
    clients.assert_as_before();
}
