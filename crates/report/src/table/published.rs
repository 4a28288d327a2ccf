//! Published figures beside ours: what this run found, then for each load a table of ratios, theirs and ours, with a
//! mark for how they agree, and last what the experiment's author saw in a run of their own.

use std::fmt::Write;

use super::Style;
use super::grid::{self, Ink, Row};
use super::list;
use crate::figures;
use crate::published::{self, Agreement, PublishedFigure, Shown, ShownTable};
use crate::summary::Summary;
use crate::terminal;

/// All blocks about published figures; empty without any.
pub(super) fn blocks(summary: &Summary, style: Style) -> String {
    let mut text = String::new();
    if let Some(sentence) = &summary.agreement {
        let _infallible = write!(text, "\nPublished figures beside ours\n  {sentence}\n");
        text.push_str(&obstacles(summary));
        text.push_str(&rounds_needed(summary));
        text.push_str(
            "  Ratios published | ours: = agrees, ~ same direction, ! contradicts, ? cannot tell\n",
        );
        for (index, load) in summary.loads.iter().enumerate() {
            let rows = rows(summary, index);
            if rows.len() > 1 {
                let _infallible =
                    writeln!(text, "{}", grid::ink(&figures::load(load), Ink::Bold, style.colour));
                let dispensable: Vec<usize> = (0..rows[0].cells.len()).collect();
                text.push_str(&grid::draw(&rows, &dispensable, style));
            }
        }
    }
    text.push_str(&shown(summary, style));
    text.push_str(&list(&author(summary), &paragraphs(&summary.experiment.reading)));
    text
}

/// Makes every published text a single line, as names are.
pub(super) fn name(summary: &mut Summary) {
    let figures = summary.published.iter_mut().flat_map(|figure| {
        let PublishedFigure { path, what, unit, source, place, key, setting, against, .. } = figure;
        [path, what, unit, source, place, key, setting, against]
    });
    let run = summary.experiment.reading_of.iter_mut().flat_map(|run| [&mut run.date, &mut run.machine]);
    let obstacles = summary.agreements.obstacles.iter_mut().map(|obstacle| &mut obstacle.reason);
    for text in figures.chain(run).chain(obstacles).chain(&mut summary.agreement) {
        *text = terminal::line(text).into_owned();
    }
}

/// A row a candidate, a column a metric.
fn rows(summary: &Summary, load: usize) -> Vec<Row> {
    let here: Vec<&PublishedFigure> = summary
        .published
        .iter()
        .filter(|figure| figure.load == Some(load) && figure.is_comparison() && figure.ratio.is_some())
        .collect();
    // A pair may have a figure and a direction of the same metric.
    let of =
        |figure: &PublishedFigure| (figure.path.clone(), figure.against.clone(), figure.direction.is_some());
    let (mut pairs, mut metrics): (Vec<(String, String, bool)>, Vec<&str>) = (vec![], vec![]);
    for figure in &here {
        let metric = figure.metric.unwrap_or_default();
        if !pairs.contains(&of(figure)) {
            pairs.push(of(figure));
        }
        if !metrics.contains(&metric) {
            metrics.push(metric);
        }
    }
    let head = std::iter::once("candidate").chain(metrics.iter().copied()).map(str::to_owned);
    let mut rows = vec![Row { cells: head.collect(), ink: Ink::Dim }];
    for pair in pairs {
        let at = |metric: &&str| {
            here.iter().filter(|figure| of(figure) == pair).find(|figure| figure.metric == Some(*metric))
        };
        let cells = metrics.iter().map(|metric| at(metric).map_or_else(String::new, |figure| cell(figure)));
        let name = format!("{} ÷ {}", pair.0, pair.1);
        rows.push(Row { cells: std::iter::once(name).chain(cells).collect(), ink: Ink::Plain });
    }
    rows
}

/// `1.40 | 1.12 ~`, of a direction `< 1 | 0.93 =`.
fn cell(figure: &PublishedFigure) -> String {
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
    let mark = match figure.agreement {
        Agreement::Agrees => "=",
        Agreement::SameDirection => "~",
        Agreement::Contradicts => "!",
        Agreement::CannotTell => "?",
        Agreement::Reference | Agreement::NotComparable | Agreement::Shown => " ",
    };
    let theirs = match figure.direction {
        Some(direction) => published::side(direction).to_owned(),
        None => ratio(figure.published_ratio.map(|of| of.value)),
    };
    format!("{theirs} | {} {mark}", ratio(figure.ratio.map(|of| of.value)))
}

/// Why figures could not be compared.
fn obstacles(summary: &Summary) -> String {
    let line =
        |obstacle: &crate::Obstacle| format!("  {} not comparable: {}\n", obstacle.figures, obstacle.reason);
    summary.agreements.obstacles.iter().map(line).collect()
}

/// The number of rounds that would decide a comparison.
fn rounds_needed(summary: &Summary) -> String {
    let rounds: Vec<u64> = summary.published.iter().filter_map(|figure| figure.rounds_needed).collect();
    match (rounds.iter().min(), rounds.iter().max()) {
        (Some(least), Some(most)) if least < most => {
            format!("  The undecided figures would take from about {least} to about {most} rounds.\n")
        }
        (Some(rounds), _) => format!("  The undecided figures would take about {rounds} rounds.\n"),
        _ => String::new(),
    }
}

/// Figures that are to be read: tables as tables, others line by line.
fn shown(summary: &Summary, style: Style) -> String {
    let mut text = String::new();
    let mut lines = vec![];
    let mut sources: Vec<String> = vec![];
    for shown in published::shown(&summary.published) {
        match shown {
            Shown::Table(table) => text.push_str(&drawn(&table, style)),
            Shown::One(figure) => {
                lines.push(line(figure));
                let source = format!("in {}", figure.source);
                if !sources.contains(&source) {
                    sources.push(source);
                }
            }
        }
    }
    lines.append(&mut sources);
    text + &list("Published", &lines)
}

fn line(figure: &PublishedFigure) -> String {
    let unit = if figure.unit == record::RATIO { "" } else { &*figure.unit };
    let value = figure.value.map_or_else(String::new, |value| format!("{value} {unit}"));
    format!("{}, {}: {}", figure.path, figure.what, value.trim_end())
}

fn drawn(table: &ShownTable<'_>, style: Style) -> String {
    // An empty last column, because the last one is left-aligned.
    let ends = |first: &str, cells: Vec<String>| {
        std::iter::once(first.to_owned()).chain(cells).chain([String::new()]).collect::<Vec<String>>()
    };
    let names = table.columns.iter().map(|name| (*name).to_owned()).collect();
    let mut rows = vec![Row { cells: ends("", names), ink: Ink::Dim }];
    let texts = table.texts().into_iter();
    rows.extend(texts.map(|(name, cells)| Row { cells: ends(name, cells), ink: Ink::Plain }));
    let of = |column: usize| if table.is_zero(column) { 2 + column } else { 1 };
    let dispensable: Vec<usize> =
        std::iter::once(0).chain((0..table.columns.len()).map(of)).chain([0]).collect();
    let PublishedFigure { path, setting, source, place, unit, .. } = table.of;
    let unit = if table.columns.iter().any(|column| column.contains(&**unit)) { "" } else { unit };
    let below =
        [unit, source, place].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
    format!("\nPublished, {path}: {setting}\n{}  {below}\n", grid::draw(&rows, &dispensable, style))
}

/// The heading of the author's reading: date and machine of that run.
fn author(summary: &Summary) -> String {
    match &summary.experiment.reading_of {
        Some(run) => format!("The author's run, {}, {}", run.date, run.machine),
        None => "The author's run".to_owned(),
    }
}

/// A text with an empty line between paragraphs, each as one line.
fn paragraphs(text: &str) -> Vec<String> {
    let joined = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    text.split("\n\n").map(joined).filter(|paragraph| !paragraph.is_empty()).collect()
}
