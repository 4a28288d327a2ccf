//! What was swept: a chart a statistic, a line a data path, a whisker a point; the same as tables.

mod chart;

use record::{AxisUnit, Measure, WorkloadKind};

use self::chart::Plot;
use super::marks::{self, key};
use super::markup::Markup;
use super::svg::Frame;
use super::table::{Cell, Row, Table};
use super::text;
use crate::until_sentences::interval_levels;
use crate::{Summary, SweepSummary, SweptChart, SweptFigure, SweptLine, carried, figures};

/// Writes the section; empty without a sweep.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    let Some(sweep) = &summary.sweep else { return };
    m.within("section", &[("id", "sweep")], |m| {
        m.leaf("h2", &[], &heading(sweep));
        m.leaf("p", &[("class", "lead")], &lead(summary, sweep));
        for (index, chart) in sweep.charts.iter().enumerate() {
            m.leaf("h3", &[], &title(summary, sweep, chart));
            if chart.lines.is_empty() {
                m.leaf("p", &[("class", "aside")], "No trial that counts: there is no line to draw.");
                continue;
            }
            m.within("figure", &[], |m| {
                for frame in Frame::BOTH {
                    m.append(&Plot::new(summary, sweep, index, frame).draw());
                }
            });
            levels(m, chart);
            table(m, summary, sweep, index);
        }
    });
}

/// What lies on the axis, in a word or two: "packet loss".
pub(super) fn subject(sweep: &SweepSummary) -> String {
    match sweep.axis {
        AxisUnit::Bytes => "size".to_owned(),
        AxisUnit::PercentOfCapacity | AxisUnit::PerSecond => "load".to_owned(),
        AxisUnit::PercentLost => "packet loss".to_owned(),
        AxisUnit::Milliseconds => "delay".to_owned(),
        AxisUnit::Connections => "connections".to_owned(),
        AxisUnit::OfTheKnob => sweep.over.trim_start_matches("settings.").to_owned(),
    }
}

fn heading(sweep: &SweepSummary) -> String {
    format!("Over {}", subject(sweep))
}

fn lead(summary: &Summary, sweep: &SweepSummary) -> String {
    let reference = marks::reference(summary);
    let paired = format!(
        "Whiskers are {} intervals of the figures themselves. They include drift that all data paths share, which the ratios \
         below do not: a difference may be clear there and not here.",
        interval_levels(summary, None)
    );
    if sweep.charts.iter().all(|chart| chart.levels.is_empty()) {
        return format!("Each data path is a line; the thickest is {reference}. {paired}");
    }
    format!(
        "Each data path is a line. The horizontal line is {reference}, which raced as the experiment has it, at none of \
        the values. {paired}"
    )
}

/// What the axis counts, written under it.
fn axis_name(summary: &Summary, sweep: &SweepSummary) -> String {
    let way = |what: &str| match sweep.over.split_once('.') {
        Some(("to_server", _)) => format!("{what} on the way to the server"),
        Some(("to_client", _)) => format!("{what} on the way to the client"),
        _ => format!("{what}, either way"),
    };
    match sweep.axis {
        AxisUnit::Bytes => format!("bytes of {}", thing(summary.experiment.workload.kind)),
        AxisUnit::PercentOfCapacity => format!("% of the capacity of {}", marks::reference(summary)),
        AxisUnit::PerSecond => match carried::measure(summary) {
            Measure::Packets | Measure::Frames => "packets/s asked for".to_owned(),
            Measure::Latency | Measure::Bandwidth => "requests/s asked for".to_owned(),
        },
        AxisUnit::PercentLost => way("% of packets lost"),
        AxisUnit::Milliseconds => way("ms under way"),
        AxisUnit::Connections => "connections".to_owned(),
        AxisUnit::OfTheKnob => subject(sweep),
    }
}

/// What a size is the size of.
fn thing(kind: WorkloadKind) -> &'static str {
    match kind {
        WorkloadKind::Http | WorkloadKind::Connect => "an answer's body",
        WorkloadKind::Download => "an object",
        WorkloadKind::TcpRr | WorkloadKind::UdpRr | WorkloadKind::Verbs => "request and answer",
        WorkloadKind::Grpc => "a message",
        WorkloadKind::TcpStream => "a write",
        WorkloadKind::UdpStream => "a packet",
        WorkloadKind::Packets => "a frame",
    }
}

/// The statistic and what its points have in common.
fn title(summary: &Summary, sweep: &SweepSummary, chart: &SweptChart) -> String {
    let mut parts = vec![statistic(chart)];
    match (chart.of_capacity, chart.requested_rps) {
        (Some(share), _) => parts.push(format!("{} of capacity", text::percent(share))),
        (None, Some(rps)) => {
            parts.push(format!("{} {}", text::per_second(rps), carried::measure(summary).unit()));
        }
        (None, None) => {
            let has_rates = matches!(sweep.axis, AxisUnit::PercentOfCapacity | AxisUnit::PerSecond);
            if chart.unit != "ns" && !has_rates {
                parts.push(figures::unpaced(carried::measure(summary)).to_owned());
            }
        }
    }
    parts.extend(chart.body_bytes.map(text::bytes));
    parts.join(" · ")
}

/// A statistic with its unit, as a panel's name.
fn statistic(chart: &SweptChart) -> String {
    match chart.unit {
        "ns" => format!("{} in µs", chart.statistic),
        unit => unit.to_owned(),
    }
}

/// A figure as it is drawn: nanoseconds as microseconds.
fn drawn(chart: &SweptChart, value: f64) -> f64 {
    if chart.unit == "ns" { value / 1e3 } else { value }
}

fn figure(chart: &SweptChart, figure: &SweptFigure) -> String {
    let number = |value: f64| text::significant(drawn(chart, value));
    match (figure.low, figure.high) {
        (Some(low), Some(high)) => format!("{} ({}–{})", number(figure.estimate), number(low), number(high)),
        _ => number(figure.estimate),
    }
}

/// The reference's own figures, which stand at no value.
fn levels(m: &mut Markup, chart: &SweptChart) {
    let levels =
        chart.levels.iter().map(|level| format!("{} {}", level.candidate, figure(chart, &level.figure)));
    let levels: Vec<String> = levels.collect();
    if !levels.is_empty() {
        let text = format!("{}, as the experiment has it: {}.", statistic(chart), levels.join("; "));
        m.leaf("p", &[("class", "aside")], &text);
    }
}

/// The key of a point, in drawing and table.
fn key_of(chart: usize, line: usize, point: usize) -> String {
    key(&format!("sweep{chart}"), line, point)
}

/// The values of a chart, rising, each once.
fn values(chart: &SweptChart) -> Vec<f64> {
    let points = chart.lines.iter().flat_map(|line| &line.points);
    let mut values: Vec<f64> = points.map(|point| point.value).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

fn table(m: &mut Markup, summary: &Summary, sweep: &SweepSummary, index: usize) {
    let chart = &sweep.charts[index];
    let cell = |value: f64, (at, line): (usize, &SweptLine)| {
        let found = line.points.iter().position(|point| point.value == value);
        match found {
            Some(point) => Cell::plotted(figure(chart, &line.points[point].figure), key_of(index, at, point)),
            None => Cell::figure(text::NONE.to_owned()),
        }
    };
    let rows = values(chart).into_iter().map(|value| Row {
        name: tick(value),
        candidate: None,
        cells: chart.lines.iter().enumerate().map(|line| cell(value, line)).collect(),
    });
    let mut head = vec![axis_name(summary, sweep)];
    head.extend(chart.lines.iter().map(|line| line.name.clone()));
    let caption = format!("{} over {}", title(summary, sweep, chart), subject(sweep));
    Table { caption: &caption, rows: rows.collect(), head }.write(m);
}

/// A value of the axis as requested: sizes are not rounded.
fn tick(value: f64) -> String {
    if value >= 0.0 && value.fract() == 0.0 {
        text::grouped(value as u64)
    } else {
        figures::trimmed(value, 7)
    }
}
