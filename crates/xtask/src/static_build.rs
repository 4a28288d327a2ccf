//! The programs without shared libraries, for this machine or for another: they run on nodes of any distribution, and
//! the agent copies them there.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use dist::Architecture;

use crate::suites::{output, target};
use crate::{cargo, check, root};

/// Programs that are built.
#[derive(Debug)]
pub(crate) struct StaticBuild {
    /// The program `hostgap`; `hostgap-cni` lies beside it.
    pub program: PathBuf,
    /// What starts it, where it is for another machine than this.
    pub runner: Option<PathBuf>,
}

/// What it takes to build for another machine.
struct Cross {
    linker: PathBuf,
    runner: PathBuf,
    /// Where libelf and zlib are unpacked.
    libraries: PathBuf,
    /// As Debian calls the machine in the names of folders: `aarch64-linux-gnu`.
    triplet: String,
}

impl StaticBuild {
    /// The program, to be started here.
    pub(crate) fn command(&self) -> Command {
        match &self.runner {
            None => Command::new(&self.program),
            Some(runner) => {
                let mut command = Command::new(runner);
                command.arg(&self.program);
                command
            }
        }
    }
}

/// The name of this machine as a target of the compiler.
pub(crate) fn host() -> Result<String> {
    let text = output(Command::new("rustc").arg("-vV").current_dir(root()))?;
    let triple = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(triple.context("rustc does not say its host")?.to_owned())
}

/// Builds them for a target of the compiler.
///
/// # Errors
/// The programs do not build, or need an interpreter after all; for another machine, one of the tools is missing.
pub(crate) fn build(triple: &str) -> Result<StaticBuild> {
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--package", "hostgap", "--target", triple]);
    // With a target named, proc macros and build scripts are built as usual: they cannot be static.
    build.env("CARGO_ENCODED_RUSTFLAGS", flags()?).env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    let runner = if triple == host()? {
        None
    } else {
        let cross = Cross::find(triple)?;
        cross.enter(triple, &mut build);
        Some(cross.runner)
    };
    check(&mut build)?;
    let program = target()?.join(triple).join("release/hostgap");
    for program in [&program, &program.with_file_name("hostgap-cni")] {
        let headers = output(Command::new("readelf").args(["--program-headers", "--wide"]).arg(program))?;
        if headers.contains("INTERP") {
            bail!("{} is linked with shared libraries", program.display());
        }
    }
    Ok(StaticBuild { program, runner })
}

/// Flags of the compiler, as cargo separates them. Where the sources lie on this machine does not belong in a
/// program, and would make each machine's programs differ.
fn flags() -> Result<String> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home).context("HOME is not set")?;
    let flags = [
        "-Ctarget-feature=+crt-static".to_owned(),
        format!("--remap-path-prefix={}=/hostgap", root().display()),
        format!("--remap-path-prefix={}=/cargo", cargo.display()),
    ];
    Ok(flags.join("\u{1f}"))
}

impl Cross {
    /// Finds the tools, or says how each that is missing is got.
    fn find(triple: &str) -> Result<Cross> {
        let Some(architecture) = Architecture::of(triple).filter(|_| triple.ends_with("-unknown-linux-gnu"))
        else {
            bail!("{triple}: targets are x86_64-unknown-linux-gnu and aarch64-unknown-linux-gnu");
        };
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "target-libdir", "--target", triple]).current_dir(root());
        if !Path::new(output(&mut rustc)?.trim()).exists() {
            bail!("there is no standard library for {triple}; rustup target add {triple}");
        }
        let machine = architecture.name();
        let triplet = format!("{machine}-linux-gnu");
        let package = triplet.replace('_', "-");
        let linker = program(&format!("{triplet}-gcc"), &format!("gcc-{package}"))?;
        let runner = program(&format!("qemu-{machine}-static"), "qemu-user-static")?;
        let mut libraries = Command::new(root().join("scripts/fetch-libraries"));
        let libraries = output(libraries.arg(architecture.debian()))?.trim().into();
        Ok(Cross { linker, runner, libraries, triplet })
    }

    /// Lets cargo and the build scripts know them.
    fn enter(&self, triple: &str, build: &mut Command) {
        let name = triple.replace('-', "_");
        let libraries = self.libraries.join("usr/lib").join(&self.triplet);
        build.env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), &self.linker);
        build.env(format!("CFLAGS_{name}"), format!("-I{}", self.libraries.join("usr/include").display()));
        build.env(format!("LIBBPF_SYS_LIBRARY_PATH_{name}"), libraries);
    }
}

/// A program in `PATH`, or the package that has it.
fn program(name: &str, package: &str) -> Result<PathBuf> {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", name]).output();
    let found = found.context("could not start sh")?;
    if !found.status.success() {
        bail!("there is no {name}; apt-get install {package}");
    }
    Ok(String::from_utf8_lossy(&found.stdout).trim().into())
}
