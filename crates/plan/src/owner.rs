//! Who owns a journal, and whether that process still lives.

use std::io;
use std::path::{Path, PathBuf};

use crate::entry::Owner;
use crate::journal::JournalError;

/// Where the kernel tells its run from others.
pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

impl Owner {
    /// True if the process still lives; `proc` is `/proc`. A later process with the same number is not it.
    pub fn is_alive(&self, proc: &Path) -> bool {
        started_ticks(&proc.join(self.pid.to_string()).join("stat"))
            .is_ok_and(|started| started == self.started_ticks)
    }
}

/// The calling process.
pub(crate) fn this_process() -> Result<Owner, JournalError> {
    let path = PathBuf::from("/proc/self/stat");
    match started_ticks(&path) {
        Ok(started_ticks) => Ok(Owner { pid: std::process::id(), started_ticks }),
        Err(source) => Err(JournalError::Identity { path, source }),
    }
}

/// The id of this run of the kernel.
pub(crate) fn boot_id(path: &Path) -> Result<String, JournalError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(source) => Err(JournalError::Identity { path: path.to_owned(), source }),
    }
}

fn started_ticks(stat: &Path) -> io::Result<u64> {
    let text = std::fs::read_to_string(stat)?;
    // The second field is the program's name in parentheses and may hold spaces and parentheses itself; after the
    // last one follows field 3 (proc(5)).
    text.rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(22 - 3))
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no start time in field 22"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_dead_when_its_number_belongs_to_another() {
        let proc = tempfile::tempdir().unwrap();
        let process = proc.path().join("77");
        std::fs::create_dir(&process).unwrap();
        let zeros = "0 ".repeat(18);
        std::fs::write(process.join("stat"), format!("77 (a) b (c) S {zeros}4711 0 0\n")).unwrap();
        assert!(Owner { pid: 77, started_ticks: 4711 }.is_alive(proc.path()));
        assert!(!Owner { pid: 77, started_ticks: 4712 }.is_alive(proc.path()));
        assert!(!Owner { pid: 78, started_ticks: 4711 }.is_alive(proc.path()));
    }

    #[test]
    fn this_process_is_alive() {
        assert!(this_process().unwrap().is_alive(Path::new("/proc")));
    }
}
