//! What of an experiment can be done between two machines, and why the rest cannot.

use record::{Candidate, Experiment, Placement, Steering, Underlay, WorkloadKind};

use crate::LabError;
use crate::candidate::settings;
use crate::limits::clients_suffice;
use crate::shape::MachineNodes;

/// Refuses what the wire, the nodes or the kernel of one machine would have to be for, or what so many machines with
/// clients cannot share out.
///
/// # Errors
/// [`LabError::Experiment`], with what it is and why it cannot be; [`LabError::Settings`]: no machine could have
/// those of a candidate.
pub fn possible(experiment: &Experiment, clients: usize) -> Result<(), LabError> {
    let place = "between two machines";
    if experiment.placement == Placement::SameNode {
        return Err(refusal("both sides on one node", place, "they are on two machines"));
    }
    if clients > 1 {
        possible_with_clients(experiment, clients)?;
    }
    clients_suffice(experiment, clients)?;
    // Known before a machine is reached.
    let sound = |candidate: &Candidate| settings(candidate, &candidate.title()).map(drop);
    experiment.candidates.iter().try_for_each(sound)?;
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
        (experiment.underlay.card.is_some(), "a wire between emulated cards", "it is in a virtual machine"),
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

/// The error that something cannot be at a place, with the reason.
pub(crate) fn refusal(what: &str, place: &str, why: &str) -> LabError {
    LabError::Experiment { what: format!("{what} {place}"), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use record::Workload;

    use super::*;

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
