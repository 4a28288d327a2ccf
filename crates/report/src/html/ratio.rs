//! The candidates' slowdown: p50, p99 and that of a typical slice ÷ the reference's with their intervals, the noise of
//! the reference against itself behind them, the verdict beside them. The table contains these figures too.

use record::Measure;

use super::marks::{self, key};
use super::markup::Markup;
use super::rows::{self, NameColumn, Panel};
use super::scale::LogScale;
use super::streams;
use super::svg::{Anchor, Caption, Frame, Rect, Svg, at};
use super::table::{Cell, Row, Table};
use super::text;
use crate::until_sentences::interval_levels;
use crate::{Candidate, Noise, RateSummary, Ratio, Role, Summary, carried};

/// Which percentile a panel shows.
#[derive(Clone, Copy)]
struct Statistic {
    name: &'static str,
    own: fn(&RateSummary) -> String,
    ratio: fn(&RateSummary) -> Option<&Ratio>,
    floor: fn(&Noise) -> Option<f64>,
}

const P50: Statistic = Statistic {
    name: "p50",
    own: |rate| text::micros_or_none(rate.response_ns.p50),
    ratio: |rate| rate.ratio.p50.as_ref(),
    floor: |noise| noise.p50_floor,
};
const P99: Statistic = Statistic {
    name: "p99",
    own: |rate| text::micros_or_none(rate.response_ns.p99),
    ratio: |rate| rate.ratio.p99.as_ref(),
    floor: |noise| noise.p99_floor,
};
/// p99 of a typical slice.
const TYPICAL_P99: Statistic = Statistic {
    name: "typical p99",
    own: |rate| text::micros_or_none(rate.typical_p99_ns.map(|ns| ns.round() as u64)),
    ratio: |rate| rate.ratio.typical_p99.as_ref(),
    floor: |noise| noise.typical_p99_floor,
};
/// Where as many requests go as can, this decides.
const THROUGHPUT: Statistic = Statistic {
    name: "answers/s",
    own: |rate| rate.achieved_rps.map_or_else(|| text::NONE.to_owned(), text::per_second),
    ratio: |rate| rate.rps_ratio.as_ref(),
    floor: |noise| noise.rps_floor,
};

const BANDWIDTH: Statistic = Statistic {
    name: "Mbit/s",
    own: |rate| {
        let mbit = rate.carried.and_then(|carried| carried.mbit_per_s);
        mbit.map_or_else(|| text::NONE.to_owned(), carried::mbit)
    },
    ..THROUGHPUT
};
const PACKETS: Statistic = Statistic { name: "packets/s", ..THROUGHPUT };
const FRAMES: Statistic = Statistic { name: "packets/CPU s", ..THROUGHPUT };

/// The statistics of a load that are drawn, and given with their intervals in the table.
fn statistics(summary: &Summary, load: usize) -> &'static [Statistic] {
    match carried::measure(summary) {
        Measure::Latency => {}
        Measure::Bandwidth => return &[BANDWIDTH],
        Measure::Packets => return &[PACKETS],
        Measure::Frames => return &[FRAMES],
    }
    let any_has = |ratio: fn(&RateSummary) -> Option<&Ratio>| {
        summary
            .candidates
            .iter()
            .filter_map(|candidate| candidate.rates.get(load))
            .any(|rate| ratio(rate).is_some())
    };
    match (any_has(THROUGHPUT.ratio), any_has(TYPICAL_P99.ratio)) {
        (true, _) => &[THROUGHPUT, P50, P99],
        (false, true) => &[P50, TYPICAL_P99, P99],
        (false, false) => &[P50, P99],
    }
}

/// The input of a drawing: a load of a summary, and a frame.
struct Plot<'a> {
    summary: &'a Summary,
    load: usize,
    frame: Frame,
    statistics: &'static [Statistic],
    names: NameColumn,
    rows: Vec<(usize, &'a Candidate, &'a RateSummary)>,
}

/// Writes the section on ratios.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    let reference = marks::reference(summary);
    m.within("section", &[("id", "ratio")], |m| {
        let measure = carried::measure(summary);
        let levels = interval_levels(summary, None);
        m.leaf("h2", &[], &format!("{} relative to {reference}", subject(summary)));
        m.within("p", &[("class", "lead")], |m| {
            if measure == Measure::Frames {
                return m.text(&format!(
                    "Packets that one CPU judges in a second of its time ÷ those of {reference}; right of 1 is cheaper. What it \
                    takes to make a frame is measured in turn with the rest, and subtracted. Marks are ratios, whiskers their \
                    {levels} intervals. The shaded band is the noise floor: the difference of {reference} from itself."
                ));
            }
            if measure != Measure::Latency {
                let unit = measure.unit();
                return m.text(&format!(
                    "{unit} that arrived ÷ that of {reference}; right of 1 is faster. Marks are ratios, whiskers their \
                    {levels} intervals. The shaded band is the noise floor: the difference of {reference} from itself."
                ));
            }
            let typical = match has_typical(summary) {
                true => "; typical p99 is the mean of the middle half of the slices' p99",
                false => "",
            };
            m.text(&format!(
                "Response time (received − intended) ÷ that of {reference}; right of 1 is slower. In a closed loop \
                answers per second come first, and there right of 1 is faster. p50 and p99 are of the merged \
                histograms{typical}. Whiskers are {levels} \
                intervals. The shaded band is the noise floor: the difference of {reference} from itself. Shape, \
                colour and word give the verdict for the whole load; the table says which statistic decided it."
            ));
        });
        for (load, spec) in summary.loads.iter().enumerate() {
            m.leaf("h3", &[], &text::load(spec));
            m.within("figure", &[], |m| {
                for frame in Frame::BOTH {
                    m.append(&Plot::new(summary, load, frame).draw());
                }
            });
            table(m, summary, load);
            streams::table(m, summary, load);
        }
    });
}

/// Whether any load has slices of enough requests for a p99 each.
fn has_typical(summary: &Summary) -> bool {
    let mut rates = summary.candidates.iter().flat_map(|candidate| &candidate.rates);
    rates.any(|rate| rate.ratio.typical_p99.is_some())
}

/// What the section is about.
fn subject(summary: &Summary) -> &'static str {
    match carried::measure(summary) {
        Measure::Latency if has_typical(summary) => "p50, typical p99 and p99",
        Measure::Latency => "p50 and p99",
        Measure::Bandwidth => "Mbit/s",
        Measure::Packets => "Packets per second",
        Measure::Frames => "Packets that a CPU judges in a second",
    }
}

/// The ratio if it has a place on a logarithmic axis.
pub(super) fn plottable(ratio: Option<&Ratio>) -> Option<&Ratio> {
    ratio.filter(|ratio| {
        [ratio.low, ratio.value, ratio.high].iter().all(|part| part.is_finite() && *part > 0.0)
    })
}

impl<'a> Plot<'a> {
    fn new(summary: &'a Summary, load: usize, frame: Frame) -> Plot<'a> {
        let rows: Vec<_> = marks::runners_at(summary, load).collect();
        let names = NameColumn::beside(rows.iter().map(|(_, candidate, _)| *candidate));
        Plot { summary, load, frame, statistics: statistics(summary, load), names, rows }
    }

    fn draw(&self) -> Markup {
        let mut svg = Svg::new();
        let panel_height = Panel::height(self.frame, self.rows.len());
        let height = match self.frame {
            Frame::Wide => panel_height,
            Frame::Narrow => panel_height * self.statistics.len() as f64,
        };
        if self.frame == Frame::Wide {
            self.draw_names(&mut svg);
        }
        for (statistic, panel) in self.statistics.iter().zip(self.panels(panel_height)) {
            self.draw_panel(&mut svg, *statistic, panel);
        }
        let subject = subject(self.summary);
        let title = format!("{subject} relative to {}", marks::reference(self.summary));
        let desc =
            format!("{}; every figure is in the table below.", text::load(&self.summary.loads[self.load]));
        svg.finish(self.frame, height, Caption { title: &title, desc: &desc })
    }

    /// Side by side, or one above the other.
    fn panels(&self, height: f64) -> impl Iterator<Item = Panel> {
        let (frame, gap, begin) = (self.frame, 40.0, self.names.right());
        let width = (940.0 - begin + gap) / self.statistics.len() as f64;
        (0..self.statistics.len()).map(move |index| match frame {
            Frame::Wide => {
                let left = begin + width * index as f64;
                Panel { left, right: left + width - gap, top: 0.0 }
            }
            Frame::Narrow => Panel { left: 8.0, right: 372.0, top: height * index as f64 },
        })
    }

    /// Draws names left of both panels and verdicts right of them.
    fn draw_names(&self, svg: &mut Svg) {
        let whole = Panel { left: 0.0, right: 0.0, top: 0.0 };
        for (row, (index, candidate, rate)) in self.rows.iter().enumerate() {
            let (y, height) = (whole.row(self.frame, row), rows::height(self.frame));
            if row % 2 == 1 {
                let stripe = Rect { x: 0.0, y: y - height / 2.0, width: self.frame.width(), height };
                svg.rect("stripe", stripe);
            }
            svg.group(
                &[("class", marks::verdict_class(rate.verdict)), ("data-c", &index.to_string())],
                |svg| {
                    rows::draw_name(
                        svg,
                        candidate,
                        self.names.letters,
                        at(self.names.end(), y + 4.5),
                        Anchor::End,
                    );
                    marks::mark(svg, rate.verdict, at(968.0, y));
                    svg.text("verdict", at(982.0, y + 4.5), Anchor::Start, rate.verdict_word());
                },
            );
        }
    }

    fn draw_panel(&self, svg: &mut Svg, statistic: Statistic, panel: Panel) {
        let floor =
            self.summary.noise.get(self.load).and_then(statistic.floor).filter(|floor| floor.is_finite());
        let ratios: Vec<&Ratio> =
            self.rows.iter().filter_map(|(_, _, rate)| plottable((statistic.ratio)(rate))).collect();
        let scale = LogScale::new(domain(&ratios, floor), (panel.left, panel.right));
        let span = panel.span(self.frame, self.rows.len());
        if let Some(floor) = floor {
            let (from, to) = (scale.place(1.0 / (1.0 + floor)), scale.place(1.0 + floor));
            let band = Rect { x: from, y: span.0, width: to - from, height: span.1 - span.0 };
            svg.rect("band", band);
        }
        panel.draw_title(svg, &self.panel_title(statistic, panel, floor));
        for tick in scale.ratio_ticks(46.0) {
            let class = if (tick - 1.0).abs() < 1e-9 { "one" } else { "grid" };
            rows::draw_tick(svg, class, scale.place(tick), span, &tick_text(tick));
        }
        for row in 0..self.rows.len() {
            self.draw_row(svg, statistic, panel, &scale, row);
        }
    }

    /// What a panel is about, with the noise in as many words as there is room for.
    fn panel_title(&self, statistic: Statistic, panel: Panel, floor: Option<f64>) -> String {
        let most = ((panel.right - panel.left) / 7.2) as usize;
        let ratio = format!("{} ÷ {}", statistic.name, marks::reference(self.summary));
        let Some(floor) = floor.map(text::noise) else { return marks::fitting(&ratio, most) };
        let long = format!("{ratio}, noise {floor}");
        let fits = long.chars().count() <= most;
        if fits { long } else { marks::fitting(&format!("{ratio}, {floor}"), most) }
    }

    fn draw_row(&self, svg: &mut Svg, statistic: Statistic, panel: Panel, scale: &LogScale, row: usize) {
        let (index, candidate, rate) = self.rows[row];
        let (y, class) = (panel.row(self.frame, row), marks::verdict_class(rate.verdict));
        if self.frame == Frame::Narrow {
            let above = y - 13.0;
            svg.group(&[("class", class)], |svg| {
                rows::draw_name(svg, candidate, 26, at(panel.left, above), Anchor::Start);
                svg.text("verdict", at(panel.right, above), Anchor::End, rate.verdict_word());
            });
        }
        if candidate.role == Role::Reference {
            return svg
                .group(&[("class", class)], |svg| marks::mark(svg, rate.verdict, at(scale.place(1.0), y)));
        }
        let Some(ratio) = plottable((statistic.ratio)(rate)) else {
            let why = match rate.trials {
                0 => "no trial that counts",
                _ if rate.is_past_capacity() => "past its capacity",
                _ if self
                    .rows
                    .iter()
                    .any(|(_, of, rate)| of.role == Role::Reference && rate.is_past_capacity()) =>
                {
                    "reference past its capacity"
                }
                _ if rate.among_unanswered.contains(&statistic.name) => "among unanswered requests",
                _ => "too few samples",
            };
            // On the side of the line that has more room.
            let one = scale.place(1.0);
            let (x, anchor) = match one - panel.left > panel.right - one {
                true => (one - 8.0, Anchor::End),
                false => (one + 8.0, Anchor::Start),
            };
            return svg.text("missing", at(x, y + 4.0), anchor, why);
        };
        let (key, value) = (key(statistic.name, self.load, index), text::ratio(ratio));
        let attrs =
            [("class", class), ("data-c", &*index.to_string()), ("data-f", &*key), ("data-v", &*value)];
        svg.group(&attrs, |svg| {
            svg.tooltip(&format!("{}: {} × {value}", candidate.name, statistic.name));
            draw_whisker(svg, scale, ratio, y);
            marks::mark(svg, rate.verdict, at(scale.place(ratio.value), y));
        });
    }
}

/// An interval; an end beyond the axis has an arrow instead of a bar.
pub(super) fn draw_whisker(svg: &mut Svg, scale: &LogScale, ratio: &Ratio, y: f64) {
    let end = |value: f64, inward: f64| {
        let x = scale.place(value);
        match scale.beyond(value) {
            true => vec![at(x + inward, y - 4.0), at(x, y), at(x + inward, y + 4.0)],
            false => vec![at(x, y - 4.0), at(x, y + 4.0)],
        }
    };
    let middle = [at(scale.place(ratio.low), y), at(scale.place(ratio.high), y)];
    svg.strokes("whisker", &[&end(ratio.low, 5.0), &middle, &end(ratio.high, -5.0)]);
}

/// A tick of a ratio in as few digits as it has.
pub(super) fn tick_text(tick: f64) -> String {
    let mut text = format!("{tick:.3}");
    let keep = text.trim_end_matches('0').trim_end_matches('.').len();
    text.truncate(keep);
    text
}

/// The ends of a panel's axis: all ratios, and at least 1 ± 5 %. An interval much wider than the ratios themselves is
/// cut, since it would compress all others.
pub(super) fn domain(ratios: &[&Ratio], floor: Option<f64>) -> (f64, f64) {
    let least = ratios.iter().map(|ratio| ratio.value).fold(1.0, f64::min);
    let most = ratios.iter().map(|ratio| ratio.value).fold(1.0, f64::max);
    let floor = floor.unwrap_or(0.0).min(1.0);
    let low = ratios.iter().map(|ratio| ratio.low).fold(0.95 / (1.0 + floor), f64::min);
    let high = ratios.iter().map(|ratio| ratio.high).fold(1.05 * (1.0 + floor), f64::max);
    (low.max(least / 2.5) / 1.01, high.min(most * 2.5) * 1.01)
}

fn table(m: &mut Markup, summary: &Summary, load: usize) {
    let reference = marks::reference(summary);
    let levels = interval_levels(summary, Some(load));
    let mut head = vec!["data path".to_owned()];
    for statistic in statistics(summary, load) {
        let is_time = [P50.name, TYPICAL_P99.name, P99.name].contains(&statistic.name);
        let unit = if is_time { "\u{202f}µs" } else { "" };
        head.extend([format!("{}{unit}", statistic.name), format!("÷ {reference} ({levels})")]);
    }
    head.push("verdict".to_owned());
    let rows = summary.candidates.iter().enumerate().map(|(index, candidate)| Row {
        name: candidate.name.clone(),
        candidate: candidate.runnable.then_some(index),
        cells: match candidate.rates.get(load).filter(|_| candidate.runnable) {
            Some(rate) => cells(statistics(summary, load), rate, candidate, (load, index)),
            None => vec![Cell::spanning(absence(candidate), head.len() - 1)],
        },
    });
    Table {
        caption: &format!("Relative to {reference}: {}", text::load(&summary.loads[load])),
        rows: rows.collect(),
        head: head.clone(),
    }
    .write(m);
}

/// Why a candidate has no figures.
fn absence(candidate: &Candidate) -> String {
    match candidate.runnable {
        true => "no trial at this load".to_owned(),
        false => format!("could not run here: {}", candidate.reasons.join("; ")),
    }
}

fn cells(
    statistics: &[Statistic],
    rate: &RateSummary,
    candidate: &Candidate,
    (load, index): (usize, usize),
) -> Vec<Cell> {
    let pair = |statistic: &Statistic| {
        let ratio = match (candidate.role, plottable((statistic.ratio)(rate))) {
            (Role::Reference, _) => Cell::figure("1".to_owned()),
            (_, Some(ratio)) => Cell::plotted(text::ratio(ratio), key(statistic.name, load, index)),
            (_, None) => Cell::figure(text::NONE.to_owned()),
        };
        [Cell::figure((statistic.own)(rate)), ratio]
    };
    let mut cells: Vec<Cell> = statistics.iter().flat_map(pair).collect();
    cells.push(Cell::classed(rate.verdict_word(), marks::verdict_class(rate.verdict)));
    cells.push(Cell::under(&rate.verdict_reason));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_holds_what_matters() {
        let near = Ratio { value: 1.02, low: 0.99, high: 1.03 };
        let (low, high) = domain(&[&near], Some(0.02));
        assert!(low < 0.94 && high > 1.07 && high < 1.2, "{low} {high}");
        let far = Ratio { value: 1.2, low: 0.01, high: 90.0 };
        let (low, high) = domain(&[&near, &far], None);
        assert!(low > 0.3 && high < 4.0, "{low} {high}");
        assert!(plottable(Some(&Ratio { value: 1.0, low: 0.0, high: 2.0 })).is_none());
    }

    #[test]
    fn ticks_have_no_needless_digits() {
        assert_eq!([0.95, 1.0, 1.1, 0.125, 20.0].map(tick_text), ["0.95", "1", "1.1", "0.125", "20"]);
    }
}
