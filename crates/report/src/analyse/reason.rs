//! Why a verdict is what it is, in words.

use record::Measure;
use verdict::{Judgement, Test, Verdict};

use crate::figures;

/// What a verdict rests on.
pub(super) fn reason(judged: &Judgement, measure: Measure) -> String {
    match judged {
        Judgement::Reference => "the others are divided by it".to_owned(),
        Judgement::Broke => "it broke, and raced in only some of the rounds".to_owned(),
        Judgement::OneUnit => "a single round gives no interval".to_owned(),
        Judgement::Unknown => "too few samples, or no control for the noise".to_owned(),
        Judgement::Tested(tests) => match judged.decisive() {
            Some(decisive) => decided(decisive, tests, measure),
            None => undecided(tests, measure),
        },
    }
}

/// "p99 × 1.23 (1.10 to 1.37 at 98.8 %)".
fn interval_text(test: &Test, measure: Measure) -> String {
    let level = figures::trimmed(100.0 * (1.0 - test.alpha), 1);
    let (label, of) = (test.of.label(measure), test.interval);
    format!("{label} × {:.3} ({:.3} to {:.3} at {level} %)", of.value, of.low, of.high)
}

fn decided(decisive: &Test, tests: &[Test], measure: Measure) -> String {
    let mut reason = format!("{} decides: {}", decisive.of.label(measure), interval_text(decisive, measure));
    if decisive.floor > 0.0 {
        reason.push_str(&format!(", beyond the noise of ±{}", figures::percent(decisive.floor.exp_m1())));
    }
    for other in tests.iter().filter(|other| other.of != decisive.of) {
        let label = other.of.label(measure);
        reason.push_str(&match other.verdict {
            Verdict::Indistinguishable => format!("; {label} is indistinguishable"),
            verdict if verdict == decisive.verdict => format!("; {label} agrees"),
            Verdict::Better => format!("; {label}, however, is better"),
            Verdict::Worse | Verdict::Reference => format!("; {label}, however, is worse"),
        });
    }
    reason
}

fn undecided(tests: &[Test], measure: Measure) -> String {
    let phrase = |test: &Test| match test.excludes_one() {
        true => format!(
            "{} differs by less than the noise of ±{}",
            interval_text(test, measure),
            figures::percent(test.floor.exp_m1())
        ),
        false => format!("{} may be 1", interval_text(test, measure)),
    };
    tests.iter().map(phrase).collect::<Vec<_>>().join("; ")
}
