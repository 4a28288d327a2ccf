//! Capacity: answers per second when every connection sends again at once, as a share of the reference's.

use super::marks::{self, key};
use super::markup::Markup;
use super::ratio::plottable;
use super::rows;
use super::scale::Linear;
use super::svg::{Anchor, Caption, Frame, Rect, Svg, at};
use super::table::{Cell, Row, Table};
use super::text;
use crate::until_sentences::interval_levels;
use crate::{Candidate, Ratio, Role, Summary, carried, figures};
use record::Capacity;

/// The search for a rate tries 0.64 of the median last. If that is not sustained, it takes 0.61 untried.
const UNTRIED: f64 = 0.625;
const HEAD: f64 = 14.0;
const FOOT: f64 = 44.0;

/// Writes the section on capacity.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    m.within("section", &[("id", "capacity")], |m| {
        m.leaf("h2", &[], "Capacity");
        let measured = marks::runners(summary).any(|(_, c)| plottable(c.capacity_ratio.as_ref()).is_some());
        if measured {
            let reference = marks::reference(summary);
            let lead = format!(
                "Answers per second in a closed loop of {} connections{}, ÷ {reference}; left of 1 is less. Bars are ratios, \
                whiskers their {} intervals.",
                text::between(carried::connections(&summary.experiment)),
                size(summary).map_or(String::new(), |bytes| format!(", each of {bytes}")),
                interval_levels(summary, None)
            );
            m.leaf("p", &[("class", "lead")], &lead);
            m.within("figure", &[], |m| Frame::BOTH.iter().for_each(|frame| m.append(&draw(summary, *frame))));
            table(m, summary);
        } else {
            m.leaf("p", &[("class", "aside")], "This race had no closed loop, so the capacity of the candidates is not known.");
        }
        for capacity in &summary.capacities {
            m.leaf("p", &[("class", "aside")], &found(capacity));
        }
    });
}

/// Whose capacity it is, where answers of several sizes raced: the first one's.
fn size(summary: &Summary) -> Option<String> {
    let first = summary.loads.iter().find(|load| load.requested_rps.is_none())?;
    let is_one_of_several = summary.loads.iter().any(|load| load.body_bytes != first.body_bytes);
    is_one_of_several.then(|| text::bytes(first.body_bytes))
}

/// How the rate that shares refer to was found.
fn found(capacity: &Capacity) -> String {
    let (rate, bytes) = (text::per_second(capacity.rate_per_s), text::bytes(capacity.body_bytes));
    let samples: Vec<String> = capacity.samples_per_s.iter().map(|rate| text::per_second(*rate)).collect();
    let samples = samples.join(", ");
    let share = stats::median(&capacity.samples_per_s).map_or(1.0, |median| capacity.rate_per_s / median);
    if share > UNTRIED {
        return format!(
            "Before the race the reference sustained {rate} answers/s of {bytes}: the highest constant rate that it did, \
            going down from the median of slices of a closed loop ({samples}). Shares of capacity refer to this rate."
        );
    }
    format!(
        "Before the race the reference sustained no constant rate that was tried, of answers of {bytes}, going down from \
        the median of slices of a closed loop ({samples}). Shares of capacity refer to {} of that median, {rate} answers/s.",
        figures::percent(share)
    )
}

/// The ratio beside a bar; the reference's own is 1 and has no interval.
fn ratio_text(candidate: &Candidate) -> Option<String> {
    match candidate.role {
        Role::Reference => Some("1".to_owned()),
        Role::Control | Role::Contender => plottable(candidate.capacity_ratio.as_ref()).map(text::ratio),
    }
}

fn rate_text(candidate: &Candidate) -> String {
    candidate.capacity_rps.map_or_else(|| text::NONE.to_owned(), text::per_second)
}

fn draw(summary: &Summary, frame: Frame) -> Markup {
    let rows: Vec<(usize, &Candidate)> = marks::runners(summary).collect();
    let ratios = || rows.iter().filter_map(|(_, candidate)| plottable(candidate.capacity_ratio.as_ref()));
    let most = ratios().map(|ratio| ratio.value).fold(1.0, f64::max);
    let most = ratios().map(|ratio| ratio.high).fold(most * 1.02, f64::max).min(most * 1.5);
    let names = rows::NameColumn::beside(rows.iter().map(|(_, candidate)| *candidate));
    let ends = match frame {
        Frame::Wide => (names.right(), 840.0),
        Frame::Narrow => (8.0, 372.0),
    };
    let (scale, bottom) = (Linear::new(most, ends), HEAD + rows::height(frame) * rows.len() as f64);
    let mut svg = Svg::new();
    for tick in scale.ticks(60.0) {
        let figure = text::significant_short(tick);
        rows::draw_tick(&mut svg, "grid", scale.place(tick), (HEAD, bottom), &figure);
    }
    svg.line("one", at(scale.place(1.0), HEAD), at(scale.place(1.0), bottom));
    for (row, (index, candidate)) in rows.iter().enumerate() {
        draw_row(&mut svg, &scale, (frame, names, rows::middle(frame, HEAD, row)), *index, candidate);
    }
    let name = format!("capacity ÷ {}", marks::reference(summary));
    svg.text("axis-name", at(f64::midpoint(ends.0, ends.1), bottom + 38.0), Anchor::Middle, &name);
    let caption = Caption {
        title: &name,
        desc: "One bar for each candidate with its interval; figures in the table below.",
    };
    svg.finish(frame, bottom + FOOT, caption)
}

fn draw_row(
    svg: &mut Svg,
    scale: &Linear,
    (frame, names, y): (Frame, rows::NameColumn, f64),
    index: usize,
    candidate: &Candidate,
) {
    let (name_place, name_anchor, value_place, value_anchor) = match frame {
        Frame::Wide => (at(names.end(), y + 4.5), Anchor::End, at(858.0, y + 4.5), Anchor::Start),
        Frame::Narrow => (at(8.0, y - 13.0), Anchor::Start, at(372.0, y - 13.0), Anchor::End),
    };
    rows::draw_name(svg, candidate, names.letters, name_place, name_anchor);
    let Some(ratio) = ratio_text(candidate) else {
        return svg.text("missing", value_place, value_anchor, "not measured");
    };
    let (key, index, rate) = (key("capacity", 0, index), index.to_string(), rate_text(candidate));
    svg.group(&[("data-c", &*index), ("data-f", &*key), ("data-v", &*ratio)], |svg| {
        svg.tooltip(&format!("{}: {ratio}, {rate} answers per second", candidate.name));
        draw_bar(
            svg,
            scale,
            y,
            candidate.capacity_ratio.as_ref().filter(|_| candidate.role != Role::Reference),
        );
        svg.text("value", value_place, value_anchor, &format!("{ratio} · {rate}/s"));
    });
}

/// A bar with its interval; the reference's ends at 1.
fn draw_bar(svg: &mut Svg, scale: &Linear, y: f64, ratio: Option<&Ratio>) {
    let (from, to) = (scale.place(0.0), scale.place(ratio.map_or(1.0, |ratio| ratio.value)));
    svg.rect("rest", Rect { x: from, y: y - 7.0, width: to - from, height: 14.0 });
    if let Some(ratio) = ratio {
        let (low, high) = (scale.place(ratio.low), scale.place(ratio.high));
        let end = |x: f64| [at(x, y - 4.0), at(x, y + 4.0)];
        svg.strokes("whisker", &[&end(low), &[at(low, y), at(high, y)], &end(high)]);
    }
}

fn table(m: &mut Markup, summary: &Summary) {
    let relative = format!("÷ {} ({})", marks::reference(summary), interval_levels(summary, None));
    let head = ["data path", &relative, "answers/s"].map(str::to_owned).to_vec();
    let rows = marks::runners(summary).map(|(index, candidate)| Row {
        name: candidate.name.clone(),
        candidate: Some(index),
        cells: vec![
            match ratio_text(candidate) {
                Some(ratio) => Cell::plotted(ratio, key("capacity", 0, index)),
                None => Cell::figure(text::NONE.to_owned()),
            },
            Cell::figure(rate_text(candidate)),
        ],
    });
    Table { caption: "Capacity", rows: rows.collect(), head }.write(m);
}
