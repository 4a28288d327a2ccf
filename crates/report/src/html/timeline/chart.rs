//! The drawing of a race's course: rows with scales of their own over the same rounds.

use super::super::marks;
use super::super::markup::Markup;
use super::super::scale::{Linear, LogScale, Span};
use super::super::svg::{Anchor, Caption, Frame, Point, Svg, at};
use super::super::text;
use super::{drawn, each_s, name};
use crate::timeline::{Quantity, Timeline, TimelineRow};
use crate::{Role, Summary};

/// The height of what a row draws, of rates and times and of counts.
const TALL: f64 = 120.0;
const FLAT: f64 = 56.0;
/// Above what a row draws: its name.
const TITLE: f64 = 38.0;
/// From one line of the legend to the next.
const LEGEND: f64 = 20.0;
/// Below the last row: ticks and the axis' name.
const FOOT: f64 = 44.0;

/// The input of a drawing: a load of a race, and a frame.
pub(super) struct Plot<'a> {
    summary: &'a Summary,
    timeline: &'a Timeline,
    load: usize,
    frame: Frame,
    ends: (f64, f64),
    /// Over minutes where the record has them, else over steps; each step has its point in its middle.
    x: Span,
}

/// The scale of a row.
enum Upright {
    Log(LogScale),
    Linear(Linear),
}

impl Upright {
    /// Times are logarithmic; rates and counts begin at zero.
    fn new(row: &TimelineRow, (bottom, top): (f64, f64)) -> Upright {
        let values = || {
            let values = row.series.iter().flatten().flatten().map(|value| drawn(row.quantity, *value));
            values.filter(|value| value.is_finite() && *value > 0.0)
        };
        let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let (least, most) = if least <= most { (least, most) } else { (1.0, 1.0) };
        match row.quantity {
            Quantity::Percentile(_) => Upright::Log(LogScale::new((least / 1.1, most * 1.1), (bottom, top))),
            Quantity::Rate(_)
            | Quantity::Void
            | Quantity::Unanswered
            | Quantity::Retransmits
            | Quantity::TimeOuts
            | Quantity::Stolen
            | Quantity::Starved
            | Quantity::Drops => Upright::Linear(Linear::new(most * 1.06, (bottom, top))),
        }
    }

    fn place(&self, value: f64) -> f64 {
        match self {
            Upright::Log(scale) => scale.place(value),
            Upright::Linear(scale) => scale.place(value),
        }
    }

    fn ticks(&self) -> Vec<f64> {
        match self {
            Upright::Log(scale) => scale.round_ticks(24.0),
            Upright::Linear(scale) => scale.ticks(24.0),
        }
    }
}

impl<'a> Plot<'a> {
    /// A load of a race that has a point.
    pub(super) fn new(summary: &'a Summary, timeline: &'a Timeline, load: usize, frame: Frame) -> Plot<'a> {
        let ends = match frame {
            Frame::Wide => (74.0, 1112.0),
            Frame::Narrow => (58.0, 374.0),
        };
        let last = timeline.ends_s.as_deref().and_then(<[f64]>::last);
        let x = Span::new((0.0, last.map_or(timeline.steps() as f64, |last_s| last_s / 60.0)), ends);
        Plot { summary, timeline, load, frame, ends, x }
    }

    pub(super) fn draw(&self) -> Markup {
        let mut svg = Svg::new();
        let mut top = self.draw_legend(&mut svg);
        for (row, height) in self.rows() {
            top += TITLE;
            self.draw_row(&mut svg, row, (top + height, top));
            top += height;
        }
        self.draw_below(&mut svg, top);
        let load = self.summary.loads.get(self.load).map(text::load).unwrap_or_default();
        let title = format!("The course of the race, {load}");
        let desc =
            "One row for each quantity, one line for each data path; every point is in the tables below.";
        svg.finish(self.frame, top + FOOT, Caption { title: &title, desc })
    }

    /// The rows with the heights of what they draw.
    fn rows(&self) -> impl Iterator<Item = (&'a TimelineRow, f64)> {
        self.timeline.loads[self.load].iter().map(|row| match row.quantity {
            Quantity::Rate(_) | Quantity::Percentile(_) => (row, TALL),
            Quantity::Void
            | Quantity::Unanswered
            | Quantity::Retransmits
            | Quantity::TimeOuts
            | Quantity::Stolen
            | Quantity::Starved
            | Quantity::Drops => (row, FLAT),
        })
    }

    /// Names in the colours of their lines, in as many lines as they need; returns where they end.
    fn draw_legend(&self, svg: &mut Svg) -> f64 {
        let (mut x, mut y) = (0.0, 14.0);
        for (index, candidate) in marks::runners(self.summary) {
            let name = marks::fitting(&candidate.name, 30);
            let width = 24.0 + 7.6 * name.chars().count() as f64 + 16.0;
            if x > 0.0 && x + width > self.frame.width() {
                (x, y) = (0.0, y + LEGEND);
            }
            let class = format!("curve {}", marks::line_class(self.summary, index));
            svg.group(&[("class", &*class), ("data-c", &index.to_string())], |svg| {
                svg.path("line", &[at(x, y - 4.5), at(x + 18.0, y - 4.5)]);
                svg.text("label", at(x + 24.0, y), Anchor::Start, &name);
            });
            x += width;
        }
        y + 6.0
    }

    fn draw_row(&self, svg: &mut Svg, row: &TimelineRow, (bottom, top): (f64, f64)) {
        let (left, right) = self.ends;
        let scale = Upright::new(row, (bottom, top));
        svg.text("panel", at(0.0, top - 12.0), Anchor::Start, &name(row.quantity));
        let is_count = !matches!(row.quantity, Quantity::Rate(_) | Quantity::Percentile(_));
        for tick in scale.ticks().into_iter().filter(|tick| !is_count || tick.fract() == 0.0) {
            let y = scale.place(tick);
            svg.line("grid", at(left, y), at(right, y));
            svg.text("tick", at(left - 8.0, y + 4.0), Anchor::End, &text::significant_short(tick));
        }
        for build in &self.timeline.builds {
            let x = self.along(f64::from(*build) / f64::from(self.timeline.rounds_a_step));
            svg.line("build", at(x, top), at(x, bottom));
        }
        // The reference is drawn last, above all others.
        let mut runners: Vec<_> = marks::runners(self.summary).collect();
        runners.sort_by_key(|(_, candidate)| match candidate.role {
            Role::Contender => 0,
            Role::Control => 1,
            Role::Reference => 2,
        });
        for (index, candidate) in runners {
            let runs = self.runs(row, &scale, index);
            let class = format!("curve thin {}", marks::line_class(self.summary, index));
            svg.group(&[("class", &*class), ("data-c", &index.to_string())], |svg| {
                svg.tooltip(&candidate.name);
                for run in &runs {
                    match run.as_slice() {
                        [alone] => svg.circle("end", *alone, 2.0),
                        points => svg.path("line", points),
                    }
                }
            });
        }
    }

    /// The points of a candidate, parted where it has none.
    fn runs(&self, row: &TimelineRow, scale: &Upright, index: usize) -> Vec<Vec<Point>> {
        let series = row.series.get(index).map_or(&[][..], Vec::as_slice);
        let place = |(step, value): (usize, &Option<f64>)| {
            let value = drawn(row.quantity, (*value)?);
            value.is_finite().then(|| at(self.along(step as f64 + 0.5), scale.place(value)))
        };
        let places: Vec<Option<Point>> = series.iter().enumerate().map(place).collect();
        places
            .split(Option::is_none)
            .filter(|run| !run.is_empty())
            .map(|run| run.iter().flatten().copied().collect())
            .collect()
    }

    /// Where a step lies, or a part of one.
    fn along(&self, step: f64) -> f64 {
        let Some(ends_s) = &self.timeline.ends_s else { return self.x.place(step) };
        let whole = step.floor() as usize;
        let end =
            |step: usize| step.checked_sub(1).and_then(|before| ends_s.get(before)).copied().unwrap_or(0.0);
        let (begin, end) = (end(whole), end((whole + 1).min(ends_s.len())));
        self.x.place((begin + (end - begin) * step.fract()) / 60.0)
    }

    /// Minutes below the last row, or numbers of rounds.
    fn draw_below(&self, svg: &mut Svg, bottom: f64) {
        let Some(last_s) = self.timeline.ends_s.as_deref().and_then(<[f64]>::last) else {
            return self.draw_rounds(svg, bottom);
        };
        for minute in std::iter::once(0.0).chain(Linear::new(last_s / 60.0, self.ends).ticks(60.0)) {
            svg.text(
                "tick",
                at(self.x.place(minute), bottom + 18.0),
                Anchor::Middle,
                &text::significant_short(minute),
            );
        }
        let is_counted = self.summary.experiment.vm.as_ref().is_some_and(record::Machines::counts);
        let name = match is_counted {
            true => "minutes of counted time since the start of the race",
            false => "minutes since the start of the race",
        };
        let middle = f64::midpoint(self.ends.0, self.ends.1);
        svg.text("axis-name", at(middle, bottom + 36.0), Anchor::Middle, name);
    }

    fn draw_rounds(&self, svg: &mut Svg, bottom: f64) {
        let each = self.timeline.rounds_a_step;
        let scale = Linear::new(f64::from(self.timeline.rounds), self.ends);
        let whole = |tick: &f64| *tick >= 1.0 && tick.fract() == 0.0;
        for round in std::iter::once(1.0).chain(scale.ticks(60.0).into_iter().filter(whole)) {
            // A round counts from 1, and has its point in the middle of its step.
            let step = ((round as u32 - 1) / each) as f64;
            if round > 1.0 && self.x.place(step) - self.x.place(0.0) < 24.0 {
                continue;
            }
            svg.text(
                "tick",
                at(self.x.place(step + 0.5), bottom + 18.0),
                Anchor::Middle,
                &text::grouped(round as u64),
            );
        }
        let middle = f64::midpoint(self.ends.0, self.ends.1);
        let name = match each_s(self.summary, self.timeline) {
            Some(each) => format!("round, about {} each", text::duration(each)),
            None => "round".to_owned(),
        };
        svg.text("axis-name", at(middle, bottom + 36.0), Anchor::Middle, &name);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timeline(quantity: Quantity, series: Vec<Vec<Option<f64>>>) -> Timeline {
        let rounds = series[0].len() as u32;
        let row = TimelineRow { quantity, series };
        Timeline { rounds, rounds_a_step: 1, builds: vec![], ends_s: None, loads: vec![vec![row]] }
    }

    fn drawn_runs(timeline: &Timeline, index: usize, ends: (f64, f64)) -> Vec<Vec<Point>> {
        let summary = super::super::super::fixture::race();
        let plot = Plot::new(&summary, timeline, 0, Frame::Wide);
        let row = &timeline.loads[0][0];
        plot.runs(row, &Upright::new(row, ends), index)
    }

    #[test]
    fn a_line_is_parted_where_nothing_counts() {
        let series = vec![vec![Some(1.0), Some(2.0), None, None, Some(3.0)]];
        let runs = drawn_runs(&timeline(Quantity::Rate("req/s"), series), 0, (100.0, 0.0));
        assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        assert!(runs[0][1].x < runs[1][0].x && runs[1][0].y < runs[0][0].y, "{runs:?}");
    }

    proptest! {
        #[test]
        fn every_point_lies_in_its_row_and_in_order(
            values in prop::collection::vec(prop::option::of(0.0_f64..1e12), 1..60), is_time: bool,
        ) {
            let quantity = if is_time { Quantity::Percentile("p99") } else { Quantity::Retransmits };
            let known = values.iter().flatten().count();
            let runs = drawn_runs(&timeline(quantity, vec![values]), 0, (100.0, 20.0));
            let points: Vec<Point> = runs.into_iter().flatten().collect();
            prop_assert_eq!(points.len(), known);
            prop_assert!(points.iter().all(|at| (20.0..=100.0).contains(&at.y) && (74.0..=1112.0).contains(&at.x)));
            prop_assert!(points.windows(2).all(|pair| pair[0].x < pair[1].x));
        }
    }
}
