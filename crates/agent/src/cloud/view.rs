//! What the agent knows of the cloud.

use ipnet::IpNet;

use super::{Interface, Table};

/// What the agent knows of the cloud, as it was found last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// The interface of this node; `None`: it is not known yet.
    pub interface: Option<Interface>,
    /// The tables.
    pub tables: Vec<Table>,
    /// What cannot be had, in words.
    pub failed: Vec<String>,
    /// Why the tables could not be asked for the last time.
    pub unasked: Option<String>,
    /// What was no longer as the agent had made it and is again, since the agent began.
    pub repaired: Vec<String>,
}

impl View {
    /// Whether packets for a prefix of another node's pods get there.
    ///
    /// # Errors
    /// In words: a table does not lead there.
    pub fn check_way(&self, prefix: IpNet) -> Result<(), String> {
        let Some(interface) = self.interface.as_ref().filter(|_| !self.tables.is_empty()) else {
            return Err("the cloud's route table is not known yet".to_owned());
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
        let why = || self.failed.first().or(self.unasked.as_ref()).cloned();
        let unknown = || why().unwrap_or_else(|| "the cloud's route table is not known yet".to_owned());
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

    /// What is to be said of a table that is nearly full.
    pub(crate) fn nearly_full(table: &Table, routes_max: usize) -> Option<String> {
        let (count, family) =
            table.counted.iter().copied().zip(["IPv4", "IPv6"]).max_by_key(|(count, _)| *count)?;
        // One that has more than that has another limit.
        let is_near = count * 10 >= routes_max * 9 && count <= routes_max;
        is_near.then(|| {
            format!(
                "it has {count} {family} routes of {routes_max}; each node takes one. Raise the quota \"Routes per route \
                 table\" of Amazon VPC (L-93826ACB), and tell the agent by --cloud-routes-max"
            )
        })
    }
}
