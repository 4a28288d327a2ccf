//! The time of each CPU on a terminal.

use super::Style;
use super::grid::{self, Ink, Row};
use crate::by_cpu::{self, CpuRow};
use crate::summary::{Role, Summary};

/// The table of a load; empty if it was not requested.
pub(super) fn block(summary: &Summary, load: usize, style: Style) -> String {
    let shares = summary.by_cpu(load);
    if shares.is_empty() {
        return String::new();
    }
    let head = ["candidate", "CPU"].into_iter().chain(by_cpu::HEAD).map(str::to_owned).collect();
    let mut rows = vec![Row { cells: head, ink: Ink::Bold }];
    for (_, candidate, shares) in shares {
        let ink = if candidate.role == Role::Contender { Ink::Plain } else { Ink::Dim };
        let row = |(at, one): (usize, &CpuRow)| {
            // The name once, so that a candidate's CPUs are seen to belong together.
            let name = if at == 0 { candidate.name.clone() } else { String::new() };
            Row { cells: [name, one.name()].into_iter().chain(one.percentages()).collect(), ink }
        };
        rows.extend(by_cpu::rows(shares).iter().enumerate().map(row));
    }
    format!("  Time of each CPU\n{}", grid::draw(&rows, &[0, 0, 0, 0, 0, 2, 1, 3], style))
}
