//! Counts of cards on a terminal: means a request, and which CPU had which share.

use super::Style;
use super::grid::{self, Ink, Row};
use crate::card_counts::{self, BY_CPU, CardSummary, MEANS};
use crate::summary::{Candidate, Role, Summary};

/// The tables of a load; empty where the wire has no cards.
pub(super) fn block(summary: &Summary, load: usize, style: Style) -> String {
    let counted = summary.cards(load);
    if counted.is_empty() {
        return String::new();
    }
    let subject = card_counts::subject(summary.experiment.workload.kind);
    format!(
        "  Interrupts of the cards and packets received, per {subject} (95 % interval)\n{}  Which CPU did which share of them\n{}",
        means(&counted, style),
        shares(&counted, style)
    )
}

type Of<'a> = (usize, &'a Candidate, &'a CardSummary);

fn ink(candidate: &Candidate) -> Ink {
    if candidate.role == Role::Contender { Ink::Plain } else { Ink::Dim }
}

fn means(counted: &[Of<'_>], style: Style) -> String {
    let head = std::iter::once("candidate").chain(MEANS.map(|(name, _)| name)).map(str::to_owned);
    let rows = counted.iter().map(|(_, candidate, counts)| Row {
        cells: std::iter::once(candidate.name.clone())
            .chain(MEANS.map(|(_, of)| of(counts).text()))
            .collect(),
        ink: ink(candidate),
    });
    let rows: Vec<Row> = std::iter::once(Row { cells: head.collect(), ink: Ink::Bold }).chain(rows).collect();
    grid::draw(&rows, &[0, 0, 3, 1, 2, 0], style)
}

fn shares(counted: &[Of<'_>], style: Style) -> String {
    let cpus = card_counts::cpus(counted.iter().map(|(_, _, counts)| *counts));
    let head = ["candidate", "share of"].into_iter().map(str::to_owned);
    let head = head.chain(cpus.iter().map(|cpu| format!("CPU {cpu}"))).collect();
    let mut rows = vec![Row { cells: head, ink: Ink::Bold }];
    for (_, candidate, counts) in counted {
        let known = BY_CPU.iter().filter_map(|of| Some((of.name, card_counts::shares(counts, of, &cpus)?)));
        rows.extend(known.enumerate().map(|(at, (what, shares))| {
            // The name once, so that a candidate's lines are seen to belong together.
            let name = if at == 0 { candidate.name.clone() } else { String::new() };
            Row { cells: [name, what.to_owned()].into_iter().chain(shares).collect(), ink: ink(candidate) }
        }));
    }
    // Without one of the CPUs a line would not say where the work is.
    grid::draw(&rows, &vec![0; cpus.len() + 2], style)
}
