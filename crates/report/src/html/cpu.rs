//! CPU time per request, of both nodes, split into softirq and the rest: bars and a table for each load.

use super::by_cpu;
use super::marks::{self, key};
use super::markup::Markup;
use super::rows::{self, Panel};
use super::scale::Linear;
use super::svg::{Anchor, Caption, Frame, Rect, Svg, at};
use super::table::{Cell, Row, Table};
use super::text;
use crate::{Candidate, RateSummary, Role, Summary, carried};

/// The widest candidate's name that is not cut, in characters.
const NAME: usize = 19;

/// The figures of one node in a summary, and how they are named on the page.
#[derive(Clone, Copy)]
struct NodeFigures {
    name: &'static str,
    key: &'static str,
    total: fn(&RateSummary) -> Option<f64>,
    softirq_share: fn(&RateSummary) -> Option<f64>,
}

const NODES: [NodeFigures; 2] = [
    NodeFigures {
        name: "server's node",
        key: "s",
        total: |rate| rate.server_cpu_us_per_request,
        softirq_share: |rate| rate.server_softirq_share,
    },
    NodeFigures {
        name: "client's node, generator included",
        key: "c",
        total: |rate| rate.client_cpu_us_per_request,
        softirq_share: |rate| rate.client_softirq_share,
    },
];

/// The input of a drawing.
struct Plot<'a> {
    summary: &'a Summary,
    load: usize,
    frame: Frame,
    rows: Vec<(usize, &'a Candidate, &'a RateSummary)>,
    most: f64,
}

/// Writes the section on CPU time.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    m.within("section", &[("id", "cpu")], |m| {
        let of = carried::subject(carried::measure(summary));
        m.leaf("h2", &[], &format!("CPU time per {of}"));
        m.leaf(
            "p",
            &[("class", "lead")],
            &format!("CPU microseconds of a node per {of}, from /proc/stat over all trials that count. The first part of a \
            bar is softirq, in which packets are received, forwarded and encapsulated. The dashed line is the reference's \
            total."),
        );
        for (load, spec) in summary.loads.iter().enumerate() {
            let plots = Frame::BOTH.map(|frame| Plot::new(summary, load, frame));
            m.leaf("h3", &[], &text::load(spec));
            if plots[0].most > 0.0 {
                m.within("figure", &[], |m| plots.iter().for_each(|plot| m.append(&plot.draw())));
                table(m, summary, load);
            } else {
                m.leaf("p", &[("class", "aside")], "No CPU time is known at this load.");
            }
            by_cpu::figures(m, summary, load);
        }
    });
}

/// A node's time a request, if it can be drawn.
fn total(node: NodeFigures, rate: &RateSummary) -> Option<f64> {
    (node.total)(rate).filter(|total| total.is_finite() && *total >= 0.0)
}

/// The share of softirq in it.
fn share(node: NodeFigures, rate: &RateSummary) -> Option<f64> {
    (node.softirq_share)(rate).filter(|share| (0.0..=1.0).contains(share))
}

/// The softirq share as a text, where it is drawn.
fn share_text(node: NodeFigures, rate: &RateSummary) -> Option<String> {
    total(node, rate).and_then(|_| share(node, rate)).map(text::percent)
}

/// The key of the softirq share.
fn share_key(node: NodeFigures, load: usize, candidate: usize) -> String {
    key(&format!("{}i", node.key), load, candidate)
}

impl<'a> Plot<'a> {
    fn new(summary: &'a Summary, load: usize, frame: Frame) -> Plot<'a> {
        let rows: Vec<_> = marks::runners_at(summary, load).collect();
        let totals = rows.iter().flat_map(|(_, _, rate)| NODES.iter().filter_map(|node| total(*node, rate)));
        let most = totals.fold(0.0, f64::max);
        Plot { summary, load, frame, rows, most }
    }

    fn draw(&self) -> Markup {
        let mut svg = Svg::new();
        let height = Panel::height(self.frame, self.rows.len());
        let names = rows::NameColumn::beside(self.rows.iter().map(|(_, candidate, _)| *candidate));
        let half = names.more / 2.0;
        let (panels, whole) = match self.frame {
            Frame::Wide => (
                [
                    Panel { left: names.right(), right: 470.0 + half, top: 0.0 },
                    Panel { left: 660.0 + half, right: 970.0, top: 0.0 },
                ],
                height,
            ),
            Frame::Narrow => (
                [Panel { left: 8.0, right: 250.0, top: 0.0 }, Panel { left: 8.0, right: 250.0, top: height }],
                2.0 * height,
            ),
        };
        if self.frame == Frame::Wide {
            for (row, (_, candidate, _)) in self.rows.iter().enumerate() {
                let place = at(names.end(), panels[0].row(self.frame, row) + 4.5);
                rows::draw_name(&mut svg, candidate, names.letters, place, Anchor::End);
            }
        }
        for (node, panel) in NODES.into_iter().zip(panels) {
            self.draw_panel(&mut svg, node, panel);
        }
        let title = format!(
            "CPU time per {}, {}",
            carried::subject(carried::measure(self.summary)),
            text::load(&self.summary.loads[self.load])
        );
        let desc = "Stacked bars of softirq and other time, one for each candidate and node; figures in the table below.";
        svg.finish(self.frame, whole, Caption { title: &title, desc })
    }

    fn draw_panel(&self, svg: &mut Svg, node: NodeFigures, panel: Panel) {
        let scale = Linear::new(self.most, (panel.left, panel.right));
        let span = panel.span(self.frame, self.rows.len());
        panel.draw_title(
            svg,
            &format!("µs per {}, {}", carried::subject(carried::measure(self.summary)), node.name),
        );
        for tick in scale.ticks(48.0) {
            rows::draw_tick(svg, "grid", scale.place(tick), span, &text::significant_short(tick));
        }
        for row in 0..self.rows.len() {
            self.draw_bar(svg, node, panel, &scale, row);
        }
        let reference = self.rows.iter().find(|(_, candidate, _)| candidate.role == Role::Reference);
        if let Some(total) = reference.and_then(|(_, _, rate)| total(node, rate)) {
            let x = scale.place(total);
            svg.line("mark-line", at(x, span.0), at(x, span.1));
        }
        for row in 0..self.rows.len() {
            self.draw_value(svg, node, panel, &scale, row);
        }
    }

    fn draw_bar(&self, svg: &mut Svg, node: NodeFigures, panel: Panel, scale: &Linear, row: usize) {
        let (_, candidate, rate) = self.rows[row];
        let y = panel.row(self.frame, row);
        if self.frame == Frame::Narrow {
            rows::draw_name(svg, candidate, NAME, at(panel.left, y - 13.0), Anchor::Start);
        }
        let Some(total) = total(node, rate) else { return };
        let from = scale.place(0.0);
        let bar = |end: f64| Rect { x: from, y: y - 7.0, width: end - from, height: 14.0 };
        svg.rect("rest", bar(scale.place(total)));
        svg.rect("softirq", bar(scale.place(total * share(node, rate).unwrap_or(0.0))));
    }

    /// The figures at the end of a bar.
    fn draw_value(&self, svg: &mut Svg, node: NodeFigures, panel: Panel, scale: &Linear, row: usize) {
        let (index, _, rate) = self.rows[row];
        let y = panel.row(self.frame, row) + 4.5;
        let Some(total) = total(node, rate) else {
            return svg.text("missing", at(panel.left + 8.0, y), Anchor::Start, "not known");
        };
        let (x, value, candidate_index) =
            (scale.place(total) + 6.0, text::significant(total), index.to_string());
        let key = key(node.key, self.load, index);
        svg.group(&[("data-c", &*candidate_index), ("data-f", &*key), ("data-v", &*value)], |svg| {
            svg.text("value", at(x, y), Anchor::Start, &value);
            let Some(softirq) = share_text(node, rate) else { return };
            let key = share_key(node, self.load, index);
            // Digits are about 8 units wide; the column of shares keeps clear of the longest total.
            let beside = at(x + 8.0 * value.chars().count() as f64 + 6.0, y);
            svg.group(&[("data-f", &*key), ("data-v", &*softirq)], |svg| {
                svg.text("missing", beside, Anchor::Start, &format!("{softirq} softirq"));
            });
        });
    }
}

fn table(m: &mut Markup, summary: &Summary, load: usize) {
    let head = ["data path", "server µs", "softirq", "client µs", "softirq"];
    let rows = marks::runners_at(summary, load).map(|(index, candidate, rate)| Row {
        name: candidate.name.clone(),
        candidate: Some(index),
        cells: cells(rate, load, index),
    });
    Table {
        caption: &format!(
            "CPU time per {}: {}",
            carried::subject(carried::measure(summary)),
            text::load(&summary.loads[load])
        ),
        rows: rows.collect(),
        head: head.map(str::to_owned).to_vec(),
    }
    .write(m);
}

fn cells(rate: &RateSummary, load: usize, index: usize) -> Vec<Cell> {
    let cell = |text: Option<String>, key: String| match text {
        Some(text) => Cell::plotted(text, key),
        None => Cell::figure(text::NONE.to_owned()),
    };
    let cells = |node: NodeFigures| {
        let total = total(node, rate).map(text::significant);
        [cell(total, key(node.key, load, index)), cell(share_text(node, rate), share_key(node, load, index))]
    };
    NODES.into_iter().flat_map(cells).collect()
}
