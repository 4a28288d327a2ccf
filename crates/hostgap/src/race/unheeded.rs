//! Options that a race of this kind would not heed: the command line asks for another race then, and none is run.

use std::path::Path;

use ::lab::{clients_suffice, remote};
use ::record::Experiment;

use super::Args;
use crate::exit::BadInput;

/// Where a race is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    OneMachine,
    VirtualMachine,
    TwoMachines,
    Cluster,
}

/// An option, whether it was given, and why it does not apply.
type Given = (&'static str, bool, &'static str);

/// Refuses what the race would not heed: an option of another kind of race, or what no two machines have.
///
/// # Errors
/// [`BadInput`], with the option and the reason; those of [`remote::possible`] and [`clients_suffice`].
pub(super) fn refuse(args: &Args, experiment: &Experiment) -> anyhow::Result<()> {
    if args.vm.is_guest() {
        return Ok(());
    }
    let place = Place::of(args, experiment);
    if place == Place::TwoMachines {
        args.machines.check_clients(&args.server)?;
    }
    if let Some((option, _, why)) = place.unheeded(args).into_iter().find(|(_, is_given, _)| *is_given) {
        return Err(BadInput(format!("{option} does not apply to {}: {why}", place.name())).into());
    }
    if place == Place::TwoMachines {
        remote::possible(experiment, args.machines.clients())?;
    } else {
        clients_suffice(experiment, 1)?;
    }
    Ok(())
}

impl Place {
    fn of(args: &Args, experiment: &Experiment) -> Place {
        if args.kube.kube {
            Place::Cluster
        } else if args.has_machine() || args.machines.has_clients() {
            Place::TwoMachines
        } else if experiment.vm.is_some() {
            Place::VirtualMachine
        } else {
            Place::OneMachine
        }
    }

    fn name(self) -> &'static str {
        match self {
            Place::OneMachine => "a race on one machine",
            Place::VirtualMachine => "a race in a virtual machine",
            Place::TwoMachines => "a race between machines",
            Place::Cluster => "a cluster",
        }
    }

    fn unheeded(self, args: &Args) -> Vec<Given> {
        const ALONE: &str = "it is about another machine, and --server ssh://… names none";
        let [sudo, nic, ssh, server_cpus] = args.machines.given();
        let of_machines = |why| [("--sudo", sudo, why), ("--nic", nic, why), ("--ssh", ssh, why)];
        let duration = |why| ("--duration", args.duration.is_some(), why);
        let nginx = |why| ("--nginx", is_nginx_given(args), why);
        match self {
            Place::OneMachine => {
                let why = "it is about the kernel of a virtual machine, and --kernel names none";
                let rest = [("--server-cpus", server_cpus, ALONE), ("--modules", args.vm.has_modules(), why)];
                of_machines(ALONE).into_iter().chain(rest).collect()
            }
            Place::VirtualMachine => {
                let rest = [
                    ("--server-cpus", server_cpus, ALONE),
                    ("--cpus", args.cpus.is_some(), "its CPUs are virtual; --vm-cpus sets their number"),
                    duration(
                        "how long a trial takes in it is not known; set the number of trials with --rounds",
                    ),
                ];
                of_machines(ALONE).into_iter().chain(rest).collect()
            }
            Place::TwoMachines => vec![
                nginx("it is a program of this machine, and the server is on another"),
                duration(
                    "how long it takes to build each topology is not known; set the number of trials with --rounds",
                ),
            ],
            Place::Cluster => {
                let rest = [
                    nginx("hostgap's own responder answers in it"),
                    duration(
                        "how long a cluster takes for a trial is not known; set the number of trials with --rounds",
                    ),
                ];
                of_machines("no machine is reached by ssh").into_iter().chain(rest).collect()
            }
        }
    }
}

/// Whether it is on the command line. That the environment has one does not say that this race is to use it.
fn is_nginx_given(args: &Args) -> bool {
    args.nginx.is_some()
        && args.nginx.as_deref().map(Path::as_os_str) != std::env::var_os("HOSTGAP_NGINX").as_deref()
}
