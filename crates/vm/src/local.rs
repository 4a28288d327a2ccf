//! A kernel of the user's own: which folder holds its modules, and how it is shown to the guest.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The folder `…/<release>` with the modules, in what the user named or below it.
pub(crate) fn modules(named: &Path, release: &str) -> Result<PathBuf> {
    let wrong = |reason: String| Error::Modules { path: named.to_owned(), reason };
    let named = fs::canonicalize(named).map_err(Error::file("open", named))?;
    let places = [named.join("lib/modules").join(release), named.join(release), named.clone()];
    let is_it = |place: &&PathBuf| {
        place.join("modules.builtin").is_file()
            && place.file_name().is_some_and(|name| name.to_string_lossy() == release)
    };
    let Some(found) = places.iter().find(is_it) else {
        let there = releases(&named);
        let there = if there.is_empty() { "no modules".to_owned() } else { there.join(", ") };
        return Err(wrong(format!(
            "the kernel is {release} and needs lib/modules/{release}; there is {there}"
        )));
    };
    if !found.join("modules.dep").is_file() {
        return Err(wrong(format!("they have no index; make it with `depmod {release}`")));
    }
    Ok(found.clone())
}

/// The releases that have modules in a folder.
fn releases(named: &Path) -> Vec<String> {
    let folders = [named.join("lib/modules"), named.to_owned()];
    let mut found = Vec::new();
    for entry in folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten() {
        if entry.path().join("modules.builtin").is_file() {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    if named.join("modules.builtin").is_file() {
        found.extend(named.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    found.sort();
    found
}

/// A name in the cache for an image and its modules.
pub(crate) fn name(image: &[u8], modules: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    (image, modules).hash(&mut hasher);
    hasher.finish()
}

/// Links `lib/modules/<release>` in a folder of the cache to the modules, because a kernel's own programs look there.
pub(crate) fn link(folder: &Path, modules: &Path, release: &str) -> Result<()> {
    let parent = folder.join("lib/modules");
    fs::create_dir_all(&parent).map_err(Error::file("make", &parent))?;
    let link = parent.join(release);
    match symlink(modules, &link) {
        // The folder's name stands for this very path.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        result => result.map_err(Error::file("make", &link)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(folder: &Path, release: &str) -> PathBuf {
        let modules = folder.join("lib/modules").join(release);
        fs::create_dir_all(&modules).unwrap();
        fs::write(modules.join("modules.builtin"), "").unwrap();
        modules
    }

    #[test]
    fn modules_are_found_by_any_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let place = tree(&root, "6.9.3");
        fs::write(place.join("modules.dep"), "").unwrap();
        for named in [&root, &root.join("lib/modules"), &place] {
            assert_eq!(modules(named, "6.9.3").unwrap(), place, "{}", named.display());
        }
    }

    #[test]
    fn another_kernel_s_modules_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        tree(folder.path(), "6.9.3");
        let message = modules(folder.path(), "6.9.4").unwrap_err().to_string();
        assert!(message.contains("6.9.4") && message.contains("there is 6.9.3"), "{message}");
        let message = modules(folder.path(), "6.9.3").unwrap_err().to_string();
        assert!(message.contains("depmod 6.9.3"), "{message}");
        let empty = tempfile::tempdir().unwrap();
        let message = modules(empty.path(), "6.9.3").unwrap_err().to_string();
        assert!(message.contains("there is no modules"), "{message}");
        assert!(modules(Path::new("/nowhere/at/all"), "6.9.3").unwrap_err().to_string().contains("/nowhere"));
    }

    #[test]
    fn a_link_made_twice_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let place = tree(folder.path(), "6.9.3");
        let cache = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            link(cache.path(), &place, "6.9.3").unwrap();
        }
        assert!(cache.path().join("lib/modules/6.9.3/modules.builtin").exists());
    }
}
