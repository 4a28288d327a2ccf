//! A row as text: a line for each way, then the reasons.

use ::agent::check::{CheckedFamily, CheckedPeer, CheckedWay, Reason, Row};

use crate::output::{self, OutputError};

/// Peers beyond which those that are well are counted and not listed.
const LISTED: usize = 50;

/// Prints the row of this node.
pub(super) fn print(row: &Row) -> Result<(), OutputError> {
    let is_long = row.peers.len() > LISTED;
    let mut lines: Vec<[String; 6]> = Vec::new();
    for (name, peer) in &row.peers {
        if !(is_long && peer.is_reached) {
            lines.extend(lines_of(name, peer));
        }
    }
    if !lines.is_empty() {
        table(&["NODE", "TO", "ADDRESS", "RTT", "FULL", "WAY"].map(str::to_owned), &lines)?;
    }
    reasons("this node", &row.here)?;
    for (name, peer) in &row.peers {
        reasons(name, &peer.reasons)?;
    }
    let reached = row.peers.values().filter(|peer| peer.is_reached).count();
    output::result(format_args!("\n{reached} of {} nodes are reached", row.peers.len()))
}

/// What is the matter with a node, if anything.
pub(super) fn reasons(name: &str, reasons: &[Reason]) -> Result<(), OutputError> {
    for reason in reasons {
        let family = reason.family.as_deref().map(|family| format!(" ({family})")).unwrap_or_default();
        output::result(format_args!("\n{name}{family}: {}", reason.seen))?;
        output::result(format_args!("    {}", reason.follows))?;
    }
    Ok(())
}

fn lines_of(name: &str, peer: &CheckedPeer) -> Vec<[String; 6]> {
    if peer.families.is_empty() {
        return vec![line(name, "-", None, "not asked")];
    }
    let mut lines = Vec::new();
    for family in peer.families.values() {
        for (what, way) in ways(family) {
            lines.push(line(name, what, Some(way), &family.by));
        }
    }
    lines
}

fn ways(family: &CheckedFamily) -> Vec<(&'static str, &CheckedWay)> {
    let mut ways = vec![("node", &family.node)];
    ways.extend(family.tunnel.iter().map(|way| ("tunnel", way)));
    ways.push(("pods", &family.pods));
    ways.extend(family.as_pod.iter().map(|way| ("as a pod", way)));
    ways
}

fn line(name: &str, what: &str, way: Option<&CheckedWay>, by: &str) -> [String; 6] {
    let none = || "-".to_owned();
    let address = way.map_or_else(none, |way| way.address.to_string());
    let rtt = way.map_or_else(none, |way| match way.rtt_us {
        Some(us) => milliseconds(us),
        None => way.instead.clone().unwrap_or_else(none),
    });
    let full = way.map_or_else(none, |way| match (way.carries_full, way.full_bytes) {
        (Some(true), Some(bytes)) => bytes.to_string(),
        (Some(false), Some(bytes)) => format!("not {bytes}"),
        (None, _) | (_, None) => none(),
    });
    [name.to_owned(), what.to_owned(), address, rtt, full, by.to_owned()]
}

/// A time in the unit of `ping`.
pub(super) fn milliseconds(us: u64) -> String {
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

/// Prints cells in columns.
pub(super) fn table<const N: usize>(head: &[String; N], rows: &[[String; N]]) -> Result<(), OutputError> {
    let all: Vec<&[String; N]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in all {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        output::result(cells.join("  ").trim_end())?;
    }
    Ok(())
}
