//! Feeds the parsers of foreign bytes with generated input: libFuzzer over the targets in `fuzz/`.
//!
//! The coverage that guides it comes from options of the stable compiler, the ones that
//! `cargo fuzz --sanitizer none` passes. Memory errors are not checked, because the parsers are safe Rust.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::native::bounded;
use crate::{cargo, root};

/// How long `cargo xtask fuzz` runs by default.
const TIME: Duration = Duration::from_secs(600);
/// The fuzz targets, each with the crate whose parser it feeds.
pub(crate) const TARGETS: [(&str, &str); 8] = [
    ("ec2", "agent"),
    ("icmp", "linux"),
    ("journal", "plan"),
    ("record", "record"),
    ("response", "load"),
    ("sock_diag", "linux"),
    ("transaction", "plan"),
    ("units", "plan"),
];
/// Inputs are a few responses or sockets; the limit on heads is reached by repeating them.
const INPUT_BYTES_MAX: usize = 1024;
/// An input takes microseconds. If one takes this long, the parser loops, even on a busy machine.
const INPUT_TIME_MAX: Duration = Duration::from_secs(30);
/// How much longer than its time the fuzzer may take, to read the corpus and finish the last input.
const GRACE: Duration = Duration::from_secs(120);
/// The compiler options of `cargo fuzz` for libFuzzer: count edges and report the operands of comparisons.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// How the targets are built: the profiles of `fuzz/Cargo.toml`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Profile {
    /// Built in half the CPU time, and feeds a third of the inputs in the same time: to feed each for seconds.
    Dev,
    /// Optimized, to feed each for minutes.
    Release,
}

/// The result of fuzzing a target.
pub(crate) struct FuzzReport {
    /// A line for the log: the target, its inputs and its run time.
    pub(crate) line: String,
    /// The fuzzer's output if it ended early. It names the file with the input.
    pub(crate) crash: Option<String>,
}

/// Fuzzes every target for the time of `cargo xtask fuzz [SECONDS]`, and shows the progress.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let time = match arguments {
        [] => TIME,
        [seconds] => Duration::from_secs(seconds.parse().context("the time is a number of seconds")?),
        [_, ..] => bail!("only a time is taken"),
    };
    if let Some(reason) = unmet() {
        bail!("{reason}");
    }
    for (target, binary) in build(&TARGETS.map(|(target, _)| target), Profile::Release)? {
        let found = feed(&target, &binary, time, |line| eprintln!("{line}"))?;
        println!("{}", found.line);
        if found.crash.is_some() {
            bail!("the fuzzer found an input that {target} does not hold against; its file is named above");
        }
    }
    Ok(())
}

/// The reason why fuzzing is impossible here, if there is one.
pub(crate) fn unmet() -> Option<String> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let mut command = Command::new(&compiler);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let works = command.status().is_ok_and(|status| status.success());
    (!works).then(|| {
        format!("libFuzzer is built with a C++ compiler, and {compiler} does not run: apt-get install g++")
    })
}

/// Fuzzes a built target for `time`. New inputs and crashes stay in the target folder.
pub(crate) fn feed(
    target: &str,
    binary: &Path,
    time: Duration,
    mut show: impl FnMut(&str),
) -> Result<FuzzReport> {
    let start = Instant::now();
    let folder = target_folder()?.join("fuzz").join(target);
    let corpus = folder.join("corpus");
    fs::create_dir_all(&corpus).with_context(|| format!("could not make {}", corpus.display()))?;
    let fuzz = root().join("fuzz");
    let mut command = bounded(binary, time + GRACE);
    // New inputs go to the first folder. The seeds are only read.
    command.arg(&corpus);
    let seeds = fuzz.join("corpus").join(target);
    if seeds.exists() {
        command.arg(seeds);
    }
    let words = fuzz.join(format!("{target}.dict"));
    if words.exists() {
        command.arg(format!("-dict={}", words.display()));
    }
    command.arg(format!("-artifact_prefix={}/", folder.display()));
    command.arg(format!("-max_total_time={}", time.as_secs()));
    command.arg(format!("-timeout={}", INPUT_TIME_MAX.as_secs()));
    command.arg(format!("-max_len={INPUT_BYTES_MAX}")).arg("-print_final_stats=1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("could not start {command:?}"))?;
    let mut output = String::new();
    for line in BufReader::new(child.stderr.take().expect("it is piped")).split(b'\n') {
        let line = line.context("could not read what the fuzzer says")?;
        let line = String::from_utf8_lossy(&line);
        show(&line);
        output.push_str(&line);
        output.push('\n');
    }
    let status = child.wait().context("could not wait for the fuzzer")?;
    let line = line(target, &output, start.elapsed());
    let crash = (!status.success()).then(|| format!("{}{status}", without_progress(&output)));
    Ok(FuzzReport { line, crash })
}

/// The fuzzer's output without the thousands of lines about new inputs.
fn without_progress(output: &str) -> String {
    output.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect()
}

fn line(target: &str, output: &str, time: Duration) -> String {
    let edges = edges(output).map_or_else(String::new, |edges| format!(", {edges} edges"));
    let inputs = inputs(output).map_or_else(|| "an unknown number of".into(), |inputs| inputs.to_string());
    format!("{:<7} {target:<18} {inputs} inputs{edges} ({:.1} s)", "fuzz", time.as_secs_f64())
}

/// The number in a line `stat::number_of_executed_units: 1234`.
fn inputs(output: &str) -> Option<u64> {
    output.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok())
}

/// The last of `#1234 NEW cov: 321 ft: 999 corp: …`.
fn edges(output: &str) -> Option<u64> {
    let counts = output.lines().rev().filter(|line| line.starts_with('#'));
    counts.filter_map(|line| line.split_once("cov: ")?.1.split(' ').next()?.parse().ok()).next()
}

/// Builds the targets with one run of cargo, so that what they share is compiled once. Returns their
/// programs.
pub(crate) fn build(targets: &[&str], profile: Profile) -> Result<BTreeMap<String, PathBuf>> {
    let mut command = cargo();
    command.args(["build", "--quiet", "--locked", "--manifest-path", "fuzz/Cargo.toml"]);
    match profile {
        Profile::Dev => {}
        Profile::Release => {
            command.arg("--release");
        }
    }
    // For a named platform, cargo keeps the flags away from build scripts and macros, which could not run
    // with them.
    command.args(["--message-format=json-render-diagnostics", "--target", &platform()?]);
    for target in targets {
        command.args(["--bin", target]);
    }
    command.arg("--target-dir").arg(target_folder()?).env("RUSTFLAGS", COVERAGE);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context("could not start cargo")?;
    if !output.status.success() {
        bail!("the fuzz targets {} do not build", targets.join(", "));
    }
    let text = String::from_utf8(output.stdout).context("cargo wrote no UTF-8")?;
    let programs: BTreeMap<_, _> = text.lines().filter_map(executable).collect();
    match targets.iter().find(|target| !programs.contains_key(**target)) {
        Some(target) => bail!("cargo built no program {target}"),
        None => Ok(programs),
    }
}

/// The fuzz target and its program, if one of cargo's messages names it.
fn executable(line: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    Some((message["target"]["name"].as_str()?.to_owned(), message["executable"].as_str()?.into()))
}

/// The platform that the compiler runs on.
fn platform() -> Result<String> {
    let output = cargo().arg("-vV").output().context("could not start cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("cargo does not say which platform it runs on")
}

/// The folder of what cargo builds in the workspace.
fn target_folder() -> Result<PathBuf> {
    let output = cargo().args(["metadata", "--no-deps", "--format-version=1"]).output();
    let metadata: Value = serde_json::from_slice(&output.context("could not start cargo")?.stdout)?;
    Ok(metadata["target_directory"].as_str().context("cargo names no target folder")?.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const OUTPUT: &str = "#2\tINITED cov: 5 ft: 6 corp: 1/1b\n#9\tNEW    cov: 77 ft: 99 corp: 2/9b\n\
        Done 12 runs in 3 second(s)\nstat::number_of_executed_units: 12\n";

    #[test]
    fn every_target_is_built_and_fed_and_nothing_else_is_there() {
        let fuzz = root().join("fuzz");
        let known: BTreeSet<String> = TARGETS.iter().map(|(target, _)| (*target).to_owned()).collect();
        let manifest: toml::Table = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap().parse().unwrap();
        let programs = manifest["bin"].as_array().unwrap().iter();
        let programs: BTreeSet<String> =
            programs.map(|bin| bin["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(programs, known);
        let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        let files = |folder: &Path| -> Vec<PathBuf> {
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
        };
        let words = files(&fuzz).into_iter().filter(|path| path.extension().is_some_and(|end| end == "dict"));
        let fed: BTreeSet<String> = files(&fuzz.join("corpus")).into_iter().chain(words).map(stem).collect();
        assert!(fed.is_subset(&known), "{fed:?}");
    }

    #[test]
    fn a_line_says_what_was_fed() {
        let expected = "fuzz    response           12 inputs, 77 edges (3.0 s)";
        assert_eq!(line("response", OUTPUT, Duration::from_secs(3)), expected);
        let expected = "fuzz    response           an unknown number of inputs (3.0 s)";
        assert_eq!(line("response", "killed\n", Duration::from_secs(3)), expected);
    }

    #[test]
    fn progress_is_left_out_of_what_is_kept() {
        let kept = "Done 12 runs in 3 second(s)\nstat::number_of_executed_units: 12\n";
        assert_eq!(without_progress(OUTPUT), kept);
    }

    #[test]
    fn programs_are_taken_from_cargo_s_messages() {
        let message = |executable: &str| {
            format!(r#"{{"reason":"compiler-artifact","target":{{"name":"a"}},"executable":{executable}}}"#)
        };
        assert_eq!(executable(&message(r#""/t/release/a""#)), Some(("a".into(), "/t/release/a".into())));
        assert_eq!(executable(&message("null")), None);
    }
}
