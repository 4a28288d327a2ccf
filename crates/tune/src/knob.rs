//! A row of the table.

use std::fmt;

use linux::debugfs::DebugFile;
use linux::ethtool::NicParameter;
use linux::module::ModuleParameter;
use linux::netlink::RouteMetric;
use linux::sysfs::LinkAttribute;

use crate::{ByDefault, RssPart, Since, ValueKind};

/// Knobs that belong together, under a heading.
#[derive(Debug)]
pub struct KnobGroup {
    /// The heading in docs/knobs.md.
    pub title: &'static str,
    /// What they have in common, in a sentence.
    pub about: &'static str,
    /// The rows, in display order.
    pub knobs: &'static [Knob],
}

/// Something that can be set.
#[derive(Debug, PartialEq, Eq)]
pub struct Knob {
    /// The name by which users call it: that of the kernel or of `ip`, where they have one.
    pub id: &'static str,
    /// The place of the setting in the kernel.
    pub lives: Lives,
    /// The values that it accepts.
    pub kind: ValueKind,
    /// A valid value that is no kernel's default.
    pub example: &'static str,
    /// The first kernel that has it for each namespace, where that is younger than the oldest supported, 5.15.
    pub since: Option<Since>,
    /// The first kernel on which it has no effect, though it still accepts values.
    pub until: Option<Since>,
    /// What a change affects.
    pub reaches: Reaches,
    /// What the change interrupts.
    pub disrupts: Disrupts,
    /// What a bad value can do.
    pub risk: Risk,
    /// Its default, by kernel.
    pub default: ByDefault,
    /// Its use, and when to avoid it, in a sentence or two.
    pub why: &'static str,
    /// The kernel source or document that supports it.
    pub source: &'static str,
}

/// The file, call or object of the kernel by which a knob is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lives {
    /// A kernel parameter below `/proc/sys` of each network namespace.
    Sysctl(&'static str),
    /// A kernel parameter below `/proc/sys` that the whole machine shares: new namespaces do not have it.
    Machine(&'static str),
    /// A property of the routes to the other side.
    Route(RouteMetric),
    /// A file of each queue of the node's link to the other nodes.
    Queue(QueueFile),
    /// The queueing discipline at the root of that link.
    RootQdisc,
    /// The MTU of that link.
    Mtu,
    /// Numbers of the network card behind that link, all set to the same.
    Nic(&'static [NicParameter]),
    /// The table by which that card spreads flows over its queues.
    Indirection,
    /// The input of the card's flow hash, before the lookup in the table.
    Rss(RssPart),
    /// The CPUs of that card's interrupts.
    Interrupts,
    /// A file of that link.
    Attribute(LinkAttribute),
    /// nftables tables of ours in the namespace of the process.
    Notrack,
    /// A limit that holds for as long as a process of ours has a device open.
    CpuLatency,
    /// A number in the kernel's debugfs, which the whole machine shares.
    Debug(DebugFile),
    /// A parameter of a module of the kernel, which the whole machine shares.
    Module(ModuleParameter),
    /// Nowhere: it has no effect any more, or it is left to others.
    Nowhere {
        /// What became of it, or why hostgap leaves it to other programs.
        gone: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
}

/// A file of a queue in `/sys/class/net/LINK/queues`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueFile {
    /// Which CPUs receive (`rx-0/rps_cpus`).
    RpsCpus,
    /// How many flows are followed to their readers' CPUs (`rx-0/rps_flow_cnt`).
    RpsFlows,
    /// Which CPUs send by it (`tx-0/xps_cpus`).
    XpsCpus,
}

/// For whom one value counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Scope {
    /// The whole machine, with all its namespaces.
    Machine,
    /// A network namespace: a pod, or a node.
    Netns,
    /// The routes to a destination.
    Route,
    /// A queue of a link.
    Queue,
    Link,
}

/// In which races a knob can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Races {
    All,
    /// In those on one machine, whose wires are the race's own.
    OnOneMachine,
    /// In those of a virtual machine and between machines: the whole machine has one value, and elsewhere it is others'
    /// too.
    OwnMachine,
    /// In those whose wires are between cards, which a veth is not.
    BetweenCards,
    /// In those between machines: a virtual machine of a race does not have it.
    BetweenMachines,
    /// In none: a process must hold it, or it makes devices that stay, and `hostgap tune` alone takes it back.
    Never,
}

/// What a change affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaches {
    /// All traffic, at once.
    All,
    /// Connections that begin later.
    NewConnections,
    /// Sockets that begin to listen later.
    NewListeners,
}

/// What a change interrupts, whatever the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Disrupts {
    Nothing,
    /// Packets that wait in a queue are dropped.
    Queued,
    /// The link does not receive or send for up to a second.
    Link,
}

/// What a bad value can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// Little: some speed or some memory.
    Low,
    /// Much speed, or memory under load, or neighbours in the network suffer.
    Medium,
    /// Some peers cannot be reached, or the machine runs out of memory.
    High,
}

impl Knob {
    /// The scope of one value; `None` for a knob that is gone.
    pub fn scope(&self) -> Option<Scope> {
        match self.lives {
            Lives::Sysctl(_) | Lives::Notrack => Some(Scope::Netns),
            Lives::Machine(_) | Lives::Debug(_) | Lives::Module(_) | Lives::CpuLatency => {
                Some(Scope::Machine)
            }
            Lives::Route(_) => Some(Scope::Route),
            Lives::Queue(_) => Some(Scope::Queue),
            Lives::RootQdisc
            | Lives::Mtu
            | Lives::Nic(_)
            | Lives::Indirection
            | Lives::Rss(_)
            | Lives::Interrupts
            | Lives::Attribute(_) => Some(Scope::Link),
            Lives::Nowhere { .. } => None,
        }
    }
}

impl Knob {
    /// The races in which it can be set; `None` for a knob that is gone.
    pub fn races(&self) -> Option<Races> {
        Some(match self.lives {
            Lives::Sysctl(_) | Lives::Route(_) | Lives::Queue(_) | Lives::RootQdisc | Lives::Notrack => {
                Races::All
            }
            Lives::Mtu => Races::OnOneMachine,
            // A veth has queues and the kernel's own offloads, but neither rings nor interrupts to coalesce.
            Lives::Nic(parameters) => {
                let of_veth = |parameter: &NicParameter| {
                    matches!(parameter, NicParameter::Channels | NicParameter::Feature(_))
                };
                if parameters.iter().all(of_veth) { Races::All } else { Races::BetweenCards }
            }
            Lives::Attribute(LinkAttribute::Threaded)
            | Lives::Indirection
            | Lives::Rss(_)
            | Lives::Interrupts => Races::BetweenCards,
            Lives::Attribute(LinkAttribute::VirtualFunctions) => Races::Never,
            Lives::Attribute(_) => Races::All,
            Lives::Machine(_) => Races::OwnMachine,
            Lives::Debug(_) | Lives::Module(_) => Races::BetweenMachines,
            Lives::CpuLatency => Races::Never,
            Lives::Nowhere { .. } => return None,
        })
    }
}

impl fmt::Display for Races {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Races::All => "in any race",
            Races::OnOneMachine => "in any race on one machine",
            Races::OwnMachine => {
                "in races of a virtual machine (`--kernel`) or between machines (`--server`)"
            }
            Races::BetweenCards => "in races between cards (`--wire`) or machines (`--server`)",
            Races::BetweenMachines => "in races between machines (`--server`)",
            Races::Never => "in no race, by `hostgap tune` alone",
        })
    }
}

impl fmt::Display for Lives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lives::Sysctl(key) | Lives::Machine(key) => write!(f, "/proc/sys/{key}"),
            Lives::Route(metric) => write!(f, "ip route … {}", metric.word()),
            Lives::Queue(QueueFile::RpsCpus) => f.write_str("/sys/class/net/LINK/queues/rx-0/rps_cpus"),
            Lives::Queue(QueueFile::RpsFlows) => f.write_str("/sys/class/net/LINK/queues/rx-0/rps_flow_cnt"),
            Lives::Queue(QueueFile::XpsCpus) => f.write_str("/sys/class/net/LINK/queues/tx-0/xps_cpus"),
            Lives::RootQdisc => f.write_str("tc qdisc … root"),
            Lives::Mtu => f.write_str("ip link … mtu"),
            Lives::Nic(parameters) => {
                let commands: Vec<String> =
                    parameters.iter().map(|parameter| parameter.command("LINK", 1)).collect();
                let words =
                    commands.iter().map(|command| command.rsplit_once(' ').map_or("", |(words, _)| words));
                write!(f, "ethtool {} …", words.collect::<Vec<_>>().join(" …, "))
            }
            Lives::Indirection => f.write_str("ethtool -X LINK equal …"),
            Lives::Rss(RssPart::Fields) => f.write_str("ethtool -N LINK rx-flow-hash …"),
            Lives::Rss(RssPart::Key) => f.write_str("ethtool -X LINK hkey …"),
            Lives::Interrupts => f.write_str("/proc/irq/N/smp_affinity_list"),
            Lives::Attribute(attribute) => write!(f, "/sys/class/net/LINK/{attribute}"),
            Lives::Notrack => f.write_str("nft table hostgap-notrack-PORT"),
            Lives::CpuLatency => f.write_str("/dev/cpu_dma_latency"),
            Lives::Debug(file) => write!(f, "/sys/kernel/debug/{file}"),
            Lives::Module(parameter) => write!(f, "/sys/module/{parameter}"),
            Lives::Nowhere { gone, .. } => f.write_str(gone),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Machine => "machine",
            Scope::Netns => "namespace",
            Scope::Route => "route",
            Scope::Queue => "queue",
            Scope::Link => "link",
        })
    }
}

impl fmt::Display for Reaches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reaches::All => "at once",
            Reaches::NewConnections => "for new connections",
            Reaches::NewListeners => "for new listeners",
        })
    }
}

impl fmt::Display for Disrupts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Disrupts::Nothing => "nothing",
            Disrupts::Queued => "packets in a queue",
            Disrupts::Link => "the link, up to a second",
        })
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Risk::Low => "low",
            Risk::Medium => "medium",
            Risk::High => "high",
        })
    }
}
