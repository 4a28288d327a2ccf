//! Response time along the percentiles: a line a candidate, named at its end, the reference strongest; every point
//! also in a table.

use super::marks;
use super::markup::Markup;
use super::rows::NameColumn;
use super::scale::{LogScale, Nines, spread};
use super::svg::{Anchor, Caption, Frame, Point, Rect, Svg, at};
use super::table::{Cell, Row, Table};
use super::text;
use crate::{Candidate, CurvePoint, RateSummary, Role, Summary};

/// Distance of names at the ends of lines.
const LABEL: f64 = 16.0;
/// The most points of a line: finer is not seen, and the page grows with them.
const POINTS_MAX: usize = 120;

/// The input of a drawing: a load of a summary, and a frame.
struct Plot<'a> {
    summary: &'a Summary,
    load: usize,
    frame: Frame,
    lines: Vec<Line<'a>>,
    area: Rect,
    x: Nines,
    y: LogScale,
}

/// The points of one candidate.
struct Line<'a> {
    index: usize,
    candidate: &'a Candidate,
    points: Vec<CurvePoint>,
}

/// Writes the section on percentiles.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    m.within("section", &[("id", "curves")], |m| {
        m.leaf("h2", &[], "Latency by percentile");
        m.leaf(
            "p",
            &[("class", "lead")],
            "Response time in µs; both axes are logarithmic, and each further nine takes the same space. A line ends where \
            fewer than ten samples lie beyond. The shaded strip lies between the reference and its control: differences \
            of its width are noise.",
        );
        for (load, spec) in summary.loads.iter().enumerate() {
            m.leaf("h3", &[], &text::load(spec));
            if spec.requested_rps.is_none() {
                m.leaf(
                    "p",
                    &[("class", "aside")],
                    "Closed loop: every connection waits for its answer before it sends again. So this is the time in a queue \
                    that is always full, and stalls are under-represented. Compare rates here, not tails.",
                );
            }
            let lines = lines(summary, load);
            if lines.iter().any(|line| !line.points.is_empty()) {
                m.within("figure", &[], |m| {
                    for frame in Frame::BOTH {
                        m.append(&Plot::new(summary, load, frame).draw());
                    }
                });
            } else {
                m.leaf("p", &[("class", "aside")], "No trial that counts: there is no curve to draw.");
            }
            quantiles(m, summary, load);
            points(m, summary, load, &lines);
        }
    });
}

/// Points that can be drawn: quantile 1 has no place on the axis, 0 ns none on a logarithmic one.
fn lines(summary: &Summary, load: usize) -> Vec<Line<'_>> {
    let line = |(index, candidate, rate): (usize, _, &RateSummary)| {
        let points = rate.curve.iter().copied();
        let drawn: Vec<CurvePoint> =
            points.filter(|point| (0.0..1.0).contains(&point.quantile) && point.ns > 0).collect();
        Line { index, candidate, points: thinned(&drawn) }
    };
    marks::runners_at(summary, load).map(line).collect()
}

/// The room right of the lines.
fn names(lines: &[Line<'_>]) -> NameColumn {
    NameColumn::of(lines.iter().map(|line| line.candidate.name.as_str()), 26)
}

/// Every n-th point and the last.
fn thinned(points: &[CurvePoint]) -> Vec<CurvePoint> {
    let step = points.len().div_ceil(POINTS_MAX).max(1);
    let last = points.len().saturating_sub(1);
    points.iter().enumerate().filter(|(i, _)| i % step == 0 || *i == last).map(|(_, point)| *point).collect()
}

impl<'a> Plot<'a> {
    fn new(summary: &'a Summary, load: usize, frame: Frame) -> Plot<'a> {
        let lines = lines(summary, load);
        let names = names(&lines);
        let (left, right) = match frame {
            Frame::Wide => (64.0, 900.0 - names.more),
            Frame::Narrow => (42.0, 268.0),
        };
        let height = LABEL * lines.len() as f64;
        let area = Rect { x: left, y: 30.0, width: right - left, height: height.max(380.0) };
        let all = || lines.iter().flat_map(|line| &line.points);
        let last = all().map(|point| point.quantile).fold(0.0, f64::max);
        let least = all().map(|point| point.ns).min().unwrap_or(1) as f64 / 1e3;
        let most = all().map(|point| point.ns).max().unwrap_or(1) as f64 / 1e3;
        let x = Nines::new(last, (left, right));
        let y = LogScale::new((least / 1.08, most * 1.08), (area.y + area.height, area.y));
        Plot { summary, load, frame, lines, area, x, y }
    }

    fn draw(&self) -> Markup {
        let mut svg = Svg::new();
        self.draw_axes(&mut svg);
        self.draw_noise(&mut svg);
        // The reference is drawn last, above all others.
        let mut order: Vec<&Line> = self.lines.iter().filter(|line| !line.points.is_empty()).collect();
        let ends: Vec<f64> = order.iter().map(|line| self.end(line).y).collect();
        let places = spread(&ends, LABEL, (self.area.y + 6.0, self.area.y + self.area.height - 4.0));
        let mut labelled: Vec<(&Line, f64)> = order.drain(..).zip(places).collect();
        labelled.sort_by_key(|(line, _)| match line.candidate.role {
            Role::Contender => 0,
            Role::Control => 1,
            Role::Reference => 2,
        });
        for (line, label_y) in labelled {
            self.draw_line(&mut svg, line, label_y);
        }
        let title = format!("Response time by percentile, {}", text::load(&self.summary.loads[self.load]));
        let desc = "One line for each candidate; every point is in the table of points below.";
        svg.finish(self.frame, self.area.y + self.area.height + 44.0, Caption { title: &title, desc })
    }

    fn place(&self, point: &CurvePoint) -> Point {
        at(self.x.place(point.quantile), self.y.place(point.ns as f64 / 1e3))
    }

    fn end(&self, line: &Line) -> Point {
        self.place(line.points.last().expect("only lines with points are drawn"))
    }

    fn draw_axes(&self, svg: &mut Svg) {
        let Rect { x: left, y: top, width, height } = self.area;
        let (right, bottom) = (left + width, top + height);
        svg.text("panel", at(0.0, 16.0), Anchor::Start, "µs");
        for tick in self.y.decade_ticks(22.0) {
            let y = self.y.place(tick);
            svg.line("grid", at(left, y), at(right, y));
            svg.text("tick", at(left - 8.0, y + 4.0), Anchor::End, &tick_text(tick));
        }
        let mut taken = f64::NEG_INFINITY;
        for tick in self.x.ticks() {
            let x = self.x.place(tick);
            svg.line("grid", at(x, top), at(x, bottom));
            // The names of percentiles grow with their nines.
            let name = text::percentile(tick);
            let half = 3.6 * name.len() as f64;
            if x - half >= taken {
                svg.text("tick", at(x, bottom + 18.0), Anchor::Middle, &name);
                taken = x + half + 6.0;
            }
        }
        svg.text(
            "axis-name",
            at(f64::midpoint(left, right), bottom + 38.0),
            Anchor::Middle,
            "percentile of requests",
        );
    }

    /// The surface between the reference and its control.
    fn draw_noise(&self, svg: &mut Svg) {
        let of = |role| self.lines.iter().find(|line| line.candidate.role == role);
        let (Some(reference), Some(control)) = (of(Role::Reference), of(Role::Control)) else { return };
        let common = |line: &Line| line.points.last().map_or(0.0, |point| point.quantile);
        let last = common(reference).min(common(control));
        let part = |line: &Line| -> Vec<Point> {
            line.points.iter().filter(|point| point.quantile <= last).map(|point| self.place(point)).collect()
        };
        let mut outline = part(reference);
        outline.extend(part(control).into_iter().rev());
        if outline.len() > 3 {
            svg.path("band", &outline);
        }
    }

    fn draw_line(&self, svg: &mut Svg, line: &Line, label_y: f64) {
        let class = format!("curve {}", marks::line_class(self.summary, line.index));
        let (candidate, count) = (line.index.to_string(), line.points.len().to_string());
        let (end, label_x) = (self.end(line), self.area.x + self.area.width + 20.0);
        let most = match self.frame {
            Frame::Wide => names(&self.lines).letters,
            Frame::Narrow => 13,
        };
        let attrs = [("class", &*class), ("data-c", &*candidate), ("data-points", &*count)];
        svg.group(&attrs, |svg| {
            svg.tooltip(&line.candidate.name);
            svg.path("line", &line.points.iter().map(|point| self.place(point)).collect::<Vec<_>>());
            svg.circle("end", end, 3.0);
            let elbow = at((label_x - 14.0).max(end.x), label_y);
            svg.path("leader", &[end, elbow, at(label_x - 3.0, label_y)]);
            svg.text(
                "label",
                at(label_x, label_y + 4.5),
                Anchor::Start,
                &marks::fitting(&line.candidate.name, most),
            );
        });
    }
}

/// A tick in microseconds, without superfluous digits.
fn tick_text(tick: f64) -> String {
    match tick {
        small if small < 10.0 => format!("{}", (small * 1e4).round() / 1e4),
        large => text::per_second(large),
    }
}

/// The percentiles that are quoted.
fn quantiles(m: &mut Markup, summary: &Summary, load: usize) {
    let mut head = vec!["data path".to_owned()];
    head.extend(text::quantile_columns(&crate::Quantiles::default()).map(|(name, _)| name.to_owned()));
    head.push("requests".to_owned());
    let rows = marks::runners_at(summary, load).map(|(index, candidate, rate)| Row {
        name: candidate.name.clone(),
        candidate: Some(index),
        cells: quantile_cells(rate),
    });
    let caption = format!("Response time in µs: {}", text::load(&summary.loads[load]));
    Table { caption: &caption, head, rows: rows.collect() }.write(m);
    if marks::runners_at(summary, load).any(|(_, _, rate)| !rate.needs.is_empty()) {
        m.leaf(
            "p",
            &[("class", "aside")],
            "“–”: fewer than ten samples lie beyond; see under each data path how many are needed.",
        );
    }
}

fn quantile_cells(rate: &RateSummary) -> Vec<Cell> {
    let mut cells: Vec<Cell> = text::quantile_columns(&rate.response_ns)
        .into_iter()
        .map(|(_, ns)| Cell::figure(text::micros_or_none(ns)))
        .collect();
    cells.push(Cell::figure(text::grouped(rate.response_ns.count)));
    cells
}

/// Every point that is drawn.
fn points(m: &mut Markup, summary: &Summary, load: usize, lines: &[Line]) {
    let mut quantiles: Vec<f64> =
        lines.iter().flat_map(|line| line.points.iter().map(|p| p.quantile)).collect();
    quantiles.sort_by(f64::total_cmp);
    quantiles.dedup();
    if quantiles.is_empty() {
        return;
    }
    let mut head = vec!["percentile".to_owned()];
    head.extend(lines.iter().map(|line| line.candidate.name.clone()));
    let mut left: Vec<_> = lines.iter().map(|line| line.points.iter().peekable()).collect();
    let rows = quantiles.iter().map(|quantile| {
        let cells = left.iter_mut().map(|points| {
            let here = points.next_if(|point| point.quantile <= *quantile);
            Cell::figure(here.map_or_else(String::new, |point| text::micros(point.ns)))
        });
        Row { name: text::percentile(*quantile), candidate: None, cells: cells.collect() }
    });
    let rows = rows.collect();
    m.within("details", &[("data-curve", &load.to_string())], |m| {
        m.leaf("summary", &[], "Points of the curves");
        let caption = format!("Points of the curves in µs: {}", text::load(&summary.loads[load]));
        Table { caption: &caption, head, rows }.write(m);
    });
}
