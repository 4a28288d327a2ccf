//! All checks of the code that do not run it.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Result;

use crate::{cargo, check, root, tidy};

/// Runs every lint until one fails.
pub(crate) fn run() -> Result<()> {
    stage("format", || {
        check(cargo().args(["fmt", "--all", "--check"]))?;
        check(cargo().args(["fmt", "--check", "--manifest-path", "fuzz/Cargo.toml"]))
    })?;
    stage("tidy", tidy::run)?;
    stage("clippy", || {
        check(cargo().args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    stage("documentation", || {
        let mut doc = cargo();
        check(doc.args(["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    if has_cargo_deny() {
        stage("dependencies", || check(cargo().args(["deny", "check"]).current_dir(root())))?;
    } else {
        // tidy checks licences and sources too, but advisories need the program.
        println!("lint: cargo-deny is not installed, so advisories are not looked at");
    }
    Ok(())
}

fn stage(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    run()?;
    println!("lint: {name} ({:.1} s)", start.elapsed().as_secs_f64());
    Ok(())
}

fn has_cargo_deny() -> bool {
    let mut command = Command::new("cargo-deny");
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
