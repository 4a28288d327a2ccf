//! Links that a program reads and writes.

use std::fs::File;

/// Where such links are made.
const TUN: &str = "/dev/net/tun";

/// Whether this process may make one; else what is missing.
pub(crate) fn find() -> Result<(), String> {
    let opened = File::options().read(true).write(true).open(TUN);
    opened
        .map(drop)
        .map_err(|error| format!("{TUN} cannot be opened ({error}): the kernel's module tun makes it"))
}
