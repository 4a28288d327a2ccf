//! What is installed, as `make install` of the checkout does it: its list of files is the only one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{Release, run};

/// Where Debian's packages have their files, and where the rest of a release takes them from.
pub(crate) const USR: &str = "usr";

/// Installs the programs, their manual pages and completions into a folder as if it were the root.
pub(crate) fn install(release: &Release<'_>, work: &Path) -> Result<PathBuf> {
    let root = work.join("installed");
    let program = std::path::absolute(release.program).context("could not find the working directory")?;
    let mut make = Command::new("make");
    make.args(["--no-print-directory", "put", &format!("PREFIX=/{USR}")]).current_dir(release.checkout);
    make.arg(format!("HOSTGAP={}", program.display())).arg(format!("DESTDIR={}", root.display()));
    if let Some(runner) = release.runner {
        make.arg(format!("RUNNER={}", runner.display()));
    }
    // A make that called us would pass its own variables on, its DESTDIR among them.
    run(make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL"))?;
    Ok(root)
}

/// Copies files and folders of the checkout into a folder.
pub(crate) fn copy(release: &Release<'_>, names: &[&str], to: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    copy.args(["--recursive", "--dereference", "--"]).args(names).arg(to).current_dir(release.checkout);
    run(&mut copy)?;
    Ok(())
}
