//! A line chart of a sweep: where its points lie, and how they are drawn.

use super::super::marks;
use super::super::markup::Markup;
use super::super::rows::NameColumn;
use super::super::scale::{Linear, LogScale, Span, spread};
use super::super::svg::{Anchor, Caption, Frame, Point, Rect, Svg, at};
use super::super::text;
use super::{axis_name, drawn, figure, key_of, subject, tick, title, values};
use crate::until_sentences::interval_levels;
use crate::{Role, Summary, SweepSummary, SweptChart, SweptLine};

/// Distance of names at the ends of lines.
const LABEL: f64 = 16.0;
/// The axis is logarithmic if the greatest value is at least this many times the least.
const LOG_FROM: f64 = 20.0;
/// Between a border and the first or last value: room for whiskers beside one another.
const INSET: f64 = 26.0;
/// Whiskers at one value stand so far apart, where there is room.
const APART: f64 = 6.0;
/// How far an interval stretches the axis beyond the figures; what goes farther is cut off at the border.
const STRETCH: f64 = 3.0;

/// The scale of the horizontal axis.
enum Across {
    Log(LogScale),
    Linear(Span),
}

/// The vertical axis: times are logarithmic, throughput begins at zero.
enum Upright {
    Log(LogScale),
    Linear(Linear),
}

/// The input of a drawing: a chart, and a frame.
pub(super) struct Plot<'a> {
    summary: &'a Summary,
    sweep: &'a SweepSummary,
    index: usize,
    chart: &'a SweptChart,
    frame: Frame,
    area: Rect,
    values: Vec<f64>,
    x: Across,
    y: Upright,
}

/// A point with the ends of its whisker.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mark {
    at: Point,
    /// Coordinates of the interval's ends, and whether each lies beyond the border.
    whisker: Option<[(f64, bool); 2]>,
}

impl Across {
    fn new(values: &[f64], ends: (f64, f64)) -> Across {
        let (least, most) = (values[0], values[values.len() - 1]);
        match values {
            // A single value that has points stands in the middle.
            [one] => Across::Linear(Span::new((one - 1.0, one + 1.0), ends)),
            _ if least > 0.0 && most / least >= LOG_FROM => Across::Log(LogScale::new((least, most), ends)),
            _ => Across::Linear(Span::new((least, most), ends)),
        }
    }

    fn place(&self, value: f64) -> f64 {
        match self {
            Across::Log(scale) => scale.place(value),
            Across::Linear(scale) => scale.place(value),
        }
    }
}

impl Upright {
    fn new(chart: &SweptChart, (bottom, top): (f64, f64)) -> Upright {
        let points = || chart.lines.iter().flat_map(|line| &line.points).map(|point| &point.figure);
        let all = || points().chain(chart.levels.iter().map(|level| &level.figure));
        let positive = |value: &f64| value.is_finite() && *value > 0.0;
        let estimates = || all().map(|figure| drawn(chart, figure.estimate)).filter(positive);
        let (least, most) = (estimates().fold(f64::INFINITY, f64::min), estimates().fold(0.0, f64::max));
        let (least, most) = if least <= most { (least, most) } else { (1.0, 1.0) };
        let ends = |end: fn(&crate::SweptFigure) -> Option<f64>| {
            all().filter_map(end).map(|value| drawn(chart, value)).filter(positive)
        };
        let high = ends(|figure| figure.high).fold(most, f64::max).min(most * STRETCH);
        if chart.unit != "ns" {
            return Upright::Linear(Linear::new(high.min(most * 1.5) * 1.06, (bottom, top)));
        }
        let low = ends(|figure| figure.low).fold(least, f64::min).max(least / STRETCH);
        Upright::Log(LogScale::new((low / 1.06, high * 1.06), (bottom, top)))
    }

    fn place(&self, value: f64) -> f64 {
        match self {
            Upright::Log(scale) => scale.place(value),
            Upright::Linear(scale) => scale.place(value),
        }
    }

    fn beyond(&self, value: f64) -> bool {
        match self {
            Upright::Log(scale) => scale.beyond(value),
            Upright::Linear(scale) => scale.beyond(value),
        }
    }

    fn ticks(&self) -> Vec<f64> {
        match self {
            Upright::Log(scale) => scale.round_ticks(26.0),
            Upright::Linear(scale) => scale.ticks(36.0),
        }
    }
}

/// The room right of the lines.
fn names(chart: &SweptChart) -> NameColumn {
    let lines = chart.lines.iter().map(|line| line.name.as_str());
    NameColumn::of(lines.chain(chart.levels.iter().map(|level| level.candidate.as_str())), 26)
}

impl<'a> Plot<'a> {
    /// A chart of a sweep; it has a line.
    pub(super) fn new(summary: &'a Summary, sweep: &'a SweepSummary, index: usize, frame: Frame) -> Plot<'a> {
        let chart = &sweep.charts[index];
        let (left, right) = match frame {
            Frame::Wide => (74.0, 900.0 - names(chart).more),
            Frame::Narrow => (48.0, 268.0),
        };
        let labels = LABEL * (chart.lines.len() + chart.levels.len()) as f64;
        let area = Rect { x: left, y: 30.0, width: right - left, height: labels.max(320.0) };
        let values = values(chart);
        let x = Across::new(&values, (left + INSET, right - INSET));
        let y = Upright::new(chart, (area.y + area.height, area.y));
        Plot { summary, sweep, index, chart, frame, area, values, x, y }
    }

    pub(super) fn draw(&self) -> Markup {
        let mut svg = Svg::new();
        self.draw_level_band(&mut svg);
        self.draw_axes(&mut svg);
        let mut ends: Vec<Point> =
            self.marks().iter().map(|marks| marks.last().expect("a line has points").at).collect();
        let level =
            self.chart.levels.first().map(|level| self.y.place(drawn(self.chart, level.figure.estimate)));
        ends.extend(level.map(|y| at(self.area.x + self.area.width, y)));
        let wanted: Vec<f64> = ends.iter().map(|end| end.y).collect();
        let labels = spread(&wanted, LABEL, (self.area.y + 6.0, self.area.y + self.area.height - 4.0));
        if let (Some(y), Some(label)) = (level, labels.last()) {
            self.draw_level(&mut svg, y, *label);
        }
        // The reference is drawn last, above all others.
        let mut order: Vec<usize> = (0..self.chart.lines.len()).collect();
        order.sort_by_key(|line| match self.role(&self.chart.lines[*line]) {
            Role::Contender => 0,
            Role::Control => 1,
            Role::Reference => 2,
        });
        for line in order {
            self.draw_line(&mut svg, line, labels[line]);
        }
        let name = format!("{} over {}", title(self.summary, self.sweep, self.chart), subject(self.sweep));
        let desc = format!(
            "One line for each data path; whiskers are {} intervals. Every point is in the table below.",
            interval_levels(self.summary, None)
        );
        let caption = Caption { title: &name, desc: &desc };
        svg.finish(self.frame, self.area.y + self.area.height + 44.0, caption)
    }

    /// The points of each line.
    fn marks(&self) -> Vec<Vec<Mark>> {
        let lines = self.chart.lines.len();
        let places: Vec<f64> = self.values.iter().map(|value| self.x.place(*value)).collect();
        let room = places.windows(2).map(|pair| pair[1] - pair[0]).fold(2.0 * INSET, f64::min);
        let apart = APART.min(room * 0.8 / lines.max(1) as f64);
        let mark = |shift: f64, point: &crate::SweptPoint| {
            let y = |value: f64| self.y.place(drawn(self.chart, value));
            let end = |value: f64| (y(value), self.y.beyond(drawn(self.chart, value)));
            let figure = &point.figure;
            let interval =
                figure.low.zip(figure.high).filter(|(low, high)| low.is_finite() && high.is_finite());
            let whisker = interval.map(|(low, high)| [end(low), end(high)]);
            Mark { at: at(self.x.place(point.value) + shift, y(figure.estimate)), whisker }
        };
        let of_line = |(index, line): (usize, &SweptLine)| {
            let shift = (index as f64 - (lines as f64 - 1.0) / 2.0) * apart;
            line.points.iter().map(|point| mark(shift, point)).collect()
        };
        self.chart.lines.iter().enumerate().map(of_line).collect()
    }

    fn draw_axes(&self, svg: &mut Svg) {
        let Rect { x: left, y: top, width, height } = self.area;
        let (right, bottom) = (left + width, top + height);
        let unit = if self.chart.unit == "ns" { "µs" } else { self.chart.unit };
        svg.text("panel", at(0.0, 16.0), Anchor::Start, unit);
        for tick in self.y.ticks() {
            let y = self.y.place(tick);
            svg.line("grid", at(left, y), at(right, y));
            svg.text("tick", at(left - 8.0, y + 4.0), Anchor::End, &text::significant_short(tick));
        }
        let mut taken = f64::NEG_INFINITY;
        for value in &self.values {
            let (x, name) = (self.x.place(*value), tick(*value));
            svg.line("grid", at(x, top), at(x, bottom));
            let half = 3.8 * name.chars().count() as f64;
            if x - half >= taken {
                svg.text("tick", at(x, bottom + 18.0), Anchor::Middle, &name);
                taken = x + half + 6.0;
            }
        }
        let middle = at(f64::midpoint(left, right), bottom + 38.0);
        svg.text("axis-name", middle, Anchor::Middle, &axis_name(self.summary, self.sweep));
    }

    /// The interval of the reference that raced at no value.
    fn draw_level_band(&self, svg: &mut Svg) {
        let Some(level) = self.chart.levels.first() else { return };
        if let Some((low, high)) = level.figure.low.zip(level.figure.high) {
            let (bottom, top) = (self.y.place(drawn(self.chart, low)), self.y.place(drawn(self.chart, high)));
            svg.rect("band", Rect { y: top, height: bottom - top, ..self.area });
        }
    }

    fn draw_level(&self, svg: &mut Svg, y: f64, label_y: f64) {
        let Some(level) = self.chart.levels.first() else { return };
        svg.group(&[("class", "curve ref level")], |svg| {
            svg.tooltip(&format!("{}: {}", level.candidate, figure(self.chart, &level.figure)));
            let end = at(self.area.x + self.area.width, y);
            svg.path("line", &[at(self.area.x, y), end]);
            self.draw_label(svg, end, label_y, &level.candidate);
        });
    }

    fn draw_line(&self, svg: &mut Svg, index: usize, label_y: f64) {
        let (line, marks) = (&self.chart.lines[index], &self.marks()[index]);
        let class = format!("curve {}", self.class(index, line));
        let candidate = match self.chart.levels.is_empty() {
            true => line.points.first().map_or_else(String::new, |point| point.index.to_string()),
            // Its points are candidates of their own.
            false => format!("line {index}"),
        };
        svg.group(&[("class", &*class), ("data-c", &*candidate)], |svg| {
            svg.tooltip(&line.name);
            svg.path("line", &marks.iter().map(|mark| mark.at).collect::<Vec<_>>());
            for (place, mark) in marks.iter().enumerate() {
                let point = &line.points[place];
                let value = figure(self.chart, &point.figure);
                let key = key_of(self.index, index, place);
                svg.group(&[("data-f", &*key), ("data-v", &*value)], |svg| {
                    svg.tooltip(&format!("{}, {}: {value}", point.candidate, tick(point.value)));
                    draw_whisker(svg, mark);
                    svg.circle("end", mark.at, 3.0);
                });
            }
            self.draw_label(svg, marks.last().expect("a line has points").at, label_y, &line.name);
        });
    }

    fn draw_label(&self, svg: &mut Svg, end: Point, label_y: f64, name: &str) {
        let x = self.area.x + self.area.width + 20.0;
        let most = match self.frame {
            Frame::Wide => names(self.chart).letters,
            Frame::Narrow => 13,
        };
        let elbow = at((x - 14.0).max(end.x), label_y);
        svg.path("leader", &[end, elbow, at(x - 3.0, label_y)]);
        svg.text("label", at(x, label_y + 4.5), Anchor::Start, &marks::fitting(name, most));
    }

    /// The part of the data path that a line is of; a line of candidates of a sweep is a contender's.
    fn role(&self, line: &SweptLine) -> Role {
        match (self.chart.levels.is_empty(), line.points.first()) {
            (true, Some(point)) => self.summary.candidates[point.index].role,
            _ => Role::Contender,
        }
    }

    fn class(&self, index: usize, line: &SweptLine) -> String {
        match (self.chart.levels.is_empty(), line.points.first()) {
            (true, Some(point)) => marks::line_class(self.summary, point.index),
            _ => marks::contender_class(index),
        }
    }
}

/// An interval; an end beyond the border has no bar.
fn draw_whisker(svg: &mut Svg, mark: &Mark) {
    let Some([(low, low_beyond), (high, high_beyond)]) = mark.whisker else { return };
    let x = mark.at.x;
    let bar = |y: f64| [at(x - 3.0, y), at(x + 3.0, y)];
    let (middle, low_bar, high_bar) = ([at(x, low), at(x, high)], bar(low), bar(high));
    let mut strokes: Vec<&[Point]> = vec![&middle];
    if !low_beyond {
        strokes.push(&low_bar);
    }
    if !high_beyond {
        strokes.push(&high_bar);
    }
    svg.strokes("whisker", &strokes);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{SweptFigure, SweptPoint};

    /// A sweep of one chart.
    fn sweep(unit: &'static str, lines: Vec<Vec<(f64, [f64; 3])>>) -> SweepSummary {
        let point = |(value, [low, estimate, high]): (f64, [f64; 3])| SweptPoint {
            candidate: "a".to_owned(),
            index: 2,
            value,
            figure: SweptFigure { estimate, low: Some(low), high: Some(high) },
        };
        let line = |(index, points): (usize, Vec<_>)| SweptLine {
            name: format!("path {index}"),
            points: points.into_iter().map(point).collect(),
        };
        let chart = SweptChart {
            body_bytes: Some(100),
            requested_rps: None,
            of_capacity: None,
            statistic: "p99",
            unit,
            lines: lines.into_iter().enumerate().map(line).collect(),
            levels: vec![],
        };
        let axis = record::AxisUnit::OfTheKnob;
        SweepSummary { over: "settings.x".to_owned(), unit: "", axis, charts: vec![chart] }
    }

    /// Rising values, each with an interval around its figure.
    fn line() -> impl Strategy<Value = Vec<(f64, [f64; 3])>> {
        let point = (-1_000_i32..1_000_000, 1e-3_f64..1e9, 1.0_f64..1e6, 1.0_f64..1e6);
        prop::collection::vec(point, 1..12).prop_map(|points| {
            let mut points: Vec<(f64, [f64; 3])> = points
                .into_iter()
                .map(|(value, estimate, below, above)| {
                    (f64::from(value), [estimate / below, estimate, estimate * above])
                })
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points.dedup_by(|a, b| a.0 == b.0);
            points
        })
    }

    proptest! {
        #[test]
        fn every_point_lies_in_the_chart_and_in_order(
            lines in prop::collection::vec(line(), 1..20), is_time: bool, wide: bool,
        ) {
            let summary = super::super::super::fixture::race();
            let sweep = sweep(if is_time { "ns" } else { "Mbit/s" }, lines);
            let frame = if wide { Frame::Wide } else { Frame::Narrow };
            let plot = Plot::new(&summary, &sweep, 0, frame);
            let Rect { x: left, y: top, width, height } = plot.area;
            for (line, marks) in sweep.charts[0].lines.iter().zip(plot.marks()) {
                prop_assert_eq!(line.points.len(), marks.len());
                for mark in &marks {
                    prop_assert!((left..=left + width).contains(&mark.at.x), "{:?}", mark);
                    let [(low, _), (high, _)] = mark.whisker.unwrap();
                    // Downwards: the lower end of an interval has the greater coordinate.
                    prop_assert!(low >= mark.at.y && mark.at.y >= high, "{:?}", mark);
                    let within = (top - 1e-6)..=(top + height + 1e-6);
                    prop_assert!(within.contains(&high) && within.contains(&low), "{:?}", mark);
                }
                prop_assert!(marks.windows(2).all(|pair| pair[0].at.x < pair[1].at.x));
                for (a, b) in line.points.windows(2).map(|pair| (&pair[0], &pair[1])).zip(marks.windows(2)) {
                    let rises = a.1.figure.estimate >= a.0.figure.estimate;
                    let drawn = b[1].at.y <= b[0].at.y + 1e-9;
                    prop_assert!(rises == drawn || b[1].at.y == b[0].at.y, "{:?} {:?}", a, b);
                }
            }
            prop_assert!(!plot.draw().into_string().contains("NaN"));
        }
    }

    #[test]
    fn wide_ranges_are_logarithmic_and_narrow_ones_are_not() {
        let middle = |values: [f64; 3]| {
            let scale = Across::new(&values, (0.0, 100.0));
            values.map(|value| scale.place(value))[1]
        };
        assert!((middle([10.0, 55.0, 100.0]) - 50.0).abs() < 1e-9);
        assert!((middle([0.1, 1.0, 10.0]) - 50.0).abs() < 1e-9);
        assert!((middle([-10.0, 0.0, 10.0]) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn an_interval_beyond_the_border_ends_there_without_a_bar() {
        let summary = super::super::super::fixture::race();
        let sweep = sweep("ns", vec![vec![(1.0, [1e3, 1e6, 1e9]), (2.0, [0.9e6, 1e6, 1.1e6])]]);
        let plot = Plot::new(&summary, &sweep, 0, Frame::Wide);
        let marks = &plot.marks()[0];
        assert_eq!(marks[0].whisker.unwrap().map(|(_, beyond)| beyond), [true, true]);
        assert_eq!(marks[1].whisker.unwrap().map(|(_, beyond)| beyond), [false, false]);
        let drawn = plot.draw().into_string();
        let whiskers: Vec<&str> = drawn
            .split("class=\"whisker\" d=\"")
            .skip(1)
            .map(|rest| rest.split_once('"').unwrap().0)
            .collect();
        assert_eq!(whiskers.iter().map(|whisker| whisker.matches('M').count()).collect::<Vec<_>>(), [1, 3]);
    }
}
