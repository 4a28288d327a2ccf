//! `hostgap race`: the main job.

mod commands;
mod duration;
mod experiment;
mod guest;
mod kube;
mod machines;
mod unheeded;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use ::lab::{Finished, Home, LabError, Race, RaceOptions};
use ::record::{Arrivals, Experiment, HttpVersion, Steering, Until, WorkloadKind};
use anyhow::Context;
use linux::CpuSet;
use linux::cpu::Scheduling;

use self::experiment::experiment_of;
pub(crate) use self::experiment::read_experiment;
use self::kube::KubeArgs;
use self::machines::{MachineArgs, ServerArg};
use crate::exit::{self, BadInput, Unprivileged};
use crate::own_program::own_program;
use crate::plugins::{self, PluginArgs};
use crate::progress::Progress;
use crate::wire::WireArgs;
use crate::{output, report, stop};

/// Race container data paths by tail latency at a constant request rate, against the host.
///
/// Builds two nodes in network namespaces of their own, each with CPUs of its own, joined by a wire. nginx answers in a
/// pod on one node, or hostgap's own responder where nginx is not installed (--server decides); a constant-rate client
/// sends requests from a pod on the other. All candidates exist at the same time and are visited in short slices in
/// shuffled order. The host races twice; its difference from itself is the noise, and no smaller difference counts. The
/// race first measures the host's capacity, then runs at shares of it.
///
/// Without FILE the built-in experiment races every data path that this kernel can run, in two to three minutes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hostgap race                              every data path, 30 % and 50 % of capacity: 2 to 3 min
  hostgap race --quick                      the same in 40 seconds, with wider intervals
  hostgap race --until ±3%                  until each p99 is known to 3 % or differs
  hostgap race --until p99.9:15% --budget 20m --paths docker,macvlan
  hostgap race --paths docker,macvlan --rate 20k,50%
  hostgap race --body 100,4k --duration 10m
  hostgap race --workload connect --tls --paths docker,bridge+direct
  hostgap race --workload udp-stream --body 64,512,1472 --connections 2
  hostgap race --workload packets --paths xdp-drop,nft-raw --body 64,1514
  hostgap race --same-node --paths ebpf+sockmap,ebpf+direct,bridge+direct
  hostgap race --delay 40ms --loss 0.2% --bandwidth 100mbit --no-gso
  hostgap race --paths bridge+vxlan --show-commands
  hostgap race --cni ptp.conflist --paths ptp+direct
  hostgap race --server ssh://b             from this machine to another (docs/machines.md)
  hostgap race --client ssh://a --server ssh://b
                                            between two others
  hostgap race --client ssh://a --client ssh://c --server ssh://b
                                            two clients share the load on one server
  hostgap race --kube --paths pod,service   between pods of two nodes (docs/kubernetes.md)
  hostgap race --kube --all-pairs           between all nodes: which pair, path or node is worse
  hostgap race scenarios/machine-zone.toml --quick
                                            a published experiment, its figures beside yours
  hostgap race experiment.toml --json       what docs/experiment.md describes")]
pub(crate) struct Args {
    /// An experiment file (TOML). The options below override it.
    #[arg(value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// Data paths to race, joined by commas; `hostgap paths` lists them. host is always added, twice.
    /// For packets filters (docs/workloads.md).
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    paths: Vec<String>,
    /// CNI configurations to race, each as a candidate; may be given several times.
    #[arg(long, value_name = "FILE", long_help = plugins::HELP)]
    cni: Vec<String>,
    #[command(flatten)]
    plugins: PluginArgs,
    #[command(flatten)]
    vm: guest::VmArgs,
    /// Rates: requests per second (500, 20k) or shares of the host's capacity (30%), joined by commas. The closed loop
    /// is always raced, too [default: 30%,50%].
    #[arg(long, value_delimiter = ',', value_name = "RATES")]
    rate: Vec<String>,
    /// How long to measure in total (90s, 10m). This sets the number of rounds.
    #[arg(long, value_name = "TIME", conflicts_with = "rounds")]
    duration: Option<String>,
    /// The number of rounds: how often each candidate is visited [default: 24, on 12 builds].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: Option<u32>,
    /// End when every candidate is decided: its ratio to the host is known to this precision (3%, p50:2%, p99.9:10%,
    /// req/s:1%), or it is found to differ.
    #[arg(long, value_name = "PRECISION", conflicts_with_all = ["duration", "rounds"], long_help = UNTIL)]
    until: Option<Until>,
    /// The most time that a race with --until takes (90s, 6m) [default: 6m].
    #[arg(long, value_name = "TIME", conflicts_with_all = ["duration", "rounds"])]
    budget: Option<String>,
    /// Permanent connections of the client [default: 32; for other workloads than http see docs/workloads.md].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    connections: Option<u32>,
    /// The workload: http, connect, grpc, download, tcp-rr, udp-rr, verbs, tcp-stream, udp-stream or packets
    /// (docs/workloads.md) [default: http].
    #[arg(long, value_name = "KIND")]
    workload: Option<WorkloadKind>,
    /// The version of HTTP, 1.0 or 1.1; for connect and download.
    #[arg(long, value_name = "VERSION")]
    http: Option<HttpVersion>,
    /// Use TLS; for http, connect and download.
    #[arg(long)]
    tls: bool,
    /// Make every TLS handshake a full one: resume no session.
    #[arg(long)]
    no_session_reuse: bool,
    /// How the requests of a rate are spread over time: at equal intervals, or at random (poisson), as those of many
    /// users are. Each candidate of a round gets the same instants.
    #[arg(long, value_name = "constant|poisson")]
    arrivals: Option<Arrivals>,
    /// Objects that each client of `download` fetches in a trial.
    #[arg(long, value_name = "N")]
    objects: Option<u32>,
    /// Sizes of the answer's body, joined by commas (100,4k); each is a load of its own. For download the size of an
    /// object, for grpc, tcp-rr, udp-rr and verbs of request and answer, for streams of a write or packet, for packets
    /// of a frame [default: 100; for other workloads than http see docs/workloads.md].
    #[arg(long, value_delimiter = ',', value_name = "SIZES")]
    body: Vec<String>,
    /// The seed for the order of trials and for the resampling.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Take about 40 seconds instead of two to three minutes; with a file, apply its `[quick]` table.
    #[arg(long, conflicts_with_all = ["duration", "rounds"])]
    quick: bool,
    /// The server's program (auto is nginx if it is installed, otherwise hostgap's own responder). Given again, an ssh
    /// address (ssh://root@b:22): the machine that it runs on (docs/machines.md).
    #[arg(long, value_name = "auto|nginx|hostgap|ssh://…", value_parser = machines::server_arg)]
    server: Vec<ServerArg>,
    #[command(flatten)]
    machines: MachineArgs,
    #[command(flatten)]
    kube: KubeArgs,
    /// The nginx executable to use.
    #[arg(long, value_name = "PATH", env = "HOSTGAP_NGINX")]
    nginx: Option<PathBuf>,
    /// Send requests over IPv6.
    #[arg(long)]
    ipv6: bool,
    /// Whose CPUs process received packets: the receiver's (with RPS), the sender's, or whichever suits this machine
    /// (auto).
    #[arg(long, value_name = "auto|receiver|sender", value_parser = steering)]
    steering: Option<Steering>,
    #[command(flatten)]
    wire: WireArgs,
    /// Put client and server in two pods of one node instead of on two nodes. With host both are in the node itself.
    #[arg(long)]
    same_node: bool,
    /// After the race, sample where each candidate's CPU time goes, at the highest rate (docs/profile.md). Two seconds
    /// a candidate, about half a minute for ten; the race's own figures are unaffected.
    #[arg(long)]
    profile: bool,
    /// After the race, find out why the answers beyond p99 are late, at the lowest rate of each size (docs/late.md).
    /// Eight seconds a candidate, about a minute and a half for ten; the race's own figures are unaffected.
    #[arg(long)]
    why_late: bool,
    /// Show the time of each CPU, not only the sum of a node's CPUs.
    #[arg(long)]
    by_cpu: bool,
    /// Do not watch the machine for stalls, and count what was late because of one.
    #[arg(long)]
    no_witness: bool,
    /// CPUs to use, as a list (0-3,8): the first half for the client's node, the second for the server's.
    #[arg(long, value_name = "CPUS")]
    cpus: Option<String>,
    /// Run client and server under the normal scheduling policy instead of SCHED_FIFO.
    #[arg(long)]
    no_realtime: bool,
    /// Print the commands that build each candidate by hand, and race nothing. Needs no privilege.
    #[arg(long, visible_alias = "dry-run")]
    show_commands: bool,
    /// Print the result as JSON (docs/json.md).
    #[arg(long)]
    json: bool,
    /// The directory for record and page. Each race makes a new directory in it, with the time in its name.
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
}

const UNTIL: &str = "End when every candidate is decided: when half of its interval against the host is within this, \
or a difference was found. 3% or ±3% means p99 at rates and req/s in the closed loop; a name in front chooses another \
statistic: p50:2%, p99.9:10%, typical-p99:5% (of a typical slice), req/s:1%. That statistic then also decides first, \
and loads that do not have it are only visited until the first look.

The race is checked after 4, 5, 6, 7, 8, 10, 12, 15, … builds. A candidate that is decided leaves, and its rounds go to \
the others; the host and its control stay. Intervals are wider because of the checks, so that they still cover the true \
ratio in 95 % of races (docs/method.md). The race has as many builds as it needs and --budget allows; at its end it says \
what another minute would bring.";

/// The record's file name in its directory.
const RECORD: &str = "race.jsonl";

impl Args {
    /// Whether the server is on another machine.
    fn has_machine(&self) -> bool {
        self.server.iter().any(|server| server.kind().is_none())
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let experiment = experiment_of(args)?;
    unheeded::refuse(args, &experiment)?;
    if args.kube.kube {
        return kube::race(experiment, args);
    }
    if args.show_commands && !args.has_machine() {
        return commands::print(&experiment, args);
    }
    if let Some(client) = args.machines.leading() {
        return machines::race(client, &experiment, args);
    }
    if args.has_machine() {
        linux::process::require_network_admin().map_err(LabError::Privileges)?;
    } else {
        linux::process::require_network_admin().map_err(Unprivileged::in_own_namespaces)?;
    }
    if experiment.vm.is_some() && !args.vm.is_guest() {
        return guest::race(&experiment, args);
    }
    let stop = stop::on_signals()?;
    let facts = linux::features::probe()?;
    let dir = fresh_dir(&args.out, &experiment.name)?;
    let result = race(experiment, args, &dir, &facts, stop);
    // This fails, as it should, if something was written there.
    let _ = std::fs::remove_dir(&dir);
    result
}

fn race(
    experiment: Experiment,
    args: &Args,
    dir: &Path,
    facts: &linux::features::Facts,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    let options = RaceOptions {
        record: dir.join(RECORD),
        nginx: args.nginx.clone(),
        own: own_program()?,
        plugins: args.plugins.dirs(),
        cpus: cpus_of(args.cpus.as_deref())?,
        scheduling: scheduling_of(args.no_realtime),
        machines: None,
        guest: args.vm.in_guest.clone(),
        stop,
    };
    let experiment = duration::with_duration(experiment, args, facts)?;
    if args.vm.is_guest() {
        let race = Race::prepare(experiment, options, facts, Home::of_this_machine())?;
        return guest::race_outward(race, &dir.join(RECORD));
    }
    let mut progress = Progress::new();
    let address = args.machines.server_in(&args.server)?;
    let machines = match address {
        None => None,
        Some(address) => {
            let asked = machines::cpus(args.cpus.as_deref())?;
            match args.machines.connect(address, asked, &experiment, &options, &mut progress)? {
                None => return interrupted(dir),
                machines => machines,
            }
        }
    };
    let (own, stop) = (options.own.clone(), Arc::clone(&options.stop));
    let options = RaceOptions { machines: machines.clone(), ..options };
    let race = Race::prepare(experiment, options, facts, Home::of_this_machine())?;
    if args.show_commands {
        return commands::print_for_machines(&race.entrants()?);
    }
    let diagnoses = match address {
        None => None,
        Some(server) => args.machines.examine(server, &own, &stop)?,
    };
    let result = race.run(&mut |event| progress.show(&event));
    progress.finish();
    if let Some(diagnoses) = diagnoses {
        diagnoses.write_beside(&dir.join(RECORD));
    }
    // Whatever the race has come to, nothing of it is to stay there. Its own error comes first.
    let ended = machines.map_or(Ok(()), |machines| machines.end());
    let result = result.and_then(|finished| ended.map(|()| finished));
    finish(dir, result, &mut |summary| report::print(&summary, args.json))
}

/// Ends a race that was asked to stop before it began.
fn interrupted(dir: &Path) -> anyhow::Result<ExitCode> {
    finish(dir, Ok(Finished::Stopped), &mut |_| Ok(()))
}

/// Renders the record, prints the result, then returns how the race ended.
fn finish(
    dir: &Path,
    result: Result<Finished, LabError>,
    print: &mut dyn FnMut(::report::Summary) -> anyhow::Result<()>,
) -> anyhow::Result<ExitCode> {
    let record = dir.join(RECORD);
    let page = dir.join(report::PAGE);
    let rounds = ::record::RaceRecord::read(&record).map_or(0, |race| race.rounds.len());
    let mut render = || {
        let summary = report::render(&record, &page)?;
        let invalid = report::why_invalid(&summary);
        if let Some(why) = &invalid {
            output::aside(format_args!("not valid: {why}"));
        }
        print(summary)?;
        output::aside(format_args!("page:   {}\nrecord: {}", page.display(), record.display()));
        anyhow::Ok(if invalid.is_none() { ExitCode::SUCCESS } else { ExitCode::from(exit::INVALID) })
    };
    let printed = if rounds > 0 { render() } else { Ok(ExitCode::SUCCESS) };
    let kept = match rounds {
        0 => "no round was finished".to_owned(),
        1 => "the one finished round is kept".to_owned(),
        rounds => format!("the {rounds} finished rounds are kept"),
    };
    match result {
        Ok(Finished::Whole) => printed,
        Ok(Finished::Stopped) => {
            output::aside(format_args!("interrupted: {kept}"));
            printed.map(|_| ExitCode::from(exit::INTERRUPTED))
        }
        // An error about the page would hide the cause.
        Err(error) => Err(anyhow::Error::from(error).context(format!("finish the race ({kept})"))),
    }
}

/// The CPUs to use: those of `--cpus`, otherwise all that this process may use.
pub(crate) fn cpus_of(text: Option<&str>) -> anyhow::Result<CpuSet> {
    let allowed = linux::cpu::allowed().context("read the CPUs that this process may use")?;
    let Some(text) = text else { return Ok(allowed) };
    let wanted: CpuSet = text.parse().map_err(|error: linux::NameError| BadInput(error.to_string()))?;
    Ok(among(wanted, &allowed)?)
}

/// The CPUs of `--cpus`, if this process may use them.
pub(crate) fn among(wanted: CpuSet, allowed: &CpuSet) -> Result<CpuSet, BadInput> {
    if let Some(cpu) = wanted.iter().find(|cpu| !allowed.contains(*cpu)) {
        let text =
            format!("--cpus {wanted}: CPU {cpu} does not exist or is not allowed; allowed are {allowed}");
        return Err(BadInput(text));
    }
    if wanted.is_empty() {
        return Err(BadInput(format!("--cpus names no CPU; allowed are {allowed}")));
    }
    Ok(wanted)
}

/// SCHED_FIFO where it is permitted: on a machine that does other work, a normal thread may wait milliseconds for its
/// CPU, which would hide every difference in a race.
pub(crate) fn scheduling_of(no_realtime: bool) -> Scheduling {
    if !no_realtime && linux::cpu::can_realtime() { REALTIME } else { Scheduling::Normal }
}

/// The policy of client and server where it is permitted.
const REALTIME: Scheduling = Scheduling::Fifo(10);

pub(crate) fn steering(text: &str) -> Result<Steering, String> {
    match text {
        "auto" => Ok(Steering::Auto),
        "receiver" => Ok(Steering::Receiver),
        "sender" => Ok(Steering::Sender),
        _ => Err("auto, receiver or sender is expected".to_owned()),
    }
}

/// Makes a directory of a new name, even if another race starts in the same second.
pub(crate) fn fresh_dir(out: &Path, experiment: &str) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    let first = dir_name(experiment);
    let mut dir = out.join(&first);
    for number in 2.. {
        match std::fs::create_dir(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                dir = out.join(format!("{first}-{number}"));
            }
            created => {
                created.with_context(|| format!("create {}", dir.display()))?;
                break;
            }
        }
    }
    Ok(dir)
}

/// The name of a race's directory: `2026-11-21T21-05-33-default`, in UTC.
fn dir_name(experiment: &str) -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let name: String =
        experiment.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    format!("{}-{name}", now.trim_end_matches('Z').replace(':', "-"))
}
