//! What the processes in the pods see of their nodes: written into the record, and compared before the race.

use std::collections::BTreeSet;

use datapath::SocketRole;
use linux::CpuSet;
use record::Machine;

use super::node_pair_pods::NodePairPods;
use super::options::ClusterOptions;
use super::path::Pods;
use super::pod_process::PodProcess;
use super::protocol::{Answer, PodFacts, Task};
use crate::LabError;
use crate::error::Fault;

/// Asks all processes on a pair of nodes before anything else: an image of another version speaks another protocol.
pub(super) fn machine(
    pair: NodePairPods<'_>,
    options: &ClusterOptions,
    pairs: &BTreeSet<Pods>,
) -> Result<Machine, LabError> {
    let mut seen = Vec::new();
    for pods in pairs {
        for (part, cpus) in
            [(SocketRole::Client, &options.client_cpus), (SocketRole::Server, &options.server_cpus)]
        {
            let process = pair.process(part, pods);
            seen.push((part, look(pair, options, &process, (part, cpus.as_ref()))?));
        }
    }
    let of =
        |part: SocketRole| &seen.iter().find(|(other, _)| *other == part).expect("hosts are always there").1;
    let (client, server) = (of(SocketRole::Client), of(SocketRole::Server));
    let mut machine = client.machine.clone();
    machine.client_cpus = client.workers.to_string();
    machine.server_cpus = server.workers.to_string();
    let [client_node, server_node] = [SocketRole::Client, SocketRole::Server].map(|part| pair.node(part));
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
    overlap(pair, client, server)?;
    Ok(machine)
}

/// What a process sees of its node. It is an error if its version is not this one.
fn look(
    pair: NodePairPods<'_>,
    options: &ClusterOptions,
    process: &PodProcess,
    (part, cpus): (SocketRole, Option<&CpuSet>),
) -> Result<PodFacts, LabError> {
    let workers = pair.workers(part, cpus);
    let seen = match process.ask(&Task::Look { workers }, None, "host")? {
        Answer::Seen(seen) => *seen,
        other => return Err(process.strange(&other)),
    };
    let failed = |why: String, remedy: &str| {
        Err(LabError::Machine {
            machine: process.name().to_owned(),
            why,
            remedy: Some(remedy.to_owned()),
            fault: Fault::Failure,
        })
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
fn overlap(pair: NodePairPods<'_>, client: &PodFacts, server: &PodFacts) -> Result<(), LabError> {
    let shared = client.workers.iter().find(|cpu| server.workers.contains(*cpu));
    match shared.filter(|_| pair.is_within_a_node()) {
        None => Ok(()),
        Some(cpu) => Err(LabError::Experiment {
            what: format!("both sides on node {}", pair.node(SocketRole::Client).name),
            why: format!(
                "they would share CPU {cpu}: it has too few for --pod-cpus, or --cpus and --server-cpus overlap"
            ),
        }),
    }
}

/// Whether the kubelets have given the pods CPUs of their own.
fn cpus_of_pods<'a>(options: &ClusterOptions, seen: impl Iterator<Item = &'a PodFacts>) -> String {
    let count = options.pod_cpus;
    if !options.guaranteed {
        let limit = seen.filter_map(|seen| seen.cpu_limit).min_by(f64::total_cmp);
        let limit = limit.map(|cpus| format!(", and the namespace limits a pod to {cpus:.2} CPUs"));
        return format!("shared with all other pods: none were asked for{}", limit.unwrap_or_default());
    }
    let own = seen.map(|seen| seen.allowed.len() == count as usize && seen.machine.cpus > count);
    let own: Vec<bool> = own.collect();
    match own.iter().filter(|own| **own).count() {
        all if all == own.len() => format!("{count} of its own for each, by the kubelet's static policy"),
        0 => format!(
            "{count} for each by the scheduler's count, shared with others: the kubelet has no static policy"
        ),
        some => format!(
            "{count} for each, of its own for {some} of {} pods: those with a sidecar that asks for less, or on a node \
             without the kubelet's static policy, share theirs",
            own.len()
        ),
    }
}
