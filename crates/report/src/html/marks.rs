//! The marks of candidates and verdicts in all drawings: a class for the style, a word, a sign. Colour is never the
//! only mark.

use super::svg::{Point, Svg, at};
use crate::{Candidate, RateSummary, Role, Summary, Verdict};

/// Colours of contenders in `style.css`; more contenders take them again with another dash.
const COLOURS: [&str; 7] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6"];
/// Dashes of lines in `style.css`.
const DASHES: [&str; 4] = ["", " d1", " d2", " d3"];

/// The class of a candidate's line and label.
pub(super) fn line_class(summary: &Summary, index: usize) -> String {
    match summary.candidates[index].role {
        Role::Reference => "ref".to_owned(),
        Role::Control => "ctl".to_owned(),
        Role::Contender => {
            let contenders = summary.candidates[..index].iter();
            contender_class(
                contenders.filter(|other| other.role == Role::Contender && other.runnable).count(),
            )
        }
    }
}

/// The class of a contender's line, by the number of contenders before it.
pub(super) fn contender_class(before: usize) -> String {
    let dash = DASHES[before / COLOURS.len() % DASHES.len()];
    format!("{}{dash}", COLOURS[before % COLOURS.len()])
}

pub(super) fn verdict_class(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        None => "v-none",
        Some(Verdict::Reference) => "v-ref",
        Some(Verdict::Better) => "v-better",
        Some(Verdict::Worse) => "v-worse",
        Some(Verdict::Indistinguishable) => "v-same",
    }
}

/// Draws the verdict's mark: a triangle that points where the latency went, a diamond for the reference, a dot.
pub(super) fn mark(svg: &mut Svg, verdict: Option<Verdict>, place: Point) {
    let Point { x, y } = place;
    let points = match verdict {
        None | Some(Verdict::Indistinguishable) => return svg.circle("mark", place, 4.5),
        Some(Verdict::Reference) => vec![at(x, y - 6.0), at(x + 6.0, y), at(x, y + 6.0), at(x - 6.0, y)],
        Some(Verdict::Better) => vec![at(x - 5.5, y - 4.5), at(x + 5.5, y - 4.5), at(x, y + 5.5)],
        Some(Verdict::Worse) => vec![at(x - 5.5, y + 4.5), at(x + 5.5, y + 4.5), at(x, y - 5.5)],
    };
    svg.path("mark", &points);
}

/// The candidates that raced, with their index in the summary.
pub(super) fn runners(summary: &Summary) -> impl Iterator<Item = (usize, &Candidate)> {
    summary.candidates.iter().enumerate().filter(|(_, candidate)| candidate.runnable)
}

/// The candidates that raced and have figures at a load.
pub(super) fn runners_at(
    summary: &Summary,
    load: usize,
) -> impl Iterator<Item = (usize, &Candidate, &RateSummary)> {
    runners(summary)
        .filter_map(move |(index, candidate)| Some((index, candidate, candidate.rates.get(load)?)))
}

/// Where a race was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Venue {
    /// Nodes of one machine.
    OneMachine,
    /// Two machines by ssh.
    TwoMachines,
    /// Pods of a Kubernetes cluster.
    Cluster,
}

/// Where a race was held, by what its record says of the server's side.
pub(super) fn venue(summary: &Summary) -> Venue {
    let facts = &summary.machine.facts;
    if facts.contains_key("server's machine") {
        Venue::TwoMachines
    } else if facts.contains_key("server's node") {
        Venue::Cluster
    } else {
        Venue::OneMachine
    }
}

/// The reference's name, for heads of columns.
pub(super) fn reference(summary: &Summary) -> &str {
    summary
        .candidates
        .iter()
        .find(|candidate| candidate.role == Role::Reference)
        .map_or("the reference", |candidate| candidate.name.as_str())
}

/// What a candidate stands for, without the marks that a terminal would show as they are.
pub(super) fn stands_for(candidate: &Candidate) -> String {
    candidate.stands_for.replace('`', "")
}

/// A name shortened to at most `most` letters, by leaving out its middle: names of settings differ at their ends.
pub(super) fn fitting(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    let tail = most / 2;
    let head = name.chars().take(most - tail - 1);
    head.chain(['…']).chain(name.chars().skip(name.chars().count() - tail)).collect()
}

/// The key that joins a figure in a drawing with the same figure in a table.
pub(super) fn key(what: &str, load: usize, candidate: usize) -> String {
    format!("{what}.{load}.{candidate}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(fitting("bridge+direct", 13), "bridge+direct");
        assert_eq!(fitting("docker with setting 17", 13), "docker…ing 17");
        assert_eq!(fitting("äöüäöüäöü", 4).chars().count(), 4);
    }
}
