//! The data volume of downloads and streams, as a table; empty for races that are judged by times.

use super::marks;
use super::markup::Markup;
use super::table::{Cell, Row, Table};
use super::text;
use crate::quantities::TransferRates;
use crate::{Summary, carried};

type Figure = (&'static str, fn(&TransferRates) -> Option<String>);

/// The columns; an empty one is left out.
const FIGURES: [Figure; 7] = [
    ("Mbit/s", |of| of.mbit_per_s.map(carried::mbit)),
    ("mean object time", carried::object_ms),
    ("packets sent/s", |of| of.sent_packets_per_s.map(text::per_second)),
    ("received/s", |of| of.received_packets_per_s.map(text::per_second)),
    ("lost", carried::loss),
    ("reordered", |of| of.reordered.map(text::grouped)),
    ("longest gap µs", |of| of.gap_max_ns.map(text::micros)),
];

/// Writes the table of a load.
pub(super) fn table(m: &mut Markup, summary: &Summary, load: usize) {
    let runners: Vec<_> = marks::runners_at(summary, load).collect();
    let told = |figure: &&Figure| {
        runners.iter().any(|(_, _, rate)| rate.carried.as_ref().and_then(figure.1).is_some())
    };
    let figures: Vec<&Figure> = FIGURES.iter().filter(told).collect();
    if figures.is_empty() {
        return;
    }
    let names = figures.iter().map(|(name, _)| (*name).to_owned());
    let head = std::iter::once("data path".to_owned()).chain(names).collect();
    let rows = runners.iter().map(|(index, candidate, rate)| Row {
        name: candidate.name.clone(),
        candidate: Some(*index),
        cells: figures
            .iter()
            .map(|(_, figure)| {
                let text = rate.carried.as_ref().and_then(figure);
                Cell::figure(text.unwrap_or_else(|| text::NONE.to_owned()))
            })
            .collect(),
    });
    let rows = rows.collect();
    let caption = format!("What arrived: {}", text::load(&summary.loads[load]));
    Table { caption: &caption, head, rows }.write(m);
}
