//! `hostgap bpf`: the counters of the forwarding programs, and their loading and attaching by hand.

mod counters;
mod replace;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use ipnet::IpNet;
use lab::LabError;
use linux::{IfName, Mac, Netns, NetnsRef};
use plan::forwarding::{
    Endpoint, Guard, Guarded, Member, ProgramAttachment, Programs, Service, ServiceAddress,
    ServiceAttachment, ServiceEntry, ServicePrograms, Splice, Tunnel, Uplink,
};
use plan::{ApplyError, Kernel, Place, Placed, Step, StepError};

use crate::exit::BadInput;

/// Show what the programs of the ebpf and netkit data paths and those that check what pods send drop, and load and
/// attach them by hand.
///
/// Each node has its programs and maps pinned in a bpffs below /run/hostgap-bpf. The data paths load, attach and
/// remove them by themselves. To build such a node by hand, use load, attach, endpoint and tunnel as
/// `hostgap race --show-commands` prints them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the packets that were dropped or left to the kernel's own path since the start, by reason, and the calls of
    /// Services.
    Counters {
        /// The node; without one, all nodes that have programs.
        node: Option<String>,
        /// Print the counters as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Load the programs of a node.
    Load(LoadArgs),
    /// Replace a node's programs by those of this version while packets flow.
    ///
    /// Each packet meets an old program or a new one: none is lost, and none takes the kernel's own path for it. Pods,
    /// tunnels and counters stay; prefixes and all else become what the arguments say. Without those of load, they are
    /// what the CNI plugin has loaded the programs with; where it has loaded a guard (replace-guard), that is
    /// replaced. Without a node, so is all that stands of the plugin's networks. If the node splices sockets, those
    /// that join from now on have the new programs for that; connections that are open keep the old ones until they
    /// end. If the node's maps are of a newer version, or cannot be kept, nothing is changed. If the command is
    /// interrupted, give it again.
    Replace(replace::ReplaceArgs),
    /// Attach a program of a node to a link.
    Attach {
        #[command(flatten)]
        at: At,
        /// from_pod, from_netkit, from_wire, from_tunnel or guard.
        #[arg(value_parser = program)]
        program: ::bpf::forward::Program,
        /// The link to attach it to.
        #[arg(value_parser = ifname)]
        link: IfName,
        /// Packets that arrive meet it within a fraction of a millisecond: in a filter, also where the
        /// kernel has tcx. The link has one ingress qdisc for such filters.
        #[arg(long)]
        at_once: bool,
    },
    /// Register a pod with the programs of its node. It may then send from these addresses only.
    Endpoint {
        #[command(flatten)]
        at: At,
        /// The node's end of the pod's link.
        #[arg(value_parser = ifname)]
        link: IfName,
        /// The pod's Ethernet address.
        mac: Mac,
        /// The pod's addresses.
        #[arg(required = true)]
        addresses: Vec<IpAddr>,
        /// Send all that it receives through the queue of the node's end, so that a queueing discipline there limits
        /// it.
        #[arg(long)]
        queued: bool,
    },
    /// Register the tunnel end through which the pods of another node are reached.
    Tunnel {
        #[command(flatten)]
        at: At,
        /// The prefix of the other node's pods.
        prefix: IpNet,
        /// The tunnel's link on this node.
        #[arg(value_parser = ifname)]
        device: IfName,
        /// The address of the tunnel's other end.
        remote: IpAddr,
    },
    /// Let the programs send to other nodes' pods by a link beside the wire, where the kernel's routes lead there.
    Uplink {
        #[command(flatten)]
        at: At,
        /// The link: a tunnel's device.
        #[arg(value_parser = ifname)]
        link: IfName,
    },
    /// Load the programs that splice TCP between pods of one node (ebpf+sockmap), or attach them.
    Splice {
        /// The name under which the node's programs are pinned.
        node: String,
        /// Instead of loading, attach the loaded programs to this control group (of version 2).
        #[arg(long, value_name = "DIRECTORY")]
        attach: Option<PathBuf>,
    },
    /// Splice the sockets of a pod that are opened by tasks in the node's control group. --netns is the pod's
    /// namespace.
    Member {
        #[command(flatten)]
        at: At,
        /// The pod's addresses.
        #[arg(required = true)]
        addresses: Vec<IpAddr>,
    },
    /// Load the program that checks what pods send, for a node on which the kernel forwards.
    Guard {
        /// The name under which it is pinned.
        node: String,
    },
    /// Replace the program that checks what a node's pods send by that of this version, while they send.
    ///
    /// Each frame meets the old program or the new one: none is lost, and none passes unchecked. Pods and counters
    /// stay. If the guard's maps are of a newer version, or cannot be kept, nothing is changed. If the command is
    /// interrupted, give it again.
    ReplaceGuard {
        #[command(flatten)]
        at: At,
    },
    /// Register an interface of a pod with the guard of its node. At its link, frames with other addresses than the
    /// pod's are dropped.
    Guarded {
        #[command(flatten)]
        at: At,
        /// The node's end of the interface's link.
        #[arg(value_parser = ifname)]
        link: IfName,
        /// The network namespace of the pod: its name, or the path of one without a name. Its interfaces may send from
        /// each other's addresses.
        #[arg(value_name = "NAME|PATH", value_parser = netns)]
        pod: NetnsRef,
        /// The interface's Ethernet address.
        mac: Mac,
        /// The interface's addresses.
        #[arg(required = true)]
        addresses: Vec<IpAddr>,
    },
    /// Load the programs that connect sockets which call a Service to one of its endpoints, or attach them.
    Services {
        /// The name under which they are pinned.
        node: String,
        /// Instead of loading, attach the loaded programs to this control group (of version 2). They see the calls of
        /// sockets that were opened in it.
        #[arg(long, value_name = "DIRECTORY")]
        attach: Option<PathBuf>,
    },
    /// Let calls of a Service's address go to these endpoints, and to no others that it had before. Without
    /// endpoints they are refused.
    Service {
        /// The name under which the programs are pinned.
        node: String,
        /// The Service's address, port and protocol.
        #[arg(value_name = "ADDRESS:PORT/PROTOCOL")]
        at: ServiceAddress,
        /// The endpoints, as ADDRESS:PORT.
        #[arg(value_name = "ADDRESS:PORT")]
        backends: Vec<SocketAddr>,
        /// Connect a network namespace to the same endpoint again within so many seconds after its last call.
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        affinity: u32,
    },
    /// Detach and remove the programs of a node. Packets then take the kernel's own path.
    Unload {
        /// The name under which the node's programs are pinned.
        node: String,
    },
}

/// Which node, and where it is.
#[derive(Debug, clap::Args)]
struct At {
    /// The network namespace of the node: its name, or the path of one without a name, such as /proc/PID/ns/net
    /// [default: this one].
    #[arg(long, value_name = "NAME|PATH", value_parser = netns)]
    netns: Option<NetnsRef>,
    /// The name under which the node's programs are pinned.
    node: String,
}

#[derive(Debug, clap::Args)]
struct LoadArgs {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    config: ConfigArgs,
}

/// What programs are loaded with.
#[derive(Debug, clap::Args)]
struct ConfigArgs {
    /// The link to the other nodes.
    #[arg(long, value_parser = ifname)]
    wire: IfName,
    /// The pods' MTU in bytes.
    #[arg(long)]
    mtu: u32,
    /// The prefixes of the node's pods, IPv4 or IPv6, joined by commas.
    #[arg(long, required = true, value_delimiter = ',')]
    pods: Vec<IpNet>,
    /// The prefixes of all nodes' pods, in the same form.
    #[arg(long, required = true, value_delimiter = ',')]
    cluster: Vec<IpNet>,
    /// The pods' IPv4 gateway. No link has this address.
    #[arg(long)]
    gateway: Ipv4Addr,
    /// The Ethernet address of the node's end of every pod's link.
    #[arg(long)]
    gateway_mac: Mac,
    /// The node's end of a VXLAN tunnel to the other nodes.
    #[arg(long, requires_all = ["vni", "port"])]
    tunnel: Option<IpAddr>,
    /// The tunnel's network identifier.
    #[arg(long, requires = "tunnel", value_parser = clap::value_parser!(u32).range(0..1 << 24))]
    vni: Option<u32>,
    /// The tunnel's UDP port.
    #[arg(long, requires = "tunnel")]
    port: Option<u16>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    linux::process::require_network_admin().map_err(LabError::Privileges)?;
    match args.command {
        Command::Counters { node, json } => counters::print(node, json)?,
        Command::Load(args) => load(args)?,
        Command::Replace(args) => replace::replace(args)?,
        Command::Attach { at, program, link, at_once } => {
            by_hand_of(at, |node| Step::AttachProgram(ProgramAttachment { node, program, link, at_once }))?;
        }
        Command::Endpoint { at, link, mac, addresses, queued } => {
            by_hand_of(at, |node| Step::AddEndpoint(Endpoint { node, link, mac, addresses, queued }))?;
        }
        Command::Tunnel { at, prefix, device, remote } => {
            by_hand_of(at, |node| Step::AddTunnel(Tunnel { node, prefix, device, remote }))?;
        }
        Command::Uplink { at, link } => by_hand_of(at, |node| Step::AddUplink(Uplink { node, link }))?,
        Command::Splice { node, attach: None } => by_hand(None, Step::LoadSplice(Splice { node }))?,
        Command::Splice { node, attach: Some(cgroup) } => {
            ::bpf::splice::attach(&known(&node)?, &cgroup).context("attach")?;
        }
        Command::Member { at, addresses } => {
            by_hand_of(at, |node| Step::AddMember(Member { node, addresses }))?;
        }
        Command::Guard { node } => by_hand(None, Step::LoadGuard(Guard { node }))?,
        Command::ReplaceGuard { at } => replace::replace_guard(at)?,
        Command::Guarded { at, link, pod, mac, addresses } => {
            let pod = place_of(Some(pod))?;
            by_hand_of(at, |node| Step::AddGuarded(Guarded { node, link, pod, mac, addresses }))?;
        }
        Command::Services { node, attach: None } => {
            by_hand(None, Step::LoadServices(ServicePrograms { node }))?;
        }
        Command::Services { node, attach: Some(cgroup) } => {
            known(&node)?;
            by_hand(None, Step::AttachServices(ServiceAttachment { node, cgroup }))?;
        }
        Command::Service { node, at, backends, affinity } => {
            known(&node)?;
            let service = Service { at, affinity_s: affinity, backends: backends.into_iter().collect() };
            by_hand(None, Step::ReplaceService(ServiceEntry { node, service }))?;
        }
        Command::Unload { node } => {
            ::bpf::pins::remove(&known(&node)?).context("unload")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn load(args: LoadArgs) -> anyhow::Result<()> {
    let LoadArgs { at: At { netns, node }, config } = args;
    by_hand(netns, Step::LoadPrograms(config.of(node)))
}

impl ConfigArgs {
    /// The programs of a node that is to know this.
    fn of(self, node: String) -> Programs {
        let ConfigArgs { wire, mtu, pods, cluster, gateway, gateway_mac, tunnel, vni, port } = self;
        let tunnel = match (tunnel, vni, port) {
            (Some(local), Some(vni), Some(port)) => Some(::bpf::forward::TunnelEnd { local, vni, port }),
            _ => None,
        };
        Programs { node, wire, mtu, gateway, gateway_mac, pods, cluster, tunnel }
    }
}

/// A step for a node that has programs.
fn by_hand_of(at: At, step: impl FnOnce(String) -> Step) -> anyhow::Result<()> {
    known(&at.node)?;
    by_hand(at.netns, step(at.node))
}

fn place_of(netns: Option<NetnsRef>) -> anyhow::Result<Place> {
    let Some(netns) = netns else { return Ok(Place::Host) };
    match Netns::find(&netns) {
        Err(error) if linux::netns::is_gone(&error) => {
            Err(BadInput(format!("there is no network namespace {netns}")).into())
        }
        found => found.map(|_| netns.into()).map_err(Into::into),
    }
}

fn by_hand(netns: Option<NetnsRef>, step: Step) -> anyhow::Result<()> {
    let place = place_of(netns)?;
    plan::by_hand(&Placed { place, step }, &mut Kernel::new()?).map_err(|error| match error {
        ApplyError::Step { place, why: StepError::NoLink { link }, .. } => {
            BadInput(format!("there is no link {link} in {place}")).into()
        }
        error => error.into(),
    })
}

/// The folder of a node that has programs.
fn known(node: &str) -> anyhow::Result<PathBuf> {
    let nodes = ::bpf::pins::nodes();
    if nodes.iter().any(|known| known == node) {
        return Ok(::bpf::pins::folder(node));
    }
    let known = if nodes.is_empty() { "none".to_owned() } else { nodes.join(", ") };
    Err(BadInput(format!("node {node:?} has no hostgap programs; nodes with programs: {known}")).into())
}

fn ifname(text: &str) -> Result<IfName, String> {
    IfName::new(text).map_err(|error| error.to_string())
}

fn netns(text: &str) -> Result<NetnsRef, String> {
    text.parse().map_err(|error: linux::NameError| error.to_string())
}

fn program(text: &str) -> Result<::bpf::forward::Program, String> {
    let all = ::bpf::forward::Program::ALL;
    all.iter().find(|program| program.name() == text).copied().ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|program| program.name()).collect();
        format!("there is no such program; known are {}", names.join(", "))
    })
}
