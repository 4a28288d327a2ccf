//! What this agent leaves on its node: the unit of a network, and the plugin for container runtimes.

use linux::features::Facts;
use node::Home;
use node::install::{self, Installation, RuntimeDirs};

/// What units of networks are noted as.
pub(crate) const NOTE: &str = "a network over many nodes";

/// The plugin's program and a configuration, for container runtimes.
pub(crate) fn installation<'a>(
    home: &'a Home,
    facts: &'a Facts,
    dirs: &'a RuntimeDirs,
    network: &'a node::Network,
) -> Installation<'a> {
    Installation { home, facts, dirs, network, file: None, program: install::program() }
}
