//! The time of each CPU as bars and as a table; empty if it was not requested.
//!
//! One panel for each candidate, side by side, with equal rows. So one busy CPU in one panel and several half busy
//! ones in the next are visible at a glance.

use super::marks;
use super::markup::Markup;
use super::scale::Linear;
use super::svg::{Anchor, Caption, Frame, Rect, Svg, at};
use super::table::{Cell, Row, Table};
use super::text;
use crate::by_cpu::{self, CpuRow, HEAD};
use crate::{Candidate, Summary};

/// From one row to the next.
const ROW: f64 = 19.0;
/// The height of a bar.
const BAR: f64 = 12.0;
/// Between the server's rows and the client's.
const BETWEEN: f64 = 8.0;
/// Above the first row of a panel: its name.
const TITLE: f64 = 26.0;
/// Below the last row of a panel: ticks.
const FOOT: f64 = 34.0;
/// The legend above all panels.
const LEGEND: f64 = 30.0;
/// Right of a bar: its figure.
const FIGURE: f64 = 62.0;
/// The place of softirq in [`HEAD`].
const SOFTIRQ: usize = 2;
/// The classes of the parts, in the order of [`HEAD`].
const PARTS: [&str; 6] = ["c-user", "c-system", "c-softirq", "c-irq", "c-idle", "c-steal"];
/// In which order parts lie from the left: what works, what was taken, what was left.
const STACK: [usize; 6] = [0, 1, 2, 3, 5, 4];

/// A candidate with its rows.
type Panel<'a> = (usize, &'a Candidate, Vec<CpuRow>);

/// The input of a drawing: a load of a summary, and a frame.
struct Plot<'a> {
    panels: Vec<Panel<'a>>,
    frame: Frame,
    /// The names of all rows, in order, with what stands above each.
    rows: Vec<(String, f64)>,
    height: f64,
}

/// Writes bars and table of a load.
pub(super) fn figures(m: &mut Markup, summary: &Summary, load: usize) {
    let panels = panels(summary, load);
    if panels.is_empty() {
        return;
    }
    m.leaf("h4", &[], "Each CPU");
    m.leaf(
        "p",
        &[("class", "aside")],
        "How each CPU spent its time over all trials that count; “all” is the mean of a node's CPUs. The figure beside a bar \
        is its share of softirq. What the generator spins before it sends is in the client's time in user mode, though not \
        in CPU time per request.",
    );
    m.within("figure", &[], |m| {
        for frame in Frame::BOTH {
            let caption = format!("Time of each CPU, {}", text::load(&summary.loads[load]));
            m.append(&Plot::new(panels.clone(), frame).draw(&caption));
        }
    });
    table(m, summary, load, &panels);
}

fn panels(summary: &Summary, load: usize) -> Vec<Panel<'_>> {
    let panel = |(index, candidate, shares)| (index, candidate, by_cpu::rows(shares));
    summary.by_cpu(load).into_iter().map(panel).collect()
}

/// The places of the parts of a row, as part, begin and end; parts of zero length are left out.
fn segments(row: &CpuRow, scale: &Linear) -> Vec<(usize, f64, f64)> {
    let mut from = 0.0;
    let mut segments = vec![];
    for part in STACK {
        let share = row.shares[part];
        if share.is_finite() && share > 0.0 {
            segments.push((part, scale.place(from), scale.place(from + share)));
            from += share;
        }
    }
    segments
}

impl<'a> Plot<'a> {
    fn new(panels: Vec<Panel<'a>>, frame: Frame) -> Plot<'a> {
        let mut rows: Vec<(String, f64)> = vec![];
        let mut top = TITLE;
        // Candidates of a race have the same CPUs, so the longest list is that of all.
        let longest = panels.iter().max_by_key(|(_, _, rows)| rows.len()).map_or(&[][..], |panel| &panel.2);
        for (index, row) in longest.iter().enumerate() {
            if index > 0 && longest[index - 1].node != row.node {
                top += BETWEEN;
            }
            rows.push((row.name(), top));
            top += ROW;
        }
        Plot { panels, frame, rows, height: top + FOOT }
    }

    /// Panels in a line.
    fn columns(&self) -> usize {
        match self.frame {
            Frame::Wide => self.panels.len().clamp(1, 4),
            Frame::Narrow => 1,
        }
    }

    /// The upper left corner of a panel, and where its bars begin and end.
    fn place(&self, index: usize) -> (f64, f64, Linear) {
        let (names, columns) = (78.0, self.columns());
        let (line, column) = (index / columns, index % columns);
        let width = (self.frame.width() - names) / columns as f64;
        let left = names + width * column as f64;
        let bars = width.min(420.0) - FIGURE;
        (left, LEGEND + self.height * line as f64, Linear::new(1.0, (left, left + bars)))
    }

    fn draw(&self, caption: &str) -> Markup {
        let mut svg = Svg::new();
        self.draw_legend(&mut svg);
        for (index, panel) in self.panels.iter().enumerate() {
            self.draw_panel(&mut svg, index, panel);
        }
        let lines = self.panels.len().div_ceil(self.columns());
        let desc = "One panel for each candidate, one bar for each CPU, stacked by kind of time; figures in the table below.";
        svg.finish(self.frame, LEGEND + self.height * lines as f64, Caption { title: caption, desc })
    }

    /// The parts that any candidate has.
    fn draw_legend(&self, svg: &mut Svg) {
        let mut x = 0.0;
        for part in STACK {
            let rows = || self.panels.iter().flat_map(|(_, _, rows)| rows);
            if !rows().any(|row| row.shares[part] > 0.0) {
                continue;
            }
            svg.rect(PARTS[part], Rect { x, y: 5.0, width: 13.0, height: BAR });
            svg.text("tick", at(x + 18.0, 15.0), Anchor::Start, HEAD[part]);
            x += 18.0 + 7.0 * HEAD[part].len() as f64 + 12.0;
        }
    }

    fn draw_panel(&self, svg: &mut Svg, index: usize, (candidate_index, candidate, rows): &Panel) {
        let (left, top, scale) = self.place(index);
        svg.text("panel", at(left, top + 12.0), Anchor::Start, &marks::fitting(&candidate.name, 28));
        let bottom = top + self.height - FOOT + 2.0;
        for (share, name) in [(0.0, "0"), (0.5, "50"), (1.0, "100 %")] {
            svg.line("grid", at(scale.place(share), top + TITLE - 4.0), at(scale.place(share), bottom));
            svg.text("tick", at(scale.place(share), bottom + 15.0), Anchor::Middle, name);
        }
        let candidate_key = candidate_index.to_string();
        svg.group(&[("data-c", &*candidate_key)], |svg| {
            for (row_index, row) in rows.iter().enumerate() {
                let Some((_, row_top)) = self.rows.get(row_index) else { continue };
                let y = top + row_top;
                if index.is_multiple_of(self.columns()) {
                    svg.text("tick", at(left - 8.0, y + BAR - 2.0), Anchor::End, &row.name());
                }
                let (cells, segments) = (row.percentages(), segments(row, &scale));
                svg.group(&[], |svg| {
                    let parts = segments.iter().map(|(part, ..)| format!("{} {}", cells[*part], HEAD[*part]));
                    let parts: Vec<String> = parts.collect();
                    svg.tooltip(&format!("{}, {}: {}", candidate.name, row.name(), parts.join(", ")));
                    for (part, x, to) in &segments {
                        svg.rect(PARTS[*part], Rect { x: *x, y, width: to - x, height: BAR });
                    }
                });
                let softirq = at(scale.place(1.0) + 8.0, y + BAR - 2.0);
                svg.text("tick", softirq, Anchor::Start, &cells[SOFTIRQ]);
            }
        });
    }
}

fn table(m: &mut Markup, summary: &Summary, load: usize, panels: &[Panel]) {
    let of = |index: usize, candidate: &Candidate, row: &CpuRow| Row {
        name: format!("{}, {}", candidate.name, row.name()),
        candidate: Some(index),
        cells: row.percentages().map(Cell::figure).into_iter().collect(),
    };
    let rows = panels
        .iter()
        .flat_map(|(index, candidate, rows)| rows.iter().map(move |row| of(*index, candidate, row)));
    let head = std::iter::once("data path, CPU").chain(HEAD).map(str::to_owned).collect();
    let caption = format!("Time of each CPU: {}", text::load(&summary.loads[load]));
    Table { caption: &caption, head, rows: rows.collect() }.write(m);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::CpuNode;

    fn row(shares: [f64; 6]) -> CpuRow {
        CpuRow { node: CpuNode::Server, cpu: Some(1), shares }
    }

    #[test]
    fn parts_lie_from_what_works_to_what_is_left() {
        let scale = Linear::new(1.0, (100.0, 200.0));
        let parts = segments(&row([0.1, 0.2, 0.3, 0.0, 0.25, 0.15]), &scale);
        let spans: Vec<_> =
            parts.iter().map(|(part, from, to)| (HEAD[*part], from.round(), to.round())).collect();
        assert_eq!(
            spans,
            [
                ("user", 100.0, 110.0),
                ("system", 110.0, 130.0),
                ("softirq", 130.0, 160.0),
                ("steal", 160.0, 175.0),
                ("idle", 175.0, 200.0),
            ]
        );
    }

    proptest! {
        #[test]
        fn a_bar_is_whole_and_its_parts_lie_side_by_side(parts in prop::array::uniform6(0_u32..1_000)) {
            let all: u32 = parts.iter().sum();
            prop_assume!(all > 0);
            let shares = parts.map(|part| f64::from(part) / f64::from(all));
            let scale = Linear::new(1.0, (10.0, 250.0));
            let segments = segments(&row(shares), &scale);
            prop_assert!((segments[0].1 - 10.0).abs() < 1e-9);
            prop_assert!((segments[segments.len() - 1].2 - 250.0).abs() < 1e-6);
            for pair in segments.windows(2) {
                prop_assert!((pair[0].2 - pair[1].1).abs() < 1e-9 && pair[0].1 < pair[0].2);
            }
        }
    }
}
