//! Which node reaches which: the rows of all nodes.

use std::collections::{BTreeMap, BTreeSet};

use ::agent::check::{CheckedPeer, Row};

use super::others::Answers;
use super::table::{milliseconds, reasons};
use crate::output::{self, OutputError};

/// The version of the JSON.
pub(super) const SCHEMA: u32 = 1;
/// What this node is called where no other one has a name for it.
const HERE: &str = "this node";
/// Nodes beyond which the matrix does not fit a screen, and only what is not reached is listed.
const DRAWN: usize = 12;

/// The rows by the names of their nodes.
#[derive(Debug)]
pub(super) struct Matrix {
    pub(super) rows: BTreeMap<String, Row>,
    /// The nodes whose agents do not answer, and why.
    pub(super) silent: BTreeMap<String, String>,
}

impl Matrix {
    /// Puts this node's row and those of the others together.
    pub(super) fn of(own: Row, others: Answers) -> Matrix {
        let (mut rows, mut silent) = (BTreeMap::new(), BTreeMap::new());
        for (name, answer) in others {
            match answer {
                Ok(row) => drop(rows.insert(name, row)),
                Err(why) => drop(silent.insert(name, why)),
            }
        }
        let name = name_of(&own, rows.values());
        rows.insert(name, own);
        Matrix { rows, silent }
    }

    /// Whether each node has answered and reaches each other.
    pub(super) fn is_well(&self) -> bool {
        let names: BTreeSet<&String> = self.rows.keys().collect();
        let is_whole = |(name, row): (&String, &Row)| {
            row.is_well() && names.iter().all(|other| *other == name || row.peers.contains_key(*other))
        };
        self.silent.is_empty() && self.rows.iter().all(is_whole)
    }

    /// Prints the matrix of a small network, and what is not whole.
    pub(super) fn print(&self) -> Result<(), OutputError> {
        let names = self.names();
        if names.len() <= DRAWN {
            self.draw(&names)?;
        }
        for (name, row) in &self.rows {
            reasons(name, &row.here)?;
            for other in &names {
                match row.peers.get(*other) {
                    Some(peer) => reasons(&format!("{name} to {other}"), &peer.reasons)?,
                    None if *other == name => {}
                    None => {
                        output::result(format_args!(
                            "\n{name} to {other}: the agent of {name} has no lease of {other}"
                        ))?;
                        output::result(
                            "    compare the sources of the two agents: hostgap agent status on each",
                        )?;
                    }
                }
            }
        }
        for (name, why) in &self.silent {
            output::result(format_args!("\n{name}: its agent does not answer: {why}"))?;
            output::result(
                "    it needs `--listen ADDRESS:PORT` at an address of its node, and --port names the port",
            )?;
        }
        let (ways, reached) = self.count(&names);
        output::result(format_args!(
            "\n{reached} of {ways} ways are well; {} of {} agents have answered",
            self.rows.len(),
            names.len()
        ))
    }

    fn names(&self) -> Vec<&String> {
        let of_peers = self.rows.values().flat_map(|row| row.peers.keys());
        let all: BTreeSet<&String> = self.rows.keys().chain(self.silent.keys()).chain(of_peers).collect();
        all.into_iter().collect()
    }

    fn count(&self, names: &[&String]) -> (usize, usize) {
        let ways = self.rows.len() * names.len().saturating_sub(1);
        let peers = self.rows.values().flat_map(|row| row.peers.values());
        (ways, peers.filter(|peer| peer.is_reached).count())
    }

    /// A line for each node that has answered, a column for each that is asked.
    fn draw(&self, names: &[&String]) -> Result<(), OutputError> {
        let cell = |name: &String, row: &Row, other: &String| match row.peers.get(other) {
            _ if name == other => "-".to_owned(),
            Some(peer) if peer.is_reached => slowest(peer).map_or_else(|| "ok".to_owned(), milliseconds),
            Some(_) => "NO".to_owned(),
            None => "no lease".to_owned(),
        };
        let mut lines = vec![vec!["FROM".to_owned()]];
        lines[0].extend(names.iter().map(|name| format!("to {name}")));
        for (name, row) in &self.rows {
            let cells = names.iter().map(|other| cell(name, row, other));
            lines.push(std::iter::once(name.clone()).chain(cells).collect());
        }
        for name in self.silent.keys() {
            lines.push(std::iter::once(name.clone()).chain(names.iter().map(|_| "?".to_owned())).collect());
        }
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..=names.len()).map(width).collect();
        for line in &lines {
            let cells: Vec<String> =
                line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            output::result(cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// What the others call the node of this row: the name of the peer with its prefixes.
fn name_of<'a>(own: &Row, others: impl Iterator<Item = &'a Row>) -> String {
    let is_own = |peer: &CheckedPeer| !own.pods.is_empty() && peer.pods == own.pods;
    let mut named = others.flat_map(|row| row.peers.iter().filter(|(_, peer)| is_own(peer)));
    named.next().map_or_else(|| HERE.to_owned(), |(name, _)| name.clone())
}

/// The longest of a peer's round-trip times in microseconds.
fn slowest(peer: &CheckedPeer) -> Option<u64> {
    peer.families.values().flat_map(|family| family.ways().filter_map(|way| way.rtt_us)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pods: &str, peers: &[(&str, &str, bool)]) -> Row {
        let peer = |(name, pods, is_reached): &(&str, &str, bool)| {
            let peer = CheckedPeer {
                pods: vec![(*pods).to_owned()],
                is_reached: *is_reached,
                ..CheckedPeer::default()
            };
            ((*name).to_owned(), peer)
        };
        Row { pods: vec![pods.to_owned()], peers: peers.iter().map(peer).collect(), ..Row::default() }
    }

    fn answers(rows: &[(&str, &Row)]) -> Answers {
        rows.iter().map(|(name, row)| ((*name).to_owned(), Ok((*row).clone()))).collect()
    }

    #[test]
    fn this_node_is_called_as_the_others_call_it() {
        let a = row("10.0.1.0/24", &[("b", "10.0.2.0/24", true)]);
        let b = row("10.0.2.0/24", &[("a", "10.0.1.0/24", true)]);
        let matrix = Matrix::of(a.clone(), answers(&[("b", &b)]));
        assert!(matrix.is_well() && matrix.rows.keys().eq(["a", "b"]), "{matrix:#?}");
        let alone = Matrix::of(a, Answers::from([("b".to_owned(), Err("refused".to_owned()))]));
        assert!(!alone.is_well() && alone.rows.contains_key(HERE), "{alone:#?}");
    }

    #[test]
    fn a_node_without_a_lease_of_another_is_not_well() {
        let a = row("10.0.1.0/24", &[("b", "10.0.2.0/24", true), ("c", "10.0.3.0/24", true)]);
        let b = row("10.0.2.0/24", &[("a", "10.0.1.0/24", true)]);
        let c = row("10.0.3.0/24", &[("a", "10.0.1.0/24", true), ("b", "10.0.2.0/24", true)]);
        let matrix = Matrix::of(a, answers(&[("b", &b), ("c", &c)]));
        assert!(!matrix.is_well());
        assert_eq!(matrix.count(&matrix.names()), (6, 5));
    }
}
