//! A foreign program's view of the machine's files: all of them, read-only, with private directories where it has to
//! write.
//!
//! The view is a mount namespace that the program is started in, or into which a thread moves that starts several
//! programs. It ends with all of them, and with every process that they left running. No mount in it is visible
//! outside, so there is nothing to undo. Where a directory such as `/run` is private, its existing contents stay
//! visible, and new files go into a directory that the starter names.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;

use crate::Result;
use crate::error::Attempt;
use crate::mountinfo::{self, Mount};

/// The machine's files as a program is shown them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Directories that are empty for it and in memory; ignored where the machine has none. They are made before those
    /// of [`View::own`], whose files may lie in them. A mount that a program with fresh kernel files
    /// ([`Spawn::fresh_kernel_files`](crate::process::Spawn)) makes there stays for the next one.
    pub empty: Vec<PathBuf>,
    /// Where it may write.
    pub own: Vec<Own>,
}

/// A directory in which the program may make files, which lie elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// The directory's path in the program's view, for instance `/run`. Ignored if the machine has no such directory.
    pub at: PathBuf,
    /// The directory that really holds its files; made if it is missing. Files left here are visible to the next
    /// program started with this directory.
    pub dir: PathBuf,
    /// Names in it of which the program shall not see the machine's: it has its own.
    pub hidden: Vec<OsString>,
}

/// No program makes files without any permission; that marks ours, over which the machine's are mounted.
const PLACEHOLDER_MODE: u32 = 0;
/// File systems that are no storage: the kernel decides what may be written there.
const KERNELS_OWN: [&str; 3] = ["/proc", "/sys", "/dev"];
const MOUNT_ATTR_RDONLY: u64 = 1;

/// `struct mount_attr` of `linux/mount.h`.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns_fd: u64,
}

impl View {
    /// Moves the calling thread into a mount namespace with this view, permanently; call it only on a thread started
    /// for this. Threads and programs that it starts are in that namespace too. `/sys` shows the links of the network
    /// namespace in which the thread is now.
    ///
    /// # Errors
    /// It needs root; or a directory cannot be mounted.
    pub fn enter(&self) -> Result<()> {
        let attempted = || "make a mount namespace";
        unshare().attempt(attempted)?;
        // Mounts made here are not visible outside. Unmounts outside propagate here, so that a namespace whose name is
        // deleted does not live on in this copy.
        let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", slave).attempt(attempted)?;
        let mut writable = BTreeSet::new();
        for at in &self.empty {
            writable.extend(mount_empty(at)?);
        }
        // All are opened before one of them covers where another lies.
        let opened = self.own.iter().map(Own::open).collect::<Result<Vec<File>>>()?;
        for (own, dir) in self.own.iter().zip(&opened) {
            writable.extend(own.mount(dir)?);
        }
        freeze(&writable)?;
        mount_sys()?;
        // Where the thread was may be covered now.
        rustix::process::chdir("/").attempt(|| "go to /")
    }
}

impl Own {
    /// A directory of which the program sees the machine's entries but those `hidden`.
    pub fn new(at: impl Into<PathBuf>, dir: impl Into<PathBuf>, hidden: &[&str]) -> Own {
        let hidden = hidden.iter().map(|name| OsStr::new(name).to_owned()).collect();
        Own { at: at.into(), dir: dir.into(), hidden }
    }

    /// The directory that holds the files, made if it is missing.
    fn open(&self) -> Result<File> {
        let attempted = || format!("open {}", self.dir.display());
        fs::create_dir_all(&self.dir).attempt(attempted)?;
        open_path(&self.dir).attempt(attempted)
    }

    /// Mounts the directory, which is open as `dir`, and returns where, or `None` if the machine has no such directory.
    fn mount(&self, dir: &File) -> Result<Option<PathBuf>> {
        let Ok(at) = fs::canonicalize(&self.at) else { return Ok(None) };
        let attempted = || format!("give a program a {} of its own in {}", at.display(), self.dir.display());
        // Once it is covered, the machine's directory is reached by this alone.
        let machines = open_path(&at).attempt(attempted)?;
        let dir = by_descriptor(dir);
        let entries = fs::read_dir(&at).attempt(attempted)?.collect::<io::Result<Vec<DirEntry>>>();
        let mut entries = entries.attempt(attempted)?;
        entries.retain(|entry| !self.hidden.contains(&entry.file_name()));

        forget_the_vanished(&dir, &entries).attempt(attempted)?;
        let mut shown = Vec::new();
        for entry in &entries {
            shown.extend(hold_place(&dir, entry).attempt(attempted)?);
        }
        rustix::mount::mount_bind(&dir, &at).attempt(attempted)?;
        for name in shown {
            let source = by_descriptor(&machines).join(&name);
            match rustix::mount::mount_bind_recursive(&source, at.join(&name)) {
                // It has vanished meanwhile.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno).attempt(attempted),
            }
        }
        Ok(Some(at))
    }
}

fn open_path(dir: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty()).map(File::from)
}

/// A path that leads to an open directory wherever it lies.
fn by_descriptor(dir: &File) -> PathBuf {
    Path::new("/proc/thread-self/fd").join(dir.as_raw_fd().to_string())
}

/// Removes the places of what the machine no longer has.
fn forget_the_vanished(dir: &Path, entries: &[DirEntry]) -> io::Result<()> {
    let present: BTreeSet<OsString> = entries.iter().map(DirEntry::file_name).collect();
    for place in fs::read_dir(dir)? {
        let place = place?;
        if present.contains(&place.file_name()) || !is_placeholder(&place.path())? {
            continue;
        }
        match place.file_type()?.is_dir() {
            true => fs::remove_dir(place.path())?,
            false => fs::remove_file(place.path())?,
        }
    }
    Ok(())
}

/// Makes an entry on which the machine's entry can be mounted, and returns its name if a mount is needed. An entry
/// that the program itself made under this name takes precedence.
fn hold_place(dir: &Path, entry: &DirEntry) -> io::Result<Option<OsString>> {
    let place = dir.join(entry.file_name());
    let kind = entry.file_type()?;
    let made = if kind.is_symlink() {
        // A symbolic link cannot be a mount point; a copy of it leads to the same target.
        return match std::os::unix::fs::symlink(fs::read_link(entry.path())?, &place) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(None),
        };
    } else if kind.is_dir() {
        fs::DirBuilder::new().mode(PLACEHOLDER_MODE).create(&place)
    } else {
        // Not opened: a child that another thread starts would hold it open for writing until it is another
        // program, and the mount could not be made read-only.
        let (kind, mode) = (FileType::RegularFile, Mode::from_raw_mode(PLACEHOLDER_MODE));
        rustix::fs::mknodat(rustix::fs::CWD, &place, kind, mode, 0).map_err(io::Error::from)
    };
    match made {
        Ok(()) => Ok(Some(entry.file_name())),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Ok(is_placeholder(&place)?.then(|| entry.file_name()))
        }
        Err(error) => Err(error),
    }
}

/// Moves the calling thread into a mount namespace that is as the one before.
fn unshare() -> rustix::io::Result<()> {
    // SAFETY: NEWNS also unshares the thread's root and working directory, but neither the table of descriptors nor any
    // other state that another thread could rely on; the thread was started to be changed.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
}

fn mount_sys() -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match rustix::mount::mount("sysfs", "/sys", "sysfs", flags, None) {
        // That of this network namespace is mounted there already.
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(errno) => Err(errno).attempt(|| "mount /sys"),
    }
}

/// Covers a directory with an empty one in memory and returns its path, or `None` if the machine has no such directory.
fn mount_empty(at: &Path) -> Result<Option<PathBuf>> {
    let Ok(at) = fs::canonicalize(at) else { return Ok(None) };
    let attempted = || format!("cover {} with an empty directory", at.display());
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", &at, "tmpfs", flags, Some(c"mode=0755")).attempt(attempted)?;
    rustix::mount::mount_change(&at, MountPropagationFlags::SHARED).attempt(attempted)?;
    Ok(Some(at))
}

/// Moves the calling thread, which was started for that, into a mount namespace whose `/proc` and `/sys` can
/// be changed unseen, and mounts a `/sys` of the thread's network namespace. [`with_its_own_proc`] does the
/// same for `/proc` later.
pub(crate) fn refresh_kernel_files() -> Result<()> {
    let attempted = || "make a mount namespace";
    unshare().attempt(attempted)?;
    for at in ["/proc", "/sys"] {
        rustix::mount::mount_change(at, MountPropagationFlags::PRIVATE).attempt(attempted)?;
    }
    mount_sys()
}

fn is_placeholder(path: &Path) -> io::Result<bool> {
    Ok(fs::symlink_metadata(path)?.permissions().mode() & 0o7777 == PLACEHOLDER_MODE)
}

/// Makes every mount read-only but those named and the kernel's own.
fn freeze(writable: &BTreeSet<PathBuf>) -> Result<()> {
    for Mount { point: mount, .. } in mountinfo::mounts()? {
        if writable.contains(&mount) || KERNELS_OWN.iter().any(|own| mount.starts_with(own)) {
            continue;
        }
        match set_read_only(&mount) {
            // Covered by another mount, or gone: it cannot be reached.
            Ok(()) | Err(Errno::NOENT | Errno::INVAL | Errno::NOTDIR) => {}
            Err(errno) => {
                return Err(errno).attempt(|| format!("make {} read-only for a program", mount.display()));
            }
        }
    }
    Ok(())
}

fn set_read_only(mount: &Path) -> rustix::io::Result<()> {
    let path = CString::new(mount.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let attr = MountAttr { set: MOUNT_ATTR_RDONLY, clear: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: a path that ends with NUL and a structure whose size is passed with it, both valid for the length of the
    // call, which writes to neither (mount_setattr(2), Linux 5.12).
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            0_u32,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if result == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Gives a child that begins a PID namespace a `/proc` of that namespace. In the outer `/proc`, its own process number
/// belongs to another process. Programs in Go look for their network namespace under `/proc/<getpid>`: they would find
/// the machine's namespace and enter it.
pub(crate) fn with_its_own_proc(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    let mount = || {
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        let [source, target] = [c"proc".as_ptr(), c"/proc".as_ptr()];
        // SAFETY: three texts that end with NUL and live for ever, and no data.
        match unsafe { libc::mount(source, target, source, flags, std::ptr::null()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec the closure makes one system call and neither allocates nor takes a lock.
    unsafe { command.pre_exec(mount) };
}
