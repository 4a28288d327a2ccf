//! Secrets: random numbers of the kernel, and files that root alone can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::Result;
use crate::error::Attempt;

/// Readable by root alone.
const MODE: u32 = 0o600;

/// So many random bytes. `what` they are for is for the error.
///
/// # Errors
/// The kernel has no random numbers to give.
pub(crate) fn random<const BYTES: usize>(what: &str) -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.attempt(|| format!("read random numbers for {what}"))?;
    Ok(bytes)
}

/// Writes a line to a file that root alone can read (mode 0600), whole or not at all. A file of the name gives way.
/// `what` it is, is for the error.
///
/// # Errors
/// The file cannot be written beside its name, or not be renamed.
pub(crate) fn keep(path: &Path, line: &str, what: &str) -> Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let write = || -> io::Result<()> {
        // One that a killed process left may have another mode.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new)?;
        writeln!(file, "{line}")?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    // On a full disk there would be a file without the secret, or with half of it.
    let written = write().inspect_err(|_| drop(fs::remove_file(&new)));
    written.attempt(|| format!("write {what} to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_kept_for_root_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        fs::write(folder.path().join("key.new"), "left by a killed process").unwrap();
        fs::write(&file, "another").unwrap();
        keep(&file, "a secret", "a key").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&file).unwrap(), "a secret\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random::<16>("a test").unwrap(), random::<16>("a test").unwrap());
    }
}
