//! How fast TCP sends.

use super::{BYTES, OLDEST, USUAL, from_to, up_to};
use crate::{ByDefault, Knob, KnobGroup, Lives, Reaches, Risk, Since, ValueKind};

pub(super) const GROUP: KnobGroup = KnobGroup {
    title: "How fast TCP sends",
    about: "Congestion control, pacing and the size of packets.",
    knobs: &[
        Knob {
            id: "tcp_congestion_control",
            lives: Lives::Sysctl("net/ipv4/tcp_congestion_control"),
            kind: ValueKind::Algorithm,
            example: "reno",
            default: ByDefault::Build("cubic in most; a new namespace has that of the first"),
            risk: Risk::Medium,
            why: "The algorithm of new sockets. bbr and illinois keep a fast path full in spite of random \
                  loss, where cubic goes down to 0.7 of its window at each loss; dctcp needs a network that \
                  marks. An algorithm that the machine does not allow to all users is set on the routes \
                  instead.",
            source: "Documentation/networking/ip-sysctl.rst; RFC 9438, section 4.6; tcp_set_default_congestion_control in net/ipv4/tcp_cong.c",
            ..USUAL
        },
        Knob {
            id: "tcp_slow_start_after_idle",
            lives: Lives::Sysctl("net/ipv4/tcp_slow_start_after_idle"),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "0 keeps the window over a pause instead of starting again from the first one, which suits \
                  permanent connections with bursts; the path may have changed meanwhile.",
            ..USUAL
        },
        Knob {
            id: "tcp_pacing_ss_ratio",
            lives: Lives::Sysctl("net/ipv4/tcp_pacing_ss_ratio"),
            kind: up_to(1000),
            example: "250",
            default: ByDefault::Kernel(&[(OLDEST, "200")]),
            reaches: Reaches::All,
            why: "Percent of the current rate at which packets are paced in slow start, where pacing is on \
                (bbr, the fq qdisc).",
            ..USUAL
        },
        Knob {
            id: "tcp_pacing_ca_ratio",
            lives: Lives::Sysctl("net/ipv4/tcp_pacing_ca_ratio"),
            kind: up_to(1000),
            example: "150",
            default: ByDefault::Kernel(&[(OLDEST, "120")]),
            reaches: Reaches::All,
            why: "The same after slow start: less is smoother, more fills gaps sooner.",
            ..USUAL
        },
        Knob {
            id: "tcp_ecn",
            lives: Lives::Sysctl("net/ipv4/tcp_ecn"),
            kind: up_to(5),
            example: "1",
            default: ByDefault::Kernel(&[(OLDEST, "2")]),
            risk: Risk::Medium,
            why: "1 asks peers for explicit congestion marks, so that a queue can slow a connection down \
                without a loss; 3 to 5 are accurate ECN, from Linux 6.18.",
            ..USUAL
        },
        Knob {
            id: "tcp_autocorking",
            lives: Lives::Sysctl("net/ipv4/tcp_autocorking"),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            reaches: Reaches::All,
            why: "0 sends small writes at once instead of collecting them while packets wait in a queue below.",
            ..USUAL
        },
        Knob {
            id: "tcp_limit_output_bytes",
            lives: Lives::Sysctl("net/ipv4/tcp_limit_output_bytes"),
            kind: BYTES,
            example: "131072",
            default: ByDefault::Kernel(&[(Since(4, 20), "1048576"), (Since(6, 16), "4194304")]),
            reaches: Reaches::All,
            why: "The most data of a connection that may wait below TCP. Less keeps queues of this machine \
                  short; too little starves links that report late what they have sent.",
            source: "Documentation/networking/ip-sysctl.rst; commits c73e5807e4f6 and 9ea3bfa61b09",
            ..USUAL
        },
        Knob {
            id: "tcp_min_tso_segs",
            lives: Lives::Sysctl("net/ipv4/tcp_min_tso_segs"),
            kind: from_to(1, 255, "segments"),
            example: "4",
            default: ByDefault::Kernel(&[(OLDEST, "2")]),
            reaches: Reaches::All,
            why: "The least number of segments in a packet that is split later: more costs less CPU and sends \
                  in larger bursts.",
            ..USUAL
        },
        Knob {
            id: "tcp_tso_win_divisor",
            lives: Lives::Sysctl("net/ipv4/tcp_tso_win_divisor"),
            kind: from_to(0, 255, ""),
            example: "8",
            default: ByDefault::Kernel(&[(OLDEST, "3")]),
            reaches: Reaches::All,
            why: "The share of the window that one such packet may be: 3 is a third, larger is smoother.",
            ..USUAL
        },
        Knob {
            id: "tcp_fastopen",
            lives: Lives::Sysctl("net/ipv4/tcp_fastopen"),
            kind: up_to(0x7fff),
            example: "3",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            risk: Risk::Medium,
            why: "3 lets servers accept data with the first packet too, which saves a round trip for returning \
                  clients; some middleboxes drop such packets.",
            ..USUAL
        },
    ],
};
