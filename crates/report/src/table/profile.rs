//! Where the CPU time goes, on a terminal: for each candidate the parts that differ from the reference, the greatest
//! first. The page has all parts.

use super::Style;
use super::grid::{self, Ink};
use crate::profile::{Difference, PathPart, Profiled, ProfiledLoad};
use crate::quantities::Load;
use crate::{carried, figures};

/// A sampled load as lines of text.
pub(super) fn block(profiled: &ProfiledLoad, style: Style) -> String {
    let load = Load {
        body_bytes: profiled.body_bytes,
        requested_rps: profiled.requested_rps,
        of_capacity: profiled.of_capacity,
        measure: profiled.measure,
    };
    let heading = format!(
        "Where the CPU time goes, µs per {}, {}",
        carried::cpu_unit(profiled.measure),
        figures::load(&load)
    );
    let mut text = format!("\n{}\n", grid::ink(&heading, Ink::Bold, style.colour));
    let widest = profiled.candidates.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
    for candidate in &profiled.candidates {
        let name = format!("  {:<widest$}  ", candidate.name);
        text.push_str(&wrapped(&name, &cost_words(candidate), style.width));
    }
    text.push_str(&missing(profiled));
    text
}

/// The total, and then parts with their differences.
fn cost_words(candidate: &Profiled) -> Vec<String> {
    let Some(total) = &candidate.total.difference else {
        let greatest = parts_by(candidate, |part| part.cost.us_per_request).into_iter().take(5);
        let parts = greatest.map(|part| format!("{} {:.1}", part.part.name(), part.cost.us_per_request));
        let own = format!("{:.1} ±{:.1}:", candidate.total.us_per_request, candidate.total.half_width_us);
        return std::iter::once(own).chain(separated(parts.collect())).collect();
    };
    let differing: Vec<String> = parts_by(candidate, |part| part.cost.difference.map_or(0.0, |d| d.us.abs()))
        .into_iter()
        .filter_map(|part| Some((part, part.cost.difference.filter(|d| d.distinguishable)?)))
        .map(|(part, difference)| format!("{} {}", part.part.name(), signed(difference.us)))
        .collect();
    match differing.is_empty() {
        true => vec![format!("{}, no part differs", within(total))],
        false => std::iter::once(format!("{}:", within(total))).chain(separated(differing)).collect(),
    }
}

/// Parts but other programs, the greatest first.
fn parts_by(candidate: &Profiled, size: impl Fn(&crate::PartCost) -> f64) -> Vec<&crate::PartCost> {
    let mut parts: Vec<_> = candidate.parts.iter().filter(|part| part.part != PathPart::Foreign).collect();
    parts.sort_by(|a, b| size(b).total_cmp(&size(a)));
    parts
}

fn within(difference: &Difference) -> String {
    let text = format!("{} ±{:.1}", signed(difference.us), difference.half_width_us);
    if difference.distinguishable { text } else { format!("({text}: indistinguishable)") }
}

fn signed(us: f64) -> String {
    let digits = if us.abs() < 0.95 { 2 } else { 1 };
    format!("{}{:.digits$}", if us < 0.0 { '−' } else { '+' }, us.abs())
}

pub(super) fn separated(mut parts: Vec<String>) -> Vec<String> {
    let last = parts.len().saturating_sub(1);
    parts.iter_mut().take(last).for_each(|part| part.push(','));
    parts
}

/// Texts after a name, in as many lines as it takes, under each other.
pub(super) fn wrapped(name: &str, texts: &[String], width: usize) -> String {
    let (mut lines, mut line) = (String::new(), name.to_owned());
    let indent = name.chars().count();
    for text in texts {
        let used = line.chars().count();
        if used > indent && used + 1 + text.chars().count() > width {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = " ".repeat(indent);
        } else if used > indent {
            line.push(' ');
        }
        line.push_str(text);
    }
    lines + line.trim_end() + "\n"
}

/// Samples that are not there make all figures smaller than they are.
fn missing(profiled: &ProfiledLoad) -> String {
    let worst = profiled.candidates.iter().map(|c| (share_lost(c), &c.name));
    let worst = worst.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(share, _)| *share > LOST_SHARE);
    worst.map_or_else(String::new, |(share, name)| {
        format!(
            "  {} of the samples are missing, most of {name}: its figures are too small by as much.\n",
            figures::percent(share)
        )
    })
}

/// A smaller share of missing samples is not worth a word: the first of each slice is a period away.
const LOST_SHARE: f64 = 0.05;

fn share_lost(candidate: &Profiled) -> f64 {
    let due = candidate.samples + candidate.idle + candidate.lost;
    candidate.lost as f64 / due.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_no_wider_than_the_terminal() {
        let texts = ["+1.2 ±0.1:".to_owned(), "bridge +0.9,".to_owned(), "tunnel +0.2".to_owned()];
        assert_eq!(wrapped("  a  ", &texts, 80), "  a  +1.2 ±0.1: bridge +0.9, tunnel +0.2\n");
        assert_eq!(wrapped("  a  ", &texts, 28), "  a  +1.2 ±0.1: bridge +0.9,\n     tunnel +0.2\n");
        assert_eq!(wrapped("  a  ", &texts, 3).lines().count(), 3);
    }
}
