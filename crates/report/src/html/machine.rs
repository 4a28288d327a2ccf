//! What the figures hold for: the machine, the settings of the race, how sure the race is, and what it could not do.

use record::Machine;

use super::marks::{self, Venue};
use super::markup::Markup;
use super::table::{Cell, Row, Table};
use super::text;
use crate::{Precision, Summary, carried};

/// Writes the section on the machine.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    m.within("section", &[("id", "machine")], |m| {
        m.leaf("h2", &[], "Machine and settings");
        m.within("div", &[("class", "pair")], |m| {
            facts(m, "Machine", of(&summary.machine));
            facts(m, "Experiment", experiment(summary));
        });
        // Instructions are counted and not sampled.
        if summary.exact.is_empty() {
            precision(m, summary);
        }
        absent(m, summary);
    });
}

/// A table of facts by name.
pub(super) fn facts(m: &mut Markup, caption: &str, facts: Vec<(String, String)>) {
    let rows = facts
        .into_iter()
        .map(|(name, value)| Row { name, candidate: None, cells: vec![Cell::words(value)] })
        .collect();
    Table { caption, head: vec!["what".to_owned(), "value".to_owned()], rows }.write(m);
}

/// The known facts about a machine.
pub(super) fn of(machine: &Machine) -> Vec<(String, String)> {
    let mut facts = vec![
        ("kernel".to_owned(), machine.kernel.clone()),
        ("CPU".to_owned(), machine.cpu_model.clone()),
        ("CPUs".to_owned(), machine.cpus.to_string()),
        ("CPUs of the client's node".to_owned(), machine.client_cpus.clone()),
        ("CPUs of the server's node".to_owned(), machine.server_cpus.clone()),
        ("memory".to_owned(), text::memory(machine.memory_bytes)),
    ];
    facts.extend(machine.facts.iter().map(|(name, value)| (name.clone(), value.clone())));
    facts
}

fn experiment(summary: &Summary) -> Vec<(String, String)> {
    let experiment = &summary.experiment;
    let loads: Vec<String> = summary.loads.iter().map(text::load).collect();
    let slice = format!("{} ms after {} ms of warm-up", experiment.slice_ms, experiment.warmup_ms);
    let workload = &experiment.workload;
    let is_ours = marks::venue(summary) == Venue::OneMachine;
    [
        ("name", experiment.name.clone()),
        ("question", experiment.description.clone()),
        ("server", summary.server.clone()),
        ("connections", text::between(carried::connections(experiment))),
        ("IP version", if workload.ipv6 { "6" } else { "4" }.to_owned()),
        ("loads", loads.join("; ")),
        ("slice", slice),
        ("rounds asked", text::grouped(u64::from(experiment.rounds))),
        ("builds asked", text::grouped(u64::from(experiment.builds))),
        ("placement", text::placement(experiment.placement).to_owned()),
        (
            "wire",
            experiment.underlay.card.map_or_else(String::new, |card| format!("between two {card} cards")),
        ),
        ("MTU of the wire", if is_ours { text::bytes(experiment.underlay.mtu) } else { String::new() }),
        ("wire to the server", experiment.underlay.to_server().to_string()),
        ("wire to the client", experiment.underlay.to_client().to_string()),
        ("flood", experiment.flood.map_or_else(String::new, |flood| flood.to_string())),
        ("seed", summary.seed.to_string()),
        ("hostgap", summary.hostgap.clone()),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// How long a race would have to be to know the ratios to ±3 %.
fn precision(m: &mut Markup, summary: &Summary) {
    let labels = &Precision::labels(precisions(summary));
    let rows: Vec<Row> = marks::runners(summary)
        .flat_map(|(index, candidate)| {
            let loads = summary.loads.iter().zip(&candidate.rates);
            loads.filter(|(_, rate)| !rate.precision.is_empty()).map(move |(load, rate)| Row {
                name: candidate.name.clone(),
                candidate: Some(index),
                cells: precision_cells(text::load_short(load), &rate.precision, labels),
            })
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    m.leaf("h3", &[("id", "precision")], "How long for ±3 %");
    m.leaf(
        "p",
        &[("class", "aside")],
        "The width of each ratio's interval, and the number of rounds, with as many per build as now, that would bring it to ±3 %.",
    );
    let mut head = vec!["data path".to_owned(), "load".to_owned()];
    head.extend(labels.iter().flat_map(|of| [format!("{of} now"), "for ±3 %".to_owned()]));
    m.within("details", &[], |m| {
        m.leaf("summary", &[], &worst(summary, labels));
        Table { caption: "Rounds for ±3 %", head, rows }.write(m);
    });
}

/// Of all candidates and loads.
fn precisions(summary: &Summary) -> impl Iterator<Item = &Precision> {
    marks::runners(summary).flat_map(|(_, candidate)| &candidate.rates).flat_map(|rate| &rate.precision)
}

fn precision_cells(load: String, precisions: &[Precision], labels: &[&str]) -> Vec<Cell> {
    let mut cells = vec![Cell::words(load)];
    for label in labels {
        let found = precisions.iter().find(|precision| precision.percentile == *label);
        let none = || text::NONE.to_owned();
        cells.push(Cell::figure(
            found.map_or_else(none, |found| format!("±{}", text::percent(found.half_width))),
        ));
        cells.push(Cell::figure(found.map_or_else(none, effort)));
    }
    cells
}

/// `120 rounds, 8 min`.
fn effort(precision: &Precision) -> String {
    if precision.half_width <= 0.03 {
        return "reached".to_owned();
    }
    match (precision.rounds, precision.wall_s) {
        (None, _) => "impractically many".to_owned(),
        (Some(rounds), None) => format!("{} rounds", text::grouped(rounds)),
        (Some(rounds), Some(wall)) => format!("{} rounds, {}", text::grouped(rounds), text::duration(wall)),
    }
}

/// What would need the most of each, over all candidates and loads.
fn worst(summary: &Summary, labels: &[&str]) -> String {
    let longest = |of: &&str| {
        let same = precisions(summary).filter(|precision| precision.percentile == *of);
        let most = same.max_by_key(|precision| precision.rounds.unwrap_or(u64::MAX))?;
        Some(format!("{of} {}", effort(most)))
    };
    format!("At most: {}", labels.iter().filter_map(longest).collect::<Vec<_>>().join("; "))
}

fn absent(m: &mut Markup, summary: &Summary) {
    let absent: Vec<Row> = summary
        .candidates
        .iter()
        .filter(|candidate| !candidate.runnable)
        .map(|candidate| Row {
            name: candidate.name.clone(),
            candidate: None,
            cells: vec![Cell::words(marks::stands_for(candidate)), Cell::words(candidate.reasons.join("; "))],
        })
        .collect();
    m.leaf("h3", &[("id", "absent")], "What could not run here");
    if absent.is_empty() {
        m.leaf("p", &[("class", "aside")], "Everything that was requested ran.");
        return;
    }
    let head = ["data path", "stands for", "because"].map(str::to_owned).to_vec();
    Table { caption: "Data paths that could not run here", head, rows: absent }.write(m);
}
