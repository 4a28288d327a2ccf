//! `cargo xtask dist`: the files of a release.

mod notices;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use dist::{Architecture, Effort, Release, changes, write_sums};
use toml::Table;

use crate::static_build::{self, StaticBuild};
use crate::suites::{output, target};
use crate::{root, tree};

const USAGE: &str = "usage: cargo xtask dist [--target TRIPLE] [DIR]";

/// Builds the programs, and writes the files of the release into a folder.
///
/// # Errors
/// The programs do not build, say another version than their manifest, or a tool is missing; the message names it.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (triple, folder) = parse(arguments)?;
    let triple = triple.map_or_else(static_build::host, Ok)?;
    let folder = match folder {
        Some(folder) => folder,
        None => target()?.join("dist"),
    };
    let architecture =
        Architecture::of(&triple).with_context(|| format!("{triple}: no release is made for it"))?;
    let version = version()?;
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).context("could not read CHANGELOG.md")?;
    let changes = changes(&changelog, &version)?;
    let built = static_build::build(&triple)?;
    agrees(&built, &version)?;
    if !tree()?.is_empty() {
        eprintln!("dist: the checkout differs from its last commit, by whose date and author the files go");
    }
    let release = Release {
        checkout: &root(),
        program: &built.program,
        runner: built.runner.as_deref(),
        version: &version,
        architecture,
        unix_s: date()?,
        maintainer: &maintainer()?,
        notices: &notices::of_program(&triple)?,
        effort: Effort::Most,
    };
    fs::create_dir_all(&folder).with_context(|| format!("could not make {}", folder.display()))?;
    release.write(&folder)?;
    image(&release, &folder)?;
    fs::write(folder.join("CHANGES.md"), format!("{changes}\n")).context("could not write CHANGES.md")?;
    write_sums(&folder)?;
    show(&folder)
}

fn parse(arguments: &[String]) -> Result<(Option<String>, Option<PathBuf>)> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (triple, rest) = match arguments.as_slice() {
        ["--target", triple, rest @ ..] => (Some((*triple).to_owned()), rest),
        rest => (None, rest),
    };
    match rest {
        [] => Ok((triple, None)),
        [folder] if !folder.starts_with('-') => Ok((triple, Some(folder.into()))),
        _ => bail!("{USAGE}"),
    }
}

/// The version of the program, which its manifest has.
fn version() -> Result<String> {
    let path = root().join("crates/hostgap/Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
    let manifest: Table = text.parse().with_context(|| format!("could not parse {}", path.display()))?;
    let version = manifest.get("package").and_then(|package| package.get("version")?.as_str());
    Ok(version.context("the program's manifest has no version")?.to_owned())
}

/// Starts the program, and checks that it says the version.
fn agrees(built: &StaticBuild, version: &str) -> Result<()> {
    let said = output(built.command().arg("--version"))?;
    if said.trim() != format!("hostgap {version}") {
        bail!("{} says {:?}, and its manifest {version}", built.program.display(), said.trim());
    }
    Ok(())
}

/// The date of all files: that of the last commit, unless `SOURCE_DATE_EPOCH` has one.
fn date() -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root()))?,
    };
    text.trim().parse().with_context(|| format!("{:?} is no date in seconds since 1970", text.trim()))
}

/// The package's maintainer: the last commit's author, unless the variables of Debian's tools name someone.
fn maintainer() -> Result<String> {
    if let (Ok(name), Ok(address)) = (std::env::var("DEBFULLNAME"), std::env::var("DEBEMAIL")) {
        return Ok(format!("{name} <{address}>"));
    }
    let mut git = Command::new("git");
    Ok(output(git.args(["log", "-1", "--format=%an <%ae>"]).current_dir(root()))?.trim().to_owned())
}

/// Writes the agent's image under the name that `deploy` has for it, and with its version. `nft` in it is this
/// machine's own, so it is made for such machines alone.
fn image(release: &Release<'_>, folder: &Path) -> Result<()> {
    if release.runner.is_some() {
        let machine = release.architecture.name();
        eprintln!(
            "dist: there is no image for {machine}: nft in it is this machine's; make it on such a machine"
        );
        return Ok(());
    }
    let (name, _) = cluster::AGENT_IMAGE.split_once(':').context("the image's name has no tag")?;
    let versioned = format!("{name}:{}", release.version);
    let archive = cluster::write_agent_image(release.program, &[cluster::AGENT_IMAGE, &versioned], folder)?;
    let to = folder.join(format!("{}-image.tar", release.name()));
    fs::rename(&archive, &to).with_context(|| format!("could not rename {}", archive.display()))
}

/// Prints what the folder has.
fn show(folder: &Path) -> Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))? {
        let entry = entry?;
        files.push((entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.len()));
    }
    files.sort();
    for (name, bytes) in files {
        println!("{:>8.1} KiB  {}", bytes as f64 / 1024.0, folder.join(name).display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(Option<String>, Option<PathBuf>)> {
        parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_folder_and_a_target_are_understood() {
        assert_eq!(parsed("").unwrap(), (None, None));
        assert_eq!(parsed("out").unwrap(), (None, Some("out".into())));
        assert_eq!(parsed("--target a-b out").unwrap(), (Some("a-b".into()), Some("out".into())));
        assert!(parsed("--help").is_err() && parsed("a b").is_err() && parsed("--target").is_err());
    }

    #[test]
    fn the_changelog_has_a_section_of_the_programs_version() {
        let log = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
        changes(&log, &version().unwrap()).unwrap();
    }
}
