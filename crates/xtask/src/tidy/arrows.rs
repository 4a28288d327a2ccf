//! The arrows between crates: each crate uses only rows below its own.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use toml::Table;

/// The rows of crates, the lowest first, as in ARCHITECTURE.
const ROWS: [&[&str]; 7] = [
    &["linux", "stats"],
    &["bpf"],
    &["plan", "record", "cni", "ipam"],
    &["load", "watch", "datapath", "tune", "vm", "verdict"],
    &["lab", "doctor", "host", "node", "conformance", "report"],
    &["agent"],
    &["hostgap"],
];
/// Crates that serve the project and not the product. They have no row, and product crates use them only in
/// tests.
const TOOLS: [&str; 4] = ["cluster", "dist", "testkit", "xtask"];
/// Crates that may use less than their row allows.
const NARROWER: [(&str, &[&str]); 2] =
    [("report", &["record", "stats", "verdict"]), ("verdict", &["record", "stats"])];

/// The offences of all crates in a folder.
pub(crate) fn check(crates: &Path) -> Result<Vec<String>> {
    let mut offences = Vec::new();
    let mut folders: Vec<_> = fs::read_dir(crates)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    let ours: Vec<String> =
        folders.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
    for folder in &folders {
        let path = folder.join("Cargo.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
        let manifest: Table = text.parse().with_context(|| format!("could not parse {}", path.display()))?;
        let folder_name = folder.file_name().unwrap_or_default().to_string_lossy();
        offences.extend(offences_of(&folder_name, &manifest, &ours));
    }
    Ok(offences)
}

fn offences_of(folder: &str, manifest: &Table, ours: &[String]) -> Vec<String> {
    let mut offences = Vec::new();
    let name = manifest.get("package").and_then(|package| package.get("name")).and_then(|name| name.as_str());
    if name != Some(folder) {
        offences.push(format!("crates/{folder}: a crate is called as its folder"));
    }
    let uses = |table: &str| -> Vec<String> {
        let table = manifest.get(table).and_then(|table| table.as_table());
        table.into_iter().flat_map(Table::keys).filter(|key| ours.contains(key)).cloned().collect()
    };
    if TOOLS.contains(&folder) {
        return offences;
    }
    let Some(row) = row(folder) else {
        offences.push(format!("crates/{folder}: it has no row in the house; that is a decision for review"));
        return offences;
    };
    for used in uses("dependencies").into_iter().chain(uses("build-dependencies")) {
        if !row_of_use_is_lower(&used, row) {
            offences.push(format!("crates/{folder} uses {used}, which is in no lower row"));
        }
        if let Some((_, allowed)) = NARROWER.iter().find(|(name, _)| *name == folder)
            && !allowed.contains(&used.as_str())
        {
            offences.push(format!("crates/{folder} uses {used}, and may use only {}", allowed.join(", ")));
        }
    }
    for used in uses("dev-dependencies") {
        if used == "xtask" {
            offences.push(format!("crates/{folder} uses xtask in its tests"));
        }
    }
    offences
}

fn row(name: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&name))
}

fn row_of_use_is_lower(used: &str, than: usize) -> bool {
    row(used).is_some_and(|row| row < than)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_one(folder: &str, dependencies: &str, expected: &[&str]) {
        let text = format!("[package]\nname = \"{folder}\"\n[dependencies]\n{dependencies}");
        let ours = ["linux", "stats", "plan", "record", "lab", "report", "testkit", "xtask", "cloud"];
        let found = offences_of(folder, &text.parse().unwrap(), &ours.map(str::to_owned));
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn arrows_go_down() {
        check_one("plan", "linux.workspace = true\nserde = \"1\"\n", &[]);
        check_one("linux", "plan.workspace = true\n", &["in no lower row"]);
        check_one("linux", "stats.workspace = true\n", &["in no lower row"]);
        check_one("lab", "testkit.workspace = true\n", &["uses testkit"]);
        check_one(
            "lab",
            "[dev-dependencies]\ntestkit.workspace = true\nxtask.workspace = true\n",
            &["xtask"],
        );
        check_one(
            "report",
            "plan.workspace = true\nrecord.workspace = true\n",
            &["only record, stats, verdict"],
        );
        check_one("cloud", "", &["no row"]);
        check_one("xtask", "lab.workspace = true\n", &[]);
    }

    #[test]
    fn crate_is_called_as_its_folder() {
        let found = offences_of("plan", &"[package]\nname = \"x\"\n".parse().unwrap(), &[]);
        assert!(found.len() == 1 && found[0].contains("as its folder"), "{found:?}");
    }
}
