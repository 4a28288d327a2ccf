//! Counts of instructions on a terminal: of one kernel, and of several side by side.

use super::grid::{self, Ink, Row};
use super::{Style, finished, list, sentence};
use record::Measure;

use crate::summary::{Exact, Instructions, Summary};
use crate::{carried, figures};
use verdict::Verdict;

/// The table of one body size.
pub(super) fn block(counts: &Exact, measure: Measure, style: Style) -> String {
    let header = ["candidate", "instructions", "more", "to host", "spread"].map(str::to_owned).to_vec();
    let rows = counts.candidates.iter().map(|candidate| Row {
        cells: vec![
            candidate.name.clone(),
            format!("{:.0}", candidate.per_request),
            more(candidate),
            change(candidate),
            figures::percent(candidate.spread),
        ],
        ink: ink(candidate.verdict),
    });
    let rows: Vec<Row> = std::iter::once(Row { cells: header, ink: Ink::Bold }).chain(rows).collect();
    let title = format!("{} B, instructions of {}", counts.body_bytes, carried::counted_of(measure));
    format!("{}\n{}", grid::ink(&title, Ink::Bold, style.colour), grid::draw(&rows, &[0, 1, 0, 0, 2], style))
}

/// An experiment counted on several kernels, one column for each. `None` without counts.
pub fn kernels(summaries: &[Summary], style: Style) -> Option<String> {
    let first = summaries.iter().find(|summary| !summary.exact.is_empty())?;
    let mut text = String::new();
    for load in 0..first.exact.len() {
        text.push_str(&side_by_side(summaries, load, style));
    }
    let lines: Vec<String> = summaries
        .iter()
        .map(|summary| format!("Linux {}: {}", summary.machine.kernel, sentence(&summary.verdict)))
        .collect();
    text.push_str(&list("By kernel", &lines));
    Some(finished(&text, style))
}

fn side_by_side(summaries: &[Summary], load: usize, style: Style) -> String {
    let counts: Vec<&Exact> = summaries.iter().filter_map(|summary| summary.exact.get(load)).collect();
    let mut names: Vec<&str> = Vec::new();
    for candidate in counts.iter().flat_map(|counts| &counts.candidates) {
        if !names.contains(&candidate.name.as_str()) {
            names.push(&candidate.name);
        }
    }
    let kernels = summaries.iter().flat_map(|summary| [summary.machine.kernel.clone(), "to host".to_owned()]);
    let header =
        Row { cells: std::iter::once("candidate".to_owned()).chain(kernels).collect(), ink: Ink::Bold };
    let row = |name: &&str| {
        let of = |counts: &&Exact| {
            let found = counts.candidates.iter().find(|candidate| candidate.name == *name);
            found.map_or(["–".to_owned(), String::new()], |candidate| {
                [format!("{:.0}", candidate.per_request), change(candidate)]
            })
        };
        let cells = std::iter::once((*name).to_owned()).chain(counts.iter().flat_map(of)).collect();
        Row { cells, ink: Ink::Plain }
    };
    let rows: Vec<Row> = std::iter::once(header).chain(names.iter().map(row)).collect();
    let columns = vec![0; rows[0].cells.len()];
    let body = counts.first().map_or(0, |counts| counts.body_bytes);
    let of = carried::counted_of(carried::measure(&summaries[0]));
    let title = format!("{body} B, instructions of {of}, by kernel");
    format!("\n{}\n{}", grid::ink(&title, Ink::Bold, style.colour), grid::draw(&rows, &columns, style))
}

fn more(candidate: &Instructions) -> String {
    match (candidate.verdict, candidate.more) {
        (Verdict::Reference, _) | (_, None) => "–".to_owned(),
        (_, Some(more)) => format!("{more:+.0}").replace('-', "−"),
    }
}

fn change(candidate: &Instructions) -> String {
    match (candidate.verdict, candidate.over) {
        (Verdict::Reference, _) => "reference".to_owned(),
        (_, None) => "–".to_owned(),
        (_, Some(over)) => format!("{:+.1} %", over * 100.0).replace('-', "−"),
    }
}

fn ink(verdict: Verdict) -> Ink {
    match verdict {
        Verdict::Reference => Ink::Dim,
        Verdict::Better => Ink::Green,
        Verdict::Worse => Ink::Red,
        Verdict::Indistinguishable => Ink::Plain,
    }
}
