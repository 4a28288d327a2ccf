//! `hostgap race --show-commands`: each candidate's plan as the commands that one would type.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::ExitCode;

use ::lab::{
    ByRole, Contender, INBOUND_PORT, NodeCpus, OUTBOUND_PORT, RdmaWire, SERVER_PORT, Shape, Topology,
};
use ::record::{Entrant, Experiment, Steering, WorkloadKind};
use datapath::{Family, SocketRole};
use plan::Placed;

use super::{Args, cpus_of};
use crate::output;

/// Prints the commands that build each candidate, and how to use what they build.
pub(super) fn print(experiment: &Experiment, args: &Args) -> anyhow::Result<ExitCode> {
    let everything = linux::features::Facts::default();
    let field = ::lab::field(experiment, &everything, &args.plugins.dirs())?;
    let (allowed, placement) = (cpus_of(args.cpus.as_deref())?, experiment.placement);
    let cpus = NodeCpus::split_beside(&allowed, field.iter().any(Contender::polls), placement);
    for (number, contender) in field.into_iter().enumerate() {
        if contender.name == ::lab::HOST_AGAIN {
            continue;
        }
        if !contender.is_known() {
            let (name, why) = (&contender.name, contender.unmet.join("; "));
            output::result(format_args!("# {name}: cannot be shown: {why}\n"))?;
            continue;
        }
        let is_packets = experiment.workload.kind == WorkloadKind::Packets;
        let shape = Shape {
            prefix: format!("hg-{}", ::lab::slug(&contender.name)),
            path: contender.path,
            cni: contender.cni.clone(),
            mtu_bytes: experiment.underlay.mtu,
            cpus: cpus.clone(),
            spare: cpus.spare(&allowed, placement),
            family: ::lab::family(experiment.workload.ipv6),
            families: if is_packets { &[Family::V4] } else { &Family::BOTH },
            steered: experiment.underlay.steering != Steering::Sender
                && experiment.placement.is_usual()
                && !is_packets,
            placement,
            in_container: contender.in_container,
            cards: ::lab::shown_cards(experiment),
            wires: contender.wires(&experiment.underlay),
            settings: contender.settings.clone(),
            proxies: contender.proxy,
            stack: contender.stack,
            rdma: RdmaWire::of(contender.stack.kind, || number),
            filter: contender.filter,
            flood: experiment.flood,
            protocol: ::lab::protocol(experiment.workload.kind),
            machines: None,
        };
        let topology = Topology::plan(shape).map_err(|error| error.of_plan(&contender.name))?;
        output::result(format_args!("# {}: {}", contender.name, contender.stands_for))?;
        topology.commands().iter().try_for_each(output::result)?;
        output::result(usage(&topology, experiment.workload.body_bytes[0], !is_packets))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How messages are served and asked for by verbs, if they are.
fn rdma(topology: &Topology) -> Option<String> {
    let (wire, ByRole { client, server }) = (topology.shape.rdma?, topology.processes());
    let [client_device, server_device] =
        [SocketRole::Client, SocketRole::Server].map(|part| wire.device(part));
    let (called, stack) = (topology.called(), topology.stack_arguments().join(" "));
    Some(format!(
        "# serve:  ip netns exec {server} hostgap serve --echo --listen verbs:0.0.0.0:{SERVER_PORT} --rdma {server_device} {stack}\n\
         # ask:    ip netns exec {client} hostgap load --rdma {client_device} verbs://{called}\n"
    ))
}

/// Prints the commands that build each candidate on two machines.
pub(super) fn print_for_machines(entrants: &[Entrant]) -> anyhow::Result<ExitCode> {
    for entrant in entrants.iter().filter(|entrant| entrant.name != ::lab::HOST_AGAIN) {
        output::result(format_args!("# {}: {}", entrant.name, entrant.stands_for))?;
        match entrant.unmet.as_slice() {
            [] => entrant.commands.iter().try_for_each(output::result)?,
            unmet => output::result(format_args!("# cannot run: {}", unmet.join("; ")))?,
        }
        output::result("")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Which proxies have to run for what is redirected to arrive.
fn proxies(topology: &Topology) -> String {
    let Topology { address, shape, .. } = topology;
    let ByRole { client, server } = topology.processes();
    let mut text = String::new();
    if let Some(kind) = shape.proxies.client {
        let kind = kind.name();
        text += &format!("# proxy:  {kind} in {client}, from port {OUTBOUND_PORT} to {address}\n");
    }
    if let Some(kind) = shape.proxies.server {
        let kind = kind.name();
        text +=
            &format!("# proxy:  {kind} in {server}, from port {INBOUND_PORT} to localhost:{SERVER_PORT}\n");
    }
    text
}

/// How to use the topology that the commands build, and how to remove it. These are comments, so that a shell that runs
/// the whole text only builds it.
fn usage(topology: &Topology, body_bytes: u32, is_served: bool) -> String {
    let ByRole { client, server } = topology.processes();
    let called = topology.called();
    // Backwards, as undo goes; the programs of a node and those that splice there have one folder.
    let mut removals: Vec<String> = topology.plan.steps.iter().rev().filter_map(Placed::removal).collect();
    let mut seen = BTreeSet::new();
    removals.retain(|command| seen.insert(command.clone()));
    let mut groups: Vec<_> = topology.groups().both().into_iter().flatten().collect();
    groups.dedup();
    let group = |splice: &plan::forwarding::Splice| {
        let path = splice.shell_path();
        format!("# group:  echo $$ > {path}/cgroup.procs, in the shells that serve and ask there\n")
    };
    let stack = topology.stack_arguments().into_iter().map(|argument| format!(" {argument}"));
    let listens =
        topology.listens_at().into_iter().map(|ip| format!(" --listen {}", SocketAddr::new(ip, SERVER_PORT)));
    let served = format!(
        "# serve:  ip netns exec {server} hostgap serve{}{}\n\
         # ask:    ip netns exec {client} curl -s http://{called}/{body_bytes}\n{}",
        listens.collect::<String>(),
        stack.collect::<String>(),
        proxies(topology)
    );
    let served = rdma(topology).unwrap_or(served);
    format!(
        "{}{}# remove: {}\n",
        groups.into_iter().map(group).collect::<String>(),
        if is_served { &served } else { "" },
        removals.join("; ")
    )
}
