//! Locks on files, which the kernel drops however their holder dies.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Takes the lock on a file, which is made if it is not there; `None` if another process has it.
///
/// # Errors
/// The file cannot be made or opened.
pub fn try_exclusive(path: &Path) -> io::Result<Option<File>> {
    let file = file(path)?;
    Ok(take(&file, FlockOperation::NonBlockingLockExclusive)?.then_some(file))
}

/// Takes the lock on a file, which is made if it is not there. Waits as long as another process has it.
///
/// # Errors
/// The file cannot be made or opened.
pub fn exclusive(path: &Path) -> io::Result<File> {
    let file = file(path)?;
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

fn file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)
}
