//! The race in a sentence: which candidates are indistinguishable from the reference, which is nearest, which costs
//! most, and before that, for which ones the rate was too much or had no trial that counts.

use record::{RaceRecord, Statistic};
use verdict::{Cells, ComparedAt, Comparisons, Past, Ranked, Verdict, ranking};

use super::describe;
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
    let Some(ComparedAt { main, past, uncounted, load }) = ComparedAt::of(&[(race, cells)]) else {
        return "nothing has been raced yet".to_owned();
    };
    let mut why = Vec::new();
    if !past.is_empty() {
        let carries =
            |past: &Past| past::carries(&candidates[past.entrant], &candidates[past.entrant].rates[main]);
        let carried: Vec<String> = past.iter().map(carries).collect();
        why.push(format!(
            "{} is past the capacity of {}, whose latencies there are those of growing queues",
            named(race, main),
            listed(&carried.iter().map(String::as_str).collect::<Vec<_>>())
        ));
    }
    // The comparison at that load names them itself.
    if !uncounted.is_empty() && load != Some(main) {
        let names: Vec<&str> = uncounted.iter().map(|entrant| name(race, *entrant)).collect();
        why.push(format!("{}: no trial of {} counts, all are void", named(race, main), listed(&names)));
    }
    let compared = |load: usize| compared(race, cells, comparisons, candidates, load);
    let at = match load {
        Some(load) if why.is_empty() => return compared(load),
        None => "No rate of this race was carried by all, so nothing is compared".to_owned(),
        Some(lower) if race.loads[lower].rate_per_s.is_some() => {
            format!("At the highest rate that all carry, {}", compared(lower))
        }
        Some(closed) => {
            format!("No rate of this race was carried by all; by their capacity, {}", compared(closed))
        }
    };
    format!("{}. {at}", why.join(". "))
}

fn named(race: &RaceRecord, load: usize) -> String {
    figures::load(&super::load(race, &race.loads[load]))
}

/// How the contenders compare with the reference at a load.
fn compared(
    race: &RaceRecord,
    cells: &Cells<'_>,
    comparisons: &Comparisons,
    candidates: &[Candidate],
    load: usize,
) -> String {
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
        let detail = detail(comparisons, first, load, of, reference);
        parts.push(format!(
            "{} {verb} {reference}, {} by {detail}",
            names(&ahead),
            name(race, first.entrant)
        ));
    }
    if !level.is_empty() {
        let known = level.iter().map(|contender| resolution(comparisons, contender, load, of));
        let known = known.fold(0.0, f64::max);
        let (label, known) = (comparisons.label(of), figures::noise(known));
        parts.push(format!(
            "{} cannot be distinguished from {reference} ({label} known to {known})",
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
        let detail = detail(comparisons, contender, load, of, reference);
        format!("{} {what}, {detail}", name(race, contender.entrant))
    };
    parts.extend(nearest.map(|contender| phrase(contender, &format!("is nearest to {reference}"))));
    parts.extend(farthest.map(|contender| phrase(contender, "costs most")));
    if parts.is_empty() {
        return without_contender(candidates, load, reference);
    }
    parts.extend(ahead.iter().chain(&level).filter_map(|contender| {
        let silent = describe::silent_slices(cells.cell(contender.entrant, load))?;
        Some(format!("{} {silent}, which are not in this", name(race, contender.entrant)))
    }));
    parts.extend(uncompared(candidates, &field, load));
    format!("{}: {}", named(race, load), parts.join("; "))
}

/// How large a difference a contender may have and still not be told from the reference, as a share: half of the
/// interval that the test used, or the noise if that is more.
fn resolution(comparisons: &Comparisons, contender: &Ranked, load: usize, of: Statistic) -> f64 {
    let judged = comparisons.judged(contender.entrant, load);
    let tested = judged.tests().iter().find(|test| test.of == of);
    let half_width_ln =
        tested.map_or(contender.ratio.half_width_ln(), |test| test.interval.half_width_ln().max(test.floor));
    half_width_ln.exp_m1()
}

/// "p50 +3 % (+1 … +5), p99 +9 % (+4 … +14)"; what contradicts the verdict stands behind what decided it: "p99 ×135
/// (×28 … ×649), but p50 −61 % (−67 … −55)". What decides by requests without an answer says so: "requests without an
/// answer 2 % (host 0 %), but p50 −5 % (−7 … −3)".
fn detail(
    comparisons: &Comparisons,
    contender: &Ranked,
    load: usize,
    of: Statistic,
    reference: &str,
) -> String {
    let shown =
        |of: Statistic, ratio| format!("{} {}", comparisons.label(of), figures::change_within(&ratio));
    let headline = shown(of, contender.ratio.into());
    let tail = match (contender.unanswered, contender.tail) {
        (Some([own, others]), _) => figures::unanswered(own, others, reference),
        (None, Some((tail, ratio))) => shown(tail, ratio.into()),
        (None, None) => return headline,
    };
    match comparisons.judged(contender.entrant, load).by(of) {
        Some(verdict) if verdict == contender.verdict => format!("{headline}, {tail}"),
        Some(Verdict::Indistinguishable) | None => format!("{tail}, {headline}"),
        Some(Verdict::Better | Verdict::Worse | Verdict::Reference) => format!("{tail}, but {headline}"),
    }
}

/// "docker is not compared: no trial counts": an entrant that raced to the end and has no verdict at a load.
fn uncompared(candidates: &[Candidate], field: &[Ranked], load: usize) -> Vec<String> {
    let able = candidates.iter().enumerate().skip(2).filter(|(_, one)| one.runnable && one.broke.is_none());
    let missing: Vec<&Candidate> = able
        .filter(|(entrant, _)| field.iter().all(|ranked| ranked.entrant != *entrant))
        .map(|(_, candidate)| candidate)
        .collect();
    let not_compared = |(names, reason): (Vec<&str>, &str)| {
        let verb = if names.len() == 1 { "is" } else { "are" };
        format!("{} {verb} not compared: {reason}", listed(&names))
    };
    by_reason(&missing, load).into_iter().map(not_compared).collect()
}

/// Candidates that have no verdict at a load for the same reason, together.
fn by_reason<'c>(candidates: &[&'c Candidate], load: usize) -> Vec<(Vec<&'c str>, &'c str)> {
    let mut reasons: Vec<(Vec<&str>, &str)> = Vec::new();
    for candidate in candidates {
        let reason = candidate.rates.get(load).map_or("", |rate| rate.verdict_reason.as_str());
        match reasons.iter_mut().find(|(_, other)| *other == reason) {
            Some((names, _)) => names.push(&candidate.name),
            None => reasons.push((vec![&candidate.name], reason)),
        }
    }
    reasons
}

/// Without a contender that could be compared.
fn without_contender(candidates: &[Candidate], load: usize, reference: &str) -> String {
    let able: Vec<&Candidate> = candidates.iter().skip(2).filter(|candidate| candidate.runnable).collect();
    if able.is_empty() {
        return format!("only {reference} could run here");
    }
    let said = match by_reason(&able, load).as_slice() {
        [(_, all)] if able.iter().all(|candidate| candidate.broke.is_none()) => (*all).to_owned(),
        reasons => {
            let said: Vec<String> =
                reasons.iter().map(|(names, reason)| format!("{}: {reason}", listed(names))).collect();
            said.join("; ")
        }
    };
    format!("nothing can be said yet: {said}")
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
