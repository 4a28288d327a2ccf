//! What the page says of how a race measured is what happened in it.

use record::{Candidate, Flood, NodeInZone, NodePair, RaceRecord, Witness, Workload, WorkloadKind};
use report::{analyse, html};

use crate::made::{Plan, Truth};

fn race(loads: Vec<Option<f64>>) -> RaceRecord {
    Plan { loads, ..Plan::of(11, vec![Truth::of("docker", 1.5)]) }.race()
}

/// The section on the method.
fn method(race: &RaceRecord) -> String {
    let page = html::page(&analyse(race));
    let (_, from) = page.split_once("<section id=\"method\">").expect("a page has its method");
    from.split_once("</section>").expect("a section ends").0.to_owned()
}

fn witness(after_lengths: u64, left_off: bool) -> Witness {
    Witness {
        period_ns: 500_000,
        late_ns: 60_000,
        stolen_ns: 50_000,
        woken_late_ns: None,
        before_ns: 1_500_000,
        after_ns: 3_000_000,
        after_lengths,
        cost: None,
        left_off,
    }
}

/// An experiment asks for a witness by default, also where there is none.
#[test]
fn what_stalls_did_is_left_out_only_where_a_witness_watched() {
    let mut race = race(vec![Some(20_000.0)]);
    assert!(race.header.experiment.witness);
    for off in [None, Some(witness(3, true))] {
        race.witness = off;
        let said = method(&race);
        assert!(
            said.contains("Nothing watched the machine for stalls") && !said.contains("witness"),
            "{said}"
        );
        assert!(
            said.contains("the hypervisor took CPU time away") && !said.contains("stood still"),
            "{said}"
        );
    }
    race.witness = Some(witness(3, false));
    let said = method(&race);
    assert!(said.contains("due from 1.5 ms before one until 3 ms and 3 times its length after it"), "{said}");
    assert!(said.contains("the machine stood still for half") && !said.contains("hypervisor took"), "{said}");
    // As in records from before windows grew with their stalls.
    race.witness = Some(witness(0, false));
    assert!(method(&race).contains("due from 1.5 ms before one until 3 ms after it"));
}

#[test]
fn a_stream_has_no_requests_that_could_be_late() {
    for (kind, says) in [
        (WorkloadKind::UdpStream, "each flow sends datagrams as fast as it can"),
        (WorkloadKind::TcpStream, "as many bytes as the path takes"),
        (WorkloadKind::Packets, "CPU time that a frame takes"),
        (WorkloadKind::Download, "one object after the other"),
    ] {
        let mut race = race(vec![None]);
        race.header.experiment.workload = Workload::of(kind);
        let said = method(&race);
        assert!(said.contains(says), "{said}");
        for words in ["constant rate", "Response time", "ercentile", "p99", "generator", "answer"] {
            assert!(!said.contains(words), "{words} in {said}");
        }
    }
}

#[test]
fn loads_are_described_as_they_were() {
    let [both, rates, closed] =
        [vec![None, Some(20_000.0)], vec![Some(20_000.0)], vec![None]].map(|loads| method(&race(loads)));
    let words = ["at a constant rate", "In a closed loop each connection", "the generator was late"];
    let has = |said: &str| words.map(|words| said.contains(words));
    assert_eq!((has(&both), has(&rates)), ([true; 3], [true, false, true]));
    assert_eq!(has(&closed), [false, true, false]);
}

#[test]
fn a_flood_can_make_a_trial_void() {
    let mut race = race(vec![Some(20_000.0)]);
    assert!(!method(&race).contains("flood"));
    race.header.experiment.flood = Some(Flood { packets_per_s: 200_000, bytes: 64 });
    let said = method(&race);
    assert!(said.contains("a tenth of its flood was lost") && said.contains("was not sent"), "{said}");
}

/// Where it was raced is in no experiment.
#[test]
fn the_command_that_races_it_again_asks_for_the_same_machines() {
    let asked = |facts: &[&str], is_pair: bool| {
        let mut race = race(vec![Some(20_000.0)]);
        let node = |node: &str| NodeInZone { node: node.to_owned(), zone: None };
        race.header.pair = is_pair.then(|| NodePair { client: node("a"), server: node("b") });
        let facts = facts.iter().map(|fact| ((*fact).to_owned(), "2: x".to_owned()));
        race.header.machine.facts.extend(facts);
        let page = html::page(&analyse(&race));
        let (_, from) = page.split_once("<section id=\"again\">").unwrap();
        let (_, from) = from.split_once("hostgap race experiment.toml").unwrap();
        from.split_once("</pre>").unwrap().0.to_owned()
    };
    assert_eq!(asked(&[], false), "");
    assert_eq!(asked(&["server's machine"], false), " --server ssh://…");
    let several = asked(&["server's machine", "clients"], false);
    assert_eq!(several, " --server ssh://… --client ssh://… --client ssh://…");
    assert_eq!(asked(&["server's node"], false), " --kube");
    assert_eq!(asked(&["server's node"], true), " --kube --all-pairs");
}

/// Candidates may have connections of their own, and a race answers of several sizes.
#[test]
fn connections_are_those_of_all() {
    let mut race = race(vec![None, None]);
    race.loads[1].body_bytes = 4096;
    let said = |race: &RaceRecord| html::page(&analyse(race));
    let usual = said(&race);
    assert!(usual.contains("in a closed loop of 32 connections, each of 100\u{202f}B, ÷ host"));
    assert!(usual.contains("generator, 32 connections") && !usual.contains("Connections of its own"));
    let own = Candidate { path: "docker".to_owned(), connections: Some(64), ..Candidate::default() };
    race.header.experiment.candidates = vec![Candidate { name: Some("docker".to_owned()), ..own }];
    race.loads.truncate(1);
    race.rounds.iter_mut().for_each(|round| round.trials.retain(|trial| trial.load == 0));
    let page = said(&race);
    assert!(page.contains("in a closed loop of 32 to 64 connections, ÷ host"));
    assert!(page.contains("generator, 32 to 64 connections") && page.contains("Connections of its own: 64."));
}

/// The root of nine is three: in such a race hosts have three trials a round at a rate.
#[test]
fn hosts_are_visited_as_often_as_they_were() {
    let at_rate = method(&race(vec![Some(20_000.0), None]));
    let says =
        "at a rate host and host again each as often as the root of the number of contenders, rounded down";
    assert!(at_rate.contains(says) && !at_rate.contains("host twice"), "{at_rate}");
    assert!(!method(&race(vec![None])).contains("root of the number"));
}

/// The made search began at a median of 66,000.
#[test]
fn capacity_is_described_as_it_was_found() {
    let said = |rate_per_s: f64| {
        let mut race = race(vec![Some(20_000.0), None]);
        race.capacities[0].rate_per_s = rate_per_s;
        let page = html::page(&analyse(&race));
        let (_, from) = page.split_once("Before the race").expect("capacity was sought");
        from.split_once("</p>").expect("a paragraph ends").0.to_owned()
    };
    let [first, second] = [66_000.0, 66_000.0 * 0.96].map(said);
    for said in [first, second] {
        assert!(said.contains("the highest constant rate") && !said.contains("(median of"), "{said}");
    }
    let last = said(66_000.0 * 0.96_f64.powi(11));
    assert!(last.contains("the highest constant rate"), "{last}");
    let none = said(66_000.0 * 0.96_f64.powi(12));
    assert!(none.contains("sustained no constant rate that was tried") && none.contains("61 % of"), "{none}");
}
