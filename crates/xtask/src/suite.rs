//! The test binaries of the workspace, built once.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo;

/// A test binary that cargo has built.
#[derive(Clone, Debug)]
pub(crate) struct Suite {
    /// The crate it belongs to.
    pub(crate) package: String,
    /// Which part of the crate it tests.
    pub(crate) kind: TestKind,
    /// The absolute path of the program.
    pub(crate) binary: PathBuf,
    /// The crate's folder, in which its tests run.
    pub(crate) folder: PathBuf,
}

/// The part of a crate that a binary tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestKind {
    /// The tests inside the crate's files.
    Unit,
    /// Built from a folder `tests/`.
    Integration,
}

impl Suite {
    /// The name of the suite in our output.
    pub(crate) fn name(&self) -> String {
        match self.kind {
            TestKind::Unit => format!("{} unit", self.package),
            TestKind::Integration => {
                let stem = self.binary.file_stem().unwrap_or_default().to_string_lossy();
                format!("{} {}", self.package, stem.split('-').next().unwrap_or("it"))
            }
        }
    }
}

/// Builds all tests of `packages`, or of the whole workspace, and returns their binaries.
pub(crate) fn build(packages: &[String]) -> Result<Vec<Suite>> {
    let mut command = cargo();
    command.args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    select(&mut command, packages);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context("could not start cargo")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let text = String::from_utf8(output.stdout).context("cargo wrote no UTF-8")?;
    let mut suites: Vec<Suite> = text.lines().filter_map(parse).collect();
    suites.sort_by_key(Suite::name);
    Ok(suites)
}

/// Adds the selected packages to cargo's arguments.
pub(crate) fn select(command: &mut std::process::Command, packages: &[String]) {
    if packages.is_empty() {
        command.arg("--workspace");
    }
    for package in packages {
        command.args(["--package", package]);
    }
}

/// The test binary that one of cargo's messages names, if any.
fn parse(line: &str) -> Option<Suite> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let integration = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "test");
    Some(Suite {
        package: folder.file_name()?.to_str()?.to_owned(),
        kind: if integration { TestKind::Integration } else { TestKind::Unit },
        binary: message["executable"].as_str()?.into(),
        folder,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_binaries_are_taken_from_cargo_s_messages() {
        let message = |reason: &str, test: bool, kind: &str| {
            format!(
                r#"{{"reason":"{reason}","manifest_path":"/w/crates/plan/Cargo.toml","target":{{"kind":["{kind}"]}},
                "profile":{{"test":{test}}},"executable":"/t/deps/it-00ff"}}"#
            )
        };
        let suite = parse(&message("compiler-artifact", true, "test")).unwrap();
        assert_eq!((suite.name().as_str(), suite.kind), ("plan it", TestKind::Integration));
        assert_eq!(suite.folder, Path::new("/w/crates/plan"));
        assert_eq!(parse(&message("compiler-artifact", true, "lib")).unwrap().name(), "plan unit");
        assert!(parse(&message("compiler-artifact", false, "lib")).is_none());
        assert!(parse(&message("build-script-executed", true, "test")).is_none());
        assert!(parse("no JSON").is_none());
    }
}
