//! Control groups of version 2, for one purpose: a socket belongs to the group of the task that opens it, and eBPF
//! programs of a group see the sockets of its tasks. No controller is enabled and no limit is set.

use std::ffi::{c_int, c_void};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::{Duration, Instant};

use crate::error::Attempt;
use crate::mountinfo::{self, Mount};
use crate::{Error, Result, folder};

/// The parent of all groups of ours.
const PARENT: &str = "hostgap";
/// How long [`Cgroup::remove`] waits for tasks that are ending.
const PATIENCE: Duration = Duration::from_secs(2);
/// The stack of a borrowed task. It is taken page by page as it is used.
const STACK_BYTES: usize = 2 << 20;
/// Its lowest page is inaccessible, so that an overflow is a fault and not another's memory.
const GUARD_BYTES: usize = 4096;

/// A group of ours, `hostgap/NAME` below the root of the hierarchy; it need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// The group of a name.
    ///
    /// # Errors
    /// No hierarchy of version 2 is mounted here.
    pub fn named(name: &str) -> Result<Cgroup> {
        Ok(Cgroup { path: hierarchy()?.join(PARENT).join(name) })
    }

    /// The absolute path of the group's directory in the version 2 hierarchy.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory exists now; another program may remove it at any time.
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Makes it. `EEXIST` if it is there already.
    pub fn create(&self) -> Result<()> {
        folder::create(&self.path).attempt(|| format!("create control group {}", self.path.display()))
    }

    /// Removes it, and the groups' parent with the last one. Tasks that are just ending are waited for.
    ///
    /// # Errors
    /// There are tasks in it, which the error names; or it is not there (`ENOENT`).
    pub fn remove(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match fs::remove_dir(&self.path) {
                Ok(()) => break,
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(self.not_removed(error)),
            }
        }
        // The kernel refuses while another's group is in it.
        let _ = self.path.parent().map(fs::remove_dir);
        Ok(())
    }

    /// Runs the closure as a process of this group, on behalf of the calling thread, which waits: what it opens belongs
    /// to the group. This process itself is not moved, so nothing has to be moved back, and a service manager that
    /// watches its group notices nothing.
    ///
    /// The closure has this process's memory and files, and the calling thread's network namespace. It must start
    /// neither threads nor processes: they would be children of the short-lived process and members of the group.
    pub fn run<T>(&self, inside: impl FnOnce() -> T) -> Result<T> {
        let tasks = self.tasks()?;
        let mut errand = Errand { tasks: &tasks, work: Some(inside), outcome: Outcome::None };
        borrow(&mut errand).attempt(|| format!("run in control group {}", self.path.display()))?;
        match errand.outcome {
            Outcome::Done(Ok(value)) => Ok(value),
            Outcome::Done(Err(panic)) => std::panic::resume_unwind(panic),
            Outcome::Refused(errno) => {
                let error = io::Error::from_raw_os_error(errno);
                Err(error).attempt(|| format!("enter control group {}", self.path.display()))
            }
            Outcome::None => Err(Error::new(
                format!("run in control group {}", self.path.display()),
                io::ErrorKind::Interrupted,
            )),
        }
    }

    /// The file that moves the process that writes `0` to it.
    pub(crate) fn tasks(&self) -> Result<File> {
        let file = self.path.join("cgroup.procs");
        OpenOptions::new().write(true).open(&file).attempt(|| format!("open {}", file.display()))
    }

    fn not_removed(&self, error: io::Error) -> Error {
        let tasks = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        let tasks = tasks.lines().collect::<Vec<_>>().join(", ");
        let held = if tasks.is_empty() { String::new() } else { format!(", which holds processes {tasks}") };
        Error::new(format!("remove control group {}{held}", self.path.display()), error)
    }
}

/// Where the hierarchy of version 2 is mounted: `/sys/fs/cgroup`, or beside those of version 1.
///
/// # Errors
/// It is mounted nowhere.
pub fn hierarchy() -> Result<PathBuf> {
    mounted(mountinfo::mounts()?).ok_or_else(|| {
        let why =
            "no hierarchy of version 2 is mounted; mount -t cgroup2 none /sys/fs/cgroup/unified makes one";
        Error::new("find control groups", io::Error::new(io::ErrorKind::NotFound, why))
    })
}

fn mounted(mounts: Vec<Mount>) -> Option<PathBuf> {
    mounts.into_iter().find(|mount| mount.kind == "cgroup2").map(|mount| mount.point)
}

/// Moves the calling task to the group that `tasks` belongs to. Makes a single system call, so it is safe between fork
/// and exec.
pub(crate) fn enter(tasks: &File) -> io::Result<()> {
    let zero = b"0";
    // SAFETY: the descriptor is open and one byte is readable.
    let written = unsafe { libc::write(tasks.as_raw_fd(), zero.as_ptr().cast(), 1) };
    if written == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The closure for the borrowed task, and its result.
struct Errand<'a, F, T> {
    tasks: &'a File,
    work: Option<F>,
    outcome: Outcome<T>,
}

enum Outcome<T> {
    None,
    /// It could not enter the group.
    Refused(i32),
    Done(std::thread::Result<T>),
}

/// Runs the errand as a process of its own that shares memory and files with this one, as posix_spawn(3) does before
/// its exec. The calling thread is stopped until that process has ended, so the two are never at work together: what
/// belongs to this thread (its thread-local storage, locks that it holds) has one user at a time.
fn borrow<F: FnOnce() -> T, T>(errand: &mut Errand<'_, F, T>) -> io::Result<()> {
    let stack = Stack::new()?;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::CLONE_FS | libc::SIGCHLD;
    // SAFETY: the stack is ours, aligned, and lives until the child has ended, since CLONE_VFORK stops this thread
    // until then; `errand` is what `run_errand` takes and is used by nothing else meanwhile. The child shares memory,
    // files and the working directory, and no signal handlers, whose table it may not change for us.
    let pid = unsafe { libc::clone(run_errand::<F, T>, stack.top(), flags, ptr::from_mut(errand).cast()) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut status = 0;
    loop {
        // SAFETY: a child of ours, and a status that is writable.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if ended == pid {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

extern "C" fn run_errand<F: FnOnce() -> T, T>(argument: *mut c_void) -> c_int {
    // SAFETY: `borrow` gives a pointer to an errand of these types that nothing else uses until this returns.
    let errand = unsafe { &mut *argument.cast::<Errand<'_, F, T>>() };
    errand.outcome = match enter(errand.tasks) {
        Err(error) => Outcome::Refused(error.raw_os_error().unwrap_or(libc::EIO)),
        Ok(()) => {
            let work = errand.work.take().expect("an errand is run once");
            // A panic must not unwind into the C library.
            Outcome::Done(std::panic::catch_unwind(AssertUnwindSafe(work)))
        }
    };
    0
}

/// Memory for a task's stack.
struct Stack {
    low: *mut c_void,
}

impl Stack {
    fn new() -> io::Result<Stack> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
        let low = unsafe { libc::mmap(ptr::null_mut(), STACK_BYTES, protection, flags, -1, 0) };
        if low == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Stack { low };
        // SAFETY: the first page of the mapping just made, which is not used yet.
        if unsafe { libc::mprotect(low, GUARD_BYTES, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stack)
    }

    /// Stacks grow downwards on every machine that this runs on.
    fn top(&self) -> *mut c_void {
        self.low.wrapping_byte_add(STACK_BYTES)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and the task that ran on it has ended.
        unsafe { libc::munmap(self.low, STACK_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(table: &str, expected: Option<&str>) {
        let mounts = mountinfo::parsed(table.as_bytes());
        assert_eq!(mounted(mounts).as_deref(), expected.map(Path::new));
    }

    #[test]
    fn the_hierarchy_is_found_wherever_it_is_mounted() {
        check(
            "25 30 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            Some("/sys/fs/cgroup"),
        );
        let beside = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      38 31 0:31 / /sys/fs/cgroup/unified rw shared:9 master:1 - cgroup2 cgroup2 rw\n";
        check(beside, Some("/sys/fs/cgroup/unified"));
        check("38 31 0:31 / /mnt/with\\040space rw - cgroup2 none rw\n", Some("/mnt/with space"));
        // A mount that has the word in another column.
        check("38 31 0:31 / /cgroup2 rw - tmpfs cgroup2 rw\n", None);
        check("", None);
    }
}
