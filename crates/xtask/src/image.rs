//! `cargo xtask image`: the agent's image, for the nodes of a cluster or for a registry.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::suites::target;
use crate::{cargo, check, root};

/// Builds the program without shared libraries, since the agent copies it to nodes of any distribution, and packs it.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let name = match arguments {
        [] => cluster::AGENT_IMAGE,
        [name] => name,
        _ => bail!("usage: cargo xtask image [NAME]"),
    };
    let triple = triple()?;
    // With a target named, proc macros and build scripts are built as usual: they cannot be static.
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", triple.to_uppercase().replace('-', "_"));
    let mut build = cargo();
    build.args(["build", "--release", "--package", "hostgap", "--target", &triple]);
    check(build.env(flags, "-C target-feature=+crt-static"))?;
    let target = target()?;
    let program = target.join(&triple).join("release/hostgap");
    let archive = cluster::write_agent_image(&program, &[name], &target)?;
    let archive = archive.display();
    println!("{name} is in {archive}; ctr --namespace k8s.io images import and docker load --input take it");
    Ok(())
}

/// The name of this machine as a target of the compiler.
fn triple() -> Result<String> {
    let output =
        Command::new("rustc").arg("-vV").current_dir(root()).output().context("could not run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let triple = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(triple.context("rustc does not say its host")?.to_owned())
}
