//! The project's tasks: `cargo xtask test | native-test | vm-test | fuzz | suites | plugins | cluster | image | dist |
//! lint | tidy | golden | ci`.
//!
//! All CI jobs are here, so that they can be run before CI does.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this program's job is to print for people")]

mod cluster;
mod dist;
mod fuzz;
mod golden;
mod guest;
mod image;
mod lane;
mod ledger;
mod libtest;
mod lint;
mod native;
mod static_build;
mod suite;
mod suites;
mod temporary;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::test::Selection;

const USAGE: &str = "\
usage: cargo xtask CHORE [PACKAGE...] [-- FILTER...]
       cargo xtask fuzz [SECONDS]
       cargo xtask cluster up | kubectl | on | e2e | down
       cargo xtask image [NAME]
       cargo xtask dist [--target TRIPLE] [DIR]

  test         all tests: on this kernel, on Debian kernels in QEMU, and the fuzzers for a moment
  native-test  the tests on this kernel alone
  vm-test      the tests on Debian kernels alone
  fuzz         the parsers of foreign bytes, for SECONDS each (600)
  suites       the CNI project's own test suites, with this program under the names of its plugins, and the tests of
               containers under a newer containerd (needs Go)
  plugins      build the CNI project's plugins, for the benchmark of ours (needs Go)
  cluster      a Kubernetes of two nodes, in namespaces
  image        the agent's image for Kubernetes, called NAME (localhost/hostgap:latest), as an archive
  dist         the files of a release in DIR (target/dist): archive, package, image, sums, for this machine or for the
               target TRIPLE (aarch64-unknown-linux-gnu)
  lint         format, tidy, clippy, documentation, dependencies
  tidy         the rules of style that can be checked
  golden       accept what the tests found as the new golden files
  ci           lint and test, then check that the checkout is unchanged

PACKAGE limits the tests and golden to some crates, FILTER the tests to those whose name contains it. With CI=true a
test that ran nowhere is a failure.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (chore, packages) = match arguments.split_first() {
        Some((chore, packages)) => (chore.as_str(), packages),
        None => ("help", [].as_slice()),
    };
    let outcome = match chore {
        "test" => test::run(test::Lanes::All, &Selection::parse(packages)).and_then(test::TestSummary::close),
        "native-test" => {
            test::run(test::Lanes::Native, &Selection::parse(packages)).and_then(test::TestSummary::close)
        }
        "vm-test" => {
            test::run(test::Lanes::Guest, &Selection::parse(packages)).and_then(test::TestSummary::close)
        }
        "fuzz" => fuzz::run(packages),
        "suites" => suites::run(),
        "plugins" => suites::plugins(),
        "cluster" => cluster::run(packages),
        "image" => image::run(packages),
        "dist" => dist::run(packages),
        "lint" => lint::run(),
        "tidy" => tidy::run(),
        "golden" => golden::run(packages),
        "ci" => ci(),
        "help" | "-h" | "--help" => {
            println!("{USAGE}");
            Ok(())
        }
        other => Err(anyhow::anyhow!("there is no chore {other:?}\n\n{USAGE}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all lanes; the closing line of the tests comes last.
fn ci() -> Result<()> {
    let before = tree()?;
    lint::run()?;
    let summary = test::run(test::Lanes::All, &Selection::default())?;
    let after = tree()?;
    if before != after {
        bail!("the run changed the checkout; before:\n{before}after:\n{after}");
    }
    summary.close()
}

/// The state of the checkout according to git.
fn tree() -> Result<String> {
    let mut git = Command::new("git");
    git.args(["status", "--porcelain"]).current_dir(root());
    let output = git.output().context("could not run git")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The top folder of the workspace.
fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent);
    crates.expect("this crate lies two folders below the top").to_owned()
}

/// The cargo that called us.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// Runs a command with its output shown.
fn check(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().with_context(|| format!("could not start {shown}"))?;
    if !status.success() {
        bail!("{shown} ended with {status}");
    }
    Ok(())
}
