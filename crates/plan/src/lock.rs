//! Locks on files, which the kernel drops however their holder dies.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// What others may do with a file that nobody else is to lock: nothing.
pub(crate) const PRIVATE: u32 = 0o600;

/// How long to wait for a lock that another process has. The kernel does not wake a waiter that also has to look at a
/// clock, or at a flag that a signal sets, so it is tried again and again.
#[derive(Debug, Clone, Copy)]
pub struct LockWait {
    /// After which to give up; `None` waits as long as it takes.
    pub patience: Option<Duration>,
    /// How long to sleep between two attempts.
    pub pause: Duration,
}

impl LockWait {
    /// Attempts until one succeeds. `None` if `stop` returned true or the patience ended before that; there
    /// is always one attempt.
    ///
    /// # Errors
    /// That of the first attempt that fails.
    pub fn until<T, E>(
        &self,
        stop: impl Fn() -> bool,
        mut attempt: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        let start = Instant::now();
        loop {
            let taken = attempt()?;
            let is_over = self.patience.is_some_and(|patience| start.elapsed() > patience);
            if taken.is_some() || stop() || is_over {
                return Ok(taken);
            }
            thread::sleep(self.pause);
        }
    }
}

/// Takes the lock on a file, which is made if it is not there, for nobody else to open; `None` if another process
/// has it.
///
/// # Errors
/// The file cannot be made or opened.
pub fn try_exclusive(path: &Path) -> io::Result<Option<File>> {
    let file = private(path)?;
    Ok(take(&file, FlockOperation::NonBlockingLockExclusive)?.then_some(file))
}

/// Takes the lock on a file, which is made if it is not there, for nobody else to open. Waits as long as
/// another process has it.
///
/// # Errors
/// The file cannot be made or opened.
pub fn exclusive(path: &Path) -> io::Result<File> {
    let file = private(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Waits until no process holds the lock alone, and keeps it so. For those that only look: it takes no right to write,
/// and `None` says that the file is not there.
///
/// # Errors
/// The file cannot be opened.
pub fn shared(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => {
            flock(&file, FlockOperation::LockShared)?;
            Ok(Some(file))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a process holds the lock alone.
pub(crate) fn is_held(file: &File) -> bool {
    // The probe itself must not stay.
    !take(file, FlockOperation::NonBlockingLockShared).unwrap_or(false)
        || flock(file, FlockOperation::Unlock).is_err()
}

/// Takes a lock without waiting; false if another process has it.
pub(crate) fn take(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match flock(file, operation) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens or makes a file of which only its user takes the lock: whoever can read a file can lock it,
/// and keep it locked.
pub(crate) fn private(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(PRIVATE).open(path)?;
    close(&file)?;
    Ok(file)
}

/// Takes a file from others that an earlier version left to be read, and so locked, by everybody. Nothing is done where
/// there is none.
pub(crate) fn close_to_others(path: &Path) -> io::Result<()> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        file => close(&file?),
    }
}

fn close(file: &File) -> io::Result<()> {
    if file.metadata()?.mode() & !PRIVATE & 0o777 != 0 {
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const PAUSE: Duration = Duration::from_millis(1);

    #[test]
    fn a_lock_is_waited_for_until_it_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let mut held = try_exclusive(&path).unwrap();
        let wait = LockWait { patience: None, pause: PAUSE };
        let mut attempts = 0;
        let taken = wait.until(
            || false,
            || {
                attempts += 1;
                if attempts == 3 {
                    held = None;
                }
                try_exclusive(&path)
            },
        );
        assert!(taken.unwrap().is_some() && attempts == 3, "{attempts} attempts");
    }

    #[test]
    fn waiting_ends_when_it_is_stopped_fails_or_has_no_patience_left() {
        let attempts = Cell::new(0);
        let attempt = || -> io::Result<Option<()>> {
            attempts.set(attempts.get() + 1);
            Ok(None)
        };
        let wait = LockWait { patience: None, pause: PAUSE };
        assert_eq!(wait.until(|| attempts.get() == 2, attempt).unwrap(), None);
        assert_eq!(attempts.get(), 2);
        let impatient = LockWait { patience: Some(Duration::ZERO), pause: PAUSE };
        assert_eq!(impatient.until(|| false, attempt).unwrap(), None);
        let failed = wait.until(|| false, || Err::<Option<()>, _>(io::Error::other("no such file")));
        assert_eq!(failed.unwrap_err().to_string(), "no such file");
    }
}
