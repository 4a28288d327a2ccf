//! What can be done to a machine: a closed list of steps, each of which knows its place.

use std::fmt;

use ipnet::IpNet;
use linux::debugfs::DebugFile;
use linux::ethtool::NicParameter;
use linux::module::ModuleParameter;
use linux::netlink::{MetricValue, RouteMetric};
use linux::sysfs::{LinkAttribute, Queue};
use linux::{CpuSet, FdbEntry, IfName, Link, Neighbour, NetnsName, Qdisc, Route, nft, sysctl};
use serde::{Deserialize, Serialize};

use crate::RssHash;
use crate::forwarding::{Attachment, Endpoint, Member, Programs, Splice, Tunnel};

/// An ordered list of steps. Making one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The steps in the order in which they are done; undo goes backwards.
    pub steps: Vec<Placed>,
}

/// A step and the network namespace in which it acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Where.
    pub place: Place,
    /// What.
    pub step: Step,
}

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The namespace in which hostgap itself was started.
    Host,
    /// A named namespace under `/run/netns`.
    Netns(NetnsName),
}

/// One change of the kernel's state.
///
/// `Add…` steps refuse to touch what is already there; `Set…` steps keep the old value for undo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Make the step's own place; it must be a named namespace. Brings up its loopback.
    AddNetns,
    /// Make a link.
    AddLink(Link),
    /// Move a link to another namespace; it loses its addresses. It changes its name in the same request, since a
    /// pod's name for it (`eth0`) is often taken in the node where the link is born.
    MoveLink {
        /// The link, in the step's place.
        link: IfName,
        /// Where it goes.
        to: Place,
        /// Its name there.
        name: IfName,
    },
    /// Bring a link up.
    SetLinkUp {
        /// The link.
        link: IfName,
    },
    /// Set a link's MTU in bytes.
    SetLinkMtu {
        /// The link.
        link: IfName,
        /// Bytes of a packet without the Ethernet header.
        mtu: u32,
    },
    /// Make a link a port of a bridge.
    SetLinkMaster {
        /// The link.
        link: IfName,
        /// The bridge.
        master: IfName,
    },
    /// Let a bridge port send a frame back where it came from (a pod that calls its own published port).
    SetHairpin {
        /// The bridge port.
        link: IfName,
    },
    /// Give a link an address. IPv6 addresses are usable at once: no duplicate address detection.
    AddAddress {
        /// The link.
        link: IfName,
        /// The address with its prefix length.
        address: IpNet,
    },
    /// Make a route in the main table.
    AddRoute(Route),
    /// Make a permanent or a proxy neighbour entry.
    AddNeighbour(Neighbour),
    /// Make a forwarding entry of a tunnel device.
    AddFdb(FdbEntry),
    /// Write a kernel parameter of the step's namespace.
    SetSysctl {
        /// The parameter.
        key: sysctl::Key,
        /// The new value.
        value: String,
    },
    /// Make an nftables table with all its chains and rules.
    AddNftTable(nft::Table),
    /// Let a queue's packets be handled by these CPUs (RPS for a receive queue, XPS for a send queue).
    SetQueueCpus {
        /// The link.
        link: IfName,
        /// The queue.
        queue: Queue,
        /// The CPUs; the empty set turns steering off.
        cpus: CpuSet,
    },
    /// Let a receive queue keep track of so many flows, a power of two (RFS).
    SetQueueFlows {
        /// The link.
        link: IfName,
        /// The receive queue.
        rx: u16,
        /// How many; 0 turns it off.
        flows: u32,
    },
    /// Set what a route of the main table tells connections; the rest of the route stays.
    SetRouteMetric {
        /// Where the route leads.
        dst: IpNet,
        /// By which link.
        link: IfName,
        /// What.
        metric: RouteMetric,
        /// The new value.
        value: MetricValue,
    },
    /// Let a link take packets of so many segments from above; more are cut on their way in.
    SetGsoMaxSegs {
        /// The link.
        link: IfName,
        /// Segments, from 1, which is each packet as it will be on the wire.
        segments: u32,
    },
    /// Put a queueing discipline at the root of a link, in place of what is there.
    SetRootQdisc {
        /// The link.
        link: IfName,
        /// The queueing discipline.
        qdisc: Qdisc,
    },
    /// Set one of the numbers of a network card. A new number of queues takes with it what was set for each of them, which
    /// undo brings back.
    SetNic {
        /// The link.
        link: IfName,
        /// Which number.
        parameter: NicParameter,
        /// The new value; 0 or 1 for what is off or on.
        value: u32,
    },
    /// Spread received flows evenly over the first queues of a card.
    SetIndirection {
        /// The link.
        link: IfName,
        /// How many queues, from 1.
        queues: u32,
    },
    /// Let a card hash received flows by other fields, or with another key.
    SetRssHash {
        /// The link.
        link: IfName,
        /// By what.
        hash: RssHash,
    },
    /// Set a number that is a file of a link.
    SetLinkAttribute {
        /// The link.
        link: IfName,
        /// Which.
        attribute: LinkAttribute,
        /// The new value.
        value: u64,
    },
    /// Set a number in the kernel's debugfs, which is the machine's.
    SetDebug {
        /// Which.
        file: DebugFile,
        /// The new value.
        value: u64,
    },
    /// Set a number that is a parameter of a module, which is the machine's.
    SetModule {
        /// Which.
        parameter: ModuleParameter,
        /// The new value.
        value: u64,
    },
    /// Let these CPUs serve an interrupt. Interrupts belong to the machine; the place is that of its card.
    SetIrqCpus {
        /// The interrupt's number.
        irq: u32,
        /// Its name: another driver may have got the number meanwhile.
        name: String,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// Load the programs of a node and pin them in a bpffs of their own.
    LoadPrograms(Programs),
    /// Attach a program of a node to a link.
    AttachProgram(Attachment),
    /// Tell the programs of a node about a pod.
    AddEndpoint(Endpoint),
    /// Tell the programs of a node about a tunnel to another.
    AddTunnel(Tunnel),
    /// Make the control group of a node, whose tasks' sockets may be spliced.
    AddCgroup(Splice),
    /// Load the programs that splice the sockets of a node's pods, and pin them beside the forwarding programs.
    LoadSplice(Splice),
    /// Attach them to the node's control group.
    AttachSplice(Splice),
    /// Let the sockets of a pod be spliced. The step's place is the pod's namespace.
    AddMember(Member),
}

impl Plan {
    /// A plan without steps.
    pub fn new() -> Plan {
        Plan::default()
    }

    /// Adds a step at the end.
    pub fn push(&mut self, place: &Place, step: Step) {
        self.steps.push(Placed { place: place.clone(), step });
    }

    /// Adds another plan's steps at the end.
    pub fn extend(&mut self, other: Plan) {
        self.steps.extend(other.steps);
    }

    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host => f.write_str("the host's namespace"),
            Place::Netns(name) => write!(f, "namespace {name}"),
        }
    }
}
