//! Figures that others published beside ours: what this run found, every figure, and what the experiment's author saw
//! in a run of their own.

use super::marks;
use super::markup::Markup;
use super::ratio::plottable;
use super::table::{Cell, Row, Table};
use super::text;
use crate::published::{self, Shown, ShownTable};
use crate::until_sentences::interval_levels;
use crate::{Agreement, PublishedFigure, Ratio, Summary};

/// Writes the section, if there is something to write.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    let reading = &summary.experiment.reading;
    if summary.published.is_empty() && reading.is_empty() {
        return;
    }
    m.within("section", &[("id", "published")], |m| {
        m.leaf("h2", &[], "Published figures beside ours");
        found(m, summary);
        let sources = sources(summary);
        if summary.published.iter().any(|figure| figure.metric.is_some()) {
            compared(m, summary, &sources);
        }
        read(m, summary, &sources);
        listed(m, &sources);
        authors_run(m, summary);
    });
}

/// The result of this run: the counts, and why the other figures were not compared.
fn found(m: &mut Markup, summary: &Summary) {
    if let Some(sentence) = &summary.agreement {
        m.leaf("p", &[("class", "lead")], sentence);
    }
    if !summary.agreements.obstacles.is_empty() {
        m.leaf("p", &[("class", "aside")], "Not comparable:");
        m.within("ul", &[], |m| {
            for obstacle in &summary.agreements.obstacles {
                m.leaf("li", &[], &format!("{}: {}", obstacle.figures, obstacle.reason));
            }
        });
    }
}

/// The author's observations, which do not describe this run.
fn authors_run(m: &mut Markup, summary: &Summary) {
    let reading = &summary.experiment.reading;
    if reading.trim().is_empty() {
        return;
    }
    m.leaf("h3", &[], "The author's run");
    let of = match &summary.experiment.reading_of {
        Some(run) => format!("{}, {}. This is not the race of this page.", run.date, run.machine),
        None => "Date and machine are not given. This is not the race of this page.".to_owned(),
    };
    m.leaf("p", &[("class", "aside")], &of);
    for paragraph in reading.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        m.leaf("p", &[("class", "reading")], paragraph.trim());
    }
}

/// Each source once, in the order in which they are named.
fn sources(summary: &Summary) -> Vec<&str> {
    let mut sources: Vec<&str> = vec![];
    for figure in &summary.published {
        if !sources.contains(&&*figure.source) {
            sources.push(&figure.source);
        }
    }
    sources
}

/// The number of a source, `[2]`; empty if there is only one.
fn number(figure: &PublishedFigure, sources: &[&str]) -> String {
    let place = sources.iter().position(|source| *source == figure.source);
    place.filter(|_| sources.len() > 1).map_or_else(String::new, |place| format!(" [{}]", place + 1))
}

fn compared(m: &mut Markup, summary: &Summary, sources: &[&str]) {
    let reference = marks::reference(summary);
    m.leaf(
        "p",
        &[("class", "aside")],
        &format!(
            "Theirs come from other machines and years, so absolute values cannot agree. Ratios to {reference} at the \
            same load are compared: the published figure ÷ the one published for {reference}, and ours with its {} \
            interval. Agrees: our interval is narrower than the published effect, excludes 1 on the same side, and \
            overlaps the published ratio within its rounding or the noise; where they found no effect, all of it lies \
            within ±5 % of 1. Same direction: both above 1 or both below, but of another size. Contradicts: the \
            published ratio is ruled out, and ours is on the other side of 1 or may be 1. Cannot tell: this run is too \
            imprecise for any of these; the number of rounds that would decide it is an estimate, if the scatter stays \
            the same. Where only a direction was published, < 1 or > 1, it agrees or \
             contradicts if our interval and the noise leave out 1.",
            interval_levels(summary, None)
        ),
    );
    let at = |load: Option<usize>| -> Vec<&PublishedFigure> {
        summary.published.iter().filter(|figure| figure.metric.is_some() && figure.load == load).collect()
    };
    for (index, load) in summary.loads.iter().enumerate() {
        block(m, summary, &text::load(load), &at(Some(index)), sources);
    }
    block(m, summary, "Loads that were not raced", &at(None), sources);
}

/// The figures of a load, with the settings that they were measured under.
fn block(m: &mut Markup, summary: &Summary, load: &str, figures: &[&PublishedFigure], sources: &[&str]) {
    if figures.is_empty() {
        return;
    }
    let mut settings: Vec<&str> =
        figures.iter().map(|figure| &*figure.setting).filter(|s| !s.is_empty()).collect();
    settings.dedup();
    m.leaf("h3", &[], load);
    let one = settings.len() == 1;
    if one {
        m.leaf("p", &[("class", "aside")], &format!("Published for: {}", settings[0]));
    }
    let row = |figure: &&PublishedFigure| row(summary, figure, !one, sources);
    let (absent, present): (Vec<&PublishedFigure>, Vec<&PublishedFigure>) =
        figures.iter().partition(|figure| figure.agreement == Agreement::NotComparable);
    let our_ratio = format!("our ratio ({})", interval_levels(summary, None));
    let head = |last: &str| {
        let first = ["data path", "figure", "published", "ours", "published ratio", &*our_ratio];
        first.into_iter().chain([last]).map(str::to_owned).collect()
    };
    if !present.is_empty() {
        let caption = format!("Published figures and ours, {load}");
        let rows = present.iter().map(row).collect();
        Table { caption: &caption, head: head("ours to theirs"), rows }.write(m);
    }
    if !absent.is_empty() {
        let caption = format!("Published figures that cannot be compared, {load}");
        m.within("details", &[], |m| {
            m.leaf("summary", &[], &format!("{} that cannot be compared, and why", absent.len()));
            Table { caption: &caption, head: head("because"), rows: absent.iter().map(row).collect() }
                .write(m);
        });
    }
}

fn row(summary: &Summary, figure: &PublishedFigure, with_setting: bool, sources: &[&str]) -> Row {
    let unit = if figure.unit == record::RATIO { "" } else { &*figure.unit };
    let value = |value: f64| format!("{} {unit}", text::significant_short(value)).trim_end().to_owned();
    // With a direction, the ratio itself states which is ahead.
    let what = if figure.direction.is_some() { "" } else { &*figure.what };
    let mut name = [figure.metric.unwrap_or_default(), what].join(" ").trim().to_owned();
    if with_setting && !figure.setting.is_empty() {
        name = format!("{name}, {}", figure.setting);
    }
    name.push_str(&number(figure, sources));
    let ratio =
        |ratio: &Option<Ratio>| plottable(ratio.as_ref()).map_or_else(|| text::NONE.to_owned(), text::ratio);
    // The divisor is not mentioned if it is the reference.
    let divided = match figure.against == marks::reference(summary) {
        true => String::new(),
        false => format!(" ÷ {}", figure.against),
    };
    Row {
        name: format!("{}{divided}", figure.path),
        candidate: summary.candidates.iter().position(|candidate| candidate.name == figure.path),
        cells: vec![
            Cell::words(name),
            Cell::figure(figure.value.map_or_else(|| text::NONE.to_owned(), value)),
            Cell::figure(figure.ours.map_or_else(|| text::NONE.to_owned(), value)),
            Cell::figure(match figure.direction {
                Some(direction) => published::side(direction).to_owned(),
                None => ratio(&figure.published_ratio),
            }),
            Cell::figure(ratio(&figure.ratio)),
            match figure.agreement {
                Agreement::NotComparable => Cell::words(&*figure.reason),
                Agreement::CannotTell => Cell::sentence(&format!("cannot tell: {}", figure.brief)),
                agreement => Cell::classed(agreement.word(), class(agreement)),
            },
        ],
    }
}

fn class(agreement: Agreement) -> &'static str {
    match agreement {
        Agreement::Agrees => "v-agrees",
        Agreement::SameDirection => "v-ref",
        Agreement::Contradicts => "v-worse",
        Agreement::CannotTell => "v-same",
        Agreement::Reference | Agreement::NotComparable | Agreement::Shown => "v-none",
    }
}

/// Figures without a metric: tables as tables, others row by row.
fn read(m: &mut Markup, summary: &Summary, sources: &[&str]) {
    let mut rows: Vec<Row> = vec![];
    let mut tables = vec![];
    for shown in published::shown(&summary.published) {
        match shown {
            Shown::Table(table) => tables.push(table),
            Shown::One(figure) => rows.push(Row {
                name: figure.path.clone(),
                candidate: None,
                cells: vec![
                    Cell::words(format!("{}{}", figure.what, number(figure, sources))),
                    Cell::figure(read_value(figure)),
                    Cell::words(&*figure.setting),
                ],
            }),
        }
    }
    if rows.is_empty() && tables.is_empty() {
        return;
    }
    m.leaf("h3", &[], "Published, but not compared");
    if !rows.is_empty() {
        let head = ["data path", "what", "figure", "under"].map(str::to_owned).to_vec();
        Table { caption: "Published figures that are not compared", head, rows }.write(m);
    }
    tables.iter().for_each(|table| drawn(m, table, sources));
}

fn read_value(figure: &PublishedFigure) -> String {
    let value = figure.value.map_or_else(|| text::NONE.to_owned(), text::significant);
    let unit = if figure.unit == record::RATIO { "" } else { &*figure.unit };
    format!("{value} {unit}").trim_end().to_owned()
}

/// A table of a publication, with its digits.
fn drawn(m: &mut Markup, table: &ShownTable<'_>, sources: &[&str]) {
    let PublishedFigure { path, setting, place, unit, .. } = table.of;
    m.leaf("h4", &[], &format!("{path}: {setting}{}", number(table.of, sources)));
    let said = table.columns.iter().any(|column| column.contains(&**unit));
    let about = [if said { "" } else { unit }, place].into_iter().filter(|text| !text.is_empty());
    m.leaf("p", &[("class", "aside")], &about.collect::<Vec<_>>().join("; "));
    let head = std::iter::once("").chain(table.columns.iter().copied()).map(str::to_owned).collect();
    let row = |(name, cells): (&str, Vec<String>)| Row {
        name: name.to_owned(),
        candidate: None,
        cells: cells.into_iter().map(Cell::figure).collect(),
    };
    Table {
        caption: &format!("Published for {path}"),
        head,
        rows: table.texts().into_iter().map(row).collect(),
    }
    .write(m);
}

fn listed(m: &mut Markup, sources: &[&str]) {
    match sources {
        [] => {}
        [one] => m.leaf("p", &[("class", "aside")], &format!("Source: {one}")),
        _ => {
            m.leaf("h4", &[], "Sources");
            m.within("ol", &[("class", "sources")], |m| {
                for source in sources {
                    m.leaf("li", &[], source);
                }
            });
        }
    }
}
