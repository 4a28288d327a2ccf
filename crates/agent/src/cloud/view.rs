//! What the agent knows of the cloud.

use ipnet::IpNet;

use super::{Interface, Table};

/// What the agent knows of the cloud, as it was found last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// The interface of this node; `None`: it is not known yet.
    pub interface: Option<Interface>,
    /// The route tables that lead to this node's pods, or are to.
    pub tables: Vec<Table>,
    /// What cannot be had, in words.
    pub failed: Vec<String>,
    /// Why the tables could not be asked for the last time.
    pub unasked: Option<String>,
    /// The last things that were no longer as the agent had made them and are again, the newest last.
    pub repaired: Vec<String>,
    /// How many there were since the agent began.
    pub repaired_total: usize,
    /// All ways have been in the tables for so long that the other nodes have seen them, too.
    pub is_settled: bool,
}

/// How many of the last repairs are kept.
const REPAIRS: usize = 50;
/// Why nothing can be said of a way.
const NOT_KNOWN: &str = "the cloud's route table is not known yet";

impl View {
    /// Whether packets for a prefix of another node's pods get there.
    ///
    /// # Errors
    /// In words: a table does not lead there.
    pub fn check_way(&self, prefix: IpNet) -> Result<(), String> {
        let Some(interface) = self.interface.as_ref().filter(|_| !self.tables.is_empty()) else {
            return Err(NOT_KNOWN.to_owned());
        };
        for table in &self.tables {
            let id = &table.id;
            match table.route(prefix) {
                None => {
                    return Err(format!(
                        "route table {id} has no route to its {prefix}; the agent of that node makes it"
                    ));
                }
                Some(route) if route.is_dead => {
                    let to = route.leads_to();
                    return Err(format!(
                        "route table {id} leads its {prefix} to {to}, which is gone or stopped"
                    ));
                }
                Some(route) if route.target == interface.id => {
                    return Err(format!(
                        "route table {id} leads its {prefix} to this node, {}",
                        interface.id
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Whether the prefixes of this node's pods lead to it.
    ///
    /// # Errors
    /// In words, why not.
    pub(crate) fn check_own(&self, own: impl Iterator<Item = IpNet>) -> Result<(), String> {
        let why = || Some(self.faults().join("; ")).filter(|why| !why.is_empty());
        let unknown = || why().unwrap_or_else(|| NOT_KNOWN.to_owned());
        let interface = self.interface.as_ref().ok_or_else(unknown)?;
        let tables = if self.tables.is_empty() { Err(unknown()) } else { Ok(&self.tables) }?;
        let not_so = |what: String| why().unwrap_or_else(|| format!("{what}; that is about to be changed"));
        if interface.checks_source {
            return Err(not_so(format!("{} takes packets for no address but its own", interface.id)));
        }
        for prefix in own {
            for table in tables {
                if table.route(prefix).is_none_or(|route| route.target != interface.id) {
                    return Err(not_so(format!("route table {} does not lead {prefix} here", table.id)));
                }
            }
        }
        Ok(())
    }

    /// What is not as it should be, in words.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.unasked.iter().chain(&self.failed).cloned().collect()
    }

    /// Counts a repair. Only the last ones are kept in words.
    pub(crate) fn add_repair(&mut self, what: String) {
        self.repaired_total += 1;
        self.repaired.push(what);
        self.repaired.drain(..self.repaired.len().saturating_sub(REPAIRS));
    }

    /// The repairs after the first so many, as far as they are still known.
    pub(crate) fn repaired_since(&self, seen: usize) -> &[String] {
        let new = self.repaired_total.saturating_sub(seen).min(self.repaired.len());
        &self.repaired[self.repaired.len() - new..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_repairs_are_kept() {
        let mut view = View::default();
        for number in 0..REPAIRS + 3 {
            view.add_repair(number.to_string());
        }
        assert_eq!((view.repaired.len(), view.repaired_total), (REPAIRS, REPAIRS + 3));
        assert_eq!(view.repaired_since(REPAIRS + 1), ["51", "52"]);
        assert_eq!(view.repaired_since(0).len(), REPAIRS, "the first ones are not known any more");
        assert!(view.repaired_since(REPAIRS + 3).is_empty());
    }

    #[test]
    fn all_that_is_wrong_is_reported() {
        let view = View {
            failed: vec!["no route".to_owned(), "no check".to_owned()],
            unasked: Some("no answer".to_owned()),
            ..View::default()
        };
        assert_eq!(view.check_own(std::iter::empty()).unwrap_err(), "no answer; no route; no check");
    }
}
