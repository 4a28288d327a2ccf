//! Style as a test: what can be checked is checked here, so that reviews can discuss design.

mod arrows;
mod changes;
mod circles;
mod errors;
mod examples;
mod licences;
mod pages;
mod text;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::root;

/// Checks the whole checkout and prints every offence before it fails.
pub(crate) fn run() -> Result<()> {
    let root = root();
    let mut offences = Vec::new();
    let mut files = Vec::new();
    for file in [sources(&root.join("crates"))?, sources(&root.join("fuzz/fuzz_targets"))?].concat() {
        let content =
            fs::read_to_string(&file).with_context(|| format!("could not read {}", file.display()))?;
        let path = file.strip_prefix(&root).expect("it was listed below the root");
        files.push((path.to_string_lossy().into_owned(), content));
    }
    offences.extend(files.iter().flat_map(|(path, content)| text::check(path, content)));
    offences.extend(files.iter().flat_map(|(path, content)| errors::check(path, content)));
    offences.extend(files.iter().flat_map(|(path, content)| examples::check(path, content)));
    offences.extend(circles::check(&files));
    offences.extend(arrows::check(&root.join("crates"))?);
    offences.extend(pages::check(&root)?);
    offences.extend(licences::check()?);
    for offence in &offences {
        println!("tidy: {offence}");
    }
    if !offences.is_empty() {
        bail!("tidy found {} offences", offences.len());
    }
    Ok(())
}

/// The source files below a folder, sorted.
pub(crate) fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("could not list {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| ["rs", "sh", "c", "h"].iter().any(|e| extension == *e))
            {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
