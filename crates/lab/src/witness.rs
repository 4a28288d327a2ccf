//! Watching the nodes' CPUs for stalls of the machine, and what that costs.

use std::sync::{Arc, OnceLock};

use bpf::witness::{Senses, Witness};
use linux::procfs::Procfs;
use load::Outcome;
use load::witness::{AFTER_LENGTHS, AFTER_NS, BEFORE_NS, COARSE, FINE};
use record::{Experiment, Load, Stall, WitnessCost, Witnessed};

use crate::trial::{Method, run};
use crate::{BuiltTopology, LabError, workload};

/// Slices with the witness, and as many without, before the first round. Twelve pairs of 0.1 s know the median to about
/// one per cent on a shared virtual machine.
const PAIRS: u32 = 12;

/// Witnesses, the finest first, each with the cost at which it does not watch if it surely has that: the median with it ÷
/// without. The last one may cost more. What it costs, all candidates bear alike; without it their tails are the machine's.
const WITNESSES: [(Senses, f64); 2] = [(FINE, 1.02), (COARSE, 1.1)];

/// Witnesses of the nodes' CPUs, of which one watches.
#[derive(Debug)]
pub struct Witnesses {
    /// Of [`WITNESSES`].
    all: Vec<Witness>,
    /// Not known before their costs are; `None`: each costs too much.
    chosen: OnceLock<Option<usize>>,
}

impl Witnesses {
    fn of(method: &Method) -> linux::Result<Witnesses> {
        let cpus = method.cpus.all();
        let all =
            WITNESSES.iter().map(|(senses, _)| Witness::new(&cpus, *senses)).collect::<Result<_, _>>()?;
        Ok(Witnesses { all, chosen: OnceLock::new() })
    }

    /// The one that watches.
    pub(crate) fn watching(&self) -> Option<&Witness> {
        self.chosen.get().copied().flatten().map(|index| &self.all[index])
    }
}

/// Witnesses of the nodes' CPUs. `Err` says why there is none, in words.
pub(crate) fn witness(experiment: &Experiment, method: &Method) -> Result<Arc<Witnesses>, String> {
    if !experiment.witness {
        return Err("none: not wanted".to_owned());
    }
    if experiment.exact() || !workload::of(experiment.workload.kind).has_capacity() {
        return Err("none: no request of this workload is due at an instant".to_owned());
    }
    if is_emulated() {
        return Err("none: QEMU emulates the CPUs of this machine".to_owned());
    }
    Witnesses::of(method).map(Arc::new).map_err(|error| format!("none: could not {error:#}"))
}

/// Whether QEMU's TCG emulates this machine's CPUs. They stand still all the time, whenever QEMU translates. And to attach
/// at a tracepoint the kernel rewrites its own running code, which TCG was seen to execute half-written: the guest died.
fn is_emulated() -> bool {
    let model = Procfs::kernel().cpu_model().ok().flatten();
    model.is_some_and(|model| model.contains("QEMU TCG"))
}

/// Lets the finest witness watch that does not cost too much at the highest rate, or none. Without a rate it has no cost.
/// Returns what it takes for a stall and leaves out for one; where each costs too much, the last.
pub(crate) fn choose(
    witnesses: &Witnesses,
    reference: &mut BuiltTopology,
    method: &Method,
    loads: &[Load],
) -> Result<record::Witness, LabError> {
    let highest = loads.iter().filter(|load| load.rate_per_s.is_some());
    let highest = highest
        .max_by(|one, other| one.rate_per_s.partial_cmp(&other.rate_per_s).expect("rates are numbers"));
    let mut described = None;
    for (index, (witness, (_, cost_max))) in witnesses.all.iter().zip(WITNESSES).enumerate() {
        let cost = highest.map_or(Ok(None), |load| cost(witness, reference, method, load))?;
        let left_off = cost.is_some_and(|cost| cost.low > cost_max);
        described = Some(describe(witness, cost, left_off));
        if !left_off {
            let _once = witnesses.chosen.set(Some(index));
            break;
        }
    }
    Ok(described.expect("there is a witness at least"))
}

fn describe(witness: &Witness, cost: Option<WitnessCost>, left_off: bool) -> record::Witness {
    let senses = witness.senses();
    record::Witness {
        period_ns: senses.period_ns,
        late_ns: senses.late_ns,
        stolen_ns: senses.stolen_ns,
        before_ns: BEFORE_NS,
        after_ns: AFTER_NS,
        after_lengths: AFTER_LENGTHS,
        left_off,
        cost,
    }
}

/// The reference's median with the witness ÷ without. Each pair begins with the other one than the pair before.
fn cost(
    witness: &Witness,
    reference: &mut BuiltTopology,
    method: &Method,
    load: &Load,
) -> Result<Option<WitnessCost>, LabError> {
    let mut logarithms = Vec::new();
    for pair in 0..PAIRS {
        let mut medians = [0.0; 2];
        let watched_first = pair % 2 == 0;
        for watched in [watched_first, !watched_first] {
            let outcome = run(reference, method, load, method.slice, watched.then_some(witness))?;
            medians[usize::from(watched)] = outcome.response.value_at_quantile(0.5) as f64;
        }
        if medians.iter().all(|median| *median > 0.0) {
            logarithms.push((medians[1] / medians[0]).ln());
        }
    }
    Ok(summed_up(&logarithms, load.rate_per_s.unwrap_or(0.0)))
}

/// The median of the pairs, which a stall beside one of them does not move, with the interval of its order statistics;
/// `None` of fewer than six.
fn summed_up(logarithms: &[f64], rate_per_s: f64) -> Option<WitnessCost> {
    let mut sorted = logarithms.to_vec();
    sorted.sort_by(f64::total_cmp);
    let ranks = stats::quantile_ranks(sorted.len() as u64, 0.5, 0.05)?;
    let at = |rank: u64| sorted[rank as usize - 1].exp();
    let ratio = stats::median(&sorted)?.exp();
    Some(WitnessCost {
        rate_per_s,
        ratio,
        low: at(ranks.low),
        high: at(ranks.high),
        pairs: sorted.len() as u32,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_beside_a_pair_does_not_move_the_cost() {
        let mut pairs: Vec<f64> = (0..11).map(|pair| 0.01 * f64::from(pair)).collect();
        pairs.push(3.0);
        let cost = summed_up(&pairs, 5e4).unwrap();
        assert_eq!((cost.pairs, cost.rate_per_s), (12, 5e4));
        assert!((cost.ratio.ln() - 0.055).abs() < 1e-12, "{cost:?}");
        // Of twelve the third and the tenth: the median of all is between them with 96.1 %.
        assert!((cost.low.ln() - 0.02).abs() < 1e-12 && (cost.high.ln() - 0.09).abs() < 1e-12, "{cost:?}");
        assert!(summed_up(&pairs[..5], 5e4).is_none());
    }
}
