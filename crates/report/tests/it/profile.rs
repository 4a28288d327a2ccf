//! Profiles with known truth: true differences are found, and no others are claimed.

use std::sync::LazyLock;

use record::{Profile, RaceRecord, Workload, WorkloadKind};
use report::{PathPart, Profiled, Style, Summary, analyse, html, json, table};
use stats::Random;

use crate::made::eventful;

/// A stack and its microseconds for each request.
type Truth = (&'static str, f64);

const HOST: [Truth; 4] = [
    ("client;[user]", 3.0),
    ("server;do_syscall_64;tcp_sendmsg", 6.0),
    ("server;do_syscall_64;tcp_sendmsg;ip_output", 1.0),
    ("other:cc1;[user]", 4.0),
];
const BRIDGE: (&str, f64) = ("server;do_syscall_64;tcp_sendmsg;ip_output;br_forward", 0.8);

const PERIOD_NS: u64 = 212_361;
const REQUESTS: u64 = 120_000;

/// Samples of these stacks. The chance of a stack is its share of the time.
fn sampled(entrant: usize, truth: &[Truth], random: &mut Random) -> Profile {
    let (cpus, seconds) = (2_u32, 2_u64);
    let due = u64::from(cpus) * seconds * 1_000_000_000 / PERIOD_NS;
    let mut counts = vec![0; truth.len()];
    let mut idle = 0;
    for _ in 0..due {
        // The chance of a stack is its total CPU time as a share of the time of all CPUs.
        let mut at = random.unit() * f64::from(cpus) * seconds as f64 * 1e6 / REQUESTS as f64;
        let hit = truth.iter().position(|(_, us)| {
            at -= us;
            at < 0.0
        });
        match hit {
            Some(stack) => counts[stack] += 1,
            None => idle += 1,
        }
    }
    Profile {
        entrant,
        load: 1,
        requests: REQUESTS,
        duration_ns: seconds * 1_000_000_000,
        cpus,
        period_ns: PERIOD_NS,
        lost: 0,
        idle,
        stacks: truth.iter().zip(counts).map(|((stack, _), count)| ((*stack).to_owned(), count)).collect(),
    }
}

/// The race of the goldens without its rounds, with profiles of the hosts and of two contenders: one with a
/// bridge, one like the host.
fn race(seed: u64) -> RaceRecord {
    static BARE: LazyLock<RaceRecord> = LazyLock::new(|| RaceRecord { rounds: vec![], ..eventful() });
    let mut race = BARE.clone();
    let mut random = Random::from_seed(seed);
    let bridge: Vec<Truth> = HOST.into_iter().chain([BRIDGE]).collect();
    let truths: [&[Truth]; 4] = [&HOST, &HOST, &bridge, &HOST];
    race.profiles =
        truths.iter().enumerate().map(|(entrant, truth)| sampled(entrant, truth, &mut random)).collect();
    race
}

fn profiled<'a>(summary: &'a Summary, name: &str) -> &'a Profiled {
    summary.profiles[0].candidates.iter().find(|candidate| candidate.name == name).expect(name)
}

fn part(profiled: &Profiled, part: PathPart) -> report::Cost {
    profiled.parts.iter().find(|cost| cost.part == part).expect("all parts are there").cost
}

#[test]
fn what_a_bridge_takes_is_found_and_nothing_else_is() {
    let (mut false_claims, mut outside) = (0, 0);
    for seed in 0..20 {
        let summary = analyse(&race(seed));
        let bridge = part(profiled(&summary, "bridge+direct"), PathPart::Bridge).difference.unwrap();
        assert!(bridge.distinguishable, "{bridge:?}");
        outside += u32::from((bridge.us - BRIDGE.1).abs() > bridge.half_width_us);
        let alike = [profiled(&summary, "host again"), profiled(&summary, "bridge+vxlan")];
        let claims = alike.iter().flat_map(|candidate| &candidate.parts);
        let claims = claims.filter(|part| part.cost.difference.is_some_and(|d| d.distinguishable));
        false_claims += usize::from(claims.count() > 0);
    }
    assert!(outside <= 1, "{outside} of 20 intervals of 99.7 % do not hold the truth");
    assert!(false_claims <= 2, "{false_claims} of 20 profiles of equals find a difference");
}

#[test]
fn time_a_request_is_what_it_was_made_with() {
    let summary = analyse(&race(1));
    let host = profiled(&summary, "host");
    // Other programs are in no sum.
    assert!((host.total.us_per_request - 10.0).abs() < host.total.half_width_us, "{:?}", host.total);
    let foreign = part(host, PathPart::Foreign);
    assert!((foreign.us_per_request - 4.0).abs() < foreign.half_width_us);
    assert_eq!(part(profiled(&summary, "bridge+direct"), PathPart::Foreign).difference, None);
    assert_eq!((host.total.difference, host.lost), (None, 0));
    assert_eq!(host.samples + host.idle, 2 * 2_000_000_000 / PERIOD_NS);
}

#[test]
fn a_difference_that_the_host_shows_against_itself_is_none() {
    let mut race = race(2);
    // The cause that slowed the control can also have slowed the contender.
    race.profiles[1].stacks.push((BRIDGE.0.to_owned(), 800));
    let difference = part(profiled(&analyse(&race), "bridge+direct"), PathPart::Bridge).difference.unwrap();
    assert!(difference.us > difference.half_width_us && !difference.distinguishable, "{difference:?}");
}

#[test]
fn samples_that_are_missing_are_said_to_be() {
    let mut race = race(3);
    race.profiles[2].idle -= 2_000;
    let summary = analyse(&race);
    assert_eq!(profiled(&summary, "bridge+direct").lost, 2_000);
    let text = table(&summary, Style { colour: false, width: 100 });
    assert!(text.contains("of the samples are missing, most of bridge+direct"), "{text}");
}

/// The graph with this title, from the title to its end.
fn graph(page: &str, title: &str) -> Option<String> {
    let (_, rest) = page.split_once(&format!("<title>{title}</title>"))?;
    Some(rest.split_once("</div>").expect("a graph ends").0.to_owned())
}

#[test]
fn a_stream_s_sender_is_drawn_by_itself() {
    let mut race = race(5);
    let alone = "Flame graph of the sender of bridge+direct";
    assert_eq!(graph(&html::page(&analyse(&race)), alone), None, "requests have two ends");
    race.header.experiment.workload = Workload::of(WorkloadKind::UdpStream);
    let page = html::page(&analyse(&race));
    let (both, alone) = (graph(&page, "Flame graph of bridge+direct").unwrap(), graph(&page, alone).unwrap());
    assert!(both.contains("tcp_sendmsg") && both.contains("client"), "{both}");
    assert!(!alone.contains("tcp_sendmsg") && alone.contains("client"), "{alone}");
}

#[test]
fn the_table_the_page_and_the_json_show_the_profile() {
    let summary = analyse(&race(4));
    let text = table(&summary, Style { colour: false, width: 100 });
    let block = text.split_once("Where the CPU time goes").expect("it is there").1;
    assert!(block.contains("bridge+direct  +0.") && block.contains(": bridge +0."), "{block}");
    assert!(block.contains("indistinguishable), no part differs"), "{block}");
    assert!(html::page(&summary).contains("Flame graph of bridge+direct"));
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/report.schema.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json(&summary)).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&value).map(|error| format!("{error} at {}", error.instance_path())).collect();
    assert_eq!(errors, Vec::<String>::new());
    assert_eq!(value["profiles"][0]["candidates"][2]["parts"][7]["part"], "bridge");
}
