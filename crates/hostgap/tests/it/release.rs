//! The files of a release: packed from this build, unpacked, installed where nothing else is, and removed.
//!
//! This build needs a C library, which a release's programs do not: `cargo xtask dist` refuses one that does.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dist::{Architecture, Effort, Release, write_sums};
use testkit::shell;

use crate::sandbox::{HOSTGAP, PLUGIN, text};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What of the programs is installed beside their manual pages, below the prefix.
const INSTALLED: [&str; 5] = [
    "bin/hostgap",
    "bin/hostgap-cni",
    "share/bash-completion/completions/hostgap",
    "share/fish/vendor_completions.d/hostgap.fish",
    "share/zsh/site-functions/_hostgap",
];

#[test]
fn a_release_is_installed_and_removed_and_packed_again_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let program = at.join("programs/hostgap");
    fs::create_dir(at.join("programs")).unwrap();
    shell(&format!("strip -o {0} {HOSTGAP}; strip -o {0}-cni {PLUGIN}", program.display()));

    let files = pack(&program, &at.join("dist"));
    let sums = write_sums(&at.join("dist")).unwrap();
    shell(&format!("cd {}/dist && sha256sum --check --strict {}", at.display(), sums.display()));
    let pages = install_from_archive(&files[0], &at.join("archive"));
    install_package(&files[1], &at.join("root"), &program, &pages);

    // Another folder, and files that no other user may read: neither is in what is packed.
    fs::create_dir(at.join("again")).unwrap();
    let again = at.join("again").join("programs");
    shell(&format!("umask 077; cp -r {0}/programs {0}/again/programs", at.display()));
    let again = pack(&again.join("hostgap"), &at.join("again/dist"));
    for (file, again) in files.iter().zip(&again) {
        assert_eq!(file.file_name(), again.file_name());
        assert!(fs::read(file).unwrap() == fs::read(again).unwrap(), "{} differs", file.display());
    }
}

fn pack(program: &Path, folder: &Path) -> [PathBuf; 2] {
    let release = Release {
        checkout: &Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        program,
        runner: None,
        version: VERSION,
        architecture: architecture(),
        unix_s: 1_790_000_000,
        maintainer: "Someone <someone@example.net>",
        notices: "What the programs contain of others.\n",
        effort: Effort::Least,
    };
    release.write(folder).unwrap()
}

fn architecture() -> Architecture {
    Architecture::of(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH)).unwrap()
}

/// Installs what an archive has, removes it, and returns the names of the manual pages.
fn install_from_archive(archive: &Path, folder: &Path) -> BTreeSet<String> {
    fs::create_dir(folder).unwrap();
    let top = folder.join(format!("hostgap-{VERSION}-linux-{}", std::env::consts::ARCH));
    shell(&format!("tar -xf {} -C {}", archive.display(), folder.display()));
    for name in
        ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "CHANGES.md", "THIRD-PARTY.md", "docs/agent.md"]
    {
        assert!(top.join(name).is_file(), "{name}");
    }
    let root = folder.join("root");
    let make = |goal: &str| {
        let mut make = Command::new("make");
        make.arg("-C").arg(&top).args([goal, "PREFIX=/usr"]).arg(format!("DESTDIR={}", root.display()));
        text(&mut make);
    };
    make("install");
    let (pages, installed): (BTreeSet<String>, BTreeSet<String>) =
        files(&root.join("usr")).into_iter().partition(|path| path.starts_with("share/man/man1/"));
    assert_eq!(installed, INSTALLED.map(str::to_owned).into());
    assert!(pages.contains("share/man/man1/hostgap.1") && pages.contains("share/man/man1/hostgap-race.1"));
    let mut man = Command::new("man");
    // In another character set its pages have signs that do not exist.
    man.env("LC_ALL", "C.UTF-8")
        .args(["--warnings", "--local-file"])
        .args(pages.iter().map(|page| root.join("usr").join(page)));
    let output = man.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Race container data paths"));
    let version = text(Command::new(root.join("usr/bin/hostgap")).arg("--version"));
    assert_eq!(version, format!("hostgap {VERSION}\n"));
    make("uninstall");
    assert_eq!(files(&root), BTreeSet::new());
    pages
}

/// Installs a package into a root that has nothing but what its scripts and the program of a test need, and purges it.
fn install_package(package: &Path, root: &Path, program: &Path, pages: &BTreeSet<String>) {
    let at = root.display();
    shell(&format!(
        "mkdir -p {at}/bin {at}/var/lib/dpkg/info {at}/var/lib/dpkg/updates && touch {at}/var/lib/dpkg/status && \
         cp -L /bin/sh {at}/bin/sh && \
         for library in $(ldd /bin/sh {} | grep -o '/[^ ]*' | grep -v :); do \
             mkdir -p {at}${{library%/*}} && cp -L $library {at}$library; \
         done",
        program.display()
    ));
    let before = everything(root);
    let dpkg = |args: &[&str]| {
        // Container images configure dpkg to leave documentation out.
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={at}")).args(["--log=/dev/null", "--path-include=/usr/*"]);
        dpkg.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(args);
        text(&mut dpkg)
    };
    dpkg(&["--install", package.to_str().unwrap()]);
    let installed = files(&root.join("usr"));
    for name in INSTALLED {
        let name = name.replace("site-functions", "vendor-completions");
        assert!(installed.contains(&name), "{name}: {installed:?}");
    }
    let zipped = |page: &String| installed.contains(&format!("{page}.gz"));
    assert!(pages.iter().all(zipped), "{installed:?}");
    let doc = root.join("usr/share/doc/hostgap");
    shell(&format!("gzip -t {at}/usr/share/man/man1/* {}/changelog.gz", doc.display()));
    assert!(fs::read_to_string(doc.join("copyright")).unwrap().contains("AS IS"));
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/hostgap-agent.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/hostgap agent run"), "{unit}");
    assert_eq!(dpkg(&["--verify", "hostgap"]), "", "the sums hold");
    let version = text(Command::new("chroot").arg(root).args(["/usr/bin/hostgap", "--version"]));
    assert_eq!(version, format!("hostgap {VERSION}\n"));
    dpkg(&["--purge", "hostgap"]);
    assert_eq!(everything(root), before, "what is left");
}

/// The files of a folder.
fn files(folder: &Path) -> BTreeSet<String> {
    let found = text(Command::new("find").arg(folder).args(["!", "-type", "d", "-printf", "%P\\n"]));
    found.lines().map(str::to_owned).collect()
}

/// The files and folders of a root, without what dpkg notes for itself.
fn everything(root: &Path) -> BTreeSet<String> {
    let mut found = Command::new("find");
    found.arg(root).args(["-path", "*/var/lib/dpkg", "-prune", "-o", "-printf", "%P\\n"]);
    text(&mut found).lines().map(str::to_owned).collect()
}
