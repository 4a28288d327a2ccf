//! Programs that a race runs: this one, and those of others, which are found and asked for their version.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that answers when asked for its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The path of the executable.
    pub program: PathBuf,
    /// Its name and version: "nginx/1.22.1".
    pub version: String,
}

/// This program: what runs in a pod where hostgap itself serves, and what records say wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnProgram {
    /// The path of the executable.
    pub program: PathBuf,
    /// As `hostgap --version` says it, without the name. Crates have no versions of their own.
    pub version: &'static str,
}

/// Looks for nginx: the path given, else `nginx` in `PATH` and `/usr/sbin`.
pub(crate) fn nginx(given: Option<&Path>) -> Result<Program, String> {
    find(places("nginx", given), "-v", "nginx version: ")
}

/// Where a program of a name is looked for: the file given, else `PATH` and `/usr/sbin`.
pub(crate) fn places(name: &str, given: Option<&Path>) -> Vec<PathBuf> {
    match given {
        Some(path) => vec![path.to_owned()],
        None => vec![PathBuf::from(name), Path::new("/usr/sbin").join(name)],
    }
}

/// The first that answers `flag` with a line in which the version follows `before`. The error says what was tried last.
pub(crate) fn find(places: Vec<PathBuf>, flag: &str, before: &str) -> Result<Program, String> {
    let mut why = String::new();
    for program in places {
        match Command::new(&program).arg(flag).output() {
            Ok(output) => {
                // nginx says it on stderr.
                let said = [output.stdout, output.stderr].concat();
                let text = String::from_utf8_lossy(&said);
                if let Some((_, version)) = text.lines().find_map(|line| line.split_once(before)) {
                    return Ok(Program { program, version: version.trim().to_owned() });
                }
                why = format!("{} {flag} said {:?}", program.display(), text.trim());
            }
            Err(error) => why = format!("{}: {error}", program.display()),
        }
    }
    Err(why)
}
