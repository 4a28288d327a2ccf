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

/// Lets the finest witness watch that does not change the median too much at the highest rate, or none. Without a rate
/// it changes nothing. Returns what it takes for a stall and leaves out for one; where each changes too much, the last.
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
    let mut left = witnesses.with_limits().enumerate().peekable();
    while let Some((index, (witness, change_max))) = left.next() {
        let cost = highest.map_or(Ok(None), |load| cost(witness, reference, method, load))?;
        let is_too_much = if left.peek().is_some() { seems_too_much } else { surely_is_too_much };
        let left_off = cost.is_some_and(|cost| is_too_much(&cost, change_max));
        described = Some(describe(witness, cost, left_off));
        if !left_off {
            witnesses.choose(index);
            break;
        }
    }
    Ok(described.expect("there is a witness at least"))
}

/// Whether a witness changes the median by more than a factor, up or down, by the best estimate that there is: a
/// coarser one can watch in its place.
fn seems_too_much(cost: &WitnessCost, change_max: f64) -> bool {
    !(change_max.recip()..=change_max).contains(&cost.ratio)
}

/// Whether it does beyond doubt: without the last one the tails are the machine's, which is worse than a median
/// that may have changed.
fn surely_is_too_much(cost: &WitnessCost, change_max: f64) -> bool {
    cost.low > change_max || cost.high < change_max.recip()
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
            rest(method, method.slice);
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
    fn a_witness_may_make_the_median_neither_longer_nor_shorter_by_much() {
        let cost = |ratio, low, high| WitnessCost { rate_per_s: 5e4, ratio, low, high, pairs: 12 };
        // Each as measured: an idle host whose CPUs the ticks keep awake, a race beside a flood, and a quiet one.
        let (shorter, unclear) = (cost(0.83, 0.785, 0.859), cost(1.148, 1.001, 1.295));
        let none = cost(0.995, 0.975, 1.001);
        assert!([1.02, 1.1].iter().all(|limit| seems_too_much(&shorter, *limit)));
        assert!([1.02, 1.1].iter().all(|limit| surely_is_too_much(&shorter, *limit)));
        assert!(seems_too_much(&unclear, 1.02) && !surely_is_too_much(&unclear, 1.1));
        assert!(!seems_too_much(&none, 1.02) && !surely_is_too_much(&none, 1.1));
        assert!(surely_is_too_much(&cost(1.15, 1.12, 1.18), 1.1));
    }

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
