//! What the hands see of their nodes and pods: written down, and compared before the race.

use std::collections::BTreeSet;

use linux::CpuSet;
use record::Machine;

use super::hands::Hand;
use super::lane::Lane;
use super::manifests::Side;
use super::options::ClusterOptions;
use super::path::Pods;
use super::protocol::{Answer, Seen, Task};
use crate::LabError;

/// All hands of a lane, asked before anything is done with them: an image of another version speaks another protocol.
pub(super) fn machine(
    lane: Lane<'_>,
    options: &ClusterOptions,
    pairs: &BTreeSet<Pods>,
) -> Result<Machine, LabError> {
    let mut seen = Vec::new();
    for pods in pairs {
        for (side, cpus) in [(Side::Client, &options.client_cpus), (Side::Server, &options.server_cpus)] {
            let hand = lane.hand(side, pods);
            seen.push((side, look(lane, options, &hand, (side, cpus.as_ref()))?));
        }
    }
    let of = |side: Side| &seen.iter().find(|(other, _)| *other == side).expect("hosts are always there").1;
    let (client, server) = (of(Side::Client), of(Side::Server));
    let mut machine = client.machine.clone();
    machine.client_cpus = client.workers.to_string();
    machine.server_cpus = server.workers.to_string();
    let [client_node, server_node] = [Side::Client, Side::Server].map(|side| lane.node(side));
    let theirs = &server.machine;
    let gibibytes = theirs.memory_bytes as f64 / f64::from(1 << 30);
    let describes = format!(
        "{}: {}, {}, {} CPUs, {gibibytes:.0} GiB",
        server_node.name, server_node.says, theirs.cpu_model, theirs.cpus
    );
    let facts = [
        ("client's node", format!("{}: {}", client_node.name, client_node.says)),
        ("server's node", describes),
        ("CPUs of pods", cpus_of_pods(options, seen.iter().map(|(_, seen)| seen))),
        ("image", options.access.pod_image().to_owned()),
    ];
    machine.facts.extend(facts.map(|(name, what)| (name.to_owned(), what)));
    overlap(lane, client, server)?;
    Ok(machine)
}

/// What a hand sees, if it is of this very version.
fn look(
    lane: Lane<'_>,
    options: &ClusterOptions,
    hand: &Hand,
    (side, cpus): (Side, Option<&CpuSet>),
) -> Result<Seen, LabError> {
    let workers = lane.workers(side, cpus);
    let seen = match hand.ask(&Task::Look { workers }, None, "host")? {
        Answer::Seen(seen) => *seen,
        other => return Err(hand.strange(&other)),
    };
    let failed = |why: String, remedy: &str| {
        Err(LabError::Machine { machine: hand.name().to_owned(), why, remedy: Some(remedy.to_owned()) })
    };
    let own = options.access.own.version;
    if seen.version != own {
        let image = options.access.pod_image();
        let why = format!("image {image} has hostgap {}, and this is {own}", seen.version);
        return failed(why, "name an image of this version with --image, or race with --copy");
    }
    if let Some(cpu) = cpus.and_then(|cpus| cpus.iter().find(|cpu| !seen.allowed.contains(*cpu))) {
        let why = format!("CPU {cpu} is not its to use; it may use {}", seen.allowed);
        return failed(why, "--cpus are the client's CPUs and --server-cpus the server's, on their nodes");
    }
    Ok(seen)
}

/// On one node a client that spins would take the server's CPU.
fn overlap(lane: Lane<'_>, client: &Seen, server: &Seen) -> Result<(), LabError> {
    let shared = client.workers.iter().find(|cpu| server.workers.contains(*cpu));
    match shared.filter(|_| lane.is_within_a_node()) {
        None => Ok(()),
        Some(cpu) => Err(LabError::Experiment {
            what: format!("both sides on node {}", lane.node(Side::Client).name),
            why: format!(
                "they would share CPU {cpu}: it has too few for --pod-cpus, or --cpus and --server-cpus overlap"
            ),
        }),
    }
}

/// Whether the kubelets have given the pods CPUs of their own.
fn cpus_of_pods<'a>(options: &ClusterOptions, seen: impl Iterator<Item = &'a Seen>) -> String {
    let asked = options.pod_cpus;
    if !options.guaranteed {
        return "shared with all other pods: none were asked for".to_owned();
    }
    let own = seen.map(|seen| seen.allowed.len() == asked as usize && seen.machine.cpus > asked);
    let own: Vec<bool> = own.collect();
    match own.iter().filter(|own| **own).count() {
        all if all == own.len() => format!("{asked} of its own for each, by the kubelet's static policy"),
        0 => format!(
            "{asked} for each by the scheduler's count, shared with others: the kubelet has no static policy"
        ),
        some => format!(
            "{asked} for each, of its own for {some} of {} pods: those with a sidecar that asks for less, or on a node \
             without the kubelet's static policy, share theirs",
            own.len()
        ),
    }
}
