//! In which run of the kernel this is: what steps changed does not outlive one.

use std::path::Path;

use crate::error::JournalError;

/// The file with the random id of this run of the kernel.
pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The id of this run of the kernel.
pub(crate) fn boot_id(path: &Path) -> Result<String, JournalError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(why) => Err(JournalError::BootId { path: path.to_owned(), why }),
    }
}
