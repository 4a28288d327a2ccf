//! How often the cards interrupted, and what the CPUs received from them: two tables for each load.

use super::markup::Markup;
use super::table::{Cell, Row, Table};
use super::text;
use crate::card_counts::{self, BY_CPU, CardSummary, MEANS};
use crate::{Candidate, Summary};

/// Writes the section; nothing where the wire has no cards.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    if !summary.has_cards() {
        return;
    }
    m.within("section", &[("id", "cards")], |m| {
        let of = card_counts::subject(summary.experiment.workload.kind);
        m.leaf("h2", &[], &format!("Interrupts and packets per {of}"));
        m.leaf(
            "p",
            &[("class", "lead")],
            &format!("How often the cards at both ends of the wire interrupted, from /proc/interrupts, and what was received: \
            NET_RX softirqs from /proc/softirqs, and packets that the stack got from /proc/net/softnet_stat. Softirqs and \
            packets are those of the whole virtual machine, in which only the race has a network. All are per {of}, over \
            the trials that count, with 95 % intervals over builds. Packets a NET_RX are what one poll brings."),
        );
        for load in 0..summary.loads.len() {
            let counted = summary.cards(load);
            if counted.is_empty() {
                continue;
            }
            m.leaf("h3", &[], &text::load(&summary.loads[load]));
            means(m, summary, load, &counted);
            shares(m, summary, load, &counted);
        }
    });
}

fn means(m: &mut Markup, summary: &Summary, load: usize, counted: &[(usize, &Candidate, &CardSummary)]) {
    let rows = counted.iter().map(|(index, candidate, counts)| Row {
        name: candidate.name.clone(),
        candidate: Some(*index),
        cells: MEANS.map(|(_, of)| Cell::figure(of(counts).text())).into_iter().collect(),
    });
    let of = card_counts::subject(summary.experiment.workload.kind);
    Table {
        caption: &format!("Interrupts and packets per {of}: {}", text::load(&summary.loads[load])),
        rows: rows.collect(),
        head: std::iter::once("data path").chain(MEANS.map(|(name, _)| name)).map(str::to_owned).collect(),
    }
    .write(m);
}

/// Which CPU did which share.
fn shares(m: &mut Markup, summary: &Summary, load: usize, counted: &[(usize, &Candidate, &CardSummary)]) {
    let cpus = card_counts::cpus(counted.iter().map(|(_, _, counts)| *counts));
    let mut rows = Vec::new();
    for (index, candidate, counts) in counted {
        let known = BY_CPU.iter().filter_map(|of| Some((of.name, card_counts::shares(counts, of, &cpus)?)));
        rows.extend(known.map(|(what, shares)| Row {
            name: format!("{}, {what}", candidate.name),
            candidate: Some(*index),
            cells: shares.into_iter().map(Cell::figure).collect(),
        }));
    }
    let head =
        std::iter::once("data path, what".to_owned()).chain(cpus.iter().map(|cpu| format!("CPU {cpu}")));
    Table {
        caption: &format!("The share of each CPU: {}", text::load(&summary.loads[load])),
        rows,
        head: head.collect(),
    }
    .write(m);
}
