//! Published figures beside ours: for each load a table of ratios, theirs and ours, with a mark for how they agree.

use std::fmt::Write;

use super::Style;
use super::grid::{self, Ink, Row};
use super::list;
use crate::figures;
use crate::published::{Agreement, PublishedFigure};
use crate::summary::Summary;

/// All that is said of published figures; nothing without any.
pub(super) fn blocks(summary: &Summary, style: Style) -> String {
    let mut text = String::new();
    if let Some(sentence) = &summary.agreement {
        text.push_str("\nPublished ratios | ours: = agrees, ~ same direction, ! contradicts, ? undecided\n");
        for (index, load) in summary.loads.iter().enumerate() {
            let rows = rows(summary, index);
            if rows.len() > 1 {
                let _infallible =
                    writeln!(text, "{}", grid::ink(&figures::load(load), Ink::Bold, style.colour));
                let dispensable: Vec<usize> = (0..rows[0].cells.len()).collect();
                text.push_str(&grid::draw(&rows, &dispensable, style));
            }
        }
        text.push_str(&obstacles(summary));
        let _infallible = writeln!(text, "  {sentence}");
    }
    text.push_str(&list("Published", &shown(summary)));
    text.push_str(&list("Reading", &paragraphs(&summary.experiment.reading)));
    text
}

/// A row a candidate, a column a metric.
fn rows(summary: &Summary, load: usize) -> Vec<Row> {
    let here: Vec<&PublishedFigure> = summary
        .published
        .iter()
        .filter(|figure| figure.load == Some(load) && figure.is_comparison() && figure.ratio.is_some())
        .collect();
    let (mut names, mut metrics): (Vec<(&str, &str)>, Vec<&str>) = (vec![], vec![]);
    for figure in &here {
        let metric = figure.metric.unwrap_or_default();
        let pair = (&*figure.path, &*figure.against);
        if !names.contains(&pair) {
            names.push(pair);
        }
        if !metrics.contains(&metric) {
            metrics.push(metric);
        }
    }
    let head = std::iter::once("candidate").chain(metrics.iter().copied()).map(str::to_owned);
    let mut rows = vec![Row { cells: head.collect(), ink: Ink::Dim }];
    for (path, against) in names {
        let of = |metric: &&str| {
            let is = |figure: &&&PublishedFigure| figure.path == path && figure.against == against;
            here.iter().filter(is).find(|figure| figure.metric == Some(*metric))
        };
        let cells = metrics.iter().map(|metric| of(metric).map_or_else(String::new, |figure| cell(figure)));
        let name = format!("{path} ÷ {against}");
        rows.push(Row { cells: std::iter::once(name).chain(cells).collect(), ink: Ink::Plain });
    }
    rows
}

/// `1.40 | 1.12 ~`.
fn cell(figure: &PublishedFigure) -> String {
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
    let mark = match figure.agreement {
        Agreement::Agrees => "=",
        Agreement::SameDirection => "~",
        Agreement::Contradicts => "!",
        Agreement::Undecided => "?",
        Agreement::Reference | Agreement::NotComparable | Agreement::Shown => " ",
    };
    let [theirs, ours] = [figure.published_ratio, figure.ratio].map(|of| ratio(of.map(|of| of.value)));
    format!("{theirs} | {ours} {mark}")
}

/// Why figures could not be compared, each kind of reason once: what stands in brackets is one figure's alone, and is
/// told on the page.
fn obstacles(summary: &Summary) -> String {
    let mut reasons: Vec<(&str, u64)> = vec![];
    for figure in summary.published.iter().filter(|figure| figure.agreement == Agreement::NotComparable) {
        let kind = figure.reason.split(" (").next().unwrap_or_default();
        match reasons.iter_mut().find(|(reason, _)| *reason == kind) {
            Some((_, count)) => *count += 1,
            None => reasons.push((kind, 1)),
        }
    }
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let line = |(reason, count): &(&str, u64)| format!("  {count} not comparable: {reason}\n");
    reasons.iter().map(line).collect()
}

/// Figures that are to be read.
fn shown(summary: &Summary) -> Vec<String> {
    let texts = summary.published.iter().filter(|figure| figure.agreement == Agreement::Shown);
    texts
        .map(|figure| {
            let value = format!("{} {}", figure.value, figure.unit);
            format!("{}, {}: {} ({})", figure.path, figure.what, value.trim_end(), figure.source)
        })
        .collect()
}

/// A text with an empty line between paragraphs, each as one line.
fn paragraphs(text: &str) -> Vec<String> {
    let joined = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split("\n\n").map(joined).filter(|paragraph| !paragraph.is_empty()).collect()
}
