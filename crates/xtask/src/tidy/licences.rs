//! Licences and sources of our dependencies, as cargo reports them.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo;

/// Licences that a binary under MIT or Apache-2.0 can comply with.
const ALLOWED: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
/// What is built. Packages that others alone need are in the lock file, too. The same list as in deny.toml.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The offences of all packages in the lock file that are built for one of the targets.
pub(crate) fn check() -> Result<Vec<String>> {
    let targets = TARGETS.iter().flat_map(|target| ["--filter-platform", target]);
    let output = cargo().args(["metadata", "--format-version=1", "--locked"]).args(targets).output();
    let output = output.context("could not start cargo")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo wrote no JSON")?;
    let packages = metadata["packages"].as_array().context("cargo listed no packages")?;
    Ok(packages.iter().filter_map(offence).collect())
}

fn offence(package: &Value) -> Option<String> {
    let name = package["name"].as_str().unwrap_or_default();
    if let Some(source) = package["source"].as_str().filter(|source| *source != REGISTRY) {
        return Some(format!("package {name} comes from {source}, not from crates.io"));
    }
    let licence = package["license"].as_str().unwrap_or("no licence");
    (!is_allowed(licence)).then(|| format!("package {name} is under {licence}, which is not on the list"))
}

/// Whether an SPDX expression can be met. OR needs one side, AND needs both, and parentheses group.
fn is_allowed(expression: &str) -> bool {
    // Before SPDX expressions, a slash meant OR.
    let expression = expression.replace('/', " OR ");
    let expression = expression.trim();
    if let Some((left, right)) = split(expression, " OR ") {
        return is_allowed(left) || is_allowed(right);
    }
    if let Some((left, right)) = split(expression, " AND ") {
        return is_allowed(left) && is_allowed(right);
    }
    match expression.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => is_allowed(inner),
        None => ALLOWED.contains(&expression),
    }
}

/// Splits at the first `word` outside parentheses.
fn split<'a>(expression: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    expression.match_indices(word).find_map(|(at, _)| {
        let before = &expression[..at];
        let open = before.matches('(').count() == before.matches(')').count();
        open.then(|| (before, &expression[at + word.len()..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expression: &str, expected: bool) {
        assert_eq!(is_allowed(expression), expected, "{expression}");
    }

    #[test]
    fn expressions_are_understood() {
        check("MIT", true);
        check("GPL-3.0-only", false);
        check("GPL-3.0-only OR MIT", true);
        check("MIT AND GPL-3.0-only", false);
        check("(MIT OR Apache-2.0) AND Unicode-3.0", true);
        check("(GPL-2.0-only OR MIT) AND (MPL-2.0 OR AGPL-3.0-only)", false);
        check("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true);
        check("MIT/Apache-2.0", true);
    }

    #[test]
    fn other_sources_are_named() {
        let package = serde_json::json!({ "name": "x", "license": "MIT", "source": "git+https://a/b" });
        assert!(offence(&package).unwrap().contains("git+https"));
        let package = serde_json::json!({ "name": "x", "license": null, "source": REGISTRY });
        assert!(offence(&package).unwrap().contains("no licence"));
        let package = serde_json::json!({ "name": "ours", "license": "MIT OR Apache-2.0", "source": null });
        assert_eq!(offence(&package), None);
    }
}
