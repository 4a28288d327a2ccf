//! `hostgap doctor`: what slows packets down on this host.

mod json;
mod kube;
mod machines;
mod several;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::doctor::{Diagnosis, ExaminedNetns, Snapshot, Taken, Window, diagnose};
use anyhow::Context;
use linux::NetnsName;

pub(crate) use self::machines::{MachineDiagnoses, MachineSurvey};
use crate::cluster::ClusterArgs;
use crate::{exit, output, stop};

/// Examine this host's network path and report what is wrong with it, with figures and a remedy.
///
/// Reads everything twice and judges the change in between. A warning is a problem that had an effect in that time;
/// other findings are information. Nothing is changed. Without root it lists what it could not read.
///
/// Exit codes: 0 for a complete diagnosis, 3 if part of the network could not be judged or, with --strict, if there is
/// a warning; otherwise as for all commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The time between the two readings.
    #[arg(long = "for", default_value = "10s", value_name = "TIME", value_parser = window)]
    time: Duration,
    /// Diagnose a tree that `hostgap collect` wrote, on this machine or another.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["time", "netns"])]
    from: Option<PathBuf>,
    /// Look at the network namespace of this name (`ip netns`).
    #[arg(long, value_name = "NAME")]
    netns: Option<NetnsName>,
    /// Look at each node of the cluster of kubectl, by a short pod in its network (docs/kubernetes.md).
    #[arg(long, conflicts_with_all = ["from", "netns"])]
    kube: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The control groups and the files of kernel parameters are those of a container (internal).
    #[arg(long, hide = true)]
    in_container: bool,
    /// Print the diagnosis as JSON.
    #[arg(long)]
    json: bool,
    /// End with code 3 if there is a warning.
    #[arg(long)]
    strict: bool,
}

/// Explain a finding of `hostgap doctor`: what it is, why it matters and what to do.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The code of the finding, for example HG060 [default: list all].
    code: Option<String>,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

/// Write everything that `hostgap doctor` reads into a directory, for `doctor --from` on another machine.
///
/// The directory has two copies of the files of /proc and /sys that are read, and the kernel's answers as JSON. It
/// contains addresses, ports and users of connections.
#[derive(Debug, clap::Args)]
pub(crate) struct CollectArgs {
    /// The directory to write to; it must not exist yet, or be empty.
    directory: PathBuf,
    /// The time between the two looks.
    #[arg(long = "for", default_value = "10s", value_name = "TIME", value_parser = window)]
    time: Duration,
    /// Look at the network namespace of this name (`ip netns`).
    #[arg(long, value_name = "NAME")]
    netns: Option<NetnsName>,
}

/// From a tenth of a second, which is a few ticks of the CPUs' clocks, to a day.
fn window(text: &str) -> Result<Duration, String> {
    let time = crate::units::duration(text)?;
    let fits = (Duration::from_millis(100)..=Duration::from_secs(86_400)).contains(&time);
    if fits { Ok(time) } else { Err("0.1 s to 1 day is expected".to_owned()) }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.kube {
        return kube::run(args);
    }
    let (before, after) = match &args.from {
        Some(directory) => ::doctor::open(directory).context("diagnose")?,
        None => match look_until_stopped(args.netns.as_ref(), args.time)? {
            Some(((before, _), (after, _))) => (before, after),
            None => return Ok(ExitCode::from(exit::INTERRUPTED)),
        },
    };
    let looks = if args.in_container {
        [before, after].map(Snapshot::without_files_of_a_container)
    } else {
        [before, after]
    };
    let [before, after] = looks;
    let diagnosis = diagnose(&Window { before: &before, after: &after });
    print(&diagnosis, &after, args.json)?;
    if !diagnosis.blind.is_empty() {
        let parts = diagnosis.blind.join(", ");
        output::aside(format_args!("hostgap: the diagnosis is not complete; it says nothing about {parts}"));
        return Ok(ExitCode::from(exit::INVALID));
    }
    let warnings = diagnosis.findings.iter().filter(|finding| finding.is_warning()).count();
    if args.strict && warnings > 0 {
        output::aside(format_args!("hostgap: warnings were found: {warnings}"));
        return Ok(ExitCode::from(exit::INVALID));
    }
    Ok(ExitCode::SUCCESS)
}

fn print(diagnosis: &Diagnosis, after: &Snapshot, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        output::result(json::diagnosis(diagnosis))?;
    } else {
        output::result(text::diagnosis(diagnosis, after).trim_end())?;
    }
    Ok(())
}

/// The finding whose code was written in another way, `60` or `hg-060`. Codes are too similar for fuzzy matching.
fn meant(code: &str) -> Option<&'static ::doctor::Check> {
    let number: u32 = code.trim_start_matches(|sign: char| !sign.is_ascii_digit()).parse().ok()?;
    ::doctor::find(&format!("HG{number:03}"))
}

/// Runs `hostgap explain`: prints one finding of the table, or lists all.
pub(crate) fn explain(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let checks = match &args.code {
        None => ::doctor::all().collect(),
        Some(code) => vec![::doctor::find(code).ok_or_else(|| {
            let near = record::did_you_mean(meant(code).map(|check| format!("{:?}", check.code)));
            exit::BadInput(format!("there is no finding {code:?}{near}; `hostgap explain` lists them"))
        })?],
    };
    if args.json {
        let checks: Vec<_> = checks.into_iter().map(json::check).collect();
        output::result(serde_json::json!({ "schema": 1, "checks": checks }))?;
    } else if args.code.is_some() {
        output::result(text::check(checks[0]).trim_end())?;
    } else {
        for family in ::doctor::TABLE {
            output::result(format_args!("{}", family.title))?;
            for check in family.checks {
                output::result(format_args!("  {}  {}", check.code, check.title))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `hostgap collect`: reads the counters twice and writes both readings to a file.
pub(crate) fn collect(args: &CollectArgs) -> anyhow::Result<ExitCode> {
    // Before the readings, so that no time is lost if the directory cannot be written.
    let tree = ::doctor::destination(&args.directory).context("collect")?;
    let looks = look_until_stopped(args.netns.as_ref(), args.time);
    let (before, after) = match looks {
        Ok(Some(looks)) => looks,
        nothing => {
            tree.discard().context("collect")?;
            return nothing.map(|_| ExitCode::from(exit::INTERRUPTED));
        }
    };
    ::doctor::collect(tree, &before, &after).context("collect")?;
    output::aside(format_args!("diagnose it with: hostgap doctor --from {}", args.directory.display()));
    Ok(ExitCode::SUCCESS)
}

/// `None` if it was interrupted.
fn look_until_stopped(netns: Option<&NetnsName>, time: Duration) -> anyhow::Result<Option<(Taken, Taken)>> {
    let examined = match netns {
        None => ExaminedNetns::here(),
        Some(name) => ExaminedNetns::netns(name).context("look")?,
    };
    look_twice(&examined, time, &*stop::on_signals()?)
}

/// `None` if `stop` was set.
fn look_twice(
    examined: &ExaminedNetns,
    time: Duration,
    stop: &AtomicBool,
) -> anyhow::Result<Option<(Taken, Taken)>> {
    let before = examined.look().context("look")?;
    if !wait(time, stop) {
        return Ok(None);
    }
    Ok(Some((before, examined.look().context("look")?)))
}

/// False if it was interrupted.
fn wait(time: Duration, stop: &AtomicBool) -> bool {
    const STEP: Duration = Duration::from_millis(100);
    let end = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(STEP));
    }
    false
}
