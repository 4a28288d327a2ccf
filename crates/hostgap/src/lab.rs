//! `hostgap lab`: a topology that stays up for any program.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use ::lab::{
    BuiltTopology, Cleaned, Contender, Home, LabError, Method, NodeCpus, Remains, Shape, Staffing, Wires,
};
use ::record::{Candidate, Experiment, ExperimentError, Placement, Workload, WorkloadKind};
use anyhow::Context;
use linux::cpu::Scheduling;
use linux::features::Facts;
use plan::{Unit, UnitState};

use crate::exit::{self, BadInput};
use crate::plugins::{self, PluginArgs};
use crate::wire::WireArgs;
use crate::{output, stop, units};

/// Build the topology of a data path and keep it up, so that any program can run in it.
///
/// Nodes, pods and server are the same as in a race. `hostgap lab up` prints how to enter the client's pod and the
/// server's address.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Build a topology and keep it up.
    ///
    /// For example: hostgap lab up bridge+vxlan; then, as it prints,
    /// ip netns exec hg-1a2b-bridge-vxlan-client wrk http://10.244.2.2/100
    Up(Box<UpArgs>),
    /// Take a topology down.
    Down {
        /// Its id, as `up` and `list` print it, or the name of its data path [default: all].
        which: Option<String>,
    },
    /// List the topologies that are up.
    List {
        /// Print the list as JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct UpArgs {
    /// The data path; `hostgap paths` lists them.
    #[arg(required_unless_present = "cni")]
    path: Option<String>,
    /// A CNI configuration, instead of a data path.
    #[arg(long, value_name = "FILE", conflicts_with = "path", long_help = plugins::HELP)]
    cni: Option<String>,
    #[command(flatten)]
    plugins: PluginArgs,
    /// Sizes of the answer's body, joined by commas (100,4k); the path of each is its number of bytes, /100.
    #[arg(long, value_delimiter = ',', default_value = "100", value_name = "SIZES")]
    body: Vec<String>,
    /// The workload that the server serves: http, connect, grpc, download, tcp-rr or udp-rr.
    #[arg(long, value_name = "KIND", default_value = "http")]
    workload: WorkloadKind,
    /// Use TLS, with a self-signed certificate made for this server.
    #[arg(long)]
    tls: bool,
    /// The MTU of the wire between the nodes in bytes.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1280..=65535))]
    mtu: u32,
    /// Use IPv6 for requests and for the outer packets of tunnels.
    #[arg(long)]
    ipv6: bool,
    /// Client and server in two pods of one node, instead of on two nodes.
    #[arg(long)]
    same_node: bool,
    #[command(flatten)]
    wire: WireArgs,
    /// The nginx to use.
    #[arg(long, value_name = "PATH", env = "HOSTGAP_NGINX")]
    nginx: Option<PathBuf>,
    /// Whose CPUs process received packets: the receiver's (with RPS), the sender's, or whichever suits this machine
    /// (auto), as in a race.
    #[arg(long, value_name = "auto|receiver|sender", default_value = "auto", value_parser = crate::race::steering)]
    steering: ::record::Steering,
    /// Run the server under the normal scheduling policy instead of SCHED_FIFO.
    #[arg(long)]
    no_realtime: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let home = Home::of_this_machine();
    match &args.command {
        Command::Up(args) => up(&home, args),
        Command::Down { which } => down(&home, which.as_deref()),
        Command::List { json } => list(&home, *json),
    }
}

fn up(home: &Home, args: &UpArgs) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(LabError::Privileges)?;
    let wires = wires(args).context("make such a wire")?;
    let facts = linux::features::probe()?;
    wires.possible(&facts)?;
    let contender = contender(args, &facts)?;
    let sizes = args.body.iter().map(|text| units::bytes(text).map_err(BadInput));
    let body_bytes = sizes.collect::<Result<_, _>>()?;
    let workload = Workload { body_bytes, ipv6: args.ipv6, tls: args.tls, ..Workload::of(args.workload) };
    if workload.kind.is_stream() {
        let why = "the receiver of a stream is part of the race, so there is no server to keep up";
        return Err(BadInput(format!("--workload {}: {why}", workload.kind.name())).into());
    }
    ::record::Experiment { workload: workload.clone(), ..::record::Experiment::default() }
        .validate()
        .context("serve such a workload")?;
    let realtime = !args.no_realtime && linux::cpu::can_realtime();
    let stop = stop::on_signals()?;
    let own = crate::own_program::own_program()?;
    let staffing = Staffing {
        machines: None,
        server: ::lab::ServerChoice::of(&workload, args.nginx.as_deref(), &own)?,
        scheduling: if realtime { Scheduling::Fifo(10) } else { Scheduling::Normal },
        connections: 16_000,
        outlives_us: true,
        plant: None,
        proxies: ::lab::ByRole::default(),
        workload,
    };
    // Measuring the cost of steering uses both nodes' CPUs for a second, which would disturb a race.
    let waiting = |pid| {
        output::aside(format!("a race (process {pid}) is running on this machine; waiting until it ends"));
    };
    let Some(_exclusive) = home.exclusive(waiting, || stop.load(Ordering::Relaxed))? else {
        return Ok(ExitCode::from(exit::INTERRUPTED));
    };
    let claim = home.claim()?;
    let built = match stand(args, wires, &claim, &contender, &staffing) {
        Ok(built) => built,
        Err(error) => {
            // What could not be undone is left to `hostgap clean`; the first error is the one to report.
            let _ = claim.end();
            return Err(error.into());
        }
    };
    if stop.load(Ordering::Relaxed) {
        built.take_down()?;
        claim.end()?;
        output::aside("interrupted: nothing was left up");
        return Ok(ExitCode::from(exit::INTERRUPTED));
    }
    let text = describe(args, claim.id(), &built, &staffing);
    built.leave_standing();
    claim.leave_standing(&contender.name)?;
    output::result(text)?;
    Ok(ExitCode::SUCCESS)
}

/// The candidate to build. A CNI configuration is the last of all contenders; a path is found by its name.
fn contender(args: &UpArgs, facts: &Facts) -> anyhow::Result<Contender> {
    let named = match (&args.path, &args.cni) {
        (_, Some(file)) => plugins::candidate(file),
        (path, None) => {
            let path = path.clone().unwrap_or_default();
            Candidate { path, required: true, ..Candidate::default() }
        }
    };
    let contenders = ::lab::contenders(&[named], facts, &args.plugins.dirs())?;
    let is_chosen = |c: &Contender| args.cni.is_some() || args.path.as_ref() == Some(&c.name);
    Ok(contenders.into_iter().rfind(is_chosen).expect("what was named and can run is among the contenders"))
}

fn placement(args: &UpArgs) -> Placement {
    if args.same_node { Placement::SameNode } else { Placement::TwoNodes }
}

/// What the wire does, within the ranges of an experiment.
fn wires(args: &UpArgs) -> Result<Wires, ExperimentError> {
    let mut experiment = Experiment { placement: placement(args), ..Experiment::default() };
    args.wire.change(&mut experiment.underlay);
    experiment.validate().map(|()| Wires::of(&experiment.underlay))
}

fn stand(
    args: &UpArgs,
    wires: Wires,
    claim: &Unit,
    contender: &Contender,
    staffing: &Staffing,
) -> Result<BuiltTopology, LabError> {
    let (allowed, placement) = (linux::cpu::allowed()?, placement(args));
    let cpus = NodeCpus::split_beside(&allowed, contender.polls(), placement);
    let spare = cpus.spare(&allowed, placement);
    if contender.is_crowded(&spare, placement) {
        output::aside("no core is left for each switch: they poll on CPUs of client and server");
    }
    let host = ::lab::find("host")?;
    let shape = |name: &str, steered| Shape {
        prefix: format!("hg-{}-{name}", claim.id()),
        path: host,
        cni: None,
        mtu_bytes: args.mtu,
        cpus: cpus.clone(),
        spare: spare.clone(),
        family: ::lab::family(args.ipv6),
        families: ::lab::families(),
        steered,
        placement,
        in_container: ::record::Side::Both,
        cards: None,
        wires: Wires::default(),
        settings: ::tune::Settings::default(),
        proxies: ::record::Proxies::default(),
        stack: ::record::Stack::default(),
        filter: None,
        rdma: None,
        flood: None,
        protocol: ::lab::protocol(args.workload),
        machines: None,
    };
    let method = Method::new(cpus.clone(), staffing.scheduling);
    let trying = staffing.trying();
    let chosen = ::lab::choose(args.steering, CONNECTIONS, &method, &trying, claim.dir(), shape)?;
    let slug = ::lab::slug(&contender.name);
    let (path, cni) = (contender.path, contender.cni.clone());
    let shape = Shape { path, cni, wires, ..shape(&slug, chosen.steered) };
    let built = BuiltTopology::build(&contender.name, shape, staffing, &claim.dir().join(&slug))?;
    // Whoever measures with it comes later.
    built.rest(false)?;
    Ok(built)
}

/// The number of connections with which the cost of steering is measured: as in a race.
const CONNECTIONS: u32 = 32;

/// What `up` prints about the topology.
fn describe(args: &UpArgs, id: &str, built: &BuiltTopology, staffing: &Staffing) -> String {
    let topology = &built.topology;
    let (address, processes) = (topology.address, topology.processes());
    let workload = &staffing.workload;
    let scheme = if workload.tls { "https" } else { "http" };
    let sizes: &[u32] = if workload.kind.is_http() { &workload.body_bytes } else { &[] };
    let urls: Vec<String> = sizes.iter().map(|size| format!("{scheme}://{address}/{size}")).collect();
    if args.json {
        let value = serde_json::json!({
            "schema": 1, "id": id, "path": built.name, "server": staffing.server.describe(), "urls": urls,
            "address": address,
            "client_netns": processes.client, "server_netns": processes.server,
            "node_netns": topology.nodes.as_ref().both().map(|node| node.place.netns()),
            "client_cpus": topology.shape.cpus.client, "server_cpus": topology.shape.cpus.server,
        });
        return value.to_string();
    }
    let (cpus, client) = (&topology.shape.cpus, processes.client);
    let mut lines = vec![
        format!("{} is up, id {id}, server {}", built.name, staffing.server.describe()),
        format!("  client pod  {client}, CPUs {}", cpus.client),
        format!("  server pod  {}, CPUs {}", processes.server, cpus.server),
    ];
    // A socket belongs to the control group of the task that opens it.
    let group = topology.groups().client.map(|splice| format!("{}/cgroup.procs", splice.shell_path()));
    let attempt = |url| {
        // The certificate is self-signed.
        let trust = if workload.tls { "k" } else { "" };
        let ask = format!("ip netns exec {client} taskset -c {} curl -s{trust} {url}", cpus.client);
        match &group {
            Some(tasks) => format!("  try         sh -c 'echo $$ > {tasks}; exec {ask}'"),
            None => format!("  try         {ask}"),
        }
    };
    lines.extend(urls.iter().map(attempt));
    if urls.is_empty() {
        lines.push(format!("  server      {} at {address}", workload.kind.name()));
    }
    lines.push(format!("  take down   hostgap lab down {id}"));
    lines.join("\n")
}

fn down(home: &Home, which: Option<&str>) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(LabError::Privileges)?;
    let matches = |remains: &Remains| match which {
        None => true,
        Some(which) => remains.id == which || remains.standing.as_deref() == Some(which),
    };
    let standing: Vec<Remains> =
        home.remains()?.into_iter().filter(|r| r.state == UnitState::Standing && matches(r)).collect();
    if let (Some(which), true) = (which, standing.is_empty()) {
        return Err(BadInput(format!("no topology {which:?} is up; `hostgap lab list` lists them")).into());
    }
    if standing.is_empty() {
        output::result("no topology is up")?;
    }
    let path_of = |remains: &Remains| remains.standing.clone().unwrap_or_default();
    // All of them, before a word of it is printed: a reader that takes the first line and goes leaves none standing.
    let removed: Vec<(String, Result<Cleaned, LabError>)> =
        standing.iter().map(|remains| (path_of(remains), home.remove(&remains.id))).collect();
    let (mut code, mut failed, mut printed) = (ExitCode::SUCCESS, None, Ok(()));
    for (path, removed) in removed {
        let Cleaned { id, namespaces, failures, .. } = match removed {
            Ok(cleaned) => cleaned,
            Err(error) => {
                failed = failed.or(Some(error));
                continue;
            }
        };
        let line = format!("took down {id} ({path}), {namespaces} namespaces");
        printed = printed.and_then(|()| output::result(line));
        for failure in failures {
            output::aside(format_args!("hostgap: could not undo {failure}"));
            code = ExitCode::from(exit::FAILURE);
        }
    }
    output::after_work(printed)?;
    failed.map_or(Ok(code), |error| Err(error.into()))
}

fn list(home: &Home, json: bool) -> anyhow::Result<ExitCode> {
    let remains = home.remains()?;
    if json {
        output::result(serde_json::json!({ "schema": 1, "owners": remains }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if remains.is_empty() {
        output::result("no topology is up")?;
    }
    for Remains { id, pid, state, standing, namespaces } in remains {
        let what = match state {
            UnitState::Alive => format!("a race (process {pid}) is running"),
            UnitState::Standing => format!("{} is up", standing.unwrap_or_default()),
            UnitState::Dead => format!("process {pid} died; `hostgap clean` removes this"),
        };
        output::result(format_args!("{id}  {what}"))?;
        namespaces.iter().try_for_each(|name| output::result(format_args!("      {name}")))?;
    }
    Ok(ExitCode::SUCCESS)
}
