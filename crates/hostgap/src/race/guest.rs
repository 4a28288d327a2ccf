//! `hostgap race --kernel`: the race in virtual machines, and the part of the program that runs inside.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::lab::{Finished, GuestRace, LabError, Outward, Race};
use ::record::{Card, Experiment, Machines, WorkloadKind};
use ::report::Summary;
use anyhow::Context;
use vm::{Cache, Flavour, KernelSpec, Vm};

use crate::exit;
use crate::progress::Progress;
use crate::{output, report, stop};

use super::{Args, RECORD};

/// The kernel for `--exact` without `--kernel`.
const USUAL: &str = "debian:6.12";

/// The virtual machines in which to race; none by default.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Another kernel")]
pub(crate) struct VmArgs {
    /// Race on these kernels instead of this machine's, each in a virtual machine; joined by commas.
    #[arg(long, value_delimiter = ',', value_name = "KERNELS", long_help = KERNEL)]
    kernel: Vec<String>,
    /// The modules of a kernel that is given as a file: /lib/modules/RELEASE, or a directory that has
    /// lib/modules/RELEASE.
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// Count instructions per request instead of time, in a virtual machine (without --kernel: debian:6.12).
    #[arg(long, long_help = EXACT)]
    exact: bool,
    /// Join the nodes by two emulated cards instead of a veth pair, in a virtual machine.
    #[arg(long, value_name = "virtio|igb|vmxnet3", long_help = WIRE)]
    wire: Option<Card>,
    /// Virtual CPUs of these machines [default: 2].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    vm_cpus: Option<u32>,
    /// Set inside such a machine: its description.
    #[arg(long, hide = true, value_name = "TEXT")]
    pub(super) in_guest: Option<String>,
}

const KERNEL: &str = "Race on these kernels instead of this machine's, each in a virtual machine of its own; joined by \
commas. debian:6.12 and debian:6.1 are fetched as Debian packages into a cache (~/.cache/hostgap, or HOSTGAP_CACHE) and not \
installed; a path names an image of your own, with --modules. The machine is QEMU, with KVM where that works. Without KVM \
it emulates, and the report says so: data paths that this kernel lacks can be tried, but times mean little. --exact \
counts instead.";

const EXACT: &str = "Count instructions per request instead of time. The virtual machine has one CPU and a clock that \
counts instructions, so a figure is what client, server and both nodes' stacks execute for a request, the same to about \
a thousandth in every repetition and on every machine. It leaves out caches, locks and other processors. Without --kernel: \
debian:6.12.";

const WIRE: &str = "Join the nodes by two network cards instead of a veth pair: models that QEMU emulates, joined inside \
it, each with its driver, queues, rings and interrupts. Each candidate has a pair of its own. Without --kernel: \
debian:6.12. With --exact, instructions a request count the driver's work too; times of an emulated card mean nothing.";

impl VmArgs {
    /// Whether this process races inside a virtual machine that hostgap started.
    pub(super) fn is_guest(&self) -> bool {
        self.in_guest.is_some()
    }

    /// Whether the modules of a kernel are named.
    pub(super) fn has_modules(&self) -> bool {
        self.modules.is_some()
    }

    /// Applies the options to an experiment.
    pub(super) fn apply(&self, experiment: &mut Experiment) {
        experiment.underlay.card = self.wire.or(experiment.underlay.card);
        let has_cards = experiment.underlay.card.is_some();
        let is_wanted = !self.kernel.is_empty() || self.exact || self.vm_cpus.is_some() || has_cards;
        if self.is_guest() || (!is_wanted && experiment.vm.is_none()) {
            return;
        }
        let usual = || Machines { kernels: vec![USUAL.to_owned()], ..Machines::default() };
        let machines = experiment.vm.get_or_insert_with(usual);
        if !self.kernel.is_empty() {
            machines.kernels.clone_from(&self.kernel);
        }
        if let Some(modules) = &self.modules {
            machines.modules = Some(modules.display().to_string());
        }
        machines.exact |= self.exact;
        machines.cpus = self.vm_cpus.unwrap_or(machines.cpus);
    }
}

/// Races on each kernel in turn.
pub(super) fn race(experiment: &Experiment, args: &Args) -> anyhow::Result<ExitCode> {
    let stop = stop::on_signals()?;
    let machines = experiment.vm.clone().unwrap_or_default();
    let modules = machines.modules.as_deref().map(Path::new);
    // All names are checked before the first machine boots.
    let wanted = machines.kernels.iter().map(|name| KernelSpec::parse(name, modules));
    let wanted: Vec<KernelSpec> = wanted.collect::<Result<_, _>>().map_err(LabError::from)?;
    let top = super::fresh_dir(&args.out, &experiment.name)?;
    let mut shown = Vec::new();
    let mut code = ExitCode::SUCCESS;
    for (name, wanted) in machines.kernels.iter().zip(&wanted) {
        let dir = if machines.kernels.len() == 1 { top.clone() } else { top.join(slug(name)) };
        std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let flavour = flavour(experiment);
        let result = machine(name, wanted, flavour, machines.counts()).and_then(|vm| {
            let guest = GuestRace {
                vm: &vm,
                experiment: &experiment.on(name),
                record: dir.join(RECORD),
                own: std::env::current_exe().map_err(|why| LabError::File {
                    verb: "find",
                    path: "this executable".into(),
                    why,
                })?,
                nginx: args.nginx.clone(),
                plugins: &args.plugins.dirs(),
                scheduling: super::scheduling_of(args.no_realtime),
                stop: stop.clone(),
            };
            let mut progress = Progress::new();
            let result = guest.run(&mut |event| progress.show(&event));
            progress.finish();
            result
        });
        let stopped = matches!(result, Ok(Finished::Stopped));
        let ended = super::finish(&dir, result, &mut |summary| keep(&mut shown, summary));
        if ended.is_err() {
            // The results of other kernels are shown all the same.
            report::print_all(&shown, machines.kernels.len(), args.json)?;
            // This fails, as it should, if something was written there.
            let _ = std::fs::remove_dir(&dir);
            let _ = std::fs::remove_dir(&top);
        }
        let ended = ended?;
        if ended != ExitCode::SUCCESS {
            code = ended;
        }
        if stopped {
            break;
        }
    }
    report::print_all(&shown, machines.kernels.len(), args.json)?;
    Ok(code)
}

fn keep(shown: &mut Vec<Summary>, summary: Summary) -> anyhow::Result<()> {
    shown.push(summary);
    Ok(())
}

/// A machine with a kernel, made ready to boot.
fn machine(name: &str, wanted: &KernelSpec, flavour: Flavour, counts: bool) -> Result<Vm, LabError> {
    output::aside(format_args!("{name}: fetching kernel and QEMU, unless they are in the cache"));
    let cache = Cache::open()?;
    let vm = wanted.fetch(&cache, flavour)?;
    Ok(if counts { vm } else { vm.tried_with_kvm(&cache) })
}

/// Debian's kernel for virtual machines lacks the drivers of real cards, and RDMA.
fn flavour(experiment: &Experiment) -> Flavour {
    if experiment.workload.kind == WorkloadKind::Verbs {
        return Flavour::Full;
    }
    match experiment.underlay.card {
        Some(Card::Igb) => Flavour::Full,
        Some(Card::Virtio | Card::Vmxnet3) | None => Flavour::Cloud,
    }
}

/// A kernel's name as that of a directory.
fn slug(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    name.trim_start_matches('/').chars().map(plain).collect()
}

/// Races inside the machine, and reports everything to the program that started it.
pub(super) fn race_outward(race: Race, record: &Path) -> anyhow::Result<ExitCode> {
    let mut outward = Outward::new(record);
    let mut unheard = None;
    let result = race.run(&mut |event| {
        let written = outward.emit(&event, &mut std::io::stdout());
        unheard = unheard.take().or(written.err());
    });
    outward.lines(&mut std::io::stdout())?;
    std::io::stdout().flush()?;
    if let Some(error) = unheard {
        return Err(error).context("report to the host");
    }
    match result? {
        Finished::Whole => Ok(ExitCode::SUCCESS),
        Finished::Stopped => Ok(ExitCode::from(exit::INTERRUPTED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_have_directories() {
        assert_eq!(slug("debian:6.12"), "debian-6.12");
        assert_eq!(slug("/boot/vmlinuz-6.9.3"), "boot-vmlinuz-6.9.3");
    }
}
