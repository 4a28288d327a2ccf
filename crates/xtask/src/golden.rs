//! Accepts the present output as what golden tests expect.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::tidy::sources;
use crate::{check, root};

/// The variable that makes the golden tests accept new output.
const ACCEPT: &str = "HOSTGAP_ACCEPT";

/// Runs the tests of `packages`, or of all with golden files, so that they rewrite those files.
pub(crate) fn run(packages: &[String]) -> Result<()> {
    let packages =
        if packages.is_empty() { with_golden_files(&root().join("crates"))? } else { packages.to_vec() };
    println!("golden: {}", packages.join(" "));
    // As always each test runs in a process of its own, with a `/run` of its own.
    let own = std::env::current_exe().context("could not find this program")?;
    check(Command::new(own).arg("native-test").args(&packages).env(ACCEPT, "1"))?;
    println!("golden: now read the difference: git diff");
    Ok(())
}

/// The packages in which a file mentions the variable.
fn with_golden_files(crates: &Path) -> Result<Vec<String>> {
    let mut packages = Vec::new();
    for entry in fs::read_dir(crates)? {
        let folder = entry?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mentions = |file: &Path| fs::read_to_string(file).is_ok_and(|text| text.contains(ACCEPT));
        if name != "xtask" && name != "testkit" && sources(&folder)?.iter().any(|file| mentions(file)) {
            packages.push(name);
        }
    }
    packages.sort();
    Ok(packages)
}
