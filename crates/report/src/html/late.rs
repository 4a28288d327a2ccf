//! Why answers are late: for each candidate the tail beyond p99 as a stacked curve, whose height is the response time
//! and whose layers are the causes; and the same as a table.

use record::Cause;

use super::marks;
use super::markup::Markup;
use super::scale::LogScale;
use super::svg::{Anchor, Caption, Frame, Rect, Svg, at};
use super::table::{Cell, Row, Table};
use super::text;
use crate::figures::counted;
use crate::late::name;
use crate::{CauseShare, LateAnswers, LateLoad, LateStep, Load, Summary};

/// A panel's name above its curve, and the ticks below it.
const HEAD: f64 = 30.0;
const CURVE: f64 = 190.0;
const FOOT: f64 = 40.0;
/// Room for the ticks of the response time.
const TICKS: f64 = 52.0;
/// The space between panels, in px.
const GAP: f64 = 26.0;
/// Letters of a candidate's name.
const NAME: usize = 30;
/// Percentiles named on the axis.
const NAMED: [f64; 4] = [0.99, 0.999, 0.9999, 0.99999];

/// Writes the section, if late answers were looked at.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    if summary.late.is_empty() {
        return;
    }
    m.within("section", &[("id", "late")], |m| {
        m.leaf("h2", &[], "Why answers are late");
        m.leaf(
            "p",
            &[("class", "lead")],
            "What the answers beyond p99 coincided with, by events of the kernel and the generator's own log. Each answer \
            is charged to one cause: the one with most of its time. From slices of their own after the race, so that no \
            trial was watched. A curve's height is the response time; its layers, from the median up, are the causes' \
            shares of what lies beyond the median.",
        );
        for (index, load) in summary.late.iter().enumerate() {
            m.leaf("h3", &[], &text::load(&as_load(load)));
            legend(m, load);
            draw(m, load);
            table(m, summary, load);
            notes(m, load, index);
        }
    });
}

fn as_load(load: &LateLoad) -> Load {
    Load {
        body_bytes: load.body_bytes,
        requested_rps: load.requested_rps,
        of_capacity: load.of_capacity,
        measure: record::Measure::Latency,
    }
}

/// Causes that some answer was charged to.
fn present(load: &LateLoad) -> Vec<Cause> {
    let has = |cause: &&Cause| {
        let steps = load.candidates.iter().flat_map(|candidate| &candidate.steps);
        steps.flat_map(|step| &step.shares).any(|share| share.cause == **cause)
    };
    Cause::ALL.iter().filter(has).copied().collect()
}

/// The class of a cause's layer in `style.css`.
fn class(cause: Cause) -> &'static str {
    match cause {
        Cause::Stall => "l-stall",
        Cause::TimeOut => "l-time-out",
        Cause::Probe => "l-probe",
        Cause::FastRetransmit => "l-fast",
        Cause::Drop => "l-drop",
        Cause::Softirq => "l-softirq",
        Cause::ServerWaited => "l-waited",
        Cause::Generator => "l-generator",
        Cause::Server => "l-server",
        Cause::Queue => "l-queue",
        Cause::Unknown => "l-unknown",
    }
}

fn legend(m: &mut Markup, load: &LateLoad) {
    m.within("p", &[("class", "legend")], |m| {
        for cause in present(load) {
            m.within("span", &[], |m| {
                m.leaf("i", &[("class", class(cause))], "");
                m.text(name(cause));
            });
            m.text(" ");
        }
    });
}

/// Panels of curves on one pair of scales.
struct Plot<'a> {
    frame: Frame,
    panels: Vec<&'a LateAnswers>,
    /// Response time in microseconds, relative to a panel's foot.
    y: LogScale,
    /// The quantile at the right end.
    last: f64,
}

fn draw(m: &mut Markup, load: &LateLoad) {
    let panels: Vec<&LateAnswers> = load.candidates.iter().filter(|c| !c.steps.is_empty()).collect();
    if panels.is_empty() {
        return m.leaf("p", &[("class", "aside")], "There are too few answers to say anything.");
    }
    m.within("figure", &[], |m| {
        for frame in Frame::BOTH {
            m.append(&Plot::new(frame, panels.clone()).draw(&text::load(&as_load(load))));
        }
    });
}

impl<'a> Plot<'a> {
    fn new(frame: Frame, panels: Vec<&'a LateAnswers>) -> Plot<'a> {
        let least = panels.iter().map(|panel| panel.median_ns).min().unwrap_or(1).max(1) as f64 / 1e3;
        let steps = || panels.iter().flat_map(|panel| &panel.steps);
        let most = steps().map(|step| step.ns).max().unwrap_or(1) as f64 / 1e3;
        let y = LogScale::new((least / 1.15, (most * 1.15).max(least * 1.5)), (CURVE, 0.0));
        // The last step has no end; it is drawn as wide as the one before it.
        let last = steps().map(|step| half_of_the_rest(step.from)).fold(0.99, f64::max);
        Plot { frame, panels, y, last }
    }

    fn columns(&self) -> usize {
        match self.frame {
            Frame::Wide => 3,
            Frame::Narrow => 1,
        }
    }

    fn draw(&self, load: &str) -> Markup {
        let mut svg = Svg::new();
        let height = HEAD + CURVE + FOOT;
        let width = self.frame.width() / self.columns() as f64;
        for (index, panel) in self.panels.iter().enumerate() {
            let (column, row) = (index % self.columns(), index / self.columns());
            let (left, top) = (width * column as f64 + TICKS, height * row as f64 + HEAD);
            svg.text("panel", at(left, top - 12.0), Anchor::Start, &marks::fitting(&panel.name, NAME));
            self.draw_panel(
                &mut svg,
                panel,
                Rect { x: left, y: top, width: width - TICKS - GAP, height: CURVE },
            );
        }
        let rows = self.panels.len().div_ceil(self.columns());
        let title = format!("Causes of late answers by percentile, {load}");
        let desc =
            "A stacked curve for each candidate; the shares at p99, p99.9 and p99.99 are in the table below.";
        svg.finish(self.frame, height * rows as f64, Caption { title: &title, desc })
    }

    fn draw_panel(&self, svg: &mut Svg, panel: &LateAnswers, area: Rect) {
        let Rect { x: left, y: top, width, height } = area;
        for tick in self.y.decade_ticks(24.0) {
            let y = top + self.y.place(tick);
            svg.line("grid", at(left, y), at(left + width, y));
            let figure =
                format!("{}{}", text::significant_short(tick), if left < TICKS + 1.0 { " µs" } else { "" });
            svg.text("tick", at(left - 6.0, y + 4.0), Anchor::End, &figure);
        }
        for quantile in NAMED.into_iter().filter(|quantile| *quantile <= self.last + 1e-12) {
            let x = self.x(quantile, area);
            svg.line("grid", at(x, top), at(x, top + height + 4.0));
            let anchor = if quantile > 0.99 { Anchor::Middle } else { Anchor::Start };
            svg.text("tick", at(x, top + height + 18.0), anchor, &text::percentile(quantile));
        }
        for step in &panel.steps {
            self.draw_step(svg, panel, step, area);
        }
        let y = top + self.y.place(panel.median_ns as f64 / 1e3);
        svg.line("mark-line", at(left, y), at(left + width, y));
    }

    /// The layers of a step, from the median up to the response time.
    fn draw_step(&self, svg: &mut Svg, panel: &LateAnswers, step: &LateStep, area: Rect) {
        let (from, to) = (self.x(step.from, area), self.x(step.to.min(half_of_the_rest(step.from)), area));
        let foot = area.y + self.y.place(panel.median_ns as f64 / 1e3);
        let head = area.y + self.y.place(step.ns as f64 / 1e3);
        let mut below = 0.0;
        for CauseShare { cause, share, answers } in &step.shares {
            let height = (foot - head) * share;
            let rect = Rect { x: from, y: foot - below - height, width: to - from, height };
            below += height;
            svg.group(&[], |svg| {
                svg.tooltip(&format!(
                    "{}, {} to {}, {} µs: {} {}, {}",
                    panel.name,
                    text::percentile(step.from),
                    text::percentile(step.to),
                    text::micros(step.ns),
                    text::percent(*share),
                    name(*cause),
                    counted(*answers, "answer"),
                ));
                svg.rect(class(*cause), rect);
            });
        }
    }

    /// The place of a quantile: each halving of what lies beyond takes the same space.
    fn x(&self, quantile: f64, area: Rect) -> f64 {
        let halvings = |quantile: f64| -((1.0 - quantile).max(1e-9) / 0.01).log2();
        area.x + area.width * halvings(quantile) / halvings(self.last).max(1.0)
    }
}

/// The quantile beyond which half as many answers lie.
fn half_of_the_rest(quantile: f64) -> f64 {
    1.0 - (1.0 - quantile) / 2.0
}

fn table(m: &mut Markup, summary: &Summary, load: &LateLoad) {
    let causes = present(load);
    let mut head = vec!["".to_owned(), "percentile".to_owned(), "µs".to_owned()];
    head.extend(causes.iter().map(|cause| name(*cause).to_owned()));
    let rows = load.candidates.iter().flat_map(|candidate| {
        let place = summary.candidates.iter().position(|other| other.name == candidate.name);
        let causes = &causes;
        candidate.percentiles.iter().map(move |percentile| {
            let mut cells = vec![
                Cell::figure(text::percentile(percentile.quantile)),
                Cell::figure(text::micros(percentile.ns)),
            ];
            cells.extend(causes.iter().map(|cause| {
                let share = percentile.shares.iter().find(|share| share.cause == *cause);
                Cell::figure(share.map_or_else(|| text::NONE.to_owned(), |share| text::percent(share.share)))
            }));
            Row { name: candidate.name.clone(), candidate: place, cells }
        })
    });
    let rows: Vec<Row> = rows.collect();
    if !rows.is_empty() {
        let caption = "How much of a percentile's excess over the median is whose; “–”: none of it";
        Table { caption, head, rows }.write(m);
    }
}

/// What the figures rest on: time-outs, drops, the cost of watching, and what could not be seen.
fn notes(m: &mut Markup, load: &LateLoad, index: usize) {
    m.within("details", &[("class", "path")], |m| {
        m.leaf("summary", &[], "Retransmissions, drops, and what watching costs");
        m.within("ul", &[("data-late", &index.to_string())], |m| {
            for candidate in &load.candidates {
                m.leaf(
                    "li",
                    &[],
                    &format!("{}: {}.", candidate.name, crate::late::notes(candidate).join("; ")),
                );
            }
        });
    });
    if load.candidates.iter().any(|candidate| candidate.time_outs > 0) {
        m.leaf(
            "p",
            &[("class", "aside")],
            "The answers of about 200, 600 or 1400 ms that belong to time-outs and probes are no property of the path's \
            speed: a packet was lost, and Linux waits at least 200 ms before it sends a segment again that is alone on its \
            connection, and twice as long each time after that.",
        );
    }
}
