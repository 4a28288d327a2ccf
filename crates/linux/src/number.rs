//! Files of the kernel that hold one number.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::error::Attempt;
use crate::{Error, Result};

/// The number. `ENOENT` without the file.
pub(crate) fn read(path: &Path) -> Result<u64> {
    let attempted = || format!("read {}", path.display());
    let text = fs::read_to_string(path).attempt(attempted)?;
    text.trim().parse().map_err(|_| Error::invalid(attempted(), "a number is expected"))
}

/// Sets the number in one write; the file is never made.
pub(crate) fn write(path: &Path, value: u64) -> Result<()> {
    let attempted = || format!("write {value} to {}", path.display());
    let mut opened = OpenOptions::new().write(true).truncate(true).open(path).attempt(attempted)?;
    opened.write_all(format!("{value}\n").as_bytes()).attempt(attempted)
}
