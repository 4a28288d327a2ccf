//! What of an experiment can be done between two machines, and why the rest cannot.

use std::net::IpAddr;

use datapath::{Between, DataPath, Family, Reach};
use linux::features::{Facts, Feature};
use record::{Experiment, Placement, Side, Steering, Underlay, WorkloadKind};

use super::{MachineNodes, Remote};
use crate::{Contender, LabError};

/// Refuses what the wire, the nodes or the kernel of one machine would have to be for.
///
/// # Errors
/// [`LabError::Experiment`], with what it is and why it cannot be.
pub fn possible(experiment: &Experiment) -> Result<(), LabError> {
    let place = "between two machines";
    if experiment.placement == Placement::SameNode {
        return Err(refusal("both sides on one node", place, "they are on two machines"));
    }
    possible_elsewhere(experiment, place)
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

/// Says of contenders that cannot race between the machines why; an error where one is required.
pub(crate) fn leave_out(contenders: &mut [Contender], machine: &Remote) -> Result<(), LabError> {
    if contenders.len() > usize::from(MachineNodes::NUMBER_MAX) {
        let why = "each has a network of its own in 198.18.0.0/15";
        return Err(refusal("more than 511 candidates", "between two machines", why));
    }
    for contender in contenders {
        let unmet = unmet(contender, machine.facts(), machine.router());
        if contender.required && !unmet.is_empty() {
            return Err(LabError::CannotRun { path: contender.name.clone(), reasons: unmet.join("; ") });
        }
        contender.unmet.extend(unmet);
    }
    Ok(())
}

/// Why a candidate cannot race between machines, beside what this machine's kernel lacks.
fn unmet(contender: &Contender, there: &Facts, router: Option<IpAddr>) -> Vec<String> {
    let mut unmet: Vec<String> =
        contender.path.unmet(there).iter().map(|unmet| format!("the server's machine: {unmet}")).collect();
    let asks = [
        (contender.cni.is_some(), "CNI plugins are not called on another machine"),
        (!contender.settings.is_empty(), "settings of a node are everybody's on a machine that is shared"),
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
    unmet.extend(of_path(contender.path, router));
    unmet
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
        let refused = |experiment: Experiment| possible(&experiment).unwrap_err().to_string();
        possible(&Experiment::default()).unwrap();
        let long = Underlay { delay: Some("5ms".parse().unwrap()), ..Underlay::default() };
        let why = refused(Experiment { underlay: long, ..Experiment::default() });
        assert!(why.contains("of the wire between two machines: it is a real one"), "{why}");
        let stream = record::Workload::of(WorkloadKind::TcpStream);
        let why = refused(Experiment { workload: stream, ..Experiment::default() });
        assert!(why.contains("workload tcp-stream between two machines"), "{why}");
    }
}
