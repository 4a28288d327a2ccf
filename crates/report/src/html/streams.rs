//! The data volume of downloads and streams, or the cost of packets, as a table; empty for races that
//! are judged by times.

use record::Measure;

use super::marks;
use super::markup::Markup;
use super::table::{Cell, Row, Table};
use super::text;
use crate::{RateSummary, Summary, carried};

type Figure = (&'static str, fn(&RateSummary) -> Option<String>);

/// The columns; an empty one is left out.
const FIGURES: [Figure; 10] = [
    ("Mbit/s", |rate| rate.carried?.mbit_per_s.map(carried::mbit)),
    ("mean object time", |rate| carried::object_ms(&rate.carried?)),
    ("packets sent/s", |rate| rate.carried?.sent_packets_per_s.map(text::per_second)),
    ("received/s", |rate| rate.carried?.received_packets_per_s.map(text::per_second)),
    ("lost", |rate| carried::loss(&rate.carried?)),
    ("reordered", |rate| rate.carried?.reordered.map(text::grouped)),
    ("longest gap µs", |rate| rate.carried?.gap_max_ns.map(text::micros)),
    ("ns of CPU a packet", |rate| Some(carried::ns(rate.frames?.ns_per_packet))),
    ("to make it", |rate| Some(carried::ns(rate.frames?.generator_ns_per_packet))),
    ("packets", |rate| Some(text::grouped(rate.frames?.packets))),
];

/// Writes the table of a load.
pub(super) fn table(m: &mut Markup, summary: &Summary, load: usize) {
    let runners: Vec<_> = marks::runners_at(summary, load).collect();
    let has_value = |figure: &&Figure| runners.iter().any(|(_, _, rate)| figure.1(rate).is_some());
    let figures: Vec<&Figure> = FIGURES.iter().filter(has_value).collect();
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
                let text = figure(rate);
                Cell::figure(text.unwrap_or_else(|| text::NONE.to_owned()))
            })
            .collect(),
    });
    let rows = rows.collect();
    let what = match carried::measure(summary) {
        Measure::Frames => "What a packet cost",
        Measure::Latency | Measure::Bandwidth | Measure::Packets => "What arrived",
    };
    let caption = format!("{what}: {}", text::load(&summary.loads[load]));
    Table { caption: &caption, head, rows }.write(m);
}
