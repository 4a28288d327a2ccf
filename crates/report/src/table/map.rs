//! The map of a cluster on a terminal: for each path a matrix, then what is worse than the rest.

use std::fmt::Write;

use record::NodeInZone;

use super::grid::{self, Ink, Row};
use super::{Style, finished, list, sentence};
use crate::analyse::named;
use crate::figures;
use crate::pairs::{PairFigure, PairsMap, PathMap};
use crate::quantities::Ratio;
use crate::terminal;

/// A map as text for a terminal. Text from the records is escaped, whatever characters it has.
pub fn map_table(map: &PairsMap, style: Style) -> String {
    let mut text = head(map);
    for path in &map.paths {
        text.push('\n');
        text.push_str(&matrix(map, path, style));
    }
    let findings: Vec<String> = map.findings.iter().map(|finding| finding.sentence.clone()).collect();
    text.push_str(&list("Worse than the rest", &findings));
    text.push_str(&list("Did not race", &silent(map)));
    text.push_str(&list("Ended early", &ended(map)));
    text.push_str(&list("Note", &map.notes));
    let verdict = sentence(&terminal::line(&map.verdict));
    let ink = if findings.is_empty() { Ink::Bold } else { Ink::Red };
    let _infallible = writeln!(text, "\n{}", grid::ink(&verdict, ink, style.colour));
    finished(&text, style)
}

fn head(map: &PairsMap) -> String {
    let nodes = figures::counted(map.nodes.len() as u64, "node");
    let races = map.races.len();
    let name = terminal::line(&map.experiment);
    let mut text = format!("{name}: {nodes}, {races} races: each pair in both directions");
    if let Some(load) = &map.load {
        let _infallible = write!(text, "; {} at {}", map.statistic, figures::load(load));
    }
    text.push('\n');
    if map.paths.iter().any(|path| path.median.is_some()) {
        text.push_str(
            "Columns are the clients' nodes, rows the servers'. A figure is the pair's ÷ the median of the other pairs,\n\
             with its 95 % interval; ▲ is worse and ▼ better than they are, beyond noise and luck.\n",
        );
    }
    text
}

/// The matrix of a path: with intervals where there is room for them.
fn matrix(map: &PairsMap, path: &PathMap, style: Style) -> String {
    let median = path.median.map(|median| format!(", median of all pairs {}", figure(map, median)));
    let title = format!("{}{}", path.name, median.unwrap_or_default());
    let wide = rows(map, path, figures::ratio);
    let short = |of: &Ratio| figures::change(of.value);
    let rows = if fits(&wide, style) { wide } else { rows(map, path, short) };
    let columns = map.nodes.len() + 1;
    let mut text = format!("{}\n", grid::ink(&terminal::line(&title), Ink::Bold, style.colour));
    text.push_str(&grid::draw(&rows, &vec![0; columns], style));
    text
}

fn rows(map: &PairsMap, path: &PathMap, ratio: fn(&Ratio) -> String) -> Vec<Row> {
    let names = map.nodes.iter().map(|node| node.node.clone());
    let header = Row { cells: std::iter::once(String::new()).chain(names).collect(), ink: Ink::Bold };
    let row = |server: &NodeInZone| {
        let of = |client: &NodeInZone| found(path, client, server);
        let cells = map.nodes.iter().map(|client| match of(client) {
            _ if client == server => "·".to_owned(),
            Some(figure) => {
                let ratio = figure.over_others.as_ref().map_or_else(|| without(map, figure), ratio);
                format!("{ratio}{}", figure.mark(map.statistic))
            }
            None => "–".to_owned(),
        });
        Row { cells: std::iter::once(named(server)).chain(cells).collect(), ink: Ink::Plain }
    };
    std::iter::once(header).chain(map.nodes.iter().map(row)).collect()
}

/// The pair of two nodes.
fn found<'a>(path: &'a PathMap, client: &NodeInZone, server: &NodeInZone) -> Option<&'a PairFigure> {
    path.pairs.iter().find(|pair| pair.client == client.node && pair.server == server.node)
}

/// What stands for a ratio that is not known.
fn without(map: &PairsMap, figure: &PairFigure) -> String {
    let why = match figure.unmet {
        Some(_) => "none",
        None if figure.is_by_unanswered(map.statistic) => "unanswered",
        None => "?",
    };
    why.to_owned()
}

fn fits(rows: &[Row], style: Style) -> bool {
    let columns = rows.first().map_or(0, |row| row.cells.len());
    let width = |column: usize| rows.iter().map(|row| row.cells[column].chars().count()).max().unwrap_or(0);
    (0..columns).map(|column| width(column) + grid::GAP).sum::<usize>() <= style.width
}

/// A figure in its unit.
fn figure(map: &PairsMap, value: f64) -> String {
    match map.unit {
        "ns" => figures::duration_ns(value.round() as u64),
        unit => format!("{} {unit}", figures::rate(value)),
    }
}

/// Paths that did not race between some nodes, with the reason.
fn silent(map: &PairsMap) -> Vec<String> {
    let of = |path: &PathMap| {
        let silent = path.pairs.iter().filter_map(|pair| {
            Some(format!("{} from {} to {}: {}", path.name, pair.client, pair.server, pair.unmet.as_ref()?))
        });
        silent.collect::<Vec<_>>()
    };
    map.paths.iter().flat_map(of).collect()
}

fn ended(map: &PairsMap) -> Vec<String> {
    let of = |race: &crate::pairs::PairRace| {
        let why = race.stopped.as_ref()?;
        let rounds = figures::counted(race.rounds.into(), "round");
        Some(format!("{} to {}, after {rounds}: {why}", race.client, race.server))
    };
    map.races.iter().filter_map(of).collect()
}
