//! The package for Debian and its descendants.
//!
//! It depends on nothing, since the programs need no library. Debian's nginx is only suggested: to install it starts a
//! web server, and a race is one without it, too.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::archive::section;
use crate::stage::{self, USR};
use crate::{Effort, Release, put, run};

/// What dpkg runs, because of the unit alone: the package neither enables nor starts it.
const SCRIPTS: [(&str, &str); 2] =
    [("prerm", include_str!("../files/debian/prerm")), ("postrm", include_str!("../files/debian/postrm"))];
const COPYRIGHT: &str = include_str!("../files/debian/copyright");
const OVERRIDES: &str = include_str!("../files/debian/lintian-overrides");

/// Writes it, and returns its path.
pub(crate) fn write(release: &Release<'_>, installed: &Path, work: &Path, folder: &Path) -> Result<PathBuf> {
    let root = work.join("debian");
    run(Command::new("cp").arg("--recursive").arg(installed).arg(&root))?;
    // Where Debian's zsh looks for completions of packages.
    let share = root.join(USR).join("share");
    fs::rename(share.join("zsh/site-functions"), share.join("zsh/vendor-completions"))
        .context("could not move the completions of zsh")?;
    document(release, &root)?;
    unit(release, &root)?;
    // README and docs stay as they are, since they refer to each other.
    let finish = "gzip --best --no-name usr/share/man/man1/* usr/share/doc/hostgap/changelog \
                  usr/share/doc/hostgap/CHANGES.md usr/share/doc/hostgap/THIRD-PARTY.md
                  chmod --recursive u=rwX,go=rX .";
    run(Command::new("sh").args(["-euc", finish]).current_dir(&root))?;
    describe(release, &root)?;
    let package = folder.join(format!("hostgap_{}_{}.deb", release.version, release.architecture.debian()));
    let level = match release.effort {
        Effort::Most => "-z9",
        Effort::Least => "-z0",
    };
    // With several threads xz cuts its input into blocks, so that the bytes would depend on the machine.
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zxz", level, "--threads-max=1", "--build"]).arg(&root).arg(&package);
    run(build.env("SOURCE_DATE_EPOCH", release.unix_s.to_string()))?;
    Ok(package)
}

/// Writes what Debian keeps in a package's folder of documents.
fn document(release: &Release<'_>, root: &Path) -> Result<()> {
    let doc = root.join("usr/share/doc/hostgap");
    let licence =
        fs::read_to_string(release.checkout.join("LICENSE-MIT")).context("could not read LICENSE-MIT")?;
    put(&doc.join("copyright"), &format!("{COPYRIGHT}{}", as_field(&licence)))?;
    put(&doc.join("changelog"), &changelog(release)?)?;
    put(&doc.join("CHANGES.md"), &format!("{}\n", section(release)?))?;
    put(&doc.join("THIRD-PARTY.md"), release.notices)?;
    stage::copy(release, &["README.md", "SECURITY.md", "docs"], &doc)?;
    let examples = doc.join("examples");
    fs::create_dir_all(&examples).context("could not make the folder of examples")?;
    stage::copy(release, &["deploy", "scenarios"], &examples)?;
    put(&root.join("usr/share/lintian/overrides/hostgap"), OVERRIDES)
}

/// Installs the unit of the agent, which starts the program where the package has it.
fn unit(release: &Release<'_>, root: &Path) -> Result<()> {
    let name = "hostgap-agent.service";
    let text = fs::read_to_string(release.checkout.join("deploy").join(name));
    let text = text.with_context(|| format!("could not read {name}"))?;
    let text = text.replace("/usr/local/bin/", "/usr/bin/");
    put(&root.join("usr/lib/systemd/system").join(name), &text)
}

/// Writes what dpkg knows of the package: its description, the sums of its files, its scripts.
fn describe(release: &Release<'_>, root: &Path) -> Result<()> {
    let control = root.join("DEBIAN");
    // As dpkg-gencontrol counts: each file in whole KiB, and one for anything else.
    let sizes = run(Command::new("find").arg(root.join(USR)).args(["-printf", "%y %s\\n"]))?;
    let size_kib: u64 = sizes.lines().map(size_kib).sum();
    let script = "find usr -type f -printf '%p\\0' | LC_ALL=C sort --zero-terminated | xargs --null md5sum";
    let sums = run(Command::new("sh").args(["-euc", script]).current_dir(root))?;
    put(&control.join("md5sums"), &sums)?;
    for (name, text) in SCRIPTS {
        let path = control.join(name);
        put(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("could not make {name} executable"))?;
    }
    put(&control.join("control"), &description(release, size_kib))
}

fn size_kib(line: &str) -> u64 {
    match line.split_once(' ') {
        Some(("f", bytes)) => bytes.parse::<u64>().unwrap_or_default().div_ceil(1024),
        _ => 1,
    }
}

fn description(release: &Release<'_>, size_kib: u64) -> String {
    format!(
        "Package: hostgap\n\
         Version: {}\n\
         Architecture: {}\n\
         Maintainer: {}\n\
         Installed-Size: {size_kib}\n\
         Recommends: nftables\n\
         Suggests: nginx\n\
         Section: net\n\
         Priority: optional\n\
         Description: gap between a container's network and the host's\n \
         hostgap builds the usual data paths of containers in network namespaces\n \
         of its own, sends each the same constant rate of real requests, and\n \
         compares their latency tails with the host's, with confidence intervals.\n \
         .\n \
         It also finds what slows packets down on a host, sets and exactly restores\n \
         the settings that matter, and puts the fastest data path under containers,\n \
         as a CNI plugin and as an agent on each node.\n",
        release.version,
        release.architecture.debian(),
        release.maintainer
    )
}

/// The changelog of the package in Debian's form. What changed in the program is in `CHANGES.md` beside it.
fn changelog(release: &Release<'_>) -> Result<String> {
    let mut date = Command::new("date");
    date.args(["--utc", "--rfc-email", &format!("--date=@{}", release.unix_s)]).env("LC_ALL", "C");
    Ok(format!(
        "hostgap ({}) unstable; urgency=medium\n\n  * The changes are in CHANGES.md.gz.\n\n -- {}  {}",
        release.version,
        release.maintainer,
        run(&mut date)?
    ))
}

/// A text as a field of a file of Debian's goes on: each line begins with a space, and none is empty.
fn as_field(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_field_is_empty() {
        assert_eq!(as_field("one\n\ntwo\n"), " one\n .\n two\n");
    }

    #[test]
    fn sizes_are_whole_kib() {
        assert_eq!(["f 0", "f 1", "f 1024", "f 1025", "d 4096"].map(size_kib), [0, 1, 1, 2, 1]);
    }
}
