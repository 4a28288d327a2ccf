//! `cargo xtask image`: the agent's image, for the nodes of a cluster or for a registry.

use anyhow::{Result, bail};

use crate::static_build::{build, host};
use crate::suites::target;

/// Builds the program and packs it.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let name = match arguments {
        [] => cluster::AGENT_IMAGE,
        [name] => name,
        _ => bail!("usage: cargo xtask image [NAME]"),
    };
    let built = build(&host()?)?;
    let archive = cluster::write_agent_image(&built.program, &[name], &target()?)?;
    let archive = archive.display();
    println!("{name} is in {archive}; ctr --namespace k8s.io images import and docker load --input take it");
    Ok(())
}
