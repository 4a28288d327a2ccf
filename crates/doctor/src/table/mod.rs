//! The list of checks, one file a family.

mod buffers;
mod card;
mod conntrack;
mod cpu;
mod hygiene;
mod irq;
mod limits;
mod links;
mod listen;
mod loss;
mod mtu;
mod queues;
mod receive;
mod rhythm;
mod softirq;
mod speed;
mod udp;
mod unseen;

use crate::{Check, CheckGroup};

/// Every check, by family, along the path of a packet.
pub const TABLE: &[CheckGroup] = &[
    softirq::GROUP,
    irq::GROUP,
    queues::GROUP,
    card::GROUP,
    links::GROUP,
    speed::GROUP,
    conntrack::GROUP,
    listen::GROUP,
    loss::GROUP,
    receive::GROUP,
    limits::GROUP,
    rhythm::GROUP,
    mtu::GROUP,
    udp::GROUP,
    buffers::GROUP,
    hygiene::GROUP,
    cpu::GROUP,
    unseen::GROUP,
];

/// Every check, in the order of [`TABLE`].
pub fn all() -> impl Iterator<Item = &'static Check> {
    TABLE.iter().flat_map(|family| family.checks)
}

/// The check of a code, in capitals or not.
pub fn find(code: &str) -> Option<&'static Check> {
    all().find(|check| check.code.eq_ignore_ascii_case(code))
}

/// The kernel's own page on spreading packets over CPUs.
const SCALING: &str = "Documentation/networking/scaling.rst";
/// The kernel's own page on its parameters of TCP and IP.
const IP_SYSCTL: &str = "Documentation/networking/ip-sysctl.rst";
/// The kernel's own page on its counters.
const SNMP_COUNTER: &str = "Documentation/networking/snmp_counter.rst";
/// The kernel's own page on the counters of links.
const STATISTICS: &str = "Documentation/networking/statistics.rst";
/// Where counters of the stack are read.
const NETSTAT: &str = "/proc/net/netstat";
const SNMP: &str = "/proc/net/snmp";
const SNMP6: &str = "/proc/net/snmp6";
const SOCK_DIAG: &str = "sock_diag, tcp_info";
