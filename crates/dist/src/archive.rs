//! The archive for any Linux: programs, texts, and a Makefile that installs them without a compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::stage::{self, USR};
use crate::{Effort, Release, changes, put, run};

const MAKEFILE: &str = include_str!("../files/Makefile");
/// What of the checkout lies beside the programs: what README refers to, and what an installation is set up with.
const TEXTS: [&str; 7] =
    ["README.md", "SECURITY.md", "LICENSE-APACHE", "LICENSE-MIT", "deploy", "docs", "scenarios"];

/// Writes it, and returns its path.
pub(crate) fn write(release: &Release<'_>, installed: &Path, work: &Path, folder: &Path) -> Result<PathBuf> {
    let name = release.name();
    let top = work.join(&name);
    run(Command::new("cp").arg("--recursive").arg(installed.join(USR)).arg(&top))?;
    stage::copy(release, &TEXTS, &top)?;
    put(&top.join("Makefile"), MAKEFILE)?;
    put(&top.join("CHANGES.md"), &format!("{}\n", section(release)?))?;
    put(&top.join("THIRD-PARTY.md"), release.notices)?;
    let archive = folder.join(format!("{name}.tar.gz"));
    let level = match release.effort {
        Effort::Most => 9,
        Effort::Least => 1,
    };
    let archive = std::path::absolute(archive).context("could not find the working directory")?;
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=gnu", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg("--mode=u=rwX,go=rX").arg(format!("--mtime=@{}", release.unix_s));
    tar.arg(format!("--use-compress-program=gzip --no-name -{level}"));
    run(tar.arg("--file").arg(&archive).arg(&name).current_dir(work))?;
    Ok(archive)
}

/// What the changelog says of this version.
pub(crate) fn section(release: &Release<'_>) -> Result<String> {
    let path = release.checkout.join("CHANGELOG.md");
    let log = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
    Ok(changes(&log, release.version)?.to_owned())
}
