//! What TCP does about lost packets.

use super::{OLDEST, USUAL, from_to, up_to};
use crate::{ByDefault, Knob, KnobGroup, Lives, Reaches, Risk, Since};

pub(super) const GROUP: KnobGroup = KnobGroup {
    title: "Loss and time-outs",
    about: "How soon a loss is detected, and how long TCP waits before it retransmits.",
    knobs: &[
        Knob {
            id: "tcp_sack",
            lives: Lives::Sysctl("net/ipv4/tcp_sack"),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            risk: Risk::Medium,
            why: "Selective acknowledgements say which packets are missing. Without them a loss costs many \
                  more round trips.",
            ..USUAL
        },
        Knob {
            id: "tcp_dsack",
            lives: Lives::Sysctl("net/ipv4/tcp_dsack"),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            why: "They also report duplicates, from which a sender learns that it retransmitted unnecessarily.",
            ..USUAL
        },
        Knob {
            id: "tcp_timestamps",
            lives: Lives::Sysctl("net/ipv4/tcp_timestamps"),
            kind: up_to(2),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            risk: Risk::Medium,
            why: "Each packet carries the time: round trips are measured well, and old packets are recognised. \
                  0 saves 12 bytes a packet and makes tcp_tw_reuse do nothing.",
            ..USUAL
        },
        Knob {
            id: "tcp_recovery",
            lives: Lives::Sysctl("net/ipv4/tcp_recovery"),
            kind: up_to(7),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            reaches: Reaches::All,
            why: "A set of bits. 1 finds losses by time (RACK), which tolerates reordering; without it \
                  acknowledgements were counted. From Linux 6.17, which no longer counts, it always acts as if \
                  set. 2 keeps the reordering window at a quarter of the least round trip; 4 applies it even \
                  after tcp_reordering packets have come after a gap.",
            source: "Documentation/networking/ip-sysctl.rst; net/ipv4/tcp_recovery.c",
            ..USUAL
        },
        Knob {
            id: "tcp_early_retrans",
            lives: Lives::Sysctl("net/ipv4/tcp_early_retrans"),
            kind: up_to(4),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "3")]),
            reaches: Reaches::All,
            why: "3 repeats the end of an answer after two round trips without an acknowledgement, instead \
                  of waiting for the time-out (tail loss probe). Guides that say 0 lengthen the tail.",
            ..USUAL
        },
        Knob {
            id: "tcp_frto",
            lives: Lives::Sysctl("net/ipv4/tcp_frto"),
            kind: up_to(2),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "2")]),
            reaches: Reaches::All,
            why: "2 finds out whether a time-out was too early before it retransmits everything.",
            ..USUAL
        },
        Knob {
            id: "tcp_reordering",
            lives: Lives::Sysctl("net/ipv4/tcp_reordering"),
            kind: from_to(1, 127, "packets"),
            example: "10",
            default: ByDefault::Kernel(&[(OLDEST, "3")]),
            why: "How far packets may initially overtake each other before it counts as loss; more for \
                  networks that spread a connection over several paths.",
            ..USUAL
        },
        Knob {
            id: "tcp_thin_linear_timeouts",
            lives: Lives::Sysctl("net/ipv4/tcp_thin_linear_timeouts"),
            example: "1",
            default: ByDefault::Kernel(&[(OLDEST, "0")]),
            reaches: Reaches::All,
            why: "1 does not double the time-out for connections with fewer than four packets in flight: \
                  steady small streams recover sooner.",
            ..USUAL
        },
        Knob {
            id: "tcp_rto_min_us",
            lives: Lives::Sysctl("net/ipv4/tcp_rto_min_us"),
            kind: from_to(1, 10_000_000, "microseconds"),
            example: "10000",
            default: ByDefault::Kernel(&[(Since(6, 11), "200000")]),
            since: Some(Since(6, 11)),
            risk: Risk::Medium,
            why: "The minimum retransmission time-out. The default of 200 ms is a thousand round trips of a \
                  data centre: a tail near that value is lost packets. A minimum below the delay of the peer's \
                  acknowledgements (40 ms) retransmits what was not lost.",
            ..USUAL
        },
        Knob {
            id: "tcp_rto_max_ms",
            lives: Lives::Sysctl("net/ipv4/tcp_rto_max_ms"),
            kind: from_to(1_000, 120_000, "milliseconds"),
            example: "30000",
            default: ByDefault::Kernel(&[(Since(6, 15), "120000")]),
            since: Some(Since(6, 15)),
            risk: Risk::Medium,
            why: "The upper limit of the doubled time-out.",
            ..USUAL
        },
        Knob {
            id: "tcp_retries2",
            lives: Lives::Sysctl("net/ipv4/tcp_retries2"),
            kind: from_to(1, 255, "attempts"),
            example: "8",
            default: ByDefault::Kernel(&[(OLDEST, "15")]),
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "After how many time-outs a connection is given up: 15 is a quarter of an hour, 8 about 100 \
                s.",
            ..USUAL
        },
        Knob {
            id: "tcp_syn_retries",
            lives: Lives::Sysctl("net/ipv4/tcp_syn_retries"),
            kind: from_to(1, 127, "attempts"),
            example: "3",
            default: ByDefault::Kernel(&[(OLDEST, "6")]),
            why: "How often the first packet of a connection is retransmitted until connecting fails.",
            ..USUAL
        },
        Knob {
            id: "tcp_comp_sack_delay_ns",
            lives: Lives::Sysctl("net/ipv4/tcp_comp_sack_delay_ns"),
            kind: from_to(0, 100_000_000, "nanoseconds"),
            example: "500000",
            default: ByDefault::Kernel(&[(OLDEST, "1000000")]),
            reaches: Reaches::All,
            why: "How long selective acknowledgements may wait to be sent together; less sees losses sooner.",
            ..USUAL
        },
        Knob {
            id: "tcp_pingpong_thresh",
            lives: Lives::Sysctl("net/ipv4/tcp_pingpong_thresh"),
            kind: from_to(1, 255, "answers"),
            example: "3",
            default: ByDefault::Kernel(&[(Since(6, 7), "1")]),
            since: Some(Since(6, 7)),
            reaches: Reaches::All,
            why: "After how many quick answers a connection counts as a dialogue, whose acknowledgements wait \
                for the next answer.",
            ..USUAL
        },
    ],
};
