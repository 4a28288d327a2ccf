//! Figures of others beside ours, as plain values.

use record::Direction;
use serde::Serialize;

use crate::quantities::Ratio;

/// A published figure, beside ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublishedFigure {
    /// The name of the candidate that it describes.
    pub path: String,
    /// The quantity measured, where metric and load do not state it.
    pub what: String,
    /// The metric for the comparison: "p99.5"; `None`: the figure is shown, but not compared.
    pub metric: Option<&'static str>,
    /// The published figure; `None` of a direction.
    pub value: Option<f64>,
    /// On which side of 1 the ratio to `against` lies, where no more was published.
    pub direction: Option<Direction>,
    /// The unit of the published figure and of ours.
    pub unit: String,
    /// Where it was published.
    pub source: String,
    /// Where in the source it stands; empty if not given.
    pub place: String,
    /// The key of a figure that comes with hostgap; empty of others.
    pub key: String,
    /// The circumstances of the measurement.
    pub setting: String,
    /// Our load to compare it with, as an index into the list of loads; `None`: that load was not raced.
    pub load: Option<usize>,
    /// Our figure, in the same unit; `None` where it is not known.
    pub ours: Option<f64>,
    /// The name of the candidate that both are divided by.
    pub against: String,
    /// The published figure ÷ the one published for `against`. The interval covers the rounding of both figures.
    pub published_ratio: Option<Ratio>,
    /// Our figure ÷ that of `against`, with its 95 % interval.
    pub ratio: Option<Ratio>,
    /// How the two ratios stand to each other.
    pub agreement: Agreement,
    /// The reason for the agreement, in words.
    pub reason: String,
    /// The same without the figures that stand beside it in a table.
    #[serde(skip)]
    pub brief: String,
    /// The approximate number of rounds that would decide it, where this run cannot; `None` if unknown or impractical.
    pub rounds_needed: Option<u64>,
}

/// How many of the published figures stand how to ours.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Agreements {
    /// How many are [`Agreement::Agrees`].
    pub agree: u64,
    /// How many are [`Agreement::SameDirection`].
    pub same_direction: u64,
    /// How many are [`Agreement::Contradicts`].
    pub contradict: u64,
    /// How many are [`Agreement::CannotTell`].
    pub cannot_tell: u64,
    /// How many are [`Agreement::NotComparable`].
    pub not_comparable: u64,
    /// Why those are not, the most frequent reason first.
    pub obstacles: Vec<Obstacle>,
}

/// A reason for which figures could not be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// Why they were not compared, in words.
    pub reason: String,
    /// The number of figures with this reason.
    pub figures: u64,
}

/// How a published ratio and ours stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// The divisor of other figures, usually the reference's.
    Reference,
    /// Our interval is narrower than the published effect, lies on the same side of 1 and includes the published
    /// ratio. Or all of it lies near 1 where the publication found no effect. Or it lies on the published side.
    Agrees,
    /// Both are above 1 or both below, and differ in size.
    SameDirection,
    /// One finds a difference, the other finds none or the opposite one.
    Contradicts,
    /// This run is too coarse: its interval or its noise permits either conclusion.
    CannotTell,
    /// One of the ratios is not there.
    NotComparable,
    /// It is a figure without a metric, to be read.
    Shown,
}

impl PublishedFigure {
    /// Whether there is something to compare it with in principle: it has a metric and is not the reference's own.
    pub(crate) fn is_comparison(&self) -> bool {
        !matches!(self.agreement, Agreement::Reference | Agreement::Shown)
    }
}

impl Agreement {
    /// The wording for a figure.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Agreement::Reference => "reference",
            Agreement::Agrees => "agrees",
            Agreement::SameDirection => "same direction",
            Agreement::Contradicts => "contradicts",
            Agreement::CannotTell => "cannot tell",
            Agreement::NotComparable => "not comparable",
            Agreement::Shown => "",
        }
    }
}

/// Figures that are to be read.
pub(crate) enum Shown<'a> {
    /// Cells of one table of a publication.
    Table(ShownTable<'a>),
    /// A figure that is in no table.
    One(&'a PublishedFigure),
}

/// A table of a publication, as far as an experiment refers to it.
pub(crate) struct ShownTable<'a> {
    /// Any of its figures; source, place, setting and candidate are the same for all.
    pub(crate) of: &'a PublishedFigure,
    pub(crate) columns: Vec<&'a str>,
    /// Name and cells, in the order of `columns`.
    pub(crate) rows: Vec<(&'a str, Vec<Option<f64>>)>,
}

/// The figures that are to be read, in their order; those of one table and candidate together.
pub(crate) fn shown(figures: &[PublishedFigure]) -> Vec<Shown<'_>> {
    let mut all: Vec<Shown<'_>> = vec![];
    for figure in figures.iter().filter(|figure| figure.agreement == Agreement::Shown) {
        let Some((table, row, column)) = cell(figure) else {
            all.push(Shown::One(figure));
            continue;
        };
        let of_table = |other: &PublishedFigure| {
            other.path == figure.path && cell(other).is_some_and(|(other, ..)| other == table)
        };
        let known = all.iter_mut().find_map(|shown| match shown {
            Shown::Table(known) if of_table(known.of) => Some(known),
            Shown::Table(_) | Shown::One(_) => None,
        });
        match known {
            Some(known) => known.add(row, column, figure.value),
            None => {
                let mut new = ShownTable { of: figure, columns: vec![], rows: vec![] };
                new.add(row, column, figure.value);
                all.push(Shown::Table(new));
            }
        }
    }
    all
}

/// Table, row and column of a figure, if its key has them.
fn cell(figure: &PublishedFigure) -> Option<(&str, &str, &str)> {
    let (above, column) = figure.key.rsplit_once('/')?;
    let (table, row) = above.rsplit_once('/')?;
    table.contains('/').then_some((table, row, column))
}

impl<'a> ShownTable<'a> {
    fn add(&mut self, row: &'a str, column: &'a str, value: Option<f64>) {
        let place = self.columns.iter().position(|known| *known == column).unwrap_or_else(|| {
            self.columns.push(column);
            self.columns.len() - 1
        });
        if !self.rows.iter().any(|(known, _)| *known == row) {
            self.rows.push((row, vec![]));
        }
        for (known, cells) in &mut self.rows {
            cells.resize(self.columns.len(), None);
            if *known == row {
                cells[place] = value;
            }
        }
    }
}

impl ShownTable<'_> {
    /// The cells of each row as text, with as many digits after the point as any of the column has.
    pub(crate) fn texts(&self) -> Vec<(&str, Vec<String>)> {
        let finite = |value: &Option<f64>| value.filter(|value| value.is_finite());
        let decimals = |column: usize| {
            let of = |cells: &Vec<Option<f64>>| {
                let text = finite(&cells[column]).map_or_else(String::new, |value| value.to_string());
                text.split_once('.').map_or(0, |(_, after)| after.len())
            };
            self.rows.iter().map(|(_, cells)| of(cells)).max().unwrap_or(0)
        };
        let decimals: Vec<usize> = (0..self.columns.len()).map(decimals).collect();
        let text = |(value, decimals): (&Option<f64>, &usize)| {
            finite(value).map_or_else(|| "–".to_owned(), |value| format!("{value:.decimals$}"))
        };
        let row = |cells: &Vec<Option<f64>>| cells.iter().zip(&decimals).map(text).collect();
        self.rows.iter().map(|(name, cells)| (*name, row(cells))).collect()
    }

    /// Whether a column contains only zeros.
    pub(crate) fn is_zero(&self, column: usize) -> bool {
        self.rows.iter().all(|(_, cells)| cells[column].is_none_or(|value| value == 0.0))
    }
}

/// A direction as a sign before the 1.
pub(crate) fn side(direction: Direction) -> &'static str {
    match direction {
        Direction::Lower => "< 1",
        Direction::Higher => "> 1",
    }
}
