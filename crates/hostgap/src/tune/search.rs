//! `hostgap tune search`: which of these settings help, found out by racing them.

mod progress;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ::lab::{Factor, Home, LabError, Objective, RaceOptions, Search, Sought};
use ::record::{
    Arrivals, Candidate, Experiment, RequestedValue, SearchVerdict, Side, Workload, WorkloadKind,
};
use ::tune::ValueKind;
use anyhow::Context;

use crate::exit::{self, BadInput, Unprivileged};
use crate::own_program::own_program;
use crate::plugins::PluginArgs;
use crate::race::{cpus_of, fresh_dir, read_experiment, scheduling_of};
use crate::wire::WireArgs;
use crate::{output, stop, units};

/// Find out by racing which of these settings help a candidate, or that none does.
///
/// First the candidate races against itself; if it differs from itself or scatters too much, the search ends. Then the
/// settings are screened, and the best of them and their combinations race in blocks, each against the unchanged
/// candidate. The winner must show its gain again in new blocks that played no part in its choice, without making
/// anything else worse; settings of it that do nothing are removed. The reported gain is from such new blocks only.
///
/// It works in network namespaces of its own, as a race does, and sets nothing on this machine. docs/search.md has
/// more.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hostgap tune search --knobs 'tcp_congestion_control=reno,illinois;initcwnd=16,32;tcp_slow_start_after_idle=0'
  hostgap tune search --path docker --knobs 'rps_cpus=node|none;qdisc=fq,fq_codel' --objective p99@50% --budget 20m
  hostgap tune search --workload tcp-stream --objective throughput --knobs 'tcp_wmem=4096 16384 16777216;mtu=9000'
  hostgap tune search scenarios/machine-zone.toml --candidate docker --knobs 'server.tcp_autocorking=0' --json")]
pub(crate) struct Args {
    /// An experiment file (TOML) for workload, wire and candidate; without it the built-in experiment.
    #[arg(value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// The settings to try: knobs joined by semicolons, values of a knob by commas, or by | where a value has commas.
    /// `client.KNOB` and `server.KNOB` apply to one side. `hostgap tune knobs` lists the knobs.
    #[arg(long, value_name = "KNOB=VALUE,…;…")]
    knobs: String,
    /// The figure to improve: p50, p90, p95, p99, p99.9 (each also at a rate: p99@50%, p50@20k), throughput or cpu.
    #[arg(long, value_name = "FIGURE", default_value = "p99", value_parser = objective)]
    objective: Objective,
    /// The time for the whole search.
    #[arg(long, value_name = "TIME", default_value = "10m")]
    budget: String,
    /// The smallest gain to find: up to 90%, or 900% more throughput. If the budget is too small to resolve it, the
    /// search ends. The larger it is, the noisier the machine may be.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = percent)]
    resolve: f64,
    /// The data path to improve, instead of the file's candidate.
    #[arg(long, value_name = "NAME", conflicts_with = "candidate")]
    path: Option<String>,
    /// The name of the file's candidate to improve [default: the first].
    #[arg(long, value_name = "NAME")]
    candidate: Option<String>,
    /// The workload: http, connect, grpc, download, tcp-rr, udp-rr, tcp-stream or udp-stream (docs/workloads.md).
    #[arg(long, value_name = "KIND")]
    workload: Option<WorkloadKind>,
    /// Permanent connections of the client.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    connections: Option<u32>,
    /// How the requests of a rate are spread over time: at equal intervals, or at random (poisson), as those of many
    /// users are. All arms of a block get the same instants.
    #[arg(long, value_name = "constant|poisson")]
    arrivals: Option<Arrivals>,
    /// The size of the answer's body, or of the workload's other unit.
    #[arg(long, value_name = "SIZE")]
    body: Option<String>,
    #[command(flatten)]
    wire: WireArgs,
    #[command(flatten)]
    plugins: PluginArgs,
    /// The seed for the order of blocks and visits.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The nginx executable to use.
    #[arg(long, value_name = "PATH", env = "HOSTGAP_NGINX")]
    nginx: Option<PathBuf>,
    /// CPUs to use, as a list (0-3,8): the first half for the client's node, the second for the server's.
    #[arg(long, value_name = "CPUS")]
    cpus: Option<String>,
    /// Run client and server under the normal scheduling policy instead of SCHED_FIFO.
    #[arg(long)]
    no_realtime: bool,
    /// Print the record of the search as JSON (docs/search.md).
    #[arg(long)]
    json: bool,
    /// The directory for the record. Each search makes a new directory in it, with the time in its name.
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
}

/// The record's name in its directory.
const RECORD: &str = "search.json";

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (experiment, candidate) = experiment(args)?;
    let sought = Sought {
        candidate,
        factors: factors(&args.knobs)?,
        objective: args.objective,
        budget: budget(&args.budget)?,
        resolve: args.resolve,
    };
    linux::process::require_network_admin().map_err(Unprivileged::in_own_namespaces)?;
    let facts = linux::features::probe()?;
    let stop = stop::on_signals()?;
    let dir = fresh_dir(&args.out, "search")?;
    let options = RaceOptions {
        machines: None,
        record: dir.join(RECORD),
        nginx: args.nginx.clone(),
        own: own_program()?,
        plugins: args.plugins.dirs(),
        cpus: cpus_of(args.cpus.as_deref())?,
        scheduling: scheduling_of(args.no_realtime),
        guest: None,
        stop,
    };
    let found = search(experiment, sought, options, &facts);
    // This fails, as it should, if something was written there.
    let _ = std::fs::remove_dir(&dir);
    finish(found?, args, &dir)
}

fn search(
    experiment: Experiment,
    sought: Sought,
    options: RaceOptions,
    facts: &linux::features::Facts,
) -> Result<Option<::record::SearchRecord>, LabError> {
    let search = Search::prepare(experiment, sought, options, facts, Home::of_this_machine())?;
    let mut progress = progress::SearchProgress::new();
    let found = search.run(&mut |event| progress.show(&event));
    progress.finish();
    found
}

/// Prints the result and returns how the search ended.
fn finish(found: Option<::record::SearchRecord>, args: &Args, dir: &Path) -> anyhow::Result<ExitCode> {
    let Some(record) = found else {
        output::aside("interrupted before the search began");
        return Ok(ExitCode::from(exit::INTERRUPTED));
    };
    if args.json {
        output::result(serde_json::to_string_pretty(&record)?)?;
    } else {
        output::result(::report::search::text(&record))?;
    }
    output::aside(format_args!("record: {}", dir.join(RECORD).display()));
    Ok(match record.answer.map(|answer| (answer.verdict, answer.why)) {
        Some((SearchVerdict::Better | SearchVerdict::NothingHelps, _)) => ExitCode::SUCCESS,
        Some((SearchVerdict::NotSearched, why)) => {
            output::aside(format_args!("not valid: {why}"));
            ExitCode::from(exit::INVALID)
        }
        None => {
            output::aside("interrupted: the finished stages are kept");
            ExitCode::from(exit::INTERRUPTED)
        }
    })
}

/// The experiment of the file or the built-in one with the command line's changes, and the candidate.
fn experiment(args: &Args) -> anyhow::Result<(Experiment, Candidate)> {
    let mut experiment = match &args.experiment {
        None => Experiment::default(),
        Some(path) => read_experiment(path)?,
    };
    if let Some(kind) = args.workload.filter(|kind| *kind != experiment.workload.kind) {
        let ipv6 = experiment.workload.ipv6;
        experiment.workload = Workload { ipv6, ..Workload::of(kind) };
    }
    if let Some(connections) = args.connections {
        (experiment.workload.connections, experiment.workload.connections_min) = (connections, None);
    }
    if let Some(size) = &args.body {
        experiment.workload.body_bytes = vec![units::bytes(size).map_err(BadInput)?];
    }
    experiment.workload.arrivals = args.arrivals.unwrap_or(experiment.workload.arrivals);
    experiment.seed = args.seed.or(experiment.seed);
    args.wire.change(&mut experiment.underlay);
    if experiment.vm.is_some() {
        let why =
            "a search runs on this machine's kernel, but the file's experiment runs in a virtual machine";
        return Err(BadInput(why.to_owned()).into());
    }
    let candidate = Candidate { swept: None, ..candidate(args, &experiment)? };
    experiment.candidates = vec![candidate.clone()];
    // A search has one load and varies the settings itself.
    experiment.sweep = None;
    experiment.validate().context("use the experiment")?;
    Ok((experiment, candidate))
}

/// The incumbent: by path, by name, or the file's first; without a file the host.
fn candidate(args: &Args, experiment: &Experiment) -> anyhow::Result<Candidate> {
    let of_path = |path: &str| Candidate { path: path.to_owned(), ..Candidate::default() };
    if let Some(path) = &args.path {
        return Ok(of_path(path));
    }
    let Some(name) = &args.candidate else {
        return Ok(experiment.candidates.first().cloned().unwrap_or_else(|| of_path("host")));
    };
    let titles: Vec<String> = experiment.candidates.iter().map(Candidate::title).collect();
    let found = titles.iter().position(|title| title == name).map(|at| experiment.candidates[at].clone());
    found.ok_or_else(|| {
        let known = if titles.is_empty() { "the file has none".to_owned() } else { titles.join(", ") };
        BadInput(format!("there is no candidate {name:?}: {known}")).into()
    })
}

/// Parses knobs with their values.
fn factors(text: &str) -> Result<Vec<Factor>, BadInput> {
    let mut knobs: Vec<String> = Vec::new();
    for piece in text.split(';').map(str::trim).filter(|piece| !piece.is_empty()) {
        match knobs.last_mut() {
            // Between lists of CPUs of one value there is a semicolon, too.
            Some(knob) if !piece.contains('=') && takes_lists(knob) => *knob += &format!(";{piece}"),
            _ => knobs.push(piece.to_owned()),
        }
    }
    let factors: Vec<Factor> = knobs.iter().map(|knob| factor(knob)).collect::<Result<_, _>>()?;
    if factors.is_empty() {
        return Err(BadInput("--knobs names no knob: KNOB=VALUE,VALUE;KNOB=VALUE is expected".to_owned()));
    }
    Ok(factors)
}

/// Whether a value of this knob, which is written with its side and values, can be several lists of CPUs.
fn takes_lists(text: &str) -> bool {
    let knob = text.split_once('=').and_then(|(name, _)| ::tune::find(side_and_knob(name).1));
    knob.is_some_and(|knob| knob.kind == ValueKind::QueueCpus)
}

fn side_and_knob(name: &str) -> (Side, &str) {
    match name.trim().split_once('.') {
        Some(("client", knob)) => (Side::Client, knob),
        Some(("server", knob)) => (Side::Server, knob),
        Some(_) | None => (Side::Both, name.trim()),
    }
}

fn factor(text: &str) -> Result<Factor, BadInput> {
    let Some((name, values)) = text.split_once('=') else {
        return Err(BadInput(format!("--knobs: {text:?} has no value: KNOB=VALUE,VALUE is expected")));
    };
    let (side, knob) = side_and_knob(name);
    // A list of CPUs has commas of its own.
    let is_list =
        ::tune::find(knob).is_some_and(|knob| matches!(knob.kind, ValueKind::Cpus | ValueKind::QueueCpus));
    let sign = if is_list || values.contains('|') { '|' } else { ',' };
    let values = values.split(sign).map(str::trim).filter(|value| !value.is_empty());
    Ok(Factor { knob: knob.to_owned(), side, values: values.map(requested_value).collect() })
}

/// A value as a file would have it.
fn requested_value(text: &str) -> RequestedValue {
    text.parse().map_or_else(|_| RequestedValue::Text(text.to_owned()), RequestedValue::Number)
}

fn budget(text: &str) -> Result<Duration, BadInput> {
    match units::duration(text).map_err(BadInput)? {
        Duration::ZERO => Err(BadInput("--budget must be more than zero".to_owned())),
        budget => Ok(budget),
    }
}

fn objective(text: &str) -> Result<Objective, String> {
    text.parse()
}

/// A share that is typed as a percentage.
fn percent(text: &str) -> Result<f64, String> {
    let figure = text.strip_suffix('%').and_then(|figure| figure.trim().parse::<f64>().ok());
    figure
        .filter(|percent| (0.1..=900.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("`{text}` is not a gain: 0.1% to 90%, or to 900% of throughput, is expected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_read_as_they_are_typed() {
        let found =
            factors("tcp_rmem=4096 131072 6291456, 4096 1 2;client.initcwnd=16 ; rps_cpus=0-1,3|none;")
                .unwrap();
        let text = |factor: &Factor| factor.values.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(&found[0]), ["4096 131072 6291456", "4096 1 2"]);
        assert_eq!(
            (found[1].side, found[1].knob.as_str(), text(&found[1])),
            (Side::Client, "initcwnd", vec!["16".to_owned()])
        );
        assert_eq!(found[1].values, [RequestedValue::Number(16)]);
        assert_eq!(
            (found[2].side, text(&found[2])),
            (Side::Both, vec!["0-1,3".to_owned(), "none".to_owned()])
        );
        assert_eq!(found.len(), 3);
        let found = factors("client.xps_cpus=0;1|0-1 ; 2|none; channels=1,2").unwrap();
        assert_eq!(
            (text(&found[0]), text(&found[1])),
            (vec!["0;1".into(), "0-1;2".into(), "none".into()], vec!["1".into(), "2".into()])
        );
        assert!(factors(" ; ").unwrap_err().0.contains("names no knob"));
        assert!(factors("tcp_sack").unwrap_err().0.contains("\"tcp_sack\" has no value"));
    }

    #[test]
    fn gains_are_percentages() {
        assert_eq!(percent("5%"), Ok(0.05));
        for text in ["5", "0%", "-3%", "901%", "%", "nan%"] {
            assert!(percent(text).is_err_and(|why| why.contains("0.1% to 90%")), "{text}");
        }
    }
}
