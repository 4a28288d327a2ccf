//! Profiles for tests of the page: stacks of a real kernel, in numbers that differ as data paths do.

use record::{Entrant, Profile};

use crate::{PathPart, ProfiledLoad, Summary};

/// Lines of a part and a stack.
const STACKS: &str = include_str!("../profile/parts/stacks.txt");

/// The default race, sampled: stacks of a real kernel in numbers of which some differ from the host's.
pub(super) fn race() -> Summary {
    let mut summary = super::fixture::race();
    summary.profiles = profiles(&summary);
    summary
}

/// A profile of all that ran, at the last load.
fn profiles(summary: &Summary) -> Vec<ProfiledLoad> {
    let loads: Vec<record::Load> = summary
        .loads
        .iter()
        .map(|load| record::Load {
            rate_per_s: load.requested_rps,
            of_capacity: load.of_capacity,
            ..record::Load::closed_loop(load.body_bytes)
        })
        .collect();
    let runners: Vec<&crate::Candidate> = summary.candidates.iter().filter(|c| c.runnable).collect();
    let entrants: Vec<Entrant> = runners.iter().map(|candidate| entrant(candidate)).collect();
    let load = loads.len() - 1;
    let profiles: Vec<Profile> =
        runners.iter().enumerate().map(|(index, c)| profile(index, load, &c.name)).collect();
    crate::analyse::profiles(&profiles, &entrants, &loads, record::Measure::Latency)
}

fn entrant(candidate: &crate::Candidate) -> Entrant {
    Entrant {
        name: candidate.name.clone(),
        path: candidate.path.clone(),
        stands_for: String::new(),
        unmet: vec![],
        commands: vec![],
        mtu: None,
        carried: false,
        crowded: false,
        settings: vec![],
    }
}

fn profile(entrant: usize, load: usize, name: &str) -> Profile {
    let lines = STACKS.lines().filter(|line| !line.starts_with('#'));
    let stacks = lines.enumerate().map(|(line, text)| {
        let (_, stack) = text.split_once(' ').expect("a part and a stack");
        (stack.to_owned(), samples(PathPart::of(stack), name, 7 * (line * 31 + entrant * 17) as u64 % 23))
    });
    let stacks: Vec<(String, u64)> = stacks.filter(|(_, samples)| *samples > 0).collect();
    let busy: u64 = stacks.iter().map(|(_, samples)| samples).sum();
    let idle = 9_000;
    Profile {
        entrant,
        load,
        requests: 230_000,
        duration_ns: (busy + idle) * 212_361 / 2,
        cpus: 2,
        period_ns: 212_361,
        lost: 0,
        idle,
        stacks,
    }
}

/// How often a stack of a part was found, with some scatter.
fn samples(part: PathPart, name: &str, scatter: u64) -> u64 {
    let (bridged, tunnelled) = (name.contains("bridge") || name == "docker", name.contains("vxlan"));
    match part {
        PathPart::User => 1_500 + scatter,
        PathPart::Socket => 800 + scatter,
        PathPart::Scheduler => {
            if bridged {
                250
            } else {
                700 + scatter
            }
        }
        PathPart::Netfilter => {
            if bridged {
                600 + scatter
            } else {
                0
            }
        }
        PathPart::Bridge => {
            if bridged {
                150 + scatter
            } else {
                0
            }
        }
        PathPart::Tunnel => {
            if tunnelled {
                200 + scatter
            } else {
                0
            }
        }
        PathPart::Bpf => 0,
        PathPart::Device => {
            if name.starts_with("host") || name == "macvlan" {
                100 + scatter
            } else {
                300
            }
        }
        PathPart::Other => scatter / 8,
        PathPart::Syscall
        | PathPart::Copy
        | PathPart::Ip
        | PathPart::Routing
        | PathPart::Softirq
        | PathPart::Buffers
        | PathPart::Interrupt
        | PathPart::Foreign => 120 + scatter,
    }
}
