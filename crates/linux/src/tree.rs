//! A directory tree from another machine. It is not trusted, so paths never lead out of it.
//!
//! A symbolic link in it could point at any file of this machine, a pipe would block the reader, opening a device can
//! have effects, and a sparse file of any size takes no space to make. So links are not followed, only regular files
//! are opened, and the number of bytes read is limited.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::Attempt;
use crate::{Error, Result};

/// The most bytes read from a tree, all files together. A machine with a thousand links and a full Internet routing
/// table fills a third of it.
const BYTES_MAX: u64 = 512 << 20;
/// How paths are looked up.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
/// How many names of a directory are read.
const NAMES_MAX: usize = 1 << 16;

/// A directory that is read without leaving it.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    path: PathBuf,
    allowance: Arc<Allowance>,
    refused: Mutex<BTreeSet<String>>,
}

/// The bytes that are read of a tree, which its parts share.
#[derive(Debug)]
struct Allowance {
    most: u64,
    left: AtomicU64,
}

impl Tree {
    /// Opens a tree. Symbolic links in `path` itself are followed: the user named it.
    ///
    /// # Errors
    /// The directory does not exist or is not readable.
    pub fn open(path: &Path) -> Result<Tree> {
        Tree::limited(path, BYTES_MAX)
    }

    fn limited(path: &Path, bytes_max: u64) -> Result<Tree> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())
            .attempt(|| format!("open directory {}", path.display()))?;
        let allowance = Allowance { most: bytes_max, left: AtomicU64::new(bytes_max) };
        let (path, allowance) = (path.to_owned(), Arc::new(allowance));
        Ok(Tree { root, path, allowance, refused: Mutex::default() })
    }

    /// A directory in it as a separate tree. Both share the limit on bytes.
    ///
    /// # Errors
    /// It does not exist or is not a directory.
    pub fn below(&self, name: &str) -> Result<Tree> {
        let path = self.path.join(name);
        let root = self
            .beneath(name, OFlags::PATH | OFlags::DIRECTORY)
            .attempt(|| format!("open directory {}", path.display()))?;
        Ok(Tree { root, path, allowance: self.allowance.clone(), refused: Mutex::default() })
    }

    /// A file's text; bytes that are not UTF-8 become U+FFFD. `None` if the file does not exist.
    ///
    /// # Errors
    /// It is not a regular file, a symbolic link is on the way, or the limit on bytes is reached.
    pub fn read(&self, path: &str) -> Result<Option<String>> {
        match self.bytes(path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.refused_to("read", path, error)),
        }
    }

    /// The names in a directory, in order; none if it is not there. Names that are no UTF-8 are left out: no file of
    /// the kernel has one.
    ///
    /// # Errors
    /// It is no directory, there is a symbolic link on the way, or it has more names than may be read.
    pub fn list(&self, path: &str) -> Result<Vec<String>> {
        match self.names(path) {
            Ok(names) => Ok(names.into_iter().collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(self.refused_to("list", path, error)),
        }
    }

    /// Where a file of the tree is, for texts.
    pub fn place(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }

    /// What was there and was not read, each as "read PATH: why".
    pub fn refused(&self) -> Vec<String> {
        self.refused.lock().expect("no thread panics with it").iter().cloned().collect()
    }

    fn refused_to(&self, verb: &str, path: &str, source: io::Error) -> Error {
        let error = Error::new(format!("{verb} {}", self.place(path).display()), source);
        self.refused.lock().expect("no thread panics with it").insert(error.to_string());
        error
    }

    fn bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        // Opening a device or a pipe for reading has effects, which O_PATH has not; O_NONBLOCK is for what takes the
        // file's place between the two calls.
        only_regular(&self.beneath(path, OFlags::PATH)?)?;
        let file = self.beneath(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        only_regular(&file)?;
        let left = self.allowance.left.load(Ordering::Relaxed);
        let mut bytes = Vec::new();
        File::from(file).take(left.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > left {
            let most = self.allowance.most;
            return Err(unfit(format!(
                "the files of this tree hold more than {most} bytes, the most that is read"
            )));
        }
        self.allowance.left.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }

    fn names(&self, path: &str) -> io::Result<BTreeSet<String>> {
        let directory = self.beneath(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut names = BTreeSet::new();
        for entry in rustix::fs::Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_str().ok().filter(|name| !matches!(*name, "." | ".."));
            names.extend(name.map(str::to_owned));
            if names.len() > NAMES_MAX {
                return Err(unfit(format!("it has more than {NAMES_MAX} names, the most that are read")));
            }
        }
        Ok(names)
    }

    fn beneath(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let path = inward(path)?;
        let path = if path.is_empty() { "." } else { path.as_str() };
        match rustix::fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), INSIDE) {
            Ok(file) => Ok(file),
            Err(Errno::LOOP) => Err(unfit("a symbolic link, which is not followed in a tree from elsewhere")),
            Err(Errno::NOTDIR) => Err(unfit("a file stands where a directory belongs")),
            Err(error) => Err(error.into()),
        }
    }
}

/// A tree that is being written.
#[derive(Debug)]
pub struct NewTree {
    root: OwnedFd,
    path: PathBuf,
    /// It was made here, and is not an empty directory that was there.
    made: bool,
}

impl NewTree {
    /// Makes the directory and its parents, or uses an existing empty one.
    ///
    /// # Errors
    /// `EEXIST`, `ENOTEMPTY` or `ELOOP` if the name belongs to anything but an empty directory, for example a symbolic
    /// link; any other error means that it cannot be made.
    pub fn create(path: &Path) -> Result<NewTree> {
        let attempted = || format!("create directory {}", path.display());
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).attempt(attempted)?;
        }
        let made = match std::fs::create_dir(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error).attempt(attempted),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = match rustix::fs::open(path, flags, Mode::empty()) {
            // With O_DIRECTORY a symbolic link is "not a directory" to some kernels.
            Err(Errno::NOTDIR) if path.is_symlink() => Err(Errno::LOOP),
            Err(Errno::NOTDIR) => Err(Errno::EXIST),
            root => root,
        };
        let root = root.attempt(attempted)?;
        for entry in rustix::fs::Dir::read_from(&root).attempt(attempted)? {
            let entry = entry.attempt(attempted)?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                return Err(Errno::NOTEMPTY).attempt(attempted);
            }
        }
        Ok(NewTree { root, path: path.to_owned(), made })
    }

    /// Writes a file that is not there yet, and makes the directories in which it lies.
    ///
    /// # Errors
    /// The disk is full, or another program put something into the tree.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        self.write_new(path, text).attempt(|| format!("write {}", self.path.join(path).display()))
    }

    /// Removes what was written, and the directory if it was made.
    ///
    /// # Errors
    /// The first thing that could not be removed.
    pub fn discard(self) -> Result<()> {
        let attempted = || format!("remove what was written to {}", self.path.display());
        // By the descriptor: another directory may have the name by now.
        let inside = PathBuf::from(format!("/proc/self/fd/{}", self.root.as_raw_fd()));
        for entry in std::fs::read_dir(&inside).attempt(attempted)? {
            let entry = entry.attempt(attempted)?;
            let is_directory = entry.file_type().attempt(attempted)?.is_dir();
            let removed = if is_directory {
                std::fs::remove_dir_all(entry.path())
            } else {
                std::fs::remove_file(entry.path())
            };
            removed.attempt(attempted)?;
        }
        if self.made { std::fs::remove_dir(&self.path).attempt(attempted) } else { Ok(()) }
    }

    fn write_new(&self, path: &str, text: &str) -> io::Result<()> {
        let path = inward(path)?;
        let mut directory = String::from(".");
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", &path));
        for part in parents.split('/').filter(|part| !part.is_empty()) {
            let parent = self.directory(&directory)?;
            match rustix::fs::mkdirat(&parent, part, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            directory = format!("{directory}/{part}");
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        let file = rustix::fs::openat2(self.directory(&directory)?, name, flags, mode, INSIDE)?;
        File::from(file).write_all(text.as_bytes())
    }

    fn directory(&self, path: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat2(&self.root, path, flags, Mode::empty(), INSIDE)?)
    }
}

/// A path without `.` and `..`; it must not lead out. Readers name the device above a card's `device/..`, which lies
/// beside `device` in a tree, where that is a directory and no link into the tree of devices.
fn inward(path: &str) -> io::Result<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return Err(unfit("it leads out of the tree")),
            ".." => {}
            name => parts.push(name),
        }
    }
    Ok(parts.join("/"))
}

fn only_regular(file: &OwnedFd) -> io::Result<()> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(file)?.st_mode);
    let what = match kind {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Symlink => "a symbolic link",
        FileType::Unknown => "something unknown",
    };
    Err(unfit(format!("it is {what}, and a file is expected")))
}

fn unfit(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn tree_with(files: &[&str]) -> (tempfile::TempDir, Tree) {
        let directory = tempfile::tempdir().unwrap();
        for file in files {
            let path = directory.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        let tree = Tree::open(directory.path()).unwrap();
        (directory, tree)
    }

    #[track_caller]
    fn refused(tree: &Tree, path: &str, why: &str) {
        let error = tree.read(path).unwrap_err().to_string();
        assert!(error.starts_with("read ") && error.contains(path) && error.contains(why), "{error}");
        assert!(tree.refused().contains(&error), "{:?}", tree.refused());
    }

    #[test]
    fn what_is_no_file_of_the_tree_is_refused_by_name() {
        let (outside, _) = tree_with(&["secret", "folder/secret"]);
        let (directory, tree) = tree_with(&["proc/stat", "file"]);
        let at = |name: &str| directory.path().join(name);
        symlink(outside.path().join("secret"), at("link")).unwrap();
        symlink("proc/stat", at("inner")).unwrap();
        symlink(outside.path().join("folder"), at("folder")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        refused(&tree, "link", "a symbolic link");
        refused(&tree, "inner", "a symbolic link");
        refused(&tree, "folder/secret", "a symbolic link");
        refused(&tree, "pipe", "it is a pipe");
        refused(&tree, "socket", "it is a socket");
        refused(&tree, "proc", "it is a directory");
        refused(&tree, "file/below", "a file stands where a directory belongs");
        refused(&tree, "proc/../../secret", "it leads out of the tree");
        assert!(tree.list("folder").unwrap_err().to_string().contains("a symbolic link"));
        assert!(tree.list("file").unwrap_err().to_string().contains("where a directory belongs"));
        assert!(tree.below("folder").unwrap_err().to_string().contains("a symbolic link"));
        assert_eq!(tree.read("proc/stat").unwrap().as_deref(), Some("proc/stat"));
        assert_eq!(tree.read("proc/x/../stat").unwrap().as_deref(), Some("proc/stat"));
        assert_eq!((tree.read("none").unwrap(), tree.list("none/at/all").unwrap().len()), (None, 0));
    }

    #[test]
    fn a_device_is_not_opened() {
        let (directory, tree) = tree_with(&[]);
        let zero = rustix::fs::makedev(1, 5);
        let made = rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.path().join("zero"),
            FileType::CharacterDevice,
            Mode::RUSR,
            zero,
        );
        if let Err(error) = made {
            return testkit::skip(&format!("a device node cannot be made: {error}"));
        }
        refused(&tree, "zero", "it is a device");
    }

    #[test]
    fn the_bytes_of_all_files_together_have_a_limit() {
        let (directory, _) = tree_with(&["small"]);
        let tree = Tree::limited(directory.path(), 1000).unwrap();
        let file = File::create(directory.path().join("huge")).unwrap();
        file.set_len(1 << 42).unwrap();
        let nearly = File::create(directory.path().join("nearly")).unwrap();
        nearly.set_len(996).unwrap();
        refused(&tree, "huge", "more than 1000 bytes");
        assert!(tree.read("nearly").unwrap().is_some());
        refused(&tree, "small", "more than 1000 bytes");
    }

    #[test]
    fn a_new_tree_stays_in_its_directory_and_takes_nothing_that_is_there() {
        let (directory, _) = tree_with(&["full/file", "file"]);
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("empty")).unwrap();
        symlink(at("empty"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        let error = |name: &str| NewTree::create(&at(name)).unwrap_err();
        assert!(error("full").is(libc::ENOTEMPTY), "{}", error("full"));
        assert!(error("file").is(libc::EEXIST), "{}", error("file"));
        assert!(error("link").is(libc::ELOOP), "{}", error("link"));
        assert!(error("dangling").is(libc::ELOOP), "{}", error("dangling"));

        let tree = NewTree::create(&at("new/tree")).unwrap();
        tree.write("sys/eth0/device/../msi_irqs/38", "msix").unwrap();
        assert_eq!(std::fs::read_to_string(at("new/tree/sys/eth0/msi_irqs/38")).unwrap(), "msix");
        // What another program adds while it is written is neither followed nor overwritten.
        symlink(at("empty"), at("new/tree/proc")).unwrap();
        symlink(at("file"), at("new/tree/sys/link")).unwrap();
        assert!(tree.write("proc/stat", "cpu").unwrap_err().is(libc::ELOOP));
        assert!(tree.write("sys/link", "x").unwrap_err().is(libc::EEXIST));
        assert!(tree.write("../escaped", "x").is_err() && !at("new/escaped").exists());
        assert_eq!(std::fs::read_dir(at("empty")).unwrap().count(), 0);
        assert_eq!(std::fs::read_to_string(at("file")).unwrap(), "file");
        tree.discard().unwrap();
        assert!(!at("new/tree").exists() && at("empty").exists());

        let tree = NewTree::create(&at("empty")).unwrap();
        tree.write("a/b", "x").unwrap();
        tree.discard().unwrap();
        assert_eq!(std::fs::read_dir(at("empty")).unwrap().count(), 0);
    }
}
