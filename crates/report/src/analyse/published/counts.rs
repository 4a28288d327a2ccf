//! What a race found about the published figures, counted and in a sentence.

use record::RaceRecord;

use crate::figures;
use crate::published::{Agreement, Agreements, Obstacle, PublishedFigure};

/// How many of the comparisons came out how.
pub(super) fn agreements(figures: &[PublishedFigure]) -> Agreements {
    let count = |of| figures.iter().filter(|figure| figure.agreement == of).count() as u64;
    Agreements {
        agree: count(Agreement::Agrees),
        same_direction: count(Agreement::SameDirection),
        contradict: count(Agreement::Contradicts),
        cannot_tell: count(Agreement::CannotTell),
        not_comparable: count(Agreement::NotComparable),
        obstacles: obstacles(figures),
    }
}

/// Why figures could not be compared, each kind of reason once: what stands in brackets is one figure's alone.
fn obstacles(figures: &[PublishedFigure]) -> Vec<Obstacle> {
    let mut obstacles: Vec<Obstacle> = vec![];
    for figure in figures.iter().filter(|figure| figure.agreement == Agreement::NotComparable) {
        let kind = figure.reason.split(" (").next().unwrap_or_default();
        match obstacles.iter_mut().find(|obstacle| obstacle.reason == kind) {
            Some(obstacle) => obstacle.figures += 1,
            None => obstacles.push(Obstacle { reason: kind.to_owned(), figures: 1 }),
        }
    }
    obstacles.sort_by_key(|obstacle| std::cmp::Reverse(obstacle.figures));
    obstacles
}

/// The counts and the largest disagreements. `None` without comparable published figures.
pub(super) fn sentence(race: &RaceRecord, figures: &[PublishedFigure]) -> Option<String> {
    let comparisons: Vec<&PublishedFigure> = figures.iter().filter(|figure| figure.is_comparison()).collect();
    if comparisons.is_empty() {
        return None;
    }
    let counts = agreements(figures);
    let verb = |count: u64, one: &'static str, more: &'static str| {
        format!("{count} {}", if count == 1 { one } else { more })
    };
    let mut text = format!(
        "This run: of {}, {}, {}, {}, {}",
        figures::counted(comparisons.len() as u64, "published comparison"),
        verb(counts.agree, "agrees", "agree"),
        verb(
            counts.same_direction,
            "has the same direction but another size",
            "have the same direction but another size"
        ),
        verb(counts.contradict, "contradicts", "contradict"),
        verb(counts.cannot_tell, "cannot be decided by this run", "cannot be decided by this run"),
    );
    if counts.not_comparable > 0 {
        text.push_str(&format!(
            ", {}",
            verb(counts.not_comparable, "is not comparable", "are not comparable")
        ));
    }
    text.push('.');
    let largest = largest(race, &comparisons);
    if !largest.is_empty() {
        text.push_str(&format!(" Farthest apart: {}.", largest.join("; ")));
    }
    Some(text)
}

/// The disagreements that are farthest apart.
const LARGEST: usize = 3;

fn largest(race: &RaceRecord, comparisons: &[&PublishedFigure]) -> Vec<String> {
    let apart = |figure: &&PublishedFigure| {
        let disagrees = matches!(figure.agreement, Agreement::SameDirection | Agreement::Contradicts);
        let (theirs, ours) = (figure.published_ratio?, figure.ratio?);
        disagrees.then(|| (theirs.value / ours.value).ln().abs())
    };
    let mut far: Vec<(f64, &PublishedFigure)> =
        comparisons.iter().filter_map(|figure| Some((apart(figure)?, *figure))).collect();
    far.sort_by(|a, b| b.0.total_cmp(&a.0));
    far.truncate(LARGEST);
    far.iter()
        .map(|(_, figure)| {
            let load = figure.load.map_or_else(String::new, |load| {
                format!(" with {}", figures::load(&super::super::load(race, &race.loads[load])))
            });
            let (metric, reason) = (figure.metric.unwrap_or_default(), &figure.reason);
            format!("{} {metric}{load}, {reason}", figure.path)
        })
        .collect()
}
