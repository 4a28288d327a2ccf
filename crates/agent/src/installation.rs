//! What this agent leaves on its node: the unit of a network, and the plugin for container runtimes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use linux::features::{Facts, Feature, probe_some};
use node::Home;
use node::install::{self, Installation, OtherSubnets, RuntimeDirs};

use crate::files::Environment;

/// What units of networks are noted as.
pub(crate) const NOTE: &str = "a network over many nodes";

/// What the kernel lacks may come, as with a package of modules: it is tried again after this.
const TRIED_AGAIN: Duration = Duration::from_secs(10);

/// What the kernel can do, of what networks of pods need: it is tried once, since that takes a while, and nothing else
/// is, since modules that the kernel loads for it stay.
#[derive(Debug, Default)]
pub(crate) struct KnownFacts(BTreeMap<Vec<Feature>, (Facts, Instant)>);

impl KnownFacts {
    /// Of what this network needs.
    ///
    /// # Errors
    /// In words: there can be no such network, or no namespace in which to try.
    pub(crate) fn of(&mut self, network: &node::Network) -> Result<&Facts, String> {
        let needs = install::needs(network).map_err(|error| error.to_string())?;
        self.of_needs(&needs, Instant::now(), probe_some)
    }

    fn of_needs(
        &mut self,
        needs: &[Feature],
        now: Instant,
        probe: impl FnOnce(&[Feature]) -> linux::Result<Facts>,
    ) -> Result<&Facts, String> {
        let is_known = |(facts, tried): &(Facts, Instant)| {
            facts.unmet(needs).is_empty() || now.duration_since(*tried) < TRIED_AGAIN
        };
        if !self.0.get(needs).is_some_and(is_known) {
            let facts = probe(needs).map_err(|error| error.to_string())?;
            self.0.insert(needs.to_vec(), (facts, now));
        }
        Ok(&self.0[needs].0)
    }
}

/// Refuses an environment file that is another network's, which stands on this node: each of the two would say of both
/// that the ways to other nodes are there, and with one the other's would go.
pub(crate) fn check_environment(home: &Home, path: &Path, network: &str) -> Result<(), String> {
    let written = Environment::read(path).unwrap_or_default();
    let stands = |owner: &&String| home.node_networks().find(owner).is_ok_and(|found| found.is_some());
    match written.owner_but(network).filter(stands) {
        Some(owner) => Err(format!(
            "write {}: it is that of the network {owner} on this node; --subnet-file names another one",
            path.display()
        )),
        None => Ok(()),
    }
}

/// The plugin's program and a configuration, for container runtimes. A node that has got another prefix has the new one
/// in it, whoever is attached: with the old one containers would go on getting addresses that lead nowhere.
pub(crate) fn installation<'a>(
    home: &'a Home,
    facts: &'a Facts,
    dirs: &'a RuntimeDirs,
    network: &'a node::Network,
) -> Installation<'a> {
    let (file, program, other_subnets) = (None, install::program(), OtherSubnets::Awaited);
    Installation { home, facts, dirs, network, other_subnets, file, program }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_tried_once_and_what_lacks_again_some_time_later() {
        let mut known = KnownFacts::default();
        let begun = Instant::now();
        let mut tried = Vec::new();
        let mut ask = |needs: &[Feature], after_s, lacks: Option<Feature>| {
            let at = begun + Duration::from_secs(after_s);
            let probe = |features: &[Feature]| {
                tried.push((after_s, features.to_vec()));
                let missing = lacks.map(|feature| (feature, "no".to_owned())).into_iter().collect();
                Ok(Facts { kernel: String::new(), missing })
            };
            known.of_needs(needs, at, probe).unwrap().missing.len()
        };
        let (ptp, macvlan) = ([Feature::Veth, Feature::Nftables], [Feature::Macvlan]);
        assert_eq!((ask(&ptp, 0, None), ask(&ptp, 100, None)), (0, 0));
        let lacks = Some(Feature::Macvlan);
        assert_eq!((ask(&macvlan, 100, lacks), ask(&macvlan, 109, None)), (1, 1));
        assert_eq!((ask(&macvlan, 110, None), ask(&macvlan, 200, lacks)), (0, 0));
        assert_eq!(tried, [(0, ptp.to_vec()), (100, macvlan.to_vec()), (110, macvlan.to_vec())]);
    }
}
