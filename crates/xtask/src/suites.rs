//! `cargo xtask suites`: the CNI project's own test suites, with this program under the names of its plugins, and our
//! tests of containers under a containerd that is newer than Debian's.
//!
//! The suites, containerd and the project's plugins, which a benchmark calls (`cargo xtask plugins`), are Go modules of
//! fixed versions (`go.mod` and `go.sum` in `suites`, `suites/containerd` and `suites/plugins`), which `go` keeps
//! outside the checkout. They are no part of `cargo xtask test`, which needs no Go.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::native::{bounded, is_root};
use crate::{cargo, check, root};

/// The suites: their names, and the tests of their packages that call plugins.
const SUITES: [(&str, &str); 2] = [("integration", ""), ("plugins/meta/portmap", "integration")];
/// The module that has them.
const PLUGINS: &str = "github.com/containernetworking/plugins";
/// The plugins that this program stands for. All others that the suites call are the project's own.
const STANDS_FOR: [&str; 3] = ["bridge", "ptp", "host-local"];
/// The longest suite waits for a limited rate, 45 s on a quiet machine.
const SUITE_TIME_MAX: Duration = Duration::from_secs(600);
/// Where a suite sees the folder of them all.
const SEEN_AT: &str = "/run/suites";
/// Runs `$1` in `$0` below [`SEEN_AT`] on a node with one address, with nothing of this machine's network and none
/// of its files where plugins write. The folder is reached by an open directory, since `/tmp`, in which it may
/// lie, is replaced too.
const ALONE: &str = "\
    exec 9<. && for place in /run /tmp /var/lib; do mount -t tmpfs none $place || exit; done && \
    mkdir /run/suites && mount --bind /proc/self/fd/9 /run/suites && exec 9<&- && ip link set lo up && \
    ip link add node0 up type veth peer name wire0 && ip link set wire0 up && ip addr add 192.0.2.1/24 dev node0 && \
    cd \"/run/suites/$0\" && PATH=/run/suites/bin:$PATH exec \"$@\"";

/// Builds the suites and runs them.
///
/// # Errors
/// Something does not build, or a test of theirs fails; the last line names the suite.
pub(crate) fn run() -> Result<()> {
    if !is_root()? {
        bail!("the suites make network namespaces: run this as root");
    }
    let folder = build()?;
    for (package, focus) in SUITES {
        let start = Instant::now();
        let passed = feed(&folder, package, focus)?;
        println!("suites  {package}: {passed} passed ({:.0} s)", start.elapsed().as_secs_f64());
    }
    under_containerd()
}

/// Builds the CNI project's plugins that the benchmark of ours calls, and prints the folder that they are in.
///
/// # Errors
/// There is no Go, or they do not build.
pub(crate) fn plugins() -> Result<()> {
    println!("{}", tools("suites/plugins")?.join("bin").display());
    Ok(())
}

/// Runs our tests of containers under the containerd of the lock file. What it needs besides, runc
/// above all, is Debian's.
fn under_containerd() -> Result<()> {
    let bin = tools("suites/containerd")?.join("bin");
    // What is missing here would silently be Debian's.
    for program in ["containerd", "containerd-shim-runc-v2", "ctr"] {
        if !bin.join(program).exists() {
            bail!("{program} was not built in {}", bin.display());
        }
    }
    let debian = output(&mut Command::new(root().join("scripts/fetch-containerd")))?;
    let own = std::env::current_exe().context("could not find this program")?;
    check(
        Command::new(own)
            .args(["native-test", "hostgap", "--", "containerd::"])
            .env("HOSTGAP_CONTAINERD", format!("{}:{}", bin.display(), debian.trim())),
    )
}

/// Builds the tools of a module of ours, and returns the folder with them in `bin`.
fn tools(module: &str) -> Result<PathBuf> {
    let folder = target()?.join(module);
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("could not make {}", bin.display()))?;
    for name in ["go.mod", "go.sum"] {
        let source = root().join("crates/xtask").join(module).join(name);
        fs::copy(&source, folder.join(name))
            .with_context(|| format!("could not copy {}", source.display()))?;
    }
    check(go(&folder).args(["build", "-o", "bin/", "tool"]))?;
    Ok(folder)
}

/// Returns the folder with the built suites and the plugins in `bin`.
fn build() -> Result<PathBuf> {
    let folder = tools("suites")?;
    let bin = folder.join("bin");
    for (package, _) in SUITES {
        let whole = format!("{PLUGINS}/{package}");
        check(go(&folder).args(["test", "-vet=off", "-c", "-o", &binary(package), &whole]))?;
    }
    let module = output(go(&folder).args(["list", "-m", "-f", "{{.Dir}}", PLUGINS]))?;
    let data = Path::new(module.trim()).join("integration/testdata");
    fs::create_dir_all(folder.join("integration")).context("could not make the folder of the suite")?;
    check(
        Command::new("cp")
            .args(["--recursive", "--no-preserve=mode"])
            .arg(&data)
            .arg(folder.join("integration")),
    )?;
    check(cargo().args(["build", "--package", "hostgap"]))?;
    let own = target()?.join("debug/hostgap-cni");
    fs::copy(&own, bin.join("hostgap")).with_context(|| format!("could not copy {}", own.display()))?;
    for name in STANDS_FOR {
        let link = bin.join(name);
        if link.symlink_metadata().is_err() {
            symlink("hostgap", &link).with_context(|| format!("could not make {}", link.display()))?;
        }
    }
    Ok(folder)
}

/// Runs a suite in namespaces of its own, and returns how many of its tests passed.
fn feed(folder: &Path, package: &str, focus: &str) -> Result<usize> {
    let (inside, program) = (if package == "integration" { package } else { "." }, binary(package));
    let mut command = bounded(Path::new("unshare"), SUITE_TIME_MAX);
    command.args(["--mount", "--net", "sh", "-c", ALONE, inside, &format!("{SEEN_AT}/{program}")]);
    command.args(["-ginkgo.no-color", &format!("-ginkgo.focus={focus}")]);
    command.current_dir(folder).env("GOFLAGS", GOFLAGS).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("could not start {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match cluster::passed(&text).filter(|_| output.status.success()) {
        Some(count) => Ok(count),
        None => bail!(
            "{text}{}\nthe suite {package} did not pass: {}",
            String::from_utf8_lossy(&output.stderr),
            output.status
        ),
    }
}

fn binary(package: &str) -> String {
    format!("{}.test", package.rsplit('/').next().unwrap_or(package))
}

/// Nothing but what the lock file names.
const GOFLAGS: &str = "-mod=readonly -buildvcs=false";

fn go(folder: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(folder).env("GOFLAGS", GOFLAGS).env("CGO_ENABLED", "0");
    go
}

/// What a command prints; it is an error if it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("could not start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> Result<PathBuf> {
    let metadata = output(cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).context("cargo wrote no JSON")?;
    Ok(metadata["target_directory"].as_str().context("cargo has no target directory")?.into())
}
