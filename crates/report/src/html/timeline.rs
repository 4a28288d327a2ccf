//! The course of the race: a row a quantity, a colour a data path, over the rounds; the same as tables.

mod chart;

use self::chart::Plot;
use super::marks;
use super::markup::Markup;
use super::svg::Frame;
use super::table::{Cell, Row, Table};
use super::text;
use crate::timeline::{Quantity, Timeline, TimelineRow};
use crate::{Summary, figures};

/// Writes the section; empty for fewer than two rounds.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    let Some(timeline) = &summary.timeline else { return };
    m.within("section", &[("id", "timeline")], |m| {
        m.leaf("h2", &[], "The course of the race");
        m.leaf("p", &[("class", "lead")], &lead(summary, timeline));
        for (load, rows) in timeline.loads.iter().enumerate() {
            m.leaf("h3", &[], &summary.loads.get(load).map(text::load).unwrap_or_default());
            if rows.iter().all(|row| row.series.iter().flatten().flatten().next().is_none()) {
                m.leaf("p", &[("class", "aside")], "No trial that counts: there is no line to draw.");
                continue;
            }
            m.within("figure", &[], |m| {
                for frame in Frame::BOTH {
                    m.append(&Plot::new(summary, timeline, load, frame).draw());
                }
            });
            m.within("details", &[("data-course", &load.to_string())], |m| {
                m.leaf("summary", &[], "Figures of the rounds");
                rows.iter().for_each(|row| table(m, summary, timeline, row));
            });
        }
    });
}

fn lead(summary: &Summary, timeline: &Timeline) -> String {
    let took = match each_s(summary, timeline).zip(summary.progress.wall_s) {
        Some((each, wall_s)) => {
            format!(
                ", about {} each: the race took {}, builds included",
                text::duration(each),
                text::duration(wall_s)
            )
        }
        None => String::new(),
    };
    let has_stalls = timeline
        .loads
        .iter()
        .flatten()
        .any(|row| matches!(row.quantity, Quantity::Stolen | Quantity::Starved));
    let stalls = if has_stalls {
        " Answers that were late while the hypervisor took CPU time, or while the generator waited for a CPU, may be late \
        because of the machine and not because of their data path."
    } else {
        ""
    };
    let several = match timeline.rounds_a_step {
        1 => String::new(),
        rounds => format!(
            " A point stands for {rounds} rounds: the least rate, the greatest percentile, the sum of the counts."
        ),
    };
    format!(
        "The results of single trials, round by round{took}.{stalls} Vertical lines mark new builds of all topologies. If all \
        lines move together, the cause is the machine; if one moves, it is its data path or chance. Void trials have a row \
        of their own; of the other rows only counts include them.{several}"
    )
}

/// The mean duration of a round, builds included: a record has only the time of the whole race.
fn each_s(summary: &Summary, timeline: &Timeline) -> Option<f64> {
    summary.progress.wall_s.map(|wall_s| wall_s / f64::from(timeline.rounds))
}

/// The name of a row with its unit.
fn name(quantity: Quantity) -> String {
    match quantity {
        Quantity::Rate(unit) => unit.to_owned(),
        Quantity::Percentile(percentile) => format!("{percentile} in µs"),
        Quantity::Void => "void trials".to_owned(),
        Quantity::Unanswered => "not answered".to_owned(),
        Quantity::Retransmits => "retransmits".to_owned(),
        Quantity::TimeOuts => "retransmission time-outs".to_owned(),
        Quantity::Stolen => "CPU time that the hypervisor took, ms".to_owned(),
        Quantity::Starved => "the generator waited for a CPU, ms".to_owned(),
        Quantity::Drops => "drops".to_owned(),
    }
}

/// A value as it is drawn: nanoseconds as microseconds, or as milliseconds where they are sums.
fn drawn(quantity: Quantity, value: f64) -> f64 {
    match quantity {
        Quantity::Percentile(_) => value / 1e3,
        Quantity::Stolen | Quantity::Starved => value / 1e6,
        Quantity::Rate(_)
        | Quantity::Void
        | Quantity::Unanswered
        | Quantity::Retransmits
        | Quantity::TimeOuts
        | Quantity::Drops => value,
    }
}

/// The rounds of a step, from 1: "7", "7–9".
fn rounds_of(timeline: &Timeline, step: usize) -> String {
    let each = timeline.rounds_a_step;
    let first = step as u32 * each + 1;
    match (first + each - 1).min(timeline.rounds) {
        last if last == first => first.to_string(),
        last => format!("{first}–{last}"),
    }
}

fn table(m: &mut Markup, summary: &Summary, timeline: &Timeline, row: &TimelineRow) {
    let runners: Vec<(usize, String)> =
        marks::runners(summary).map(|(index, candidate)| (index, candidate.name.clone())).collect();
    let cell = |index: usize, step: usize| {
        let value = row.series.get(index).and_then(|series| series[step]);
        Cell::figure(value.map_or_else(String::new, |value| figure(row.quantity, value)))
    };
    let rows = (0..timeline.steps()).map(|step| Row {
        name: rounds_of(timeline, step),
        candidate: None,
        cells: runners.iter().map(|(index, _)| cell(*index, step)).collect(),
    });
    let head =
        std::iter::once("round".to_owned()).chain(runners.iter().map(|(_, name)| name.clone())).collect();
    Table { caption: &name(row.quantity), head, rows: rows.collect() }.write(m);
}

fn figure(quantity: Quantity, value: f64) -> String {
    match quantity {
        Quantity::Rate(_) | Quantity::Percentile(_) | Quantity::Stolen | Quantity::Starved => {
            text::significant(drawn(quantity, value))
        }
        Quantity::Void
        | Quantity::Unanswered
        | Quantity::Retransmits
        | Quantity::TimeOuts
        | Quantity::Drops => figures::trimmed(value, 0),
    }
}
