//! The mounts of the calling thread's mount namespace: `/proc/thread-self/mountinfo`, proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::Result;
use crate::error::Attempt;

/// A line of `/proc/<pid>/mountinfo`, as far as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Where it is. Another mount may cover it.
    pub(crate) point: PathBuf,
    /// The kind of its file system: `tmpfs`, `nsfs`.
    pub(crate) kind: String,
}

/// All mounts, in the order in which they were made.
pub(crate) fn mounts() -> Result<Vec<Mount>> {
    const TABLE: &str = "/proc/thread-self/mountinfo";
    Ok(parsed(&fs::read(TABLE).attempt(|| format!("read {TABLE}"))?))
}

/// The fifth field of a line is the mount point. The kind follows the field `-`, before which any number may stand.
pub(crate) fn parsed(table: &[u8]) -> Vec<Mount> {
    let lines = table.split(|byte| *byte == b'\n');
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let point = unescaped(fields.nth(4)?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some(Mount { point, kind: String::from_utf8_lossy(kind).into_owned() })
    };
    lines.filter_map(mount).collect()
}

/// White space and backslashes stand as `\` and three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let octal = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_and_kinds_are_read_with_their_escapes() {
        let table =
            b"22 28 0:21 / /run rw - tmpfs none rw\n30 22 0:5 / /mnt/a\\040b\\134c\\04 rw shared:9 master:1 - ext4 /dev/x rw\n";
        let mount = |point: &str, kind: &str| Mount { point: point.into(), kind: kind.into() };
        assert_eq!(parsed(table), [mount("/run", "tmpfs"), mount("/mnt/a b\\c\\04", "ext4")]);
        assert_eq!(parsed(b""), []);
    }
}
