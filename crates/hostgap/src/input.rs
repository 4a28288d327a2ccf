//! Files that the user names as input.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::exit::BadInput;

/// An experiment, a profile, a plan or findings have a few kilobytes; `/dev/zero` has no end.
const BYTES_MAX: u64 = 16 << 20;

/// The text of a file. `what` it should be is for the message: "profile".
pub(crate) fn text(what: &str, path: &Path) -> Result<String, BadInput> {
    let bad = |why: String| BadInput(format!("could not read {what} {}: {why}", path.display()));
    let mut text = String::new();
    let file = File::open(path).map_err(|error| bad(error.to_string()))?;
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(bad(format!("it has more than {} MiB", BYTES_MAX >> 20)));
    }
    Ok(text)
}
