//! Why a verdict is what it is, in words.

use record::Measure;
use verdict::{Compared, Judgement, Test, Verdict};

use crate::figures;

/// What a verdict rests on.
pub(super) fn reason(judged: &Judgement, measure: Measure, reference: &str) -> String {
    match judged {
        Judgement::Reference => "the others are divided by it".to_owned(),
        Judgement::Broke => "it broke, and raced in only some of the rounds".to_owned(),
        Judgement::Crowded => {
            "threads of its switches poll, and share CPUs with client and server".to_owned()
        }
        Judgement::OneUnit => "a single round gives no interval".to_owned(),
        Judgement::Unknown => "too few samples, or no control for the noise".to_owned(),
        Judgement::Tested(tests) => match judged.decisive() {
            Some(decisive) => decided(decisive, tests, measure, reference),
            None => undecided(tests, measure, reference),
        },
    }
}

/// "p99 × 1.23 (1.10 to 1.37 at 98.8 %)", or, of requests without an answer, "p99 lies among the requests without an
/// answer, 2 % here and 0 % of host: answered × 0.980 (0.978 to 0.982 at 98.8 %)".
fn test_text(test: &Test, measure: Measure, reference: &str) -> String {
    let Compared::Answered { shares, open } = test.compared else { return interval_text(test, measure) };
    let [own, others] = shares.map(|share| figures::percent(1.0 - share));
    let lies = if open.is_some() { "may lie" } else { "lies" };
    let label = test.of.label(measure);
    format!(
        "{label} {lies} among the requests without an answer, {own} here and {others} of {reference}: {}",
        interval_text(test, measure)
    )
}

/// "p99 × 1.23 (1.10 to 1.37 at 98.8 %)"; "p99 × 1.23 (unresolved at 98.8 %)" where nothing is excluded.
fn interval_text(test: &Test, measure: Measure) -> String {
    let level = figures::level(1.0 - test.alpha, 1);
    let label = match test.compared {
        Compared::Figures => test.of.label(measure),
        Compared::Answered { .. } => "answered",
    };
    let of = test.interval;
    if !test.excludes_one() && figures::is_unresolved(of.low, of.high) {
        return format!("{label} × {:.3} (unresolved at {level})", of.value);
    }
    format!("{label} × {:.3} ({:.3} to {:.3} at {level})", of.value, of.low, of.high)
}

fn decided(decisive: &Test, tests: &[Test], measure: Measure, reference: &str) -> String {
    let label = decisive.of.label(measure);
    let mut reason = format!("{label} decides: {}", test_text(decisive, measure, reference));
    if decisive.floor > 0.0 {
        reason.push_str(&format!(", beyond the noise of {}", figures::noise(decisive.floor.exp_m1())));
    }
    for other in tests.iter().filter(|other| other.of != decisive.of) {
        let label = other.of.label(measure);
        reason.push_str(&match other.verdict {
            _ if other.open().is_some() => format!("; {label} is not known"),
            Verdict::Indistinguishable => format!("; {label} is indistinguishable"),
            verdict if verdict == decisive.verdict => format!("; {label} agrees"),
            Verdict::Better => format!("; {label}, however, is better"),
            Verdict::Worse | Verdict::Reference => format!("; {label}, however, is worse"),
        });
    }
    reason
}

fn undecided(tests: &[Test], measure: Measure, reference: &str) -> String {
    let phrase = |test: &Test| {
        let text = test_text(test, measure, reference);
        match (test.verdict, test.open()) {
            (_, Some(_)) => format!("{text}, which is too little known for a verdict"),
            (Verdict::Better, _) => format!("{text} would be better"),
            (Verdict::Worse, _) => format!("{text} would be worse"),
            (Verdict::Indistinguishable | Verdict::Reference, _) if test.excludes_one() => {
                let noise = figures::noise(test.floor.exp_m1());
                format!("{text} differs by less than the noise of {noise}")
            }
            (Verdict::Indistinguishable | Verdict::Reference, _) => format!("{text} may be 1"),
        }
    };
    tests.iter().map(phrase).collect::<Vec<_>>().join("; ")
}
