//! Races between two guests: settings of their cards, a machine that loses its power, and the death of each party.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Guests, State, guests, state_of};
use crate::machines::visits;
use crate::sandbox::{check, check_race, json, kill, until_within};

const ENDLESS: &str = r#"
schema = 1
name = "cards of two machines"
rounds = 1000
builds = 2
rates = [50]

[workload]
server = "hostgap"
connections = 2
"#;

/// Cards whose rings cannot be made larger than they are.
const VIRTIO: &str = r#"
[[candidates]]
path = "host"
name = "set host"
tune = { channels = 4, tso = 0, gro = 0, rps_cpus = "0-1", irq_affinity = "0", client.txqueuelen = 500, server.somaxconn = 777 }

[[candidates]]
path = "host"
name = "too large"
tune.client.ring_rx = 512

[[candidates]]
path = "ptp+direct"
name = "set pods"
tune = { channels = 1, rx_gro_hw = 0, rss_hash_fields = "udp4 sdfn udp6 sdfn", server.tcp_sack = 0 }
"#;

/// Cards with rings, delays, and a table of flows of the driver's own.
const IGB: &str = r#"
[[candidates]]
path = "host"
name = "set host"
tune = { channels = 4, ring_rx = 512, ring_tx = 1024, coalesce_rx_usecs = 50, tso = 0, irq_affinity = "0" }

[[candidates]]
path = "host"
name = "one queue of two"
tune = { rss_indirection = 1, threaded_napi = 1 }

[[candidates]]
path = "ptp+direct"
name = "set pods"
tune = { channels = 1, rx_checksum = 0, qdisc = "fq", client.ring_rx = 128 }
"#;

impl Guests {
    /// The finished rounds of all races.
    fn rounds(&self) -> usize {
        let races = std::fs::read_dir(self.sandbox.out().join("results")).into_iter().flatten().flatten();
        let texts = races.filter_map(|race| std::fs::read_to_string(race.path().join("race.jsonl")).ok());
        texts.map(|text| text.matches("{\"round\":{").count()).sum()
    }

    /// An experiment of these candidates that does not end by itself.
    fn experiment(&self, candidates: &str) -> String {
        let file = self.sandbox.out().join("experiment.toml");
        std::fs::write(&file, [ENDLESS, candidates].concat()).unwrap();
        file.display().to_string()
    }

    /// Waits until each of both machines has had all of its lines at once, as it does only while a candidate stands
    /// with whom the card has a fourth queue.
    #[track_caller]
    fn until_set(&self, card: &str, lines: [Vec<&str>; 2]) {
        let first = format!(
            "for try in $(seq 300); do test -e /sys/class/net/{card}/queues/rx-3 && break; sleep 0.3; done; "
        );
        let mut unseen: Vec<(&str, Vec<&str>)> = ["a", "b"].into_iter().zip(lines).collect();
        let deadline = Instant::now() + Duration::from_secs(300);
        while !unseen.is_empty() {
            assert!(Instant::now() < deadline, "never all at once: {unseen:#?}");
            let asked = |(machine, _): &(&str, _)| self.ask(machine, &first).spawn().unwrap();
            let asked: Vec<Child> = unseen.iter().map(asked).collect();
            let mut answers = asked.into_iter().map(|child| state_of(&child.wait_with_output().unwrap()));
            unseen.retain(|(_, lines)| {
                let state = answers.next().unwrap().unwrap_or_default();
                !lines.iter().all(|line| state.contains(*line))
            });
        }
    }

    /// Waits for the first round of a race that has begun when that many were finished.
    fn until_a_round_after(&self, finished: usize) {
        until_within(Duration::from_secs(300), "a round is written down", || self.rounds() > finished);
    }
}

#[test]
fn two_guests_race_and_are_as_before_whatever_dies() {
    let Some(mut guests) = guests() else { return };
    let mut before = ["a", "b"].map(|name| guests.state(name));
    settings_of_both_are_taken_back(&guests, &before);
    before[1] = a_machine_loses_its_power(&mut guests, &before[0]);
    for party in [Party::Here, Party::Client, Party::Server] {
        dies(&guests, party, &before);
    }
    let to_the_end = "--paths ptp+direct --nic eth1 --server hostgap --rate 50 --connections 2 --rounds 1";
    let args: Vec<&str> = to_the_end.split(' ').collect();
    let output = guests.race(["a", "b"], &args).output().unwrap();
    check_race(&output, "connecting to ssh://b");
    assert_raced(&output, &["host", "ptp+direct"]);
    for (name, before) in ["a", "b"].into_iter().zip(&before) {
        assert_eq!(&guests.state(name), before, "{name} after a race to its end");
    }
}

/// Those of that name were measured, and answered.
#[track_caller]
fn assert_raced(output: &Output, names: &[&str]) {
    let result = json(output);
    for name in names {
        let candidates = result["candidates"].as_array().unwrap();
        let found = candidates.iter().find(|candidate| candidate["name"] == *name);
        assert!(found.is_some_and(|candidate| visits(candidate) > 0), "{name}: {result}");
    }
}

fn settings_of_both_are_taken_back(guests: &Guests, before: &[State; 2]) {
    let race = guests.race(["a", "b"], &[&guests.experiment(VIRTIO)]).spawn().unwrap();
    let both = [
        "card eth0 the number of queues 4 4",
        "card eth0 offload tx-tcp-segmentation 0 0",
        "card eth0 offload rx-gro 0 0",
        "queue eth0 rx-3 3",
    ];
    let own = ["attribute eth0 tx_queue_len 500", "sysctl net/core/somaxconn 777"];
    guests.until_set("eth0", own.map(|own| [&both[..], &[own]].concat()));
    guests.until_a_round_after(0);
    kill(race.id(), Signal::INT);
    let output = race.wait_with_output().unwrap();
    let said = check(&output, 130, "interrupted");
    let refused = "ring_rx = 512: the receive ring of eth0 can be 256 at most";
    assert!(said.contains(refused) && !said.contains("too large broke"), "{said}");
    assert_raced(&output, &["host", "set host", "set pods"]);
    let facts = &json(&output)["machine"]["facts"];
    for (name, begins) in [
        ("client's link", "eth0: MTU 1500, virtio_net, 2 receive queues of 4, rings 256 and 256"),
        ("server's link", "eth0: MTU 1500, virtio_net, 2 receive queues of 4, rings 256 and 256"),
        ("server's machine", "ssh://b: Linux 6.12"),
        ("between the machines", "one Ethernet"),
    ] {
        let fact = facts[name].as_str().unwrap_or_default();
        assert!(fact.starts_with(begins), "{name}: {facts}");
        assert_eq!(
            fact.contains(", queues interrupt CPUs 0-1, gro gso "),
            name.ends_with(" link"),
            "{facts}"
        );
    }
    for (name, before) in ["a", "b"].into_iter().zip(before) {
        guests.until_as_before(name, before);
    }
}

/// The server's, over whose card ssh comes as well. Returns how it is when it has started anew.
fn a_machine_loses_its_power(guests: &mut Guests, before: &State) -> State {
    let finished = guests.rounds();
    let race = guests.race(["a1", "b1"], &[&guests.experiment(IGB)]).spawn().unwrap();
    guests.until_a_round_after(finished);
    let both = [
        "card eth1 the number of queues 4 4",
        "card eth1 the receive ring 512 512",
        "card eth1 the send ring 1024 1024",
        "card eth1 rx-usecs 50 50",
        "card eth1 offload tx-tcp-segmentation 0 0",
    ];
    guests.until_set("eth1", [both.to_vec(), both.to_vec()]);
    guests.switch_off("b");
    let output = race.wait_with_output().unwrap();
    let said = check(&output, 1, "use ssh://b1: ");
    assert!(said.contains("finished round") && !said.contains("use ssh://a1"), "{said}");
    guests.until_as_before("a", before);
    guests.switch_on(&["b"]);
    guests.state("b")
}

/// The three processes of a race between two other machines.
#[derive(Debug, Clone, Copy)]
enum Party {
    /// Where it was started.
    Here,
    /// On the client's machine, which leads it.
    Client,
    Server,
}

impl Party {
    /// On which machine its process is, how that was started, and what the race says when it has died.
    fn there(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Party::Here => None,
            Party::Client => Some(("a", "remote.--lead", "use ssh://a1: ")),
            Party::Server => Some(("b", "remote.--connection", "use ssh://b1: ")),
        }
    }
}

/// Some time while the race begins, or a candidate stands: another one in each run.
fn moment() -> Duration {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    Duration::from_millis(u64::from(now.subsec_micros()) % 9000)
}

fn dies(guests: &Guests, party: Party, before: &[State; 2]) {
    let race = guests.race(["a1", "b1"], &[&guests.experiment(IGB)]).spawn().unwrap();
    // The client's process begins first, and on its word the server's.
    let (machine, option, _) = party.there().or(Party::Client.there()).unwrap();
    let begun = format!("the process of {party:?} has begun");
    until_within(Duration::from_secs(300), &begun, || guests.signal_on(machine, option, 0));
    let after = moment();
    std::thread::sleep(after);
    match party.there() {
        None => kill(race.id(), Signal::KILL),
        Some((machine, option, _)) => {
            assert!(guests.signal_on(machine, option, 9), "{party:?} has ended before it was killed");
        }
    }
    let output = race.wait_with_output().unwrap();
    match party.there() {
        None => assert_eq!(output.status.signal(), Some(9), "{output:?}"),
        Some((_, _, says)) => {
            let said = check(&output, 1, says);
            assert!(said.contains("could not "), "{party:?} died after {after:?}: {said}");
        }
    }
    for (name, before) in ["a", "b"].into_iter().zip(before) {
        guests.until_as_before(name, before);
    }
}
