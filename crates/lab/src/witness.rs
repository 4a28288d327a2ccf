//! Watching the nodes' CPUs for stalls of the machine.

use std::sync::{Arc, OnceLock};

use bpf::witness::{Senses, Witness};
use linux::CpuSet;
use linux::procfs::Procfs;
use load::Outcome;
use load::witness::{COARSE, FINE};
use record::{Experiment, Stall, Witnessed};

/// Witnesses, the finest first, each with the factor by which it may change the median, either way. A witness whose
/// ticks keep idle CPUs awake makes the median shorter, and that of a server which never sleeps stays as it is, so a
/// ratio to the first is bent. The last one may change more: without it the tails are the machine's.
const WITNESSES: [(Senses, f64); 2] = [(FINE, 1.02), (COARSE, 1.1)];

/// Witnesses of the nodes' CPUs, of which one watches.
#[derive(Debug)]
pub struct Witnesses {
    /// In the order of [`WITNESSES`], of which each has other senses.
    all: Vec<Witness>,
    /// Not known before their costs are; `None`: each changes the median too much.
    chosen: OnceLock<Option<usize>>,
}

impl Witnesses {
    fn of(cpus: &CpuSet) -> linux::Result<Witnesses> {
        let all =
            WITNESSES.iter().map(|(senses, _)| Witness::new(cpus, *senses)).collect::<Result<_, _>>()?;
        Ok(Witnesses { all, chosen: OnceLock::new() })
    }

    /// Each, the finest first, with the factor by which it may change the median.
    pub(crate) fn with_limits(&self) -> impl Iterator<Item = (&Witness, f64)> {
        self.all.iter().zip(WITNESSES.map(|(_, change_max)| change_max))
    }

    /// Lets one of them watch from now on; the first choice stays.
    pub(crate) fn choose(&self, index: usize) {
        let _stays = self.chosen.set(Some(index));
    }

    /// The witness that watches; `None`: none was chosen, or the choice was to have none.
    pub(crate) fn watching(&self) -> Option<&Witness> {
        self.chosen.get().copied().flatten().map(|index| &self.all[index])
    }
}

/// Witnesses of the nodes' CPUs. `Err` says why there is none, in words.
pub(crate) fn witness(experiment: &Experiment, cpus: &CpuSet) -> Result<Arc<Witnesses>, String> {
    if !experiment.witness {
        return Err("none: not wanted".to_owned());
    }
    if experiment.exact() || !experiment.workload.kind.has_capacity() {
        return Err("none: requests of this workload are not due at set times".to_owned());
    }
    if is_emulated() {
        return Err("none: QEMU emulates the CPUs of this machine".to_owned());
    }
    Witnesses::of(cpus).map(Arc::new).map_err(|error| format!("none: could not {error:#}"))
}

/// Whether QEMU's TCG emulates this machine's CPUs. They stand still all the time, whenever QEMU translates. And
/// to attach at a tracepoint the kernel rewrites its own running code, which TCG was seen to execute
/// half-written: the guest died.
fn is_emulated() -> bool {
    let model = Procfs::kernel().cpu_model().ok().flatten();
    model.is_some_and(|model| model.contains("QEMU TCG"))
}

/// What the witness saw of a trial, for the record.
pub(crate) fn recorded(outcome: &Outcome) -> Option<Witnessed> {
    let seen = outcome.witnessed.as_ref()?;
    let begin_ns = outcome.started_ns.cast_signed();
    let stall = |stall: &bpf::witness::Stall| Stall {
        cpu: stall.cpu,
        from_ns: stall.from_ns.cast_signed() - begin_ns,
        to_ns: stall.to_ns.cast_signed() - begin_ns,
        late_ns: stall.late_ns,
        stolen_ns: stall.stolen_ns,
        blocked_ns: stall.blocked_ns,
    };
    Some(Witnessed {
        intended: seen.intended,
        response: record::Histogram::from(&seen.response),
        left_out_ns: seen.left_out_ns,
        stalls: seen.stalls.iter().map(stall).collect(),
    })
}
