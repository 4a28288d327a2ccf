//! The kernel's files by their usual names, `proc/stat` for `/proc/stat`: the kernel's own, a collected tree, or texts
//! in memory.
//!
//! Reads can be recorded, so that a collected tree holds exactly the files that were read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::Result;
use crate::error::Attempt;
use crate::tree::Tree;

/// Files below `proc`, `sys` and `etc`.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// The source of the files below each prefix; the last match applies.
    mounts: Vec<(String, Source)>,
    texts: Arc<BTreeMap<String, String>>,
    taken: Option<Arc<Mutex<BTreeMap<String, String>>>>,
}

/// Where files come from.
#[derive(Debug, Clone)]
enum Source {
    /// A directory that is trusted: the kernel's files are full of symbolic links.
    Directory(PathBuf),
    /// A collected tree, which may come from another machine.
    Tree(Arc<Tree>),
}

impl Files {
    /// The files of the running kernel.
    pub fn kernel() -> Files {
        Files::at("/")
    }

    /// Those of another directory that is trusted like the kernel's: symbolic links in it are followed.
    pub fn at(root: impl Into<PathBuf>) -> Files {
        Files::default().mounted("", root)
    }

    /// Those of a tree from another machine, which is not left.
    pub fn of_tree(tree: Arc<Tree>) -> Files {
        Files { mounts: vec![(String::new(), Source::Tree(tree))], ..Files::default() }
    }

    /// Texts by their path, `proc/stat`.
    pub fn of(texts: BTreeMap<String, String>) -> Files {
        Files { texts: Arc::new(texts), ..Files::default() }
    }

    /// These files, except that a directory supplies those below `prefix` (`sys`, or the empty string for all).
    #[must_use]
    pub fn mounted(mut self, prefix: &str, directory: impl Into<PathBuf>) -> Files {
        self.mounts.push((prefix.to_owned(), Source::Directory(directory.into())));
        self
    }

    /// These files, with every later read recorded.
    #[must_use]
    pub fn taking_down(mut self) -> Files {
        self.taken = Some(Arc::default());
        self
    }

    /// What was read since [`Files::taking_down`], by path.
    pub fn taken(&self) -> BTreeMap<String, String> {
        let taken = self.taken.as_ref().map(|taken| taken.lock().expect("no holder panics").clone());
        taken.unwrap_or_default()
    }

    /// A file's text; `None` if the file does not exist, or if the kernel has no value for it (the speed of a link
    /// that is down).
    ///
    /// # Errors
    /// Any other failure, such as a lack of permission.
    pub fn read(&self, path: &str) -> Result<Option<String>> {
        let text = match self.source(path) {
            None => self.texts.get(path).cloned(),
            Some((Source::Tree(tree), rest)) => tree.read(rest)?,
            Some((Source::Directory(directory), rest)) => read_trusted(&directory.join(rest))?,
        };
        if let (Some(taken), Some(text)) = (&self.taken, &text) {
            taken.lock().expect("no holder panics").insert(path.to_owned(), text.clone());
        }
        Ok(text)
    }

    /// The names in a directory, in order; none if it is not there. Only files that are read are taken down: a name
    /// that is listed here is in a collected tree if something below it was read.
    ///
    /// # Errors
    /// It may not be read.
    pub fn list(&self, path: &str) -> Result<Vec<String>> {
        let Some((source, rest)) = self.source(path) else {
            let below = self.texts.keys().filter_map(|key| key.strip_prefix(path)?.strip_prefix('/'));
            let names = below.filter_map(|rest| rest.split('/').next());
            return Ok(names.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect());
        };
        let place = match source {
            Source::Tree(tree) => return tree.list(rest),
            Source::Directory(directory) => directory.join(rest),
        };
        let entries = match fs::read_dir(&place) {
            Err(error) if says_nothing(&error) => return Ok(Vec::new()),
            entries => entries.attempt(|| format!("list {}", place.display()))?,
        };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Where a file is, for texts.
    pub fn shown(&self, path: &str) -> String {
        match self.source(path) {
            None => path.to_owned(),
            Some((Source::Tree(tree), rest)) => tree.place(rest).display().to_string(),
            Some((Source::Directory(directory), rest)) => directory.join(rest).display().to_string(),
        }
    }

    /// What a path lies in, and the path below that.
    fn source<'a>(&self, path: &'a str) -> Option<(&Source, &'a str)> {
        let (prefix, source) = self.mounts.iter().rev().find(|(prefix, _)| {
            let below = |rest: &str| rest.is_empty() || rest.starts_with('/');
            prefix.is_empty() || path.strip_prefix(prefix.as_str()).is_some_and(below)
        })?;
        Some((source, path[prefix.len()..].trim_start_matches('/')))
    }
}

fn read_trusted(place: &Path) -> Result<Option<String>> {
    // Container runtimes hide files of the kernel behind /dev/null.
    if fs::metadata(place).is_ok_and(|found| !found.is_file()) {
        return Ok(None);
    }
    match fs::read(place) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if says_nothing(&error) => Ok(None),
        Err(error) => Err(error).attempt(|| format!("read {}", place.display())),
    }
}

/// The file does not exist, or has no value now: reading the speed of a link that is down fails with `EINVAL`.
fn says_nothing(error: &io::Error) -> bool {
    let none = [libc::ENOENT, libc::ENOTDIR, libc::EINVAL, libc::ENODEV, libc::EOPNOTSUPP, libc::ESRCH];
    error.raw_os_error().is_some_and(|errno| none.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_trees_read_alike() {
        let texts =
            [("proc/stat", "x\n"), ("sys/class/net/eth0/mtu", "1500\n"), ("sys/class/net/lo/mtu", "65536\n")];
        let texts: BTreeMap<String, String> =
            texts.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect();
        let root = tempfile::tempdir().unwrap();
        for (path, text) in &texts {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let tree = Arc::new(Tree::open(root.path()).unwrap());
        for files in [Files::of(texts.clone()), Files::at(root.path()), Files::of_tree(tree)] {
            let files = files.taking_down();
            assert_eq!(files.list("sys/class/net").unwrap(), ["eth0", "lo"]);
            assert_eq!(files.read("sys/class/net/lo/mtu").unwrap().as_deref(), Some("65536\n"));
            assert_eq!(files.read("sys/class/net/gone/mtu").unwrap(), None);
            assert!(files.list("sys/nothing").unwrap().is_empty());
            assert_eq!(files.taken().keys().collect::<Vec<_>>(), ["sys/class/net/lo/mtu"]);
        }
    }

    #[test]
    fn the_last_mount_that_fits_counts() {
        let (all, sys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(all.path().join("system")).unwrap();
        fs::write(all.path().join("system/a"), "all").unwrap();
        fs::write(sys.path().join("a"), "sys").unwrap();
        let files = Files::at(all.path()).mounted("sys", sys.path());
        assert_eq!(files.read("sys/a").unwrap().as_deref(), Some("sys"));
        assert_eq!(files.read("system/a").unwrap().as_deref(), Some("all"));
        assert_eq!(files.list("sys").unwrap(), ["a"]);
    }

    #[test]
    fn a_value_that_the_kernel_does_not_give_is_none() {
        // The loopback has no speed: EINVAL.
        assert_eq!(Files::kernel().read("sys/class/net/lo/speed").unwrap(), None);
        assert!(Files::kernel().read("proc/stat").unwrap().is_some());
    }
}
