//! The race in a sentence: which candidates are indistinguishable from the reference, which is nearest, which costs
//! most, and before that, for which ones the rate was too much.

use record::{Entrant, RaceRecord, Statistic};
use stats::Interval;
use verdict::{Cells, ComparedAt, Comparisons, Past, Ranked, Verdict, ranking};

use super::reason;
use crate::summary::Candidate;
use crate::{figures, past};

/// More names than these are counted.
const NAMES_MAX: usize = 4;

/// The sentence, which speaks of the load by which a race is summed up, or of a lower one where some cannot carry that.
pub(super) fn verdict(
    race: &RaceRecord,
    cells: &Cells<'_>,
    comparisons: &Comparisons,
    candidates: &[Candidate],
) -> String {
    let Some(ComparedAt { main, past, load }) = ComparedAt::of(&[(race, cells)]) else {
        return "nothing has been raced yet".to_owned();
    };
    if past.is_empty() {
        return compared(race, comparisons, main);
    }
    let carries =
        |past: &Past| past::carries(&candidates[past.entrant], &candidates[past.entrant].rates[main]);
    let carried: Vec<String> = past.iter().map(carries).collect();
    let carried: Vec<&str> = carried.iter().map(String::as_str).collect();
    let past = format!(
        "{} is past the capacity of {}, whose latencies there are those of growing queues",
        named(race, main),
        listed(&carried)
    );
    let Some(lower) = load else {
        return format!("{past}. No rate of this race was carried by all, so nothing is compared");
    };
    let at = match race.loads[lower].rate_per_s {
        Some(_) => "At the highest rate that all carry",
        None => "No rate of this race was carried by all; by their capacity",
    };
    format!("{past}. {at}, {}", compared(race, comparisons, lower))
}

fn named(race: &RaceRecord, load: usize) -> String {
    figures::load(&super::load(race, &race.loads[load]))
}

/// How the contenders compare with the reference at a load.
fn compared(race: &RaceRecord, comparisons: &Comparisons, load: usize) -> String {
    let reference = name(race, 0);
    let of = comparisons.headline(load);
    let field = ranking(comparisons, race.header.entrants.len(), load);
    let with =
        |verdict| field.iter().filter(move |contender| contender.verdict == verdict).collect::<Vec<_>>();
    let (ahead, level, behind) =
        (with(Verdict::Better), with(Verdict::Indistinguishable), with(Verdict::Worse));
    let names = |of: &[&Ranked]| {
        let names: Vec<&str> = of.iter().map(|contender| name(race, contender.entrant)).collect();
        listed(&names)
    };
    let mut parts = Vec::new();
    if let Some(first) = ahead.first() {
        let verb = if ahead.len() == 1 { "beats" } else { "beat" };
        let detail = detail(comparisons, first, load, of);
        parts.push(format!(
            "{} {verb} {reference}, {} by {detail}",
            names(&ahead),
            name(race, first.entrant)
        ));
    }
    if !level.is_empty() {
        let known = level.iter().map(|contender| half_width(&contender.ratio)).fold(0.0, f64::max);
        let (label, known) = (comparisons.label(of), figures::percent(known));
        parts.push(format!(
            "{} cannot be distinguished from {reference} ({label} known to ±{known})",
            names(&level)
        ));
    }
    let (nearest, farthest) = match behind.as_slice() {
        [nearest, .., farthest] if parts.is_empty() => (Some(nearest), Some(farthest)),
        [only] if parts.is_empty() => (Some(only), None),
        [.., farthest] => (None, Some(farthest)),
        [] => (None, None),
    };
    let phrase = |contender: &Ranked, what: &str| {
        format!("{} {what}, {}", name(race, contender.entrant), detail(comparisons, contender, load, of))
    };
    parts.extend(nearest.map(|contender| phrase(contender, &format!("is nearest to {reference}"))));
    parts.extend(farthest.map(|contender| phrase(contender, "costs most")));
    if parts.is_empty() {
        return without_contender(race, comparisons, load, reference);
    }
    format!("{}: {}", named(race, load), parts.join("; "))
}

/// Half of an interval as a share: 0.05 is ±5 %.
fn half_width(ratio: &Interval) -> f64 {
    ratio.half_width_ln().exp_m1()
}

/// "p50 +3 % (+1 … +5)", and of the tails that say the same the one with the narrower interval: where a few slices of a race
/// were slow, the p99 of all of them is anything from twice to a thousand times the reference's, and that of a typical slice
/// is known.
fn detail(comparisons: &Comparisons, contender: &Ranked, load: usize, of: Statistic) -> String {
    let mut parts =
        vec![format!("{} {}", comparisons.label(of), figures::change_within(&contender.ratio.into()))];
    let judged = comparisons.judged(contender.entrant, load);
    let tails = [Statistic::P99, Statistic::TypicalP99].into_iter();
    let known = tails
        .filter(|tail| of == Statistic::P50 && judged.by(*tail) == Some(contender.verdict))
        .filter_map(|tail| Some((tail, comparisons.interval(contender.entrant, load, tail)?)))
        .min_by(|a, b| a.1.half_width_ln().total_cmp(&b.1.half_width_ln()));
    if let Some((tail, interval)) = known {
        parts.push(format!("{} {}", comparisons.label(tail), figures::change_within(&interval.into())));
    }
    parts.join(", ")
}

/// Without a contender that could be compared.
fn without_contender(race: &RaceRecord, comparisons: &Comparisons, load: usize, reference: &str) -> String {
    let able = |entrant: &&Entrant| entrant.unmet.is_empty();
    let contenders = race.header.entrants.iter().skip(2).filter(able).count();
    if contenders == 0 {
        return format!("only {reference} could run here");
    }
    let reason = reason::reason(comparisons.judged(2, load), race.header.experiment.workload.kind.measure());
    format!("nothing can be said yet: {reason}")
}

fn name(race: &RaceRecord, entrant: usize) -> &str {
    race.header.entrants.get(entrant).map_or("(unknown)", |entrant| entrant.name.as_str())
}

/// "a", "a and b", "a, b and c", "a, b, c, d and 2 more".
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] if names.len() <= NAMES_MAX => format!("{} and {last}", first.join(", ")),
        [..] => format!("{} and {} more", names[..NAMES_MAX].join(", "), names.len() - NAMES_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed() {
        assert_eq!(listed(&["a"]), "a");
        assert_eq!(listed(&["a", "b"]), "a and b");
        assert_eq!(listed(&["a", "b", "c"]), "a, b and c");
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
    }
}
