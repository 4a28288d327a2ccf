//! `cargo xtask instructions`: what a request costs on each data path, in instructions.
//!
//! A guest with counted time takes one nanosecond for an instruction and none for sleep. With one connection on which
//! each request follows the answer before, somebody always works: the client, the server, or one of both nodes' kernels
//! between them. So the time of a request is the number of instructions that all of them spend on it, the same within a
//! few thousandths on a busy machine and on an idle one. What is not in it: caches, locks, several processors, a real
//! network card. It tells what a change of a driver or a kernel costs; which path is fast tells a race.

mod figures;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use vm::deb::Suite;
use vm::{Cache, Error, Flavour, Limits, Timing, Vm};

use self::figures::{Figures, Measured};
use crate::{cargo, guest, root};

/// The path that the others are compared with; it is always measured.
const REFERENCE: &str = "host";
/// For one data path; it takes 10 s where nothing else runs.
const PATH_TIME_MAX: Duration = Duration::from_secs(120);
/// For the boot and what goes before the first path.
const BOOT_TIME_MAX: Duration = Duration::from_secs(180);
const SCRIPT: &str = include_str!("instructions/guest.sh");

/// What the user asked for.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    kernels: Vec<Suite>,
    /// None stands for all.
    paths: Vec<String>,
}

/// `[--kernel stable|backports] [PATH...]`
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let request = Request::parse(arguments)?;
    let hostgap = build()?;
    let paths = choose(&request.paths, &known(&hostgap)?)?;
    let cache = Cache::open()?;
    let mut unmeasured = Vec::new();
    for suite in request.kernels {
        let vm = Vm::fetch(&cache, suite, Flavour::Cloud).context("there is no guest to count in")?;
        println!("Linux {}, instructions of a request and its answer:", vm.kernel().release);
        let figures = measure(&vm, &hostgap, &paths)?;
        println!("{}\n", figures.table());
        // That a path cannot run here is a result, unless it was asked for by name.
        let failed = figures.failed().filter(|path| request.paths.contains(path));
        unmeasured.extend(failed.map(|path| format!("{path} on Linux {}", vm.kernel().release)));
    }
    if !unmeasured.is_empty() {
        bail!("not measured: {}", unmeasured.join(", "));
    }
    Ok(())
}

impl Request {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut request = Self { kernels: vec![Suite::Backports, Suite::Stable], paths: Vec::new() };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if argument == "--kernel" {
                request.kernels = match rest.next().map(String::as_str) {
                    Some("stable") => vec![Suite::Stable],
                    Some("backports") => vec![Suite::Backports],
                    other => bail!("--kernel is stable or backports, not {:?}", other.unwrap_or_default()),
                };
            } else if argument.starts_with('-') {
                bail!("there is no option {argument}; there is --kernel stable|backports");
            } else {
                request.paths.push(argument.clone());
            }
        }
        Ok(request)
    }
}

/// Builds the program as it ships, and returns where it is.
fn build() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--release", "--package", "hostgap", "--message-format=json-render-diagnostics"]);
    let output = command.stderr(std::process::Stdio::inherit()).output().context("could not start cargo")?;
    if !output.status.success() {
        bail!("hostgap does not build");
    }
    let messages = String::from_utf8(output.stdout).context("cargo wrote no UTF-8")?;
    let executable = |line| {
        let message: Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "hostgap").then(|| message["executable"].as_str().map(PathBuf::from))?
    };
    messages.lines().filter_map(executable).next_back().context("cargo told of no program hostgap")
}

/// The names of all data paths, in the program's own order.
fn known(hostgap: &Path) -> Result<Vec<String>> {
    let output = Command::new(hostgap).args(["paths", "--json"]).output();
    let output = output.with_context(|| format!("could not start {}", hostgap.display()))?;
    let value: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("hostgap paths wrote no JSON: {}", String::from_utf8_lossy(&output.stderr).trim())
    })?;
    let paths = value["paths"].as_array().context("hostgap paths told of no paths")?;
    Ok(paths.iter().filter_map(|path| Some(path["name"].as_str()?.to_owned())).collect())
}

/// The reference, and then what was named, or everything.
fn choose(named: &[String], known: &[String]) -> Result<Vec<String>> {
    if let Some(unknown) = named.iter().find(|path| !known.contains(path)) {
        bail!("there is no data path {unknown}; there are {}", known.join(", "));
    }
    let wanted = |path: &&String| *path == REFERENCE || named.is_empty() || named.contains(path);
    Ok(known.iter().filter(wanted).cloned().collect())
}

/// One boot, all paths one after the other.
fn measure(vm: &Vm, hostgap: &Path, paths: &[String]) -> Result<Figures> {
    let mut command = Command::new("/bin/bash");
    command.arg("-c").arg(SCRIPT).arg("instructions").arg(hostgap).args(paths);
    command.current_dir(root());
    guest::environment(&mut command);
    command.env("MODULES", guest::MODULES.join(" "));
    let count = u32::try_from(paths.len()).expect("data paths are few");
    let limits =
        Limits { time: BOOT_TIME_MAX + PATH_TIME_MAX * count, timing: Timing::Counted, ..Limits::default() };
    let (start, mut seen) = (Instant::now(), String::new());
    let outcome = vm.run_watched(&command, &limits, &mut |bytes: &[u8]| {
        let before = Measured::all(&seen).len();
        seen.push_str(&String::from_utf8_lossy(bytes));
        for measured in &Measured::all(&seen)[before..] {
            eprintln!("  {:4.0} s  {measured}", start.elapsed().as_secs_f64());
        }
    });
    match outcome {
        Ok(output) if output.status == 0 => {
            Figures::new(Measured::all(&String::from_utf8_lossy(&output.stdout)), REFERENCE)
        }
        Ok(output) => {
            bail!(
                "the guest's script ended with {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )
        }
        Err(error @ (Error::Died { .. } | Error::TimedOut { .. } | Error::TooMuchOutput { .. })) => {
            Err(anyhow!("{error}\nit had written:\n{seen}"))
        }
        Err(error) => Err(anyhow!(error).context("could not run the guest")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn kernel_and_paths_are_told_apart() {
        let request = Request::parse(&words("macvlan --kernel stable bridge+direct")).unwrap();
        assert_eq!(request, Request { kernels: vec![Suite::Stable], paths: words("macvlan bridge+direct") });
        assert_eq!(Request::parse(&[]).unwrap().kernels, [Suite::Backports, Suite::Stable]);
        assert!(Request::parse(&words("--kernel 6.1")).unwrap_err().to_string().contains("\"6.1\""));
        assert!(Request::parse(&words("--kernel")).is_err());
        assert!(Request::parse(&words("--json")).is_err());
    }

    #[test]
    fn reference_is_always_among_the_chosen() {
        let known = words("host docker macvlan");
        assert_eq!(choose(&words("macvlan"), &known).unwrap(), words("host macvlan"));
        assert_eq!(choose(&[], &known).unwrap(), known);
        let message = choose(&words("mcvlan"), &known).unwrap_err().to_string();
        assert!(message.contains("mcvlan") && message.contains("docker"), "{message}");
    }
}
