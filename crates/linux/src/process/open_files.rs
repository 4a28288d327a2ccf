//! How many files this process may have open.

use rustix::process::{Resource, Rlimit};

use crate::error::Attempt;
use crate::{Error, Result};

/// How many files this process may have open now.
pub fn open_files_max() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit of open files as far as it goes; the limit in force afterwards.
pub fn raise_open_files() -> Result<u64> {
    let now = rustix::process::getrlimit(Resource::Nofile);
    let highest = Rlimit { current: now.maximum, maximum: now.maximum };
    rustix::process::setrlimit(Resource::Nofile, highest).attempt(|| "raise the limit of open files")?;
    Ok(now.maximum.unwrap_or(u64::MAX))
}

/// Raises the soft limit of open files to the hard limit, and the hard limit to `wanted` if it is lower (needs
/// `CAP_SYS_RESOURCE`, and `fs.nr_open` caps it). Returns the limit in force afterwards.
pub fn allow_open_files(wanted: u64) -> Result<u64> {
    let limit = raise_open_files()?;
    if limit >= wanted {
        return Ok(limit);
    }
    let more = Rlimit { current: Some(wanted), maximum: Some(wanted) };
    match rustix::process::setrlimit(Resource::Nofile, more) {
        Ok(()) => Ok(wanted),
        Err(rustix::io::Errno::PERM) => Ok(limit),
        Err(errno) => Err(Error::new("raise the limit of open files", errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_go_up_to_the_hard_limit() {
        let limit = raise_open_files().unwrap();
        assert_eq!(rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), limit);
        assert_eq!(allow_open_files(limit).unwrap(), limit, "what there is suffices");
        // A process without the privilege keeps what it has.
        assert!([limit, limit + 1].contains(&allow_open_files(limit + 1).unwrap()));
    }
}
