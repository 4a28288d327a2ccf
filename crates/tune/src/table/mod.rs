//! The list of knobs, and the starting points of its rows.

mod congestion;
mod connections;
mod link;
mod loss;
mod machine;
mod memory;
mod nic;
mod obsolete;
mod path;
mod route;

use crate::{ByDefault, Disrupts, Knob, KnobGroup, Lives, Reaches, Risk, Since, ValueKind};

/// Every knob, by family, in display order. A family's order is the order in which its settings are made.
pub const TABLE: &[KnobGroup] = &[
    congestion::GROUP,
    memory::GROUP,
    loss::GROUP,
    connections::GROUP,
    path::GROUP,
    route::GROUP,
    link::GROUP,
    nic::GROUP,
    machine::GROUP,
    obsolete::GROUP,
];

/// Every knob, in the order of [`TABLE`].
pub fn all() -> impl Iterator<Item = &'static Knob> {
    TABLE.iter().flat_map(|family| family.knobs)
}

/// The knob of a name: its own, or where it is a parameter of the kernel that one's below `/proc/sys`, with slashes or
/// dots as sysctl(8) takes them, or that of a module as on the kernel's command line.
pub fn find(name: &str) -> Option<&'static Knob> {
    let path = name.replace('.', "/");
    all().find(|knob| match knob.lives {
        _ if knob.id == name => true,
        Lives::Sysctl(key) | Lives::Machine(key) => key == path,
        Lives::Module(parameter) => parameter.name() == name,
        Lives::Nowhere { .. } => path.strip_prefix("net/ipv4/") == Some(knob.id),
        _ => false,
    })
}

/// The oldest supported kernel: a property that begins here holds on all.
pub(crate) const OLDEST: Since = Since(5, 15);

/// The kernel's own page on its parameters of TCP and IP.
const IP_SYSCTL: &str = "Documentation/networking/ip-sysctl.rst";
/// The kernel's own page on spreading packets over CPUs.
const SCALING: &str = "Documentation/networking/scaling.rst";

/// The kernel's own page on its parameters of the network as a whole.
const CORE_SYSCTL: &str = "Documentation/admin-guide/sysctl/net.rst";
/// The kernel's own page on settings of network cards by netlink.
const ETHTOOL: &str = "Documentation/networking/ethtool-netlink.rst; ethtool(8)";
/// The kernel's own page on polling.
const NAPI: &str = "Documentation/networking/napi.rst";

/// What most parameters have in common.
const USUAL: Knob = Knob {
    id: "",
    lives: Lives::Nowhere { gone: "", instead: "" },
    kind: ValueKind::Switch,
    example: "1",
    since: None,
    until: None,
    reaches: Reaches::NewConnections,
    disrupts: Disrupts::Nothing,
    risk: Risk::Low,
    default: ByDefault::Gone,
    why: "",
    source: IP_SYSCTL,
};

/// A number of bytes that the kernel keeps in an `int`.
const BYTES: ValueKind = ValueKind::Number { min: 1, max: i32::MAX as u64, unit: "bytes" };

/// A mode or level from 0.
const fn up_to(max: u64) -> ValueKind {
    ValueKind::Number { min: 0, max, unit: "" }
}

/// A number with a unit and a range.
const fn from_to(min: u64, max: u64, unit: &'static str) -> ValueKind {
    ValueKind::Number { min, max, unit }
}
