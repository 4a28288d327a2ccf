//! What the whole machine shares.

use linux::debugfs::DebugFile;
use linux::module::ModuleParameter;

use super::{BYTES, CORE_SYSCTL, OLDEST, USUAL, from_to};
use crate::{ByDefault, Knob, KnobGroup, Lives, Reaches, Risk, Since, ValueKind};

const OF_MACHINE: Knob = Knob { reaches: Reaches::All, source: CORE_SYSCTL, ..USUAL };

const CONNTRACK: &str = "Documentation/networking/nf_conntrack-sysctl.rst; commit d532bcd0b269";

const CUBIC: &str = "net/ipv4/tcp_cubic.c (hystart_update)";

pub(super) const GROUP: KnobGroup = KnobGroup {
    title: "The whole machine",
    about: "One value for all namespaces, set in the machine's first; a race sets them only in a virtual machine of its own.",
    knobs: &[
        Knob {
            id: "netdev_max_backlog",
            lives: Lives::Machine("net/core/netdev_max_backlog"),
            kind: from_to(1, 1_000_000, "packets"),
            example: "2000",
            default: ByDefault::Kernel(&[(OLDEST, "1000")]),
            why: "The longest queue of packets that wait for a CPU: those steered by RPS, and those of veth, tunnels and \
                loopback. A card that is polled does not use it. More is worth it where the CPUs count drops \
                (/proc/net/softnet_stat, second column), and is a longer wait.",
            ..OF_MACHINE
        },
        Knob {
            id: "netdev_budget",
            lives: Lives::Machine("net/core/netdev_budget"),
            kind: from_to(1, 100_000, "packets"),
            example: "600",
            default: ByDefault::Kernel(&[(OLDEST, "300")]),
            why: "How many packets a CPU receives before it lets other work run. Since Linux 4.12 time usually \
                  ends a round first (netdev_budget_usecs), so this alone does nothing.",
            ..OF_MACHINE
        },
        Knob {
            id: "netdev_budget_usecs",
            lives: Lives::Machine("net/core/netdev_budget_usecs"),
            kind: from_to(1, 100_000, "microseconds"),
            example: "10000",
            default: ByDefault::Build("two ticks of its clock: 8000 at 250 Hz, 2000 at 1000 Hz"),
            risk: Risk::Medium,
            why: "The same as a time. More helps only where packets are dropped meanwhile, and makes other \
                  work on the CPU wait as long.",
            ..OF_MACHINE
        },
        Knob {
            id: "dev_weight",
            lives: Lives::Machine("net/core/dev_weight"),
            kind: from_to(1, 10_000, "packets"),
            example: "128",
            default: ByDefault::Kernel(&[(OLDEST, "64")]),
            why: "How many packets of its backlog a CPU takes in a row, and how many a queueing discipline sends. Cards have \
                a weight of their own.",
            ..OF_MACHINE
        },
        Knob {
            id: "flow_limit_cpu_bitmap",
            lives: Lives::Machine("net/core/flow_limit_cpu_bitmap"),
            kind: ValueKind::Cpus,
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "none")]),
            why: "The CPUs on which a flow that fills more than half of the backlog loses its packets first, so that small \
                ones get through. For CPUs that RPS steers to.",
            source: "Documentation/networking/scaling.rst",
            ..OF_MACHINE
        },
        Knob {
            id: "busy_poll",
            lives: Lives::Machine("net/core/busy_poll"),
            kind: from_to(0, 10_000, "microseconds"),
            example: "50",
            default: ByDefault::Kernel(&[(OLDEST, "0")]),
            risk: Risk::Medium,
            why: "How long poll, select and epoll poll the card themselves before they sleep: no interrupt, no \
                  wake-up, and a CPU that is never idle. 50 for few sockets, 100 for hundreds. The card's \
                  driver must support it.",
            ..OF_MACHINE
        },
        Knob {
            id: "busy_read",
            lives: Lives::Machine("net/core/busy_read"),
            kind: from_to(0, 10_000, "microseconds"),
            example: "50",
            default: ByDefault::Kernel(&[(OLDEST, "0")]),
            reaches: Reaches::NewConnections,
            risk: Risk::Medium,
            why: "How long a read polls the card's queue before it sleeps, in microseconds: the default of \
                  new sockets (SO_BUSY_POLL).",
            ..OF_MACHINE
        },
        Knob {
            id: "default_qdisc",
            lives: Lives::Machine("net/core/default_qdisc"),
            kind: ValueKind::Choice(&["fq", "fq_codel", "pfifo_fast", "pfifo"]),
            example: "pfifo",
            default: ByDefault::Build("pfifo_fast in most; systemd sets fq_codel"),
            why: "The queue of links that are made later; existing links keep theirs, for which there is qdisc.",
            ..OF_MACHINE
        },
        Knob {
            id: "rmem_max",
            lives: Lives::Machine("net/core/rmem_max"),
            kind: BYTES,
            example: "8388608",
            default: ByDefault::Kernel(&[(Since(4, 0), "212992"), (Since(6, 18), "4194304")]),
            reaches: Reaches::NewConnections,
            why: "The most that a program can ask for as its receive buffer, as QUIC and other UDP programs \
                  do. It does not limit what TCP takes by itself: that is tcp_rmem.",
            source: "Documentation/admin-guide/sysctl/net.rst; commit a6d4f25888b8",
            ..OF_MACHINE
        },
        Knob {
            id: "wmem_max",
            lives: Lives::Machine("net/core/wmem_max"),
            kind: BYTES,
            example: "8388608",
            default: ByDefault::Kernel(&[(Since(4, 0), "212992"), (Since(6, 18), "4194304")]),
            reaches: Reaches::NewConnections,
            why: "The same for send buffers.",
            source: "Documentation/admin-guide/sysctl/net.rst; commit a6d4f25888b8",
            ..OF_MACHINE
        },
        Knob {
            id: "tcp_mem",
            lives: Lives::Machine("net/ipv4/tcp_mem"),
            kind: ValueKind::Pages,
            example: "100000 200000 300000",
            default: ByDefault::Memory("three 64ths, four 64ths and six 64ths of what is free at the start"),
            risk: Risk::High,
            why: "Memory of all TCP connections together: above the second number buffers shrink, above the \
                  third packets are lost. At most a quarter of the memory: the rest of the machine needs some.",
            source: super::IP_SYSCTL,
            ..OF_MACHINE
        },
        Knob {
            id: "file_max",
            lives: Lives::Machine("fs/file-max"),
            kind: from_to(8_192, i64::MAX as u64, "files"),
            example: "4000000",
            default: ByDefault::Memory("one for each 10 KiB; systemd sets as many as a number can be"),
            why: "Open files of all processes together. This limit is hardly ever reached today: a server that \
                  cannot accept has reached its own limit (LimitNOFILE of its unit).",
            source: "Documentation/admin-guide/sysctl/fs.rst",
            ..OF_MACHINE
        },
        Knob {
            id: "cpu_dma_latency",
            lives: Lives::CpuLatency,
            kind: from_to(0, 1_000_000, "microseconds"),
            example: "3",
            default: ByDefault::Unset("no limit"),
            risk: Risk::Medium,
            why: "The longest time that a CPU may take to wake up. Leaving deep sleep takes up to some hundred \
                  microseconds, for which the first packet after a pause waits. A limit of 3 keeps CPUs in the \
                  lightest sleep, at the cost of power and of the boost of their neighbours. It holds for as \
                  long as hostgap's watcher lives.",
            source: "Documentation/power/pm_qos_interface.rst",
            ..OF_MACHINE
        },
        Knob {
            id: "sched_migration_cost_ns",
            lives: Lives::Debug(DebugFile::SchedMigrationCost),
            kind: from_to(0, 100_000_000, "nanoseconds"),
            example: "5000000",
            default: ByDefault::Kernel(&[(OLDEST, "500000")]),
            why: "A task that ran less than so long ago counts as warm in its CPU's cache and is not moved to another. The \
                5 ms of old guides were measured for a scheduler that left in Linux 6.6. It left /proc/sys in 5.13; debugfs \
                must be mounted.",
            source: "kernel/sched/debug.c; kernel/sched/fair.c (task_hot)",
            ..OF_MACHINE
        },
        Knob {
            id: "hystart",
            lives: Lives::Module(ModuleParameter::CubicHystart),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            risk: Risk::Medium,
            why: "Whether cubic leaves slow start when the path seems full, before packets are lost. 0 lets it double its \
                window until the first loss: sooner at full speed where it left too early, and a larger burst into the \
                queue of the narrowest link. hystart_detect is the milder choice.",
            source: CUBIC,
            ..OF_MACHINE
        },
        Knob {
            id: "hystart_detect",
            lives: Lives::Module(ModuleParameter::CubicHystartDetect),
            kind: from_to(1, 3, ""),
            example: "2",
            default: ByDefault::Kernel(&[(OLDEST, "3")]),
            why: "How cubic detects that: 1 by trains of acknowledgements that grow as long as half a round \
                  trip, 2 by round trips that grow longer, 3 by either. Trains also grow where \
                  acknowledgements are collected on the way, so that long and fast paths leave slow start far \
                  too early: Google Cloud advises 2. On short paths it changes little.",
            source: CUBIC,
            ..OF_MACHINE
        },
        Knob {
            id: "nf_conntrack_buckets",
            lives: Lives::Machine("net/netfilter/nf_conntrack_buckets"),
            kind: ValueKind::PowerOfTwo { max: 1 << 26, unit: "buckets" },
            example: "65536",
            default: ByDefault::Memory("262144 above 4 GiB, 65536 above 1 GiB, else one for each 128 KiB"),
            why: "The hash table of connection tracking. As many as there are entries, or the chains grow long. Below 512 the \
                kernel takes another number.",
            source: CONNTRACK,
            ..OF_MACHINE
        },
        Knob {
            id: "nf_conntrack_max",
            lives: Lives::Machine("net/netfilter/nf_conntrack_max"),
            kind: from_to(1, i32::MAX as u64, "connections"),
            example: "500000",
            default: ByDefault::Memory("as many as nf_conntrack_buckets at the start"),
            why: "The most connections that are tracked; beyond it new ones are dropped. Twice the peak, at some 400 bytes \
                each.",
            source: CONNTRACK,
            ..OF_MACHINE
        },
    ],
};
