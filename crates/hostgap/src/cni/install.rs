//! `hostgap cni install`: the program and a configuration into the directories of a container runtime.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ipnet::IpNet;
use lab::LabError;
use linux::IfName;
use node::install::{self, Change, Installation, Installed, OtherSubnets};
use node::{Home, Network, SenderCheck};
use serde_json::{Value, json};

use super::DirArgs;
use super::chosen::Chosen;
use crate::output;

/// Install hostgap as the CNI plugin of this node.
///
/// It copies the plugin's program, hostgap-cni, into the directory where the container runtime looks for plugins, and
/// calls it hostgap there. Then it writes the configuration of a network that uses it. Each is replaced in one
/// stroke, so you can run it to upgrade while containers come and go. Containers that are attached already stay as
/// they are, and a network that has some is not changed.
///
/// Before it writes, it reads the configuration as the plugin will, asks the kernel for what the attach needs, and
/// makes the plan of the network. If the plugin would fail, it says why and writes nothing. Files of other
/// programs are never replaced.
///
/// The attach is named with --attach, or taken from the record of a race with --from: the best of the race's data paths
/// that the plugin can make, with the reasons. A runtime uses the first file of its directory, by name; if another one
/// comes before, the result says so.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("how").required(true).args(["attach", "from"]))]
pub(super) struct Args {
    /// How containers reach the node: bridge, ptp, ebpf, netkit, macvlan, ipvlan-l2, ipvlan-l3 or ipvlan-l3s.
    #[arg(long, value_name = "ATTACH")]
    attach: Option<String>,
    /// Take the attach that won a race (race.jsonl), and the MTU if it won with one of its own.
    #[arg(long, value_name = "RACE-RECORD")]
    from: Option<PathBuf>,
    /// The name of the network.
    #[arg(long)]
    name: String,
    /// The subnet from which containers of this node get their addresses; once for each family.
    #[arg(long, value_name = "CIDR", required = true, num_args = 1..)]
    subnet: Vec<IpNet>,
    /// The prefixes of all nodes' containers [default: the subnets].
    #[arg(long, value_name = "CIDR", num_args = 1..)]
    prefix: Vec<IpNet>,
    /// The link to other nodes [default: that of the default route].
    #[arg(long, value_name = "LINK")]
    wire: Option<IfName>,
    /// The MTU of containers in bytes [default: the wire's].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1280..=65535))]
    mtu: Option<u32>,
    /// Replace the source address of what containers send out of the network by the node's (bridge, ptp, ebpf,
    /// netkit, and with --host-link).
    #[arg(long)]
    masquerade: bool,
    /// Let containers send from other addresses than their own (bridge, ptp).
    #[arg(long)]
    no_anti_spoofing: bool,
    /// Where a program checks that containers send from their own addresses (bridge, ptp): tcx leaves the ingress qdisc
    /// of a container's link to other plugins, and makes ADD slower (Linux 6.6) [default: a filter].
    #[arg(long, value_name = "HOOK", value_parser = ["tcx"], conflicts_with = "no_anti_spoofing")]
    anti_spoofing: Option<String>,
    /// Let the node and its containers reach each other, by a link of the node's own beside theirs (macvlan, ipvlan-l3,
    /// ipvlan-l3s). With other attaches they do anyway.
    #[arg(long)]
    host_link: bool,
    /// The name of the configuration's file [default: 10-NAME.conflist].
    #[arg(long, value_name = "NAME.conflist")]
    file: Option<String>,
    #[command(flatten)]
    dirs: DirArgs,
    /// Print what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(LabError::Privileges)?;
    let chosen = args.from.as_deref().map(Chosen::read).transpose()?;
    let network = network(args, chosen.as_ref());
    let installation = Installation {
        home: &Home::of_this_machine(),
        facts: &linux::features::probe()?,
        dirs: &args.dirs.dirs(),
        network: &network,
        other_subnets: OtherSubnets::Refused,
        file: args.file.as_deref(),
        program: install::program(),
    };
    if let Some(chosen) = chosen.as_ref().filter(|_| !args.json) {
        chosen.print()?;
    }
    let installed = if args.dry_run { installation.preview() } else { installation.install() }?;
    if args.json {
        output::result(json(args, &installed, chosen.as_ref()))?;
    } else {
        print(args, &installed)?;
    }
    for remark in chosen.iter().flat_map(Chosen::remarks) {
        output::aside(format_args!("note: {remark}"));
    }
    if let Some(first) = installed.before.first() {
        let (first, ours) = (first.display(), name_of(&installed.conflist.0));
        output::aside(format_args!(
            "note: {first} comes before {ours} by its name, so runtimes that use one network use that one"
        ));
        output::aside(
            "hint: move that file away, or install with --file 00-NAME.conflist, under a name that comes first",
        );
    }
    mention_loopback(&args.dirs.bin_dir);
    Ok(ExitCode::SUCCESS)
}

/// Without that plugin no pod starts under containerd, whose message does not say that it is none of ours.
fn mention_loopback(bin: &Path) {
    const LOOPBACK: &str = "loopback";
    if bin.join(LOOPBACK).exists() {
        return;
    }
    let bin = bin.display();
    output::aside(format_args!(
        "note: {bin} has no plugin {LOOPBACK}, which containerd calls for each pod of Kubernetes"
    ));
    output::aside(format_args!(
        "hint: link it there if you need it: Debian's package containernetworking-plugins has /usr/lib/cni/{LOOPBACK}"
    ));
}

/// What was asked for, with what a race says where it was asked.
fn network(args: &Args, chosen: Option<&Chosen>) -> Network {
    let attach = match (&args.attach, chosen) {
        (Some(attach), _) => attach.clone(),
        (None, chosen) => chosen.expect("one of the two is required").choice.path.name.to_owned(),
    };
    Network {
        name: args.name.clone(),
        attach,
        subnets: args.subnet.clone(),
        prefixes: args.prefix.clone(),
        wire: args.wire.clone(),
        mtu: args.mtu.or_else(|| chosen.and_then(|chosen| chosen.choice.mtu)),
        masquerade: args.masquerade,
        anti_spoofing: match (args.no_anti_spoofing, &args.anti_spoofing) {
            (true, _) => Some(SenderCheck::Off),
            (false, Some(_)) => Some(SenderCheck::Tcx),
            (false, None) => None,
        },
        host_link: args.host_link,
        readiness_file: None,
    }
}

fn print(args: &Args, installed: &Installed) -> Result<(), output::OutputError> {
    for (path, change) in [&installed.program, &installed.conflist] {
        let change = match (change, args.dry_run) {
            (Change::Written, false) => "written",
            (Change::Replaced, false) => "replaced",
            (Change::Unchanged, _) => "unchanged",
            (Change::Written, true) => "would be written",
            (Change::Replaced, true) => "would be replaced",
        };
        output::result(format_args!("{}: {change}", path.display()))?;
    }
    if args.dry_run {
        output::result(format_args!("\n{}", installed.text))?;
    }
    if installed.before.is_empty() {
        let (ours, name) = (name_of(&installed.conflist.0), &args.name);
        output::result(format_args!(
            "{ours} is the first file of its directory: runtimes use network {name}, attach {}",
            installed.path.name
        ))?;
    }
    Ok(())
}

fn json(args: &Args, installed: &Installed, chosen: Option<&Chosen>) -> Value {
    let file = |(path, change): &(PathBuf, Change)| json!({ "path": path, "change": change });
    let text: Value = serde_json::from_str(&installed.text).expect("it was read as a configuration");
    json!({
        "schema": 1,
        "dry_run": args.dry_run,
        "network": args.name,
        "attach": installed.path.name,
        "program": file(&installed.program),
        "conflist": file(&installed.conflist),
        "conf": text,
        "is_first": installed.before.is_empty(),
        "before": installed.before,
        "chosen": chosen.map(Chosen::json),
    })
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
