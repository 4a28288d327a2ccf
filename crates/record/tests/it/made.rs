//! A small race, made without a machine.

use std::collections::BTreeMap;

use record::{
    Candidate, Capacity, Cause, Counters, CpuTime, Entrant, Experiment, Header, Histogram, Late, Latencies,
    Line, Load, Machine, Profile, RequestedRate, Retransmitted, Round, SCHEMA, TrialRecord, Void, Workload,
};

fn entrant(name: &str, unmet: &[&str]) -> Entrant {
    Entrant {
        name: name.to_owned(),
        path: name.trim_end_matches(" again").to_owned(),
        stands_for: "something of the world".to_owned(),
        unmet: unmet.iter().map(ToString::to_string).collect(),
        commands: vec!["ip link add a type veth peer name b".to_owned()],
        settings: Vec::new(),
        mtu: unmet.is_empty().then_some(1500),
        carried: false,
        crowded: false,
    }
}

/// The header of the race.
fn header(rounds: u32) -> Header {
    let mut experiment = Experiment::from_toml("schema = 1\nname = \"made\"").expect("two keys are enough");
    experiment.candidates =
        vec![Candidate { path: "bridge+vxlan".to_owned(), required: false, ..Candidate::default() }];
    experiment.workload = Workload { body_bytes: vec![100], ..Workload::default() };
    experiment.rounds = rounds;
    experiment.rates = vec![RequestedRate::OfCapacity(0.3), RequestedRate::PerSecond(2e4)];
    Header {
        schema: SCHEMA,
        hostgap: "0.0.0".to_owned(),
        started_unix_s: 1_800_000_000,
        seed: 11,
        experiment,
        machine: Machine { kernel: "6.1.0".to_owned(), cpus: 4, ..Machine::default() },
        server: "nginx/1.22.1".to_owned(),
        entrants: vec![
            entrant("host", &[]),
            entrant("host again", &[]),
            entrant("bridge+vxlan", &["vxlan links not available: unknown device type"]),
        ],
        pair: None,
    }
}

fn trial(entrant: usize, base_ns: u64) -> TrialRecord {
    let mut response = Histogram::empty_hdr();
    for step in 0..50 {
        response.record(base_ns + step * 1_000).expect("far below an hour");
    }
    let response = Histogram::from(&response);
    TrialRecord {
        entrant,
        load: 0,
        duration_ns: 100_000_000,
        intended: 51,
        sent: 51,
        answered: 50,
        answered_in_time: 49,
        loop_ns: None,
        clients_apart: None,
        missed: 1,
        missed_age_max_ns: 40_000_000,
        connection_errors: 0,
        unexpected: 0,
        latencies: Latencies { service: response.clone(), lag: Histogram::new(), response },
        witnessed: None,
        client_cpu: CpuTime { user_ns: 10_000_000, ..CpuTime::default() },
        server_cpu: CpuTime { softirq_ns: 20_000_000, idle_ns: 80_000_000, ..CpuTime::default() },
        client_by_cpu: BTreeMap::new(),
        server_by_cpu: BTreeMap::new(),
        counters: Counters { retransmits: 1, ..Counters::default() },
        cards: None,
        carried: None,
        frames: None,
        junk: None,
        handshakes: None,
        void: (base_ns == 13_000).then(|| Void::FactsChanged { what: "governor: a to b".to_owned() }),
    }
}

pub(crate) fn round(round: u32) -> Line {
    let base_ns = 10_000 + u64::from(round) * 1_000;
    let trials = vec![trial(1, base_ns), trial(0, base_ns + 500)];
    Line::Round(Round {
        round,
        build: round / 2,
        ended_s: Some(f64::from(round) + 0.5),
        trials,
        broken: vec![],
    })
}

/// The profile of an entrant.
pub(crate) fn profile(entrant: usize) -> Profile {
    let stacks = [("client;[user]", 31), ("swapper;default_idle;handle_softirqs;net_rx_action", 12)];
    Profile {
        entrant,
        load: 0,
        requests: 5_400,
        duration_ns: 200_000_000,
        cpus: 4,
        period_ns: 212_361,
        lost: 0,
        idle: 3_700,
        stacks: stacks.map(|(stack, samples)| (stack.to_owned(), samples)).to_vec(),
    }
}

/// Late answers of an entrant: one because of a time-out, and two without an explanation.
pub(crate) fn late(entrant: usize) -> Late {
    let histogram = |values: &[(u64, u64)]| {
        let mut hdr = Histogram::empty_hdr();
        values.iter().for_each(|(ns, count)| hdr.record_n(*ns, *count).unwrap());
        Histogram::from(&hdr)
    };
    let causes =
        [(Cause::TimeOut, histogram(&[(204_000_000, 1)])), (Cause::Unknown, histogram(&[(900_000, 2)]))];
    Late {
        entrant,
        load: 0,
        unwatched: histogram(&[(60_000, 290), (700_000, 3)]),
        watched: histogram(&[(61_000, 290), (900_000, 2), (204_000_000, 1)]),
        medians_ns: vec![(60_000, 61_000), (60_500, 60_400)],
        causes: causes.into_iter().collect(),
        retransmitted: Retransmitted { time_outs: 1, probes: 0, fast: 0 },
        drops: [("CPU_BACKLOG".to_owned(), 1)].into(),
        lost_events: 0,
        lost_answers: 0,
        missing: vec!["sk_data_ready".to_owned()],
    }
}

/// All lines of a race of `rounds` rounds.
pub(crate) fn lines(rounds: u32) -> Vec<Line> {
    let capacity =
        Capacity { body_bytes: 100, rate_per_s: 90_000.5, samples_per_s: vec![90_000.0, 90_001.0] };
    let loads = vec![Load { of_capacity: Some(0.3), ..Load::at_rate(100, 27_000.0) }];
    let mut lines =
        vec![Line::Header(Box::new(header(rounds))), Line::Capacity(capacity), Line::Loads(loads)];
    lines.extend((0..rounds).map(round));
    lines.push(Line::End { wall_s: 12.5, stopped: None });
    lines
}
