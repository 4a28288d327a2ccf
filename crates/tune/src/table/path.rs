//! What TCP remembers and finds out of a path.

use super::{OLDEST, USUAL, from_to, up_to};
use crate::{ByDefault, Knob, KnobGroup, Lives, Reaches, Risk};

pub(super) const GROUP: KnobGroup = KnobGroup {
    title: "Paths",
    about: "What the kernel probes on a path, and what it remembers.",
    knobs: &[
        Knob {
            id: "tcp_mtu_probing",
            lives: Lives::Sysctl("net/ipv4/tcp_mtu_probing"),
            kind: up_to(2),
            example: "1",
            default: ByDefault::Kernel(&[(OLDEST, "0")]),
            risk: Risk::Low,
            why: "1 tries smaller packets when large ones vanish silently, as behind a tunnel whose ICMP is \
                  filtered; 2 always.",
            ..USUAL
        },
        Knob {
            id: "tcp_base_mss",
            lives: Lives::Sysctl("net/ipv4/tcp_base_mss"),
            kind: from_to(48, 65_535, "bytes"),
            example: "1200",
            default: ByDefault::Kernel(&[(OLDEST, "1024")]),
            why: "Where that begins.",
            ..USUAL
        },
        Knob {
            id: "ip_no_pmtu_disc",
            lives: Lives::Sysctl("net/ipv4/ip_no_pmtu_disc"),
            kind: up_to(3),
            example: "1",
            default: ByDefault::Kernel(&[(OLDEST, "0")]),
            risk: Risk::Medium,
            why: "1 turns path MTU discovery off: packets may be fragmented on the way. It is rarely \
                  needed.",
            ..USUAL
        },
        Knob {
            id: "tcp_no_metrics_save",
            lives: Lives::Sysctl("net/ipv4/tcp_no_metrics_save"),
            example: "1",
            default: ByDefault::Kernel(&[(OLDEST, "0")]),
            reaches: Reaches::All,
            why: "1 starts every connection without what the last one to that host had learnt. For \
                  measurements.",
            ..USUAL
        },
        Knob {
            id: "tcp_no_ssthresh_metrics_save",
            lives: Lives::Sysctl("net/ipv4/tcp_no_ssthresh_metrics_save"),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            reaches: Reaches::All,
            why: "0 also remembers for each host where slow start ended; one bad minute then slows down the \
                  connections after it.",
            ..USUAL
        },
    ],
};
