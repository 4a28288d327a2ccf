//! What this agent leaves on its node: the unit of a network, and the plugin for container runtimes.

use std::path::Path;

use linux::features::Facts;
use node::Home;
use node::install::{self, Installation, OtherSubnets, RuntimeDirs};

use crate::files::Environment;

/// What units of networks are noted as.
pub(crate) const NOTE: &str = "a network over many nodes";

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
