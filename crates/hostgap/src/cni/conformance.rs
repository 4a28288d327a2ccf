//! `hostgap cni conformance`: put a plugin to the cases of the CNI specification.

mod json;
mod junit;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use ::conformance::{
    Case, Conformance, Defaults, Demand, Options, Outcome, Report, Subject, all, find, search_path,
};
use anyhow::Context;

use crate::exit::{self, BadInput, Unprivileged};
use crate::{input, output, progress, stop};

/// Test a CNI plugin against the specification: one case for each sentence that can be judged.
///
/// A case calls the plugin as a container runtime does, in a node and containers made for it alone, and compares what
/// it prints with the specification and with what the kernel has. Each failure is shown with the sentence, the call,
/// the answer, and a script that shows it by hand.
///
/// The plugin runs in network namespaces and with a /run, /var/lib/cni and /var/log/cni of the case; the machine's
/// other files are read-only for it. Nothing is left, even if this program is killed. In the node there is a link eth0
/// with 192.0.2.1/24 and 2001:db8::1/64 and default routes.
///
/// Without --conf a default is chosen by the plugin's name: hostgap, bridge, ptp, macvlan or ipvlan.
/// docs/cni-conformance.md has the results of some plugins.
///
/// Exit codes: 0 if all cases passed that apply, 1 if one failed; otherwise as for all commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plugin's executable.
    #[arg(required_unless_present = "list")]
    plugin: Option<PathBuf>,
    /// Its network configuration (.conflist, or .conf with one plugin). Of a list, the part whose `type` is the
    /// plugin's name is used, behind the plugins before it. The version in it does not matter: cases speak the versions
    /// that the plugin lists.
    #[arg(long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// How hostgap joins containers in its default configuration; docs/cni-plugin.md lists the names.
    #[arg(long, value_name = "NAME", default_value = "ptp", conflicts_with = "conf")]
    attach: String,
    /// Directories of the plugins that this one calls, joined by colons [default: its own, /opt/cni/bin, /usr/lib/cni].
    #[arg(long, value_name = "DIRS", env = "CNI_PATH")]
    path: Option<String>,
    /// Run only these cases, joined by commas: names, or beginnings of names (del, check-after-add).
    #[arg(long, value_name = "CASES", value_delimiter = ',')]
    only: Vec<String>,
    /// Run only cases whose sentence says "must", and leave out those that say "should".
    #[arg(long)]
    must: bool,
    /// How many cases run at the same time [default: the number of CPUs].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// List the cases and their sentences, and run none.
    #[arg(long, conflicts_with_all = ["junit", "jobs"])]
    list: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Also write the result as JUnit XML, which CI systems show.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let cases = chosen(args)?;
    let Some(plugin) = args.plugin.as_ref().filter(|_| !args.list) else {
        match args.json {
            true => output::result(json::list(&cases))?,
            false => output::result(text::list(&cases).trim_end())?,
        }
        return Ok(ExitCode::SUCCESS);
    };
    linux::process::require_network_admin().map_err(Unprivileged::in_own_namespaces)?;
    let subject = subject(args, plugin)?;
    let stop = stop::on_signals()?;
    let jobs =
        args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let mut progress = CaseProgress::new(cases.len());
    let found =
        ::conformance::run(&subject, &cases, &Options { jobs, stop: &stop }, |report| progress.show(report))?;
    progress.finish();
    if let Some(file) = &args.junit {
        std::fs::write(file, junit::conformance(&subject, &found))
            .with_context(|| format!("write {}", file.display()))?;
    }
    output::after_work(match args.json {
        true => output::result(json::conformance(&subject, &found)),
        false => output::result(text::conformance(&subject, &found).trim_end()),
    })?;
    Ok(ended(&found, stop.load(Ordering::Relaxed)))
}

/// The exit code, with a line that says why it is not 0.
fn ended(found: &Conformance, was_interrupted: bool) -> ExitCode {
    if was_interrupted {
        return ExitCode::from(exit::INTERRUPTED);
    }
    let failed = count(found, |outcome| matches!(outcome, Outcome::Failed(_)));
    let undecided = count(found, |outcome| matches!(outcome, Outcome::Undecided { .. }));
    match (failed, undecided) {
        (0, 0) => return ExitCode::SUCCESS,
        (0, _) => output::aside(format_args!("hostgap: cases that could not be judged here: {undecided}")),
        _ => output::aside(format_args!("hostgap: cases that failed: {failed}")),
    }
    ExitCode::from(exit::FAILURE)
}

/// How many cases ended so.
fn count(found: &Conformance, is_so: impl Fn(&Outcome) -> bool) -> usize {
    found.reports.iter().filter(|report| is_so(&report.outcome)).count()
}

fn chosen(args: &Args) -> Result<Vec<&'static Case>, BadInput> {
    if let Some(name) = args.only.iter().find(|name| find(name).is_empty()) {
        return Err(BadInput(format!(
            "there is no case {name:?}; `hostgap cni conformance --list` lists them"
        )));
    }
    let named: Vec<&str> = args.only.iter().flat_map(|name| find(name)).map(|case| case.id).collect();
    let is_chosen = |case: &&Case| {
        (named.is_empty() || named.contains(&case.id)) && (!args.must || case.demand == Demand::Must)
    };
    Ok(all().filter(is_chosen).collect())
}

fn subject(args: &Args, plugin: &std::path::Path) -> anyhow::Result<Subject> {
    let dirs = search_path(plugin, args.path.as_deref());
    if let Some(file) = &args.conf {
        let text = input::text("CNI configuration", file)?;
        return Ok(Subject::with_conf(plugin, dirs, &text)?);
    }
    if !datapath::ATTACHES.iter().any(|path| path.name == args.attach) {
        let names: Vec<&str> = datapath::ATTACHES.iter().map(|path| path.name).collect();
        return Err(BadInput(format!(
            "there is no attach {:?}; there are {}",
            args.attach,
            names.join(", ")
        ))
        .into());
    }
    Ok(Subject::by_name(plugin, dirs, &Defaults { attach: args.attach.clone() })?)
}

/// Shows how far it is: a bar on a terminal, and nothing elsewhere, where the result comes soon.
struct CaseProgress {
    bar: Option<indicatif::ProgressBar>,
    failed: u32,
}

impl CaseProgress {
    fn new(cases: usize) -> CaseProgress {
        let bar = progress::bar();
        if let Some(bar) = &bar {
            bar.set_length(u64::try_from(cases).unwrap_or_default());
        }
        CaseProgress { bar, failed: 0 }
    }

    fn show(&mut self, report: &Report) {
        self.failed += u32::from(matches!(report.outcome, Outcome::Failed(_)));
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(format!("{} ({} failed)", report.case.id, self.failed));
        }
    }

    fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
