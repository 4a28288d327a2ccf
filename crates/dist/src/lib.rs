//! The files of a release, made of programs that are built already: an archive for any Linux, and a package for Debian.
//!
//! The same programs, checkout and date give the same bytes, wherever and by whomever they are packed: entries are
//! sorted and belong to root, and nothing has a younger date than the release.
//!
//! `tar`, `gzip` and `dpkg-deb` write the formats. `dpkg-deb` also refuses a package whose description Debian would not
//! take, which a writer of our own could not know.

mod archive;
mod deb;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What a release is made of.
#[derive(Debug, Clone, Copy)]
pub struct Release<'a> {
    /// The checkout, which has the texts.
    pub checkout: &'a Path,
    /// The program `hostgap`, with `hostgap-cni` beside it.
    pub program: &'a Path,
    /// What starts the program, where it is for another machine than this.
    pub runner: Option<&'a Path>,
    /// As the program says it.
    pub version: &'a str,
    /// The machines on which the programs run.
    pub architecture: Architecture,
    /// The date of the release, in seconds since 1970.
    pub unix_s: u64,
    /// The package's maintainer: `Name <address>`.
    pub maintainer: &'a str,
    /// The licences of all that the programs contain besides this project's own code.
    pub notices: &'a str,
    /// How small the files are made.
    pub effort: Effort,
}

/// A kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Architecture {
    X86_64,
    Aarch64,
}

/// How hard compression tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// As small as it gets, for files that are loaded often.
    Most,
    /// In a moment, for files that are rarely loaded.
    Least,
}

impl Architecture {
    /// That of a target of the compiler (`x86_64-unknown-linux-gnu`), if a release can be for it.
    #[must_use]
    pub fn of(target: &str) -> Option<Architecture> {
        let (machine, _) = target.split_once('-')?;
        [Architecture::X86_64, Architecture::Aarch64].into_iter().find(|known| known.name() == machine)
    }

    /// As the kernel calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Aarch64 => "aarch64",
        }
    }

    /// As Debian calls it.
    #[must_use]
    pub fn debian(self) -> &'static str {
        match self {
            Architecture::X86_64 => "amd64",
            Architecture::Aarch64 => "arm64",
        }
    }
}

impl Release<'_> {
    /// What the names of the files have in common: `hostgap-0.1.0-linux-x86_64`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("hostgap-{}-linux-{}", self.version, self.architecture.name())
    }

    /// Writes the archive and the package into a folder, and returns their paths.
    ///
    /// # Errors
    /// A program that packs is missing (`make`, `tar`, `gzip`, `dpkg-deb`), the program does not start, or the folder
    /// cannot be written.
    pub fn write(&self, folder: &Path) -> Result<[PathBuf; 2]> {
        let work = folder.join(format!("{}.work", self.name()));
        // What a run left that was killed.
        if work.exists() {
            fs::remove_dir_all(&work).with_context(|| format!("could not remove {}", work.display()))?;
        }
        fs::create_dir_all(&work).with_context(|| format!("could not make {}", work.display()))?;
        let work = work.canonicalize().with_context(|| format!("could not find {}", work.display()))?;
        let installed = stage::install(self, &work)?;
        let archive = archive::write(self, &installed, &work, folder)?;
        let package = deb::write(self, &installed, &work, folder)?;
        fs::remove_dir_all(&work).context("could not remove what the release was packed from")?;
        Ok([archive, package])
    }
}

/// The section of a version in the changelog, with its heading.
///
/// # Errors
/// The changelog has none.
pub fn changes<'a>(changelog: &'a str, version: &str) -> Result<&'a str> {
    let is_ours = |heading: &str| heading.split_whitespace().next() == Some(version);
    let starts = changelog.match_indices("\n## ").map(|(at, _)| at + 1);
    let mut ours = starts.map(|at| &changelog[at..]).filter(|text| is_ours(&text["## ".len()..]));
    let text = ours.next().with_context(|| format!("the changelog has no section {version}"))?;
    let end = text.find("\n## ").map_or(text.len(), |at| at + 1);
    Ok(text[..end].trim_end())
}

/// Writes the sums of all files of a folder into its file `SHA256SUMS`, as `sha256sum --check` reads them.
///
/// # Errors
/// The folder cannot be read or written.
pub fn write_sums(folder: &Path) -> Result<PathBuf> {
    let sums = folder.join("SHA256SUMS");
    let script = "find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\\0' | LC_ALL=C sort --zero-terminated | \
                  xargs --null sha256sum --";
    let text = run(Command::new("sh").args(["-euc", script]).current_dir(folder))?;
    put(&sums, &text)?;
    Ok(sums)
}

/// Writes a text file, and the folders that it lies in.
fn put(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("could not write {}", path.display()))
}

/// Runs a program to its end and returns what it printed.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("could not start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} wrote no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_its_section_of_the_changelog() {
        let log =
            "# Changelog\n\n## 0.10.0 (unreleased)\n\n- New.\n\n## 0.1.0\n\n- First.\n- ## no heading\n";
        assert_eq!(changes(log, "0.10.0").unwrap(), "## 0.10.0 (unreleased)\n\n- New.");
        assert_eq!(changes(log, "0.1.0").unwrap(), "## 0.1.0\n\n- First.\n- ## no heading");
        assert_eq!(changes(log, "0.1").unwrap_err().to_string(), "the changelog has no section 0.1");
    }

    #[test]
    fn architectures_are_known_by_targets() {
        assert_eq!(Architecture::of("aarch64-unknown-linux-gnu").map(Architecture::debian), Some("arm64"));
        assert_eq!(Architecture::of("x86_64-unknown-linux-gnu").map(Architecture::debian), Some("amd64"));
        assert_eq!(Architecture::of("riscv64gc-unknown-linux-gnu"), None);
    }
}
