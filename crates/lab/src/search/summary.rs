//! The results of a search as fields and sentences of its record.

use record::{SearchAnswer, SearchArm, SearchRatio, SearchStage, SearchVerdict, Tuning};
use stats::search::{Arm, Effect, Nothing, SearchConclusion, SearchResult, Stage, StageName, Unfit};

use super::Sought;
use super::factors::Factors;
use super::objective::VisitMetric;

/// A stage for the record.
pub(super) fn stage(stage: &Stage, objective: VisitMetric, factors: &Factors) -> SearchStage {
    let name = match stage.name {
        StageName::Calibration => "calibration",
        StageName::Screening => "screening",
        StageName::Race => "race",
        StageName::Confirmation => "confirmation",
        StageName::Ablation => "ablation",
        StageName::Recheck => "recheck",
    };
    let arms = stage.arms.iter().map(|scored| SearchArm {
        arm: factors.places(&scored.arm),
        ratio: scored.effect.map(|effect| ratio(effect, objective.is_better_high())),
        broken: scored.broken.clone(),
        kept: scored.kept,
    });
    SearchStage { name: name.to_owned(), blocks: stage.blocks, arms: arms.collect() }
}

/// The answer for the record. `visit_s` is what a visit took here.
pub(super) fn answer(
    found: &SearchResult,
    sought: &Sought,
    factors: &Factors,
    record: &record::SearchRecord,
    visit_s: f64,
) -> SearchAnswer {
    let objective = sought.objective.figure;
    let high = objective.is_better_high();
    let resolvable = found.resolvable_ln.map(|ln| share(ln, high));
    let empty = SearchAnswer {
        verdict: SearchVerdict::NotSearched,
        arm: Vec::new(),
        ratio: None,
        guards: Vec::new(),
        dropped: Vec::new(),
        why: String::new(),
        resolvable,
        tune: Tuning::default(),
    };
    let name = record.objective.as_str();
    let guards = sought.objective.guards(record.experiment.workload.kind);
    let settings = |arm: &Arm| factors.label(arm);
    match &found.answer {
        SearchConclusion::Unfit(unfit) => {
            SearchAnswer { why: unfit_text(unfit, name, sought, high, (visit_s, record)), ..empty }
        }
        SearchConclusion::Nothing(nothing) => {
            let (arm, effect) = match nothing {
                Nothing::NoneBetter => (Arm::default(), None),
                Nothing::Broke { arm, .. } | Nothing::TooFewBlocks { arm } => (arm.clone(), None),
                Nothing::NotConfirmed { arm, effect } | Nothing::Harms { arm, effect, .. } => {
                    (arm.clone(), Some(*effect))
                }
            };
            // Then it is unknown whether it helps.
            let is_judged = !matches!(nothing, Nothing::TooFewBlocks { .. });
            let verdict = if is_judged { SearchVerdict::NothingHelps } else { SearchVerdict::NotSearched };
            SearchAnswer {
                verdict,
                arm: factors.places(&arm),
                ratio: effect.map(|effect| ratio(effect, high)),
                why: nothing_text(nothing, (name, high), &guards, (factors.space.options() > 1, settings)),
                ..empty
            }
        }
        SearchConclusion::Better { arm, effect, harms, dropped, ablated } => {
            let worse = |(guard, harm): (&VisitMetric, &Option<Effect>)| {
                // Harm is a gain with the opposite sign.
                harm.map(|harm| ratio(Effect { ln: -harm.ln, ..harm }, guard.is_better_high()))
            };
            let gain = ratio(*effect, high);
            SearchAnswer {
                verdict: SearchVerdict::Better,
                arm: factors.places(arm),
                ratio: Some(gain),
                guards: guards.iter().zip(harms).map(worse).collect(),
                dropped: factors.places(&Arm::of(dropped.iter().copied())),
                why: format!(
                    "with {} {name} is {}, over {} blocks that it was not chosen by{}",
                    settings(arm),
                    change_text(&gain),
                    gain.blocks,
                    if *ablated { "" } else { "; there was no time to find out whether all of it is needed" }
                ),
                tune: factors.tune(arm),
                ..empty
            }
        }
    }
}

/// A gain as a ratio of the figure to the incumbent's.
fn ratio(effect: Effect, high: bool) -> SearchRatio {
    let gain = effect.ratio();
    let blocks = effect.blocks;
    if high {
        SearchRatio { value: gain.value, low: gain.low, high: gain.high, blocks }
    } else {
        SearchRatio { value: 1.0 / gain.value, low: 1.0 / gain.high, high: 1.0 / gain.low, blocks }
    }
}

/// A gain as a share of the incumbent's value.
fn share(gain_ln: f64, high: bool) -> f64 {
    if high { gain_ln.exp_m1() } else { -(-gain_ln).exp_m1() }
}

/// "12.3 % lower (95 %: 14.4 % lower to 10.1 % lower)".
fn change_text(ratio: &SearchRatio) -> String {
    format!(
        "{} (95 %: {} to {})",
        percent_text(ratio.value),
        percent_text(ratio.low),
        percent_text(ratio.high)
    )
}

/// Percentages up to three times as much, which is as far as they are read without counting.
fn percent_text(ratio: f64) -> String {
    match ratio {
        _ if ratio >= 3.0 => format!("{ratio:.1} times as high"),
        _ if ratio < 1.0 => format!("{:.1} % lower", 100.0 * (1.0 - ratio)),
        _ => format!("{:.1} % higher", 100.0 * (ratio - 1.0)),
    }
}

fn nothing_text(
    nothing: &Nothing,
    (name, high): (&str, bool),
    guards: &[VisitMetric],
    (raced, settings): (bool, impl Fn(&Arm) -> String),
) -> String {
    match nothing {
        Nothing::NoneBetter => {
            format!(
                "no setting and no combination had a better {name} than the incumbent, even where the best was chosen"
            )
        }
        // A single setting had no rival.
        Nothing::Broke { arm, why } if !raced => format!("{} did not work: {why}", settings(arm)),
        Nothing::TooFewBlocks { arm } if !raced => {
            format!(
                "too few blocks with {} counted: the machine was too busy with other things",
                settings(arm)
            )
        }
        Nothing::NotConfirmed { arm, effect } if !raced => format!(
            "with {} {name} was {}, which is no proven gain",
            settings(arm),
            change_text(&ratio(*effect, high))
        ),
        Nothing::Broke { arm, why } => {
            format!("{} was best in the race, and did not work on later blocks: {why}", settings(arm))
        }
        Nothing::TooFewBlocks { arm } => format!(
            "{} was best in the race, and too few of the blocks that it was not chosen by counted: the machine was too busy \
             with other things",
            settings(arm)
        ),
        Nothing::NotConfirmed { arm, effect } => format!(
            "{} was best in the race, but on blocks that it was not chosen by {name} was {}, which is no proven gain",
            settings(arm),
            change_text(&ratio(*effect, high))
        ),
        Nothing::Harms { arm, effect, guard, harm } => {
            let guard = guards[*guard];
            format!(
                "with {} {name} is {}, but {guard} is {}",
                settings(arm),
                change_text(&ratio(*effect, high)),
                change_text(&ratio(Effect { ln: -harm.ln, ..*harm }, guard.is_better_high()))
            )
        }
    }
}

/// Why there was no search, and what it would need.
fn unfit_text(
    unfit: &Unfit,
    name: &str,
    sought: &Sought,
    high: bool,
    (visit_s, record): (f64, &record::SearchRecord),
) -> String {
    // The visits of the calibration do not count.
    let before = record.wall_s;
    match unfit {
        Unfit::Void => "too few visits counted: the machine was too busy with other things".to_owned(),
        Unfit::Noisy { visit_ln, limit_ln } => format!(
            "{name} of the incumbent scatters by {:.0} % from visit to visit, and above {:.0} % no gain of {} is searched for: \
             race on a quieter machine, with longer slices, for a lower percentile or for a larger gain",
            100.0 * visit_ln.exp_m1(),
            100.0 * limit_ln.exp_m1(),
            gain_text(sought.resolve)
        ),
        Unfit::Unsteady { difference } => format!(
            "the incumbent differs from itself: {name} of the second was {}; something that is not the settings makes a \
             difference here",
            change_text(&ratio(*difference, high))
        ),
        Unfit::Short { visits, needed } => format!(
            "the budget of {} has {visits:.0} visits left after the calibration, and a search takes {needed:.0} at least: \
             give it {}",
            span(sought.budget.as_secs_f64()),
            span(before + needed * visit_s * 1.05)
        ),
        Unfit::Coarse { resolvable_ln, needed } => format!(
            "a budget of {} resolves gains of {:.1} % here, and {:.1} % were to be resolved: give it {}, or ask for less",
            span(sought.budget.as_secs_f64()),
            100.0 * share(*resolvable_ln, high),
            100.0 * sought.resolve,
            span(before + needed * visit_s * 1.05)
        ),
    }
}

/// A gain in the form in which `--resolve` has it.
pub(super) fn gain_text(share: f64) -> String {
    format!("{} %", (1000.0 * share).round() / 10.0)
}

/// A time in a form that options accept, rounded up.
pub(super) fn span(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match (seconds / 60, seconds % 60) {
        (0 | 1, _) => format!("{seconds}s"),
        (minutes, 0) => format!("{minutes}m"),
        (minutes, seconds) => format!("{minutes}m{seconds:02}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_described_in_the_figures_own_direction() {
        let effect = Effect { ln: 0.1, ln_error: 0.01, blocks: 1_000 };
        let (low, high) = (ratio(effect, false), ratio(effect, true));
        assert!((low.value - (-0.1_f64).exp()).abs() < 1e-12 && low.low < low.value && low.value < low.high);
        assert_eq!(change_text(&low), "9.5 % lower (95 %: 11.3 % lower to 7.7 % lower)");
        assert_eq!(change_text(&high), "10.5 % higher (95 %: 8.4 % higher to 12.7 % higher)");
        assert_eq!(percent_text(18.24), "18.2 times as high");
        assert!((share(0.1, false) - 0.095_16).abs() < 1e-4 && (share(0.1, true) - 0.105_17).abs() < 1e-4);
    }

    #[test]
    fn times_are_rounded_up() {
        assert_eq!([0.2, 100.0, 119.1, 601.0].map(span), ["1s", "100s", "2m", "10m01s"]);
    }
}
