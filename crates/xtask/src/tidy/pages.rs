//! Pages of the manual: another page must link to each.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The offences of the manual below `root`: pages without a link from another page, and links to files that
/// do not exist.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut pages = markdown(&root.join("docs"))?;
    let readme = root.join("README.md");
    if readme.is_file() {
        pages.push(readme.clone());
    }
    let mut linked: Vec<PathBuf> = vec![readme];
    let mut offences = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page).with_context(|| format!("could not read {}", page.display()))?;
        let folder = page.parent().expect("a file lies in a folder");
        for target in links(&text) {
            match fs::canonicalize(folder.join(&target)) {
                Ok(path) if path != *page => linked.push(path),
                Ok(_) => {}
                Err(_) => {
                    offences.push(format!("{}: it links to {target}, which is not there", page.display()));
                }
            }
        }
    }
    for page in pages.iter().filter(|page| !linked.contains(page)) {
        offences.push(format!("{}: no other page links to it", page.display()));
    }
    Ok(offences)
}

fn markdown(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = fs::canonicalize(entry?.path())?;
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// The targets of `[text](target)` that are files, without their anchors.
fn links(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for rest in text.split("](").skip(1) {
        let Some((target, _)) = rest.split_once(')') else { continue };
        let target = target.split('#').next().unwrap_or_default();
        if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
            targets.push(target.replace("%2B", "+").replace("%20", " "));
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlinked_pages_and_dead_links_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("docs/datapaths")).unwrap();
        fs::write(root.join("README.md"), "[a](docs/a.md#top) [b](https://x/y.md) [c](docs/gone.md)")
            .unwrap();
        fs::write(root.join("docs/a.md"), "[d](datapaths/bridge%2Bdirect.md)").unwrap();
        fs::write(root.join("docs/datapaths/bridge+direct.md"), "[self](bridge+direct.md)").unwrap();
        fs::write(root.join("docs/datapaths/lost.md"), "[self](lost.md)").unwrap();
        let found = check(&root).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("docs/gone.md") && found[1].contains("lost.md: no other"), "{found:?}");
    }
}
