//! The race in a sentence or two: who is nearest to the reference, who is farthest, and what cannot be told apart.

use record::{Entrant, Race};

use super::compare::{Comparisons, Statistic};
use crate::figures;
use crate::summary::{Ratio, Verdict};

/// More names than these are counted.
const NAMES_MAX: usize = 3;

/// The sentence. It speaks of the last load of the first body size that has a rate: where a service should not be
/// loaded more, the paths differ most.
pub(super) fn verdict(race: &Race, comparisons: &Comparisons) -> String {
    let reference = name(race, 0);
    let Some(load) = main_load(race) else {
        return "nothing was raced yet".to_owned();
    };
    let closed = race.loads[load].rate_per_s.is_none();
    let of = if closed { Statistic::Throughput } else { Statistic::P50 };
    let field = Field::of(race, comparisons, load, of);
    let at = figures::load(&super::load(&race.loads[load]));
    let Some(first) = field.ranked.first() else {
        return nobody(race, comparisons, load, reference);
    };
    let ahead = first.verdict == Some(Verdict::Better);
    let detail = detail(comparisons, first, load, of);
    let mut sentence = if field.tied.is_empty() {
        let told = if ahead { "is ahead of" } else { "is the nearest to" };
        format!("{} {told} {reference} ({at}): {detail}", name(race, first.entrant))
    } else {
        // Of those that only cannot be told from the first, nobody knows whether they are ahead of the reference.
        let told = if ahead { "come first, before" } else { "are the nearest to" };
        let all = std::iter::once(first).chain(&field.tied);
        let names: Vec<&str> = all.map(|contender| name(race, contender.entrant)).collect();
        let names_listed = listed(&names);
        format!(
            "{names_listed} {told} {reference} ({at}) and cannot be told from each other; {}: {detail}",
            names[0]
        )
    };
    if let Some(last) = field.last_beyond() {
        sentence.push_str(&format!("; {} costs {}", name(race, last.entrant), cost(last, of)));
    }
    sentence
}

/// A contender with its ratio at the load that the sentence speaks of.
#[derive(Debug, Clone, Copy)]
struct Contender {
    entrant: usize,
    ratio: Ratio,
    verdict: Option<Verdict>,
}

/// The contenders, the best first, and those that cannot be told from it.
struct Field {
    ranked: Vec<Contender>,
    tied: Vec<Contender>,
}

impl Field {
    fn of(race: &Race, comparisons: &Comparisons, load: usize, of: Statistic) -> Field {
        let contender = |entrant: usize| {
            let ratio = comparisons.ratio(entrant, load, of)?;
            Some(Contender { entrant, ratio, verdict: comparisons.judged(entrant, load).by(of) })
        };
        let mut ranked: Vec<Contender> = (2..race.header.entrants.len()).filter_map(contender).collect();
        ranked.sort_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value));
        if of == Statistic::Throughput {
            ranked.reverse();
        }
        let Some((first, rest)) = ranked.split_first() else {
            return Field { ranked, tied: vec![] };
        };
        let alpha = 0.05 / rest.len().max(1) as f64;
        let is_tied = |other: &&Contender| {
            let spread = comparisons.spread_between(other.entrant, first.entrant, load, of);
            spread.is_some_and(|spread| spread.interval(alpha).holds(1.0))
        };
        let tied = rest.iter().filter(is_tied).copied().collect();
        Field { ranked, tied }
    }

    /// The last of them, if it is worse than the reference and not among the first.
    fn last_beyond(&self) -> Option<&Contender> {
        let last = self.ranked.last()?;
        let apart = self.ranked.len() > 1 && !self.tied.iter().any(|tied| tied.entrant == last.entrant);
        (apart && last.verdict == Some(Verdict::Worse)).then_some(last)
    }
}

fn main_load(race: &Race) -> Option<usize> {
    let body = race.loads.first()?.body_bytes;
    let of_body = || race.loads.iter().enumerate().filter(|(_, load)| load.body_bytes == body);
    let rated = of_body().rfind(|(_, load)| load.rate_per_s.is_some());
    rated.or_else(|| of_body().next_back()).map(|(index, _)| index)
}

/// "p50 +3 % (+1 … +5), p99 indistinguishable".
fn detail(comparisons: &Comparisons, contender: &Contender, load: usize, of: Statistic) -> String {
    let told = |of: Statistic, ratio: &Ratio| match comparisons.judged(contender.entrant, load).by(of) {
        Some(Verdict::Better | Verdict::Worse) => format!("{} {}", of.label(), figures::change_within(ratio)),
        Some(Verdict::Indistinguishable | Verdict::Reference) => {
            format!("{} indistinguishable, {}", of.label(), figures::change_within(ratio))
        }
        None => format!("{} {}, its noise unknown", of.label(), figures::change_within(ratio)),
    };
    let mut parts = vec![told(of, &contender.ratio)];
    if of == Statistic::P50 {
        let p99 = comparisons.ratio(contender.entrant, load, Statistic::P99);
        parts.extend(p99.map(|ratio| told(Statistic::P99, &ratio)));
    }
    parts.join(", ")
}

/// "+45 % at p50".
fn cost(contender: &Contender, of: Statistic) -> String {
    format!(
        "{} {}",
        figures::change(contender.ratio.value),
        match of {
            Statistic::Throughput => "of the requests per second".to_owned(),
            Statistic::P50
            | Statistic::P90
            | Statistic::P99
            | Statistic::P99_9
            | Statistic::P99_99
            | Statistic::P99_999 => format!("at {}", of.label()),
        }
    )
}

/// Without a contender that could be compared.
fn nobody(race: &Race, comparisons: &Comparisons, load: usize, reference: &str) -> String {
    let able = |entrant: &&Entrant| entrant.unmet.is_empty();
    let contenders = race.header.entrants.iter().skip(2).filter(able).count();
    if contenders == 0 {
        return format!("nobody but {reference} could run here");
    }
    let reason = &comparisons.judged(2, load).reason;
    let reason = if reason.is_empty() { "no trial counts" } else { reason };
    format!("nothing can be said yet: {reason}")
}

fn name(race: &Race, entrant: usize) -> &str {
    race.header.entrants.get(entrant).map_or("nobody", |entrant| entrant.name.as_str())
}

/// "a", "a and b", "a, b and c", "a, b, c and 2 more".
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
        assert_eq!(listed(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
    }
}
