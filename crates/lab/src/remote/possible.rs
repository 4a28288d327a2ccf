//! What of an experiment can be done between two machines, and why the rest cannot.

use std::net::IpAddr;

use datapath::{Between, DataPath, Family, Reach, SocketRole};
use linux::features::{Facts, Feature};
use record::{Experiment, Placement, Side, Steering, Underlay, Workload, WorkloadKind};
use tune::Settings;

use super::Machines;
use super::order::{Order, prove_side};
use crate::limits::clients_suffice;
use crate::shape::MachineNodes;
use crate::side_settings::is_of_route;
use crate::{Contender, LabError, Shape};

/// Refuses what the wire, the nodes or the kernel of one machine would have to be for, or what so many machines with
/// clients cannot share out.
///
/// # Errors
/// [`LabError::Experiment`], with what it is and why it cannot be.
pub fn possible(experiment: &Experiment, clients: usize) -> Result<(), LabError> {
    let place = "between two machines";
    if experiment.placement == Placement::SameNode {
        return Err(refusal("both sides on one node", place, "they are on two machines"));
    }
    if clients > 1 {
        possible_with_clients(experiment, clients)?;
    }
    clients_suffice(experiment, clients)?;
    possible_elsewhere(experiment, place)
}

/// Refuses what several clients cannot share out.
fn possible_with_clients(experiment: &Experiment, clients: usize) -> Result<(), LabError> {
    let place = format!("of {clients} clients");
    if clients > MachineNodes::CLIENTS_MAX {
        let what = format!("more than {} machines with clients", MachineNodes::CLIENTS_MAX);
        return Err(refusal(&what, "in a race", "their pods share half of a network of 256 addresses"));
    }
    if experiment.by_cpu {
        return Err(refusal(
            "the time of each CPU",
            &place,
            "CPUs of different machines have the same numbers",
        ));
    }
    if experiment.workload.connections_min.is_some() {
        let why = "each machine has a limit of open files of its own";
        return Err(refusal("fewer connections than asked for (connections_min)", &place, why));
    }
    let own = experiment.candidates.iter().filter_map(|candidate| candidate.connections);
    let fewest = own.fold(experiment.workload.connections, u32::min);
    if (fewest as usize) < clients {
        let what = if fewest == 1 { "1 connection".to_owned() } else { format!("{fewest} connections") };
        return Err(refusal(&what, &place, "each has at least one of its own"));
    }
    Ok(())
}

/// The same for any race on machines that are not this one. `place` says where it is: "between two machines".
///
/// # Errors
/// Those of [`possible`].
pub(crate) fn possible_elsewhere(experiment: &Experiment, place: &str) -> Result<(), LabError> {
    let refused = [
        (experiment.underlay.wire.is_some(), "a wire between emulated cards", "it is in a virtual machine"),
        (
            experiment.underlay != Underlay { steering: experiment.underlay.steering, ..Underlay::default() },
            "delay, loss, rate or MTU of the wire",
            "it is a real one, and is raced as it is",
        ),
        (
            experiment.underlay.steering != Steering::Auto,
            "steering of received packets",
            "each machine receives as it is set up",
        ),
        (experiment.vm.is_some(), "a kernel in a virtual machine", "each machine has its own"),
        (experiment.flood.is_some(), "a flood", "frames for it are made on the machine that judges them"),
        (experiment.profile, "a profile", "it is of one machine's CPUs"),
        (experiment.why_late, "causes of late answers", "they are looked for on one machine"),
        (experiment.workload.tls, "TLS", "the key of the server's certificate would have to be sent there"),
    ];
    if let Some((_, what, why)) = refused.into_iter().find(|(is, ..)| *is) {
        return Err(refusal(what, place, why));
    }
    match experiment.workload.kind {
        WorkloadKind::Http
        | WorkloadKind::Connect
        | WorkloadKind::Grpc
        | WorkloadKind::TcpRr
        | WorkloadKind::UdpRr => Ok(()),
        WorkloadKind::Verbs => Err(refusal(
            "workload verbs",
            place,
            "its devices are of software, and are made where a race has a machine of its own: in a virtual machine",
        )),
        kind @ (WorkloadKind::Download
        | WorkloadKind::TcpStream
        | WorkloadKind::UdpStream
        | WorkloadKind::Packets) => {
            let what = format!("workload {}", kind.name());
            Err(refusal(&what, place, "both of its ends are threads of one process"))
        }
    }
}

fn refusal(what: &str, place: &str, why: &str) -> LabError {
    LabError::Experiment { what: format!("{what} {place}"), why: why.to_owned() }
}

/// Says of contenders that cannot race between the machines why; an error where one is required. Sends settings by the
/// way that is open on this machine, which has `facts`.
pub(crate) fn leave_out(
    contenders: &mut [Contender],
    machines: &Machines,
    workload: &Workload,
    facts: &Facts,
) -> Result<(), LabError> {
    if contenders.len() > usize::from(MachineNodes::NUMBER_MAX) {
        let why = "each has a network of its own in 198.18.0.0/15";
        return Err(refusal("more than 511 candidates", "between two machines", why));
    }
    for (number, contender) in (0..).zip(contenders) {
        let mut unmet = unmet(contender, machines);
        if unmet.is_empty() && !contender.settings.is_empty() {
            let shape = Shape::between_machines(contender.path, machines.nodes(number), workload);
            let mut shape = Shape { settings: contender.settings.clone(), ..shape };
            unmet = prove_side(&mut shape, SocketRole::Client, facts)?;
            unmet.extend(machines.unmet(&Order::of(&contender.name, &shape, workload, None))?);
            contender.settings = shape.settings;
        }
        if contender.required && !unmet.is_empty() {
            return Err(LabError::CannotRun { path: contender.name.clone(), reasons: unmet.join("; ") });
        }
        contender.unmet.extend(unmet);
    }
    Ok(())
}

/// Why a candidate cannot race between machines, beside what this machine's kernel lacks.
fn unmet(contender: &Contender, machines: &Machines) -> Vec<String> {
    let lacks = |(whose, there, _): (String, &Facts, Option<IpAddr>)| -> Vec<String> {
        contender.path.unmet(there).iter().map(|unmet| format!("{whose}: {unmet}")).collect()
    };
    let mut unmet: Vec<String> = machines.facts().flat_map(lacks).collect();
    let asks = [
        (contender.cni.is_some(), "CNI plugins are not called on another machine"),
        (!contender.ways.is_empty(), "the wire is a real one"),
        (
            contender.in_container != Side::Both,
            "a side without a container is not distinguished from the host here",
        ),
        (!contender.proxy.is_empty(), "proxies are not started on another machine"),
        (!contender.stack.is_usual(), "a server on another machine has the kernel's stack and sleeps"),
        (contender.filter.is_some(), "frames are judged on the machine that makes them"),
    ];
    unmet.extend(asks.into_iter().filter(|(is, _)| *is).map(|(_, why)| why.to_owned()));
    let router = machines.facts().find_map(|(_, _, router)| router);
    unmet.extend(of_path(contender.path, router));
    unmet.extend(router.filter(|_| contender.path.reach == Reach::Node && has_route_settings(contender)).map(|router| {
        format!("the machines are not neighbours: the route by {router} is others' too, and its settings would be theirs")
    }));
    unmet
}

fn has_route_settings(contender: &Contender) -> bool {
    let Settings { client, server } = &contender.settings;
    client.iter().chain(server).any(is_of_route)
}

/// What a data path would do to a machine's card or needs of the way between the two.
fn of_path(path: &DataPath, router: Option<IpAddr>) -> Option<String> {
    if path.attach.takes_host_link() || !path.attach.leads_out() {
        let why = "its pods have addresses of their own on the machine's card, and switches and clouds drop what they \
                   have not given out";
        return Some(why.to_owned());
    }
    if path.needs().iter().any(|feature| matches!(feature, Feature::WireGuard | Feature::IpSec)) {
        return Some("the keys of its tunnel are not sent to another machine".to_owned());
    }
    let is_switch = |feature: &Feature| matches!(feature, Feature::OpenVSwitch | Feature::OpenVSwitchAfXdp);
    if path.needs().iter().any(is_switch) {
        return Some("a machine has one Open vSwitch, which is its own".to_owned());
    }
    if path.between == Between::Router {
        return Some("it needs the route table of a cloud".to_owned());
    }
    let has_tunnel = path.transport.overhead_bytes(Family::V4, ETHERNET_MTU) > 0;
    let router = router.filter(|_| path.reach == Reach::Pod && !has_tunnel)?;
    Some(format!("the machines are not neighbours: {router} lies between them and has no route to the pods"))
}

/// The MTU of an Ethernet without jumbo frames, in bytes.
const ETHERNET_MTU: u32 = 1500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_take_the_machine_s_card_or_a_secret_does_not_race() {
        let router = Some(IpAddr::from([10, 0, 0, 1]));
        let raced = |router| -> Vec<&str> {
            datapath::ALL
                .iter()
                .filter(|path| of_path(path, router).is_none())
                .map(|path| path.name)
                .collect()
        };
        assert_eq!(
            raced(None),
            [
                "host",
                "docker",
                "bridge+direct",
                "bridge+vxlan",
                "ptp+direct",
                "ptp+vxlan",
                "ebpf+direct",
                "ebpf+vxlan",
                "ebpf+sockmap",
                "netkit+direct"
            ]
        );
        assert_eq!(raced(router), ["host", "docker", "bridge+vxlan", "ptp+vxlan", "ebpf+vxlan"]);
    }

    #[test]
    fn an_experiment_of_one_machine_s_wire_is_refused() {
        let refused = |experiment: Experiment| possible(&experiment, 1).unwrap_err().to_string();
        possible(&Experiment::default(), 1).unwrap();
        let long = Underlay { delay: Some("5ms".parse().unwrap()), ..Underlay::default() };
        let why = refused(Experiment { underlay: long, ..Experiment::default() });
        assert!(why.contains("of the wire between two machines: it is a real one"), "{why}");
        let stream = Workload::of(WorkloadKind::TcpStream);
        let why = refused(Experiment { workload: stream, ..Experiment::default() });
        assert!(why.contains("workload tcp-stream between two machines"), "{why}");
    }

    #[test]
    fn what_several_clients_cannot_share_is_refused() {
        let of = |connections| Experiment {
            workload: Workload { connections, ..Workload::default() },
            ..Experiment::default()
        };
        possible(&of(3), 3).unwrap();
        possible(&of(60_000), 3).unwrap();
        let refused = |experiment, clients| possible(&experiment, clients).unwrap_err().to_string();
        assert!(refused(of(2), 3).contains("2 connections of 3 clients: each has at least one"));
        assert!(refused(of(60_000), 2).contains("30000 connections of one client"));
        assert!(refused(of(64), 33).contains("more than 32 machines with clients"));
        let by_cpu = Experiment { by_cpu: true, ..of(32) };
        assert!(refused(by_cpu.clone(), 2).contains("the time of each CPU of 2 clients"));
        possible(&by_cpu, 1).unwrap();
        let mut fewer = of(32);
        fewer.workload.connections_min = Some(8);
        assert!(refused(fewer, 2).contains("connections_min"));
    }
}
