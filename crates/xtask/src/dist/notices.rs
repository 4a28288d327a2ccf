//! Whose code is in the programs, and under which licences: nearly all of them ask that their text goes along.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo;

/// How names of files with licences begin, in lower case.
const NAMES: [&str; 6] = ["licen", "copying", "copyright", "notice", "unlicense", "authors"];
/// Texts that lie deeper, for code of others that a crate brings along and that is compiled.
const DEEPER: [(&str, &str); 2] =
    [("libbpf-sys", "libbpf/LICENSE.BSD-2-Clause"), ("ring", "third_party/fiat/LICENSE")];
/// Debian's libraries that are linked, by the package that is installed where they are linked with, and their sources.
const LIBRARIES: [(&str, &str); 3] = [("libc6", "glibc"), ("libelf-dev", "elfutils"), ("zlib1g-dev", "zlib")];

/// The names of the crates that are linked into the program for a target, with licences, and all texts of these.
pub(crate) fn of_program(triple: &str) -> Result<String> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version=1", "--locked", "--filter-platform", triple]);
    let output = metadata.output().context("could not start cargo")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo wrote no JSON")?;
    // A licence's text, and the crates that have it.
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = String::new();
    for package in linked(&metadata, "hostgap")? {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let name = format!("{} {}", field("name"), field("version"));
        list += &format!("- {name}: {}\n", field("license"));
        let manifest = Path::new(field("manifest_path"));
        for path in files(field("name"), manifest.parent().context("a manifest lies in a folder")?)? {
            let bytes = fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
            let text = String::from_utf8_lossy(&bytes).trim_end().replace('\r', "");
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for (package, source) in LIBRARIES {
        list += &format!("- {source} (Debian's source package of that name): see below\n");
        let path = Path::new("/usr/share/doc").join(package).join("copyright");
        let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
        texts.entry(text.trim_end().to_owned()).or_default().push(source.to_owned());
    }
    Ok(page(&list, &texts))
}

fn page(list: &str, texts: &BTreeMap<String, Vec<String>>) -> String {
    let mut page = format!("# What the programs contain of others\n\n{list}\n# Licences\n");
    let mut texts: Vec<_> = texts.iter().map(|(text, owners)| (owners.join(", "), text)).collect();
    texts.sort();
    for (owners, text) in texts {
        page += &format!("\n## {owners}\n\n```\n{text}\n```\n");
    }
    page
}

/// The packages of others that a package of ours is linked with, sorted by name: what it needs in no build script and
/// in no test. What a procedural macro needs is among them, which does no harm.
fn linked<'a>(metadata: &'a Value, ours: &str) -> Result<Vec<&'a Value>> {
    let list = |value: &'a Value| value.as_array().map(Vec::as_slice).unwrap_or_default();
    let packages = list(&metadata["packages"]);
    let id = packages.iter().find(|package| package["name"] == ours).map(|package| &package["id"]);
    let mut found = vec![id.with_context(|| format!("cargo knows no package {ours}"))?];
    let mut looked_at = 0;
    while let Some(id) = found.get(looked_at).copied() {
        looked_at += 1;
        let nodes = list(&metadata["resolve"]["nodes"]);
        let needs = nodes.iter().find(|node| node["id"] == *id).map(|node| list(&node["deps"]));
        for need in needs.unwrap_or_default() {
            let is_linked = list(&need["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            if is_linked && !found.contains(&&need["pkg"]) {
                found.push(&need["pkg"]);
            }
        }
    }
    let is_theirs = |package: &&Value| !package["source"].is_null() && found.contains(&&package["id"]);
    let mut theirs: Vec<&Value> = packages.iter().filter(is_theirs).collect();
    theirs.sort_by_key(|package| (package["name"].to_string(), package["version"].to_string()));
    Ok(theirs)
}

/// The files with licences of a package.
fn files(name: &str, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))? {
        let path = entry?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && NAMES.iter().any(|begin| file.starts_with(begin)) {
            found.push(path);
        }
    }
    found.extend(DEEPER.iter().filter(|(owner, _)| *owner == name).map(|(_, path)| folder.join(path)));
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_named_and_what_builds_is_not() {
        let package =
            |name: &str, source: Value| serde_json::json!({ "id": name, "name": name, "source": source });
        let need =
            |name: &str, kind: Value| serde_json::json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = serde_json::json!({
            "packages": [
                package("app", Value::Null), package("part", Value::Null), package("z", "registry".into()),
                package("a", "registry".into()), package("cc", "registry".into()), package("insta", "registry".into()),
            ],
            "resolve": { "nodes": [
                { "id": "app", "deps": [need("part", Value::Null), need("insta", "dev".into())] },
                { "id": "part", "deps": [need("z", Value::Null), need("cc", "build".into())] },
                { "id": "z", "deps": [need("a", Value::Null)] },
                { "id": "a", "deps": [need("z", Value::Null)] },
            ] },
        });
        let names: Vec<_> = linked(&metadata, "app").unwrap().iter().map(|found| &found["name"]).collect();
        assert_eq!(names, ["a", "z"]);
        assert!(linked(&metadata, "other").is_err());
    }

    #[test]
    fn a_text_that_several_have_is_there_once() {
        let texts = BTreeMap::from([("MIT".to_owned(), vec!["a 1".to_owned(), "b 2".to_owned()])]);
        let page = page("- a 1: MIT\n- b 2: MIT\n", &texts);
        assert!(page.ends_with("- b 2: MIT\n\n# Licences\n\n## a 1, b 2\n\n```\nMIT\n```\n"), "{page}");
    }
}
