//! Late answers for tests of the page: a path that loses packets, and others with softirqs and queues.

use std::collections::BTreeMap;

use record::{Cause, Entrant, Histogram, Late, Retransmitted};

use crate::{LateLoad, Summary};

/// The race of most scenes with late answers.
pub(super) fn race() -> Summary {
    let mut summary = super::fixture::race();
    summary.late = late(&summary);
    summary
}

/// The late answers of all that ran, at the last load.
fn late(summary: &Summary) -> Vec<LateLoad> {
    let loads: Vec<record::Load> = summary
        .loads
        .iter()
        .map(|load| record::Load {
            rate_per_s: load.requested_rps,
            of_capacity: load.of_capacity,
            ..record::Load::closed_loop(load.body_bytes)
        })
        .collect();
    let runners = || summary.candidates.iter().filter(|candidate| candidate.runnable);
    let entrants: Vec<Entrant> = runners()
        .map(|candidate| Entrant {
            name: candidate.name.clone(),
            path: candidate.path.clone(),
            stands_for: String::new(),
            unmet: vec![],
            commands: vec![],
            mtu: None,
            carried: false,
            crowded: false,
            settings: vec![],
        })
        .collect();
    let late: Vec<Late> =
        runners().enumerate().map(|(entrant, c)| made(entrant, loads.len() - 1, &c.name)).collect();
    crate::analyse::late(&late, &entrants, &loads)
}

/// A hundred thousand answers, of which those beyond p99 have three causes; a tunnel loses packets.
fn made(entrant: usize, load: usize, name: &str) -> Late {
    let lossy = name.contains("vxlan");
    let mut watched = Histogram::empty_hdr();
    let mut by_cause: BTreeMap<Cause, hdrhistogram::Histogram<u64>> = BTreeMap::new();
    for answer in 0..100_000_u64 {
        watched.record(60_000 + answer % 99 * 1_000).expect("it is within bounds");
    }
    for late in 0..1_000_u64 {
        let cause = match late {
            0..20 if lossy => Cause::TimeOut,
            20..30 if lossy => Cause::Probe,
            late if late % 5 < 3 => Cause::Softirq,
            late if late % 5 == 3 => Cause::Queue,
            _ => Cause::Unknown,
        };
        let ns = match cause {
            Cause::TimeOut | Cause::Probe => 203_000_000,
            _ => 200_000 + 40_000_000 / (late + 10 + entrant as u64),
        };
        watched.record(ns).expect("it is within bounds");
        by_cause.entry(cause).or_insert_with(Histogram::empty_hdr).record(ns).expect("it is within bounds");
    }
    let watched = Histogram::from(&watched);
    Late {
        entrant,
        load,
        unwatched: watched.clone(),
        watched,
        medians_ns: (0..8).map(|visit| (100_000, 102_000 + visit * 300)).collect(),
        causes: by_cause.iter().map(|(cause, of)| (*cause, Histogram::from(of))).collect(),
        retransmitted: Retransmitted {
            time_outs: u64::from(lossy) * 21,
            probes: u64::from(lossy) * 10,
            fast: 0,
        },
        drops: if lossy { [("NETFILTER_DROP".to_owned(), 31)].into() } else { BTreeMap::new() },
        lost_events: 0,
        lost_answers: 0,
        missing: vec![],
    }
}
