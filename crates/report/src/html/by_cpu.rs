//! The time of each CPU as a table; nothing where it was not asked for.

use super::markup::Markup;
use super::table::{Cell, Row, Table};
use super::text;
use crate::by_cpu::{self, CpuShares};
use crate::{Candidate, Summary};

/// Writes the table of a load.
pub(super) fn table(m: &mut Markup, summary: &Summary, load: usize) {
    let row = |index: usize, candidate: &Candidate, shares: &CpuShares| Row {
        name: format!("{}, {}", candidate.name, shares.name()),
        candidate: Some(index),
        cells: shares.told().map(Cell::figure).into_iter().collect(),
    };
    let told = by_cpu::at(summary, load);
    let rows: Vec<Row> = told
        .into_iter()
        .flat_map(|(index, candidate, shares)| shares.iter().map(move |one| row(index, candidate, one)))
        .collect();
    if rows.is_empty() {
        return;
    }
    let head = std::iter::once("data path, CPU").chain(by_cpu::HEAD).map(str::to_owned).collect();
    let caption = format!("Time of each CPU: {}", text::load(&summary.loads[load]));
    Table { caption: &caption, head, rows }.write(m);
}
