//! Instructions per request: a bar a candidate, and the table.

use record::Measure;

use super::marks::{self, key};
use super::markup::Markup;
use super::rows;
use super::scale::Linear;
use super::svg::{Anchor, Caption, Frame, Rect, Svg, at};
use super::table::{Cell, Row, Table};
use super::text;
use crate::{Candidate, Exact, Instructions, Role, Summary, Verdict, carried, figures};

const HEAD: f64 = 14.0;
const FOOT: f64 = 44.0;

/// Writes the section on counted instructions.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    m.within("section", &[("id", "exact")], |m| {
        let measure = carried::measure(summary);
        m.leaf("h2", &[], &name(measure));
        let whose = match measure {
            Measure::Frames => "a packet takes after it was made",
            _ => "client, server and both nodes' kernels together execute for one request and its answer",
        };
        let lead = format!(
            "The instructions that {whose}, counted by the clock of an emulated processor: the same on every machine, however \
            busy. Caches, locks and other processors are left out, so this is the work that a data path costs, not its speed."
        );
        m.leaf("p", &[("class", "lead")], &lead);
        for (load, counts) in summary.exact.iter().enumerate() {
            let what = if measure == Measure::Frames { "Frames" } else { "Answers" };
            m.leaf("h3", &[], &format!("{what} of {}", text::bytes(counts.body_bytes)));
            m.within("figure", &[], |m| {
                Frame::BOTH.iter().for_each(|frame| m.append(&draw(summary, counts, load, *frame)));
            });
            table(m, summary, counts, load);
        }
    });
}

/// What the figures are.
fn name(measure: Measure) -> String {
    format!("Instructions per {}", carried::subject(measure))
}

/// The candidates that were counted, with their place in the summary.
fn counted<'a>(summary: &'a Summary, counts: &'a Exact) -> Vec<(usize, &'a Candidate, &'a Instructions)> {
    let found = |(index, candidate): (usize, &'a Candidate)| {
        let of = counts.candidates.iter().find(|counted| counted.name == candidate.name)?;
        Some((index, candidate, of))
    };
    marks::runners(summary).filter_map(found).collect()
}

fn draw(summary: &Summary, counts: &Exact, load: usize, frame: Frame) -> Markup {
    let rows = counted(summary, counts);
    let most = rows.iter().map(|(_, _, of)| of.per_request).fold(1.0, f64::max);
    let names = rows::NameColumn::beside(rows.iter().map(|(_, candidate, _)| *candidate));
    let ends = match frame {
        Frame::Wide => (names.right(), 840.0),
        Frame::Narrow => (8.0, 372.0),
    };
    let (scale, bottom) = (Linear::new(most, ends), HEAD + rows::height(frame) * rows.len() as f64);
    let mut svg = Svg::new();
    for tick in scale.ticks(90.0) {
        let figure = text::grouped(tick.round() as u64);
        rows::draw_tick(&mut svg, "grid", scale.place(tick), (HEAD, bottom), &figure);
    }
    if let Some((_, _, reference)) = rows.iter().find(|(_, one, _)| one.role == Role::Reference) {
        let place = scale.place(reference.per_request);
        svg.line("one", at(place, HEAD), at(place, bottom));
    }
    for (row, (index, candidate, of)) in rows.iter().enumerate() {
        let y = rows::middle(frame, HEAD, row);
        let (name_place, name_anchor, value_place, value_anchor) = match frame {
            Frame::Wide => (at(names.end(), y + 4.5), Anchor::End, at(858.0, y + 4.5), Anchor::Start),
            Frame::Narrow => (at(8.0, y - 13.0), Anchor::Start, at(372.0, y - 13.0), Anchor::End),
        };
        rows::draw_name(&mut svg, candidate, names.letters, name_place, name_anchor);
        let (index, key, figure) = (index.to_string(), key("exact", load, *index), figure(of));
        svg.group(&[("data-c", &*index), ("data-f", &*key), ("data-v", &*figure)], |svg| {
            svg.tooltip(&format!("{}: {figure} instructions, {}", candidate.name, change(of)));
            let (from, to) = (scale.place(0.0), scale.place(of.per_request));
            svg.rect("rest", Rect { x: from, y: y - 7.0, width: to - from, height: 14.0 });
            svg.text("value", value_place, value_anchor, &format!("{figure} · {}", change(of)));
        });
    }
    let name = name(carried::measure(summary)).to_lowercase();
    svg.text("axis-name", at(f64::midpoint(ends.0, ends.1), bottom + 38.0), Anchor::Middle, &name);
    let caption = Caption { title: &name, desc: "One bar for each candidate; figures in the table below." };
    svg.finish(frame, bottom + FOOT, caption)
}

fn figure(of: &Instructions) -> String {
    text::grouped(of.per_request.round() as u64)
}

fn change(of: &Instructions) -> String {
    match (of.verdict, of.over) {
        (Verdict::Reference, _) => "reference".to_owned(),
        (_, Some(over)) => format!("{:+.1}\u{202f}%", over * 100.0).replace('-', "−"),
        (_, None) => text::NONE.to_owned(),
    }
}

fn table(m: &mut Markup, summary: &Summary, counts: &Exact, load: usize) {
    let head = ["data path", "instructions", "more", "÷ host", "spread", "verdict"].map(str::to_owned);
    let rows = counted(summary, counts).into_iter().map(|(index, candidate, of)| Row {
        name: candidate.name.clone(),
        candidate: Some(index),
        cells: vec![
            Cell::plotted(figure(of), key("exact", load, index)),
            Cell::figure(
                of.more.map_or(text::NONE.to_owned(), |more| format!("{more:+.0}").replace('-', "−")),
            ),
            Cell::figure(change(of)),
            Cell::figure(text::percent(of.spread)),
            match of.over {
                Some(_) => {
                    Cell::classed(figures::verdict_word(of.verdict), marks::verdict_class(Some(of.verdict)))
                }
                // Without the reference nothing is compared.
                None => Cell::figure(text::NONE.to_owned()),
            },
        ],
    });
    Table { caption: &name(carried::measure(summary)), rows: rows.collect(), head: head.to_vec() }.write(m);
}
