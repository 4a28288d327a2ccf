//! Figures that others published beside ours: how far they agree, the scenario's reading of it, and every figure.

use super::look;
use super::markup::Markup;
use super::ratio::plottable;
use super::table::{Cell, Row, Table};
use super::text;
use crate::{Agreement, PublishedFigure, Ratio, Summary};

/// Writes the section, if there is something to write.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    let reading = &summary.experiment.reading;
    if summary.published.is_empty() && reading.is_empty() {
        return;
    }
    m.within("section", &[("id", "published")], |m| {
        m.leaf("h2", &[], "Published figures beside ours");
        if let Some(sentence) = &summary.agreement {
            m.leaf("p", &[("class", "lead")], sentence);
        }
        for paragraph in reading.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
            m.leaf("p", &[("class", "reading")], paragraph.trim());
        }
        let sources = sources(summary);
        if summary.published.iter().any(|figure| figure.metric.is_some()) {
            compared(m, summary, &sources);
        }
        read(m, summary, &sources);
        listed(m, &sources);
    });
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

/// `[2]`; nothing where there is but one.
fn number(figure: &PublishedFigure, sources: &[&str]) -> String {
    let place = sources.iter().position(|source| *source == figure.source);
    place.filter(|_| sources.len() > 1).map_or_else(String::new, |place| format!(" [{}]", place + 1))
}

fn compared(m: &mut Markup, summary: &Summary, sources: &[&str]) {
    let reference = look::reference(summary);
    m.leaf(
        "p",
        &[("class", "aside")],
        &format!(
            "Theirs come from other machines and years, so absolute values cannot agree. What is compared is how a data \
             path stands to {reference} at the same load: the published figure ÷ the one published for {reference}, \
             and ours with its 95 % interval. Agrees: the published ratio, within its rounding, meets our interval or \
             is nearer than the noise. Same direction: both above 1 or both below, and of another size. Contradicts: \
             one finds a difference, the other none or the opposite one. Undecided: our interval holds 1 and the \
             published ratio too."
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
    let head = |last: &str| {
        let first = ["data path", "figure", "published", "ours", "published ratio", "our ratio (95 %)"];
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
    let mut name = [figure.metric.unwrap_or_default(), &figure.what].join(" ").trim().to_owned();
    if with_setting && !figure.setting.is_empty() {
        name = format!("{name}, {}", figure.setting);
    }
    name.push_str(&number(figure, sources));
    let ratio =
        |ratio: &Option<Ratio>| plottable(ratio.as_ref()).map_or_else(|| text::NONE.to_owned(), text::ratio);
    // What both are divided by goes without saying where it is the reference.
    let divided = match figure.against == look::reference(summary) {
        true => String::new(),
        false => format!(" ÷ {}", figure.against),
    };
    Row {
        name: format!("{}{divided}", figure.path),
        candidate: summary.candidates.iter().position(|candidate| candidate.name == figure.path),
        cells: vec![
            Cell::words(name),
            Cell::figure(value(figure.value)),
            Cell::figure(figure.ours.map_or_else(|| text::NONE.to_owned(), value)),
            Cell::figure(ratio(&figure.published_ratio)),
            Cell::figure(ratio(&figure.ratio)),
            match figure.agreement {
                Agreement::NotComparable => Cell::words(&*figure.reason),
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
        Agreement::Undecided => "v-same",
        Agreement::Reference | Agreement::NotComparable | Agreement::Shown => "v-none",
    }
}

/// Figures without a metric.
fn read(m: &mut Markup, summary: &Summary, sources: &[&str]) {
    let rows: Vec<Row> = summary
        .published
        .iter()
        .filter(|figure| figure.agreement == Agreement::Shown)
        .map(|figure| Row {
            name: figure.path.clone(),
            candidate: None,
            cells: vec![
                Cell::words(format!("{}{}", figure.what, number(figure, sources))),
                Cell::figure(
                    format!("{} {}", text::significant(figure.value), figure.unit).trim_end().to_owned(),
                ),
                Cell::words(&*figure.setting),
            ],
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    m.leaf("h3", &[], "Published, and to be read beside ours");
    let head = ["data path", "what", "figure", "under"].map(str::to_owned).to_vec();
    Table { caption: "Published figures that are compared with nothing", head, rows }.write(m);
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
