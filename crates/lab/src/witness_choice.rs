//! Which witness watches a race: what each costs is measured before the first round.

use bpf::witness::{Witness, woken_late_ns};
use linux::clock;
use load::windows::{AFTER_LENGTHS, AFTER_NS, BEFORE_NS};
use record::{Load, WitnessCost};

use crate::trial::{Method, rest, run};
use crate::witness::Witnesses;
use crate::{BuiltTopology, LabError};

/// Slices with the witness, and as many without, before the first round. Twelve pairs of 0.1 s know the median to about
/// one per cent on a shared virtual machine.
const PAIRS: u32 = 12;

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
    for (index, (witness, cost_max)) in witnesses.with_limits().enumerate() {
        let cost = highest.map_or(Ok(None), |load| cost(witness, reference, method, load))?;
        let left_off = cost.is_some_and(|cost| cost.low > cost_max);
        described = Some(describe(witness, cost, left_off));
        if !left_off {
            witnesses.choose(index);
            break;
        }
    }
    Ok(described.expect("there is a witness at least"))
}

fn describe(witness: &Witness, cost: Option<WitnessCost>, left_off: bool) -> record::Witness {
    let senses = witness.senses();
    record::Witness {
        period_ns: senses.period_ns.unwrap_or_else(clock::kernel_tick_ns),
        late_ns: senses.late_ns,
        stolen_ns: senses.stolen_ns,
        woken_late_ns: woken_late_ns(senses),
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
            rest(method, load, method.slice);
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
