//! Queues and links of a node.

use super::{OLDEST, SCALING, USUAL, from_to};
use crate::{ByDefault, Disrupts, Knob, KnobGroup, Lives, QueueFile, Reaches, Risk, ValueKind};

pub(super) const GROUP: KnobGroup = KnobGroup {
    title: "Queues and links of the node",
    about: "The CPUs that process packets, and the size of packets, on the link to the other nodes.",
    knobs: &[
        Knob {
            id: "rps_sock_flow_entries",
            lives: Lives::Machine("net/core/rps_sock_flow_entries"),
            kind: ValueKind::PowerOfTwo { max: 1 << 29, unit: "flows" },
            example: "32768",
            default: ByDefault::Kernel(&[(OLDEST, "0")]),
            reaches: Reaches::All,
            why: "The table in which reading threads record their CPU (RFS). One for the whole machine; 32768 \
                  suits up to some ten thousand connections. A queue uses it if its rps_flow_cnt is set.",
            source: SCALING,
            ..USUAL
        },
        Knob {
            id: "rps_cpus",
            lives: Lives::Queue(QueueFile::RpsCpus),
            kind: ValueKind::Cpus,
            example: "node",
            default: ByDefault::Kernel(&[(OLDEST, "none")]),
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "The CPUs that process received packets (RPS). It spreads the load of one queue; each \
                  hand-over costs an interrupt between CPUs, so it is worth it only where one CPU is full.",
            source: SCALING,
            ..USUAL
        },
        Knob {
            id: "rps_flow_cnt",
            lives: Lives::Queue(QueueFile::RpsFlows),
            kind: ValueKind::PerQueue { max: 1 << 29, unit: "flows" },
            example: "4096",
            default: ByDefault::Kernel(&[(OLDEST, "0")]),
            reaches: Reaches::All,
            why: "The number of flows of this queue whose packets follow their readers from CPU to CPU (RFS): \
                  rps_sock_flow_entries divided by the number of queues, which \"65536/queues\" works out.",
            source: SCALING,
            ..USUAL
        },
        Knob {
            id: "xps_cpus",
            lives: Lives::Queue(QueueFile::XpsCpus),
            kind: ValueKind::QueueCpus,
            example: "node",
            default: ByDefault::Driver("none, or a CPU of its own for each queue"),
            reaches: Reaches::All,
            why: "The CPUs that send through this queue (XPS); it matters only on a link with several queues. \
                  With one list, its CPUs are divided among the queues; with several lists (0-8;9-17 for the \
                  CPUs of two NUMA nodes) each group of queues gets the CPUs of its list.",
            source: SCALING,
            ..USUAL
        },
        Knob {
            id: "qdisc",
            lives: Lives::RootQdisc,
            kind: ValueKind::Qdisc,
            example: "pfifo",
            default: ByDefault::Unset(
                "default_qdisc, one for each queue of a card with several; none at a veth link",
            ),
            reaches: Reaches::All,
            disrupts: Disrupts::Queued,
            risk: Risk::Medium,
            why: "The queue in front of the link. fq paces each connection, which relieves the queues behind \
                  it; fq_codel keeps the wait short where this link is the bottleneck of its path; the others \
                  are plain queues. Options that are not given keep the kernel's defaults. A veth link has no \
                  queue by default, so this adds one.",
            source: "tc-fq(8), tc-fq_codel(8); net/sched/sch_generic.c",
            ..USUAL
        },
        Knob {
            id: "mtu",
            lives: Lives::Mtu,
            kind: from_to(1_280, 65_535, "bytes"),
            example: "9001",
            default: ByDefault::Driver("1500 for Ethernet"),
            reaches: Reaches::All,
            disrupts: Disrupts::Link,
            risk: Risk::High,
            why: "Bytes of a packet without the Ethernet header. Jumbo packets cost less CPU a byte and lose \
                  less to a path with loss; a path that cannot carry them drops them silently. In a race it is \
                  the MTU of the wire and of everything above it, on both sides.",
            source: "ip-link(8); RFC 8200, section 5",
            ..USUAL
        },
    ],
};
