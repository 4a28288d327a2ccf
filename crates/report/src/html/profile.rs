//! Where the CPU time goes: what each candidate spends more than the reference, part by part of the kernel, as bars and
//! as a table, and the flame graph of each.

use record::Measure;

use super::flame::{self, Stacks};
use super::marks::{self, key};
use super::markup::Markup;
use super::scale::Linear;
use super::svg::{Anchor, Caption, Frame, Rect, Svg, at};
use super::table::{Cell, Row, Table};
use super::text;
use crate::{Cost, Difference, Load, PathPart, Profiled, ProfiledLoad, Summary, carried};

/// A row of a panel.
const ROW: f64 = 21.0;
/// A panel's name above its rows, and the ticks below them.
const HEAD: f64 = 30.0;
const FOOT: f64 = 34.0;
/// Room for the names of parts.
const NAMES: f64 = 168.0;
/// Room for a figure at the end of a bar.
const FIGURE: f64 = 46.0;
/// Letters of a candidate's name.
const NAME: usize = 26;

/// Writes the section, if there are samples.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    if summary.profiles.is_empty() {
        return;
    }
    let reference = marks::reference(summary);
    let of = carried::subject(carried::measure(summary));
    m.within("section", &[("id", "profile")], |m| {
        m.leaf("h2", &[], "Where the microseconds go");
        m.leaf(
            "p",
            &[("class", "lead")],
            &format!(
                "CPU time of both nodes per {of}, by the part of the kernel to which the innermost known function belongs, \
                and the difference of each candidate from {reference}. From samples of the nodes' CPUs, taken after the \
                race, so that no trial was sampled. A difference counts if it exceeds its sampling error (±, 95 % for all \
                parts of a candidate together) and the difference of {reference} from itself."
            ),
        );
        for (index, load) in summary.profiles.iter().enumerate() {
            m.leaf("h3", &[], &text::load(&as_load(load)));
            draw(m, summary, load, index);
            table(m, summary, load, index);
            notes(m, load);
            graphs(m, load, reference);
        }
    });
}

fn as_load(load: &ProfiledLoad) -> Load {
    Load {
        body_bytes: load.body_bytes,
        requested_rps: load.requested_rps,
        of_capacity: load.of_capacity,
        measure: load.measure,
    }
}

/// Digits that a sampling error leaves.
fn decimals(half_width: f64) -> usize {
    if half_width >= 1.0 { 1 } else { 2 }
}

fn cost_text(cost: &Cost) -> String {
    let digits = decimals(cost.half_width_us);
    format!("{:.digits$} ±{:.digits$}", cost.us_per_request, cost.half_width_us)
}

/// Parentheses mark a difference within the noise.
fn difference_text(difference: &Difference) -> String {
    let digits = decimals(difference.half_width_us);
    let text = format!("{} ±{:.digits$}", text::signed(difference.us, digits), difference.half_width_us);
    if difference.distinguishable { text } else { format!("({text})") }
}

/// Parts that differ somewhere.
fn drawn_parts(load: &ProfiledLoad) -> Vec<usize> {
    let differs = |index: &usize| {
        load.candidates.iter().any(|c| c.parts[*index].cost.difference.is_some_and(|d| d.distinguishable))
    };
    (0..PathPart::ALL.len()).filter(differs).collect()
}

/// The candidates that have a reference to differ from.
fn compared<'a>(summary: &'a Summary, load: &'a ProfiledLoad) -> impl Iterator<Item = (usize, &'a Profiled)> {
    let compared = load.candidates.iter().filter(|candidate| candidate.total.difference.is_some());
    compared.filter_map(|profiled| Some((place(summary, profiled)?, profiled)))
}

/// A candidate's place in the summary.
fn place(summary: &Summary, profiled: &Profiled) -> Option<usize> {
    summary.candidates.iter().position(|candidate| candidate.name == profiled.name)
}

/// Panels of bars: what differs, each candidate beside the others, on one scale.
struct Plot<'a> {
    load: usize,
    frame: Frame,
    parts: Vec<usize>,
    panels: Vec<(usize, &'a Profiled)>,
    least: f64,
    most: f64,
}

fn draw(m: &mut Markup, summary: &Summary, load: &ProfiledLoad, index: usize) {
    let parts = drawn_parts(load);
    let panels: Vec<_> = compared(summary, load).collect();
    let differences = panels.iter().flat_map(|(_, profiled)| parts.iter().map(|p| us(profiled, *p)));
    let (least, most) = differences.fold((0.0, 0.0), |(least, most), us| (us.min(least), us.max(most)));
    if parts.is_empty() || panels.is_empty() || most - least <= 0.0 {
        return m.leaf(
            "p",
            &[("class", "aside")],
            "No part of any candidate differs from the reference by more than the noise.",
        );
    }
    let (of, named) = (carried::subject(load.measure), text::load(&as_load(load)));
    let title = format!("CPU time per {of} beyond the reference's, by parts of the kernel, {named}");
    m.within("figure", &[], |m| {
        for frame in Frame::BOTH {
            let plot = Plot { load: index, frame, parts: parts.clone(), panels: panels.clone(), least, most };
            m.append(&plot.draw(&title));
        }
    });
}

fn us(profiled: &Profiled, part: usize) -> f64 {
    profiled.parts[part].cost.difference.map_or(0.0, |difference| difference.us)
}

impl Plot<'_> {
    /// Panels beside each other.
    fn columns(&self) -> usize {
        match self.frame {
            Frame::Wide => 3,
            Frame::Narrow => 1,
        }
    }

    fn draw(&self, title: &str) -> Markup {
        let mut svg = Svg::new();
        let height = HEAD + ROW * self.parts.len() as f64 + FOOT;
        let width = (self.frame.width() - NAMES) / self.columns() as f64;
        for (index, (candidate, profiled)) in self.panels.iter().enumerate() {
            let (column, row) = (index % self.columns(), index / self.columns());
            let (left, top) = (NAMES + width * column as f64, height * row as f64);
            if column == 0 {
                self.draw_names(&mut svg, top);
            }
            svg.text("panel", at(left, top + 18.0), Anchor::Start, &marks::fitting(&profiled.name, NAME));
            self.draw_panel(
                &mut svg,
                (*candidate, profiled),
                (left, left + width - FIGURE - 12.0),
                top + HEAD,
            );
        }
        let rows = self.panels.len().div_ceil(self.columns());
        let desc = "One bar for each part and candidate; figures in the table below.";
        svg.finish(self.frame, height * rows as f64, Caption { title, desc })
    }

    fn draw_names(&self, svg: &mut Svg, top: f64) {
        for (row, part) in self.parts.iter().enumerate() {
            let place = at(NAMES - 10.0, top + HEAD + ROW * (row as f64 + 0.5) + 4.5);
            svg.text("name", place, Anchor::End, PathPart::ALL[*part].name());
        }
    }

    fn draw_panel(
        &self,
        svg: &mut Svg,
        (candidate, profiled): (usize, &Profiled),
        (left, right): (f64, f64),
        top: f64,
    ) {
        let scale = |us: f64| left + (us - self.least) / (self.most - self.least) * (right - left);
        let (zero, bottom) = (scale(0.0), top + ROW * self.parts.len() as f64);
        let ticks =
            if self.most > 0.0 { Linear::new(self.most, (zero, right)).ticks(56.0) } else { vec![0.0] };
        for tick in ticks {
            svg.line(if tick == 0.0 { "one" } else { "grid" }, at(scale(tick), top), at(scale(tick), bottom));
            let figure = format!("{}{}", text::significant_short(tick), if tick == 0.0 { " µs" } else { "" });
            svg.text("tick", at(scale(tick), bottom + 17.0), Anchor::Middle, &figure);
        }
        let who = candidate.to_string();
        for (row, part) in self.parts.iter().enumerate() {
            let Some(difference) = profiled.parts[*part].cost.difference else { continue };
            let middle = top + ROW * (row as f64 + 0.5);
            let end = scale(difference.us);
            let (key, value) = (part_key(*part, self.load, candidate), difference_text(&difference));
            svg.group(&[("data-c", &*who), ("data-f", &*key), ("data-v", &*value)], |svg| {
                svg.tooltip(&format!("{}: {}: {value} µs", profiled.name, PathPart::ALL[*part].name()));
                let bar = Rect { x: end.min(zero), y: middle - 6.5, width: (end - zero).abs(), height: 13.0 };
                svg.rect(if difference.distinguishable { "softirq" } else { "rest" }, bar);
                if difference.distinguishable {
                    let figure = text::signed(difference.us, decimals(difference.half_width_us));
                    svg.text("value", at(end.max(zero) + 6.0, middle + 4.5), Anchor::Start, &figure);
                }
            });
        }
    }
}

/// The key that joins a bar and its figure in the table.
fn part_key(part: usize, load: usize, candidate: usize) -> String {
    key(&format!("p{part}"), load, candidate)
}

fn table(m: &mut Markup, summary: &Summary, load: &ProfiledLoad, index: usize) {
    let Some(reference) = load.candidates.iter().find(|candidate| candidate.total.difference.is_none())
    else {
        return;
    };
    let compared: Vec<_> = compared(summary, load).collect();
    let mut head = vec![format!("µs per {}", carried::cpu_unit(load.measure)), reference.name.clone()];
    head.extend(compared.iter().map(|(_, profiled)| profiled.name.clone()));
    let drawn = drawn_parts(load);
    let row = |name: &str, part: Option<usize>| {
        let cost = |profiled: &Profiled| part.map_or(profiled.total, |part| profiled.parts[part].cost);
        let mut cells = vec![Cell::figure(cost_text(&cost(reference)))];
        cells.extend(compared.iter().map(|(candidate, profiled)| {
            let cost = cost(profiled);
            let text = cost.difference.as_ref().map_or_else(|| cost_text(&cost), difference_text);
            match part.filter(|part| drawn.contains(part)) {
                Some(part) => Cell::plotted(text, part_key(part, index, *candidate)),
                None => Cell::figure(text),
            }
        }));
        Row { name: name.to_owned(), candidate: None, cells }
    };
    let parts = PathPart::ALL.iter().enumerate().map(|(part, of)| row(of.name(), Some(part)));
    let rows = std::iter::once(row("all but other programs", None)).chain(parts).collect();
    let caption = format!(
        "{} in full, the others as differences from it; in brackets: indistinguishable. Other programs in full",
        reference.name
    );
    Table { caption: &caption, head, rows }.write(m);
}

/// The number of samples, and how many were lost.
fn notes(m: &mut Markup, load: &ProfiledLoad) {
    let counts = load.candidates.iter().map(|profiled| {
        let missing = match profiled.lost {
            0 => String::new(),
            lost => format!(", {} missing", text::grouped(lost)),
        };
        format!(
            "{} {} of {} requests{missing}",
            profiled.name,
            text::grouped(profiled.samples),
            text::grouped(profiled.requests)
        )
    });
    let counts: Vec<String> = counts.collect();
    let period = text::significant(load.period_ns as f64 / 1e3);
    m.leaf(
        "p",
        &[("class", "aside")],
        &format!("Samples of busy CPUs, one on each CPU every {period} µs: {}.", counts.join("; ")),
    );
}

fn graphs(m: &mut Markup, load: &ProfiledLoad, reference: &str) {
    let of = carried::subject(load.measure);
    m.leaf("h4", &[], "Flame graphs");
    m.leaf(
        "p",
        &[("class", "aside")],
        &format!(
            "A box is a function, as wide as its own time and that of all it called, and sits on top of its caller. Orange: more \
            time per {of} than with {reference}; blue: less; pale: no difference beyond the noise. Point at a box for its \
            figures."
        ),
    );
    let first = load.candidates.iter().find(|candidate| candidate.total.difference.is_none());
    let senders = first.map(sender);
    for profiled in &load.candidates {
        let own = Stacks { stacks: &profiled.stacks, us_per_sample: us_per_sample(load, profiled) };
        let against = first.filter(|first| first.name != profiled.name);
        let against =
            against.map(|first| Stacks { stacks: &first.stacks, us_per_sample: us_per_sample(load, first) });
        m.within("details", &[("class", "path")], |m| {
            m.leaf("summary", &[], &format!("{}, {} µs per {of}", profiled.name, cost_text(&profiled.total)));
            flame::graph(m, &format!("Flame graph of {}", profiled.name), own, against);
            // Requests cost time at both ends; of a stream the sender alone is often of interest.
            if load.measure != Measure::Latency {
                let alone = sender(profiled);
                let alone = Stacks { stacks: &alone, ..own };
                let first = senders.as_deref().zip(against);
                let against = first.map(|(stacks, against)| Stacks { stacks, ..against });
                m.leaf("p", &[("class", "aside")], "The sender alone, with the kernel's work on its behalf:");
                flame::graph(m, &format!("Flame graph of the sender of {}", profiled.name), alone, against);
            }
        });
    }
}

/// The stacks in which the client ran, which sends streams.
fn sender(profiled: &Profiled) -> Vec<(String, u64)> {
    profiled.stacks.iter().filter(|(stack, _)| stack.starts_with("client;")).cloned().collect()
}

/// What a sample is, in microseconds a request.
fn us_per_sample(load: &ProfiledLoad, profiled: &Profiled) -> f64 {
    load.period_ns as f64 / 1e3 / profiled.requests.max(1) as f64
}
