//! How much goes through at all: answers a second when every connection sends again at once, as a share of the
//! reference's.

use super::look::{self, key};
use super::markup::Markup;
use super::ratio::plottable;
use super::scale::Linear;
use super::svg::{Anchor, Caption, Frame, Rect, Svg, at};
use super::table::{Cell, Row, Table};
use super::text;
use crate::{Candidate, Ratio, Role, Summary};

const HEAD: f64 = 14.0;
const FOOT: f64 = 44.0;

/// Writes the section.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    m.within("section", &[("id", "capacity")], |m| {
        m.leaf("h2", &[], "Capacity");
        let measured = look::runners(summary).any(|(_, c)| plottable(c.capacity_ratio.as_ref()).is_some());
        if measured {
            let reference = look::reference(summary);
            let lead = format!(
                "Answers per second in a closed loop of {} connections, ÷ {reference}; left of 1 carries less. Bars are \
                 ratios, whiskers their 95 % intervals.",
                summary.experiment.workload.connections
            );
            m.leaf("p", &[("class", "lead")], &lead);
            m.within("figure", &[], |m| Frame::BOTH.iter().for_each(|frame| m.append(draw(summary, *frame))));
            table(m, summary);
        } else {
            m.leaf("p", &[("class", "aside")], "This race had no closed loop: the contenders' capacity is not known.");
        }
        for capacity in &summary.capacities {
            let samples: Vec<String> = capacity.samples_per_s.iter().map(|rate| text::per_second(*rate)).collect();
            m.leaf(
                "p",
                &[("class", "aside")],
                &format!(
                    "Before the race the reference sustained {} answers/s of {} (median of {}): what shares of capacity \
                     refer to.",
                    text::per_second(capacity.rate_per_s),
                    text::bytes(capacity.body_bytes),
                    samples.join(", ")
                ),
            );
        }
    });
}

/// `0.71 (0.69–0.74) · 165 916/s`: the figure beside a bar.
fn bar_text(candidate: &Candidate) -> Option<String> {
    let rate = candidate.capacity_rps.map(|rate| format!("{}/s", text::per_second(rate)));
    match (candidate.role, plottable(candidate.capacity_ratio.as_ref())) {
        (Role::Reference, _) => rate,
        (Role::Control | Role::Contender, None) => None,
        (Role::Control | Role::Contender, Some(ratio)) => {
            Some([Some(text::ratio(ratio)), rate].into_iter().flatten().collect::<Vec<_>>().join(" · "))
        }
    }
}

fn draw(summary: &Summary, frame: Frame) -> Markup {
    let rows: Vec<(usize, &Candidate)> = look::runners(summary).collect();
    let ratios = || rows.iter().filter_map(|(_, candidate)| plottable(candidate.capacity_ratio.as_ref()));
    let most = ratios().map(|ratio| ratio.value).fold(1.0, f64::max);
    let most = ratios().map(|ratio| ratio.high).fold(most * 1.02, f64::max).min(most * 1.5);
    let (row_height, middle, ends) = match frame {
        Frame::Wide => (26.0, 0.5, (160.0, 840.0)),
        Frame::Narrow => (40.0, 0.68, (8.0, 372.0)),
    };
    let (scale, bottom) = (Linear::new(most, ends), HEAD + row_height * rows.len() as f64);
    let mut svg = Svg::new();
    for tick in scale.ticks(60.0) {
        let x = scale.place(tick);
        svg.line("grid", at(x, HEAD), at(x, bottom));
        svg.text("tick", at(x, bottom + 18.0), Anchor::Middle, &text::significant_short(tick));
    }
    for (row, (index, candidate)) in rows.iter().enumerate() {
        let y = HEAD + row_height * (row as f64 + middle);
        draw_row(&mut svg, &scale, (frame, y), *index, candidate);
    }
    svg.line("one", at(scale.place(1.0), HEAD), at(scale.place(1.0), bottom));
    let name = format!("capacity ÷ {}", look::reference(summary));
    svg.text("axis-name", at(f64::midpoint(ends.0, ends.1), bottom + 38.0), Anchor::Middle, &name);
    let caption =
        Caption { title: &name, desc: "A bar a candidate with its interval; figures in the table below." };
    svg.finish(frame, bottom + FOOT, caption)
}

fn draw_row(svg: &mut Svg, scale: &Linear, (frame, y): (Frame, f64), index: usize, candidate: &Candidate) {
    let class = if candidate.role == Role::Reference { "name strong" } else { "name" };
    let name = look::fitting(&candidate.name, 19);
    let (name_place, name_anchor, value_place, value_anchor) = match frame {
        Frame::Wide => (at(150.0, y + 4.5), Anchor::End, at(858.0, y + 4.5), Anchor::Start),
        Frame::Narrow => (at(8.0, y - 13.0), Anchor::Start, at(372.0, y - 13.0), Anchor::End),
    };
    svg.text(class, name_place, name_anchor, &name);
    let Some(value) = bar_text(candidate) else {
        return svg.text("missing", value_place, value_anchor, "not measured");
    };
    let one = Ratio { value: 1.0, low: 1.0, high: 1.0 };
    let ratio = match candidate.role {
        Role::Reference => &one,
        Role::Control | Role::Contender => plottable(candidate.capacity_ratio.as_ref()).unwrap_or(&one),
    };
    let key = key("capacity", 0, index);
    let attrs = [("data-c", &*index.to_string()), ("data-f", &*key), ("data-v", &*value)];
    svg.group(&attrs, |svg| {
        svg.tooltip(&format!("{}: {value}", candidate.name));
        let from = scale.place(0.0);
        svg.rect("rest", Rect { x: from, y: y - 7.0, width: scale.place(ratio.value) - from, height: 14.0 });
        if candidate.role != Role::Reference {
            let (low, high) = (scale.place(ratio.low), scale.place(ratio.high));
            let end = |x: f64| [at(x, y - 4.0), at(x, y + 4.0)];
            svg.strokes("whisker", &[&end(low), &[at(low, y), at(high, y)], &end(high)]);
        }
        svg.text("value", value_place, value_anchor, &value);
    });
}

fn table(m: &mut Markup, summary: &Summary) {
    let head = ["data path".to_owned(), format!("÷ {} (95 %) · answers/s", look::reference(summary))];
    let rows = look::runners(summary).map(|(index, candidate)| Row {
        name: candidate.name.clone(),
        candidate: Some(index),
        cells: vec![match bar_text(candidate) {
            Some(value) => Cell::plotted(value, key("capacity", 0, index)),
            None => Cell::figure(text::NONE.to_owned()),
        }],
    });
    Table { caption: "Capacity", rows: rows.collect(), head: head.to_vec() }.write(m);
}
