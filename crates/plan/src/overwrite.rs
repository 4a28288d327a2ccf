//! Another text in a file that is there, on a disk that may be full.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Writes a text over that of a file, padded with spaces to the old length; the caller then cuts the padding off. A
/// process that is killed here, or a file system that is full, leaves the old text or the new one and never a part of
/// either: a unit that was left standing would count as a dead owner's. Of a text beyond a page (4 KiB) a kill can
/// leave some pages old, which a checksum has to show.
pub(crate) fn overwrite(file: &File, text: &str) -> io::Result<()> {
    let width = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    let padded = format!("{text:<width$}");
    // Room for all of it before a byte changes. A file system without this call writes such a text as a whole.
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, padded.len() as u64) {
        Ok(()) | Err(Errno::OPNOTSUPP) => file.write_all_at(padded.as_bytes(), 0),
        Err(errno) => Err(errno.into()),
    }
}
