//! Buffers and windows of sockets.

use super::{OLDEST, USUAL, from_to};
use crate::{ByDefault, Knob, KnobGroup, Lives, Reaches, Risk, Since, ValueKind};

pub(super) const GROUP: KnobGroup = KnobGroup {
    title: "Buffers and windows",
    about: "How much data may be in flight, and how much may wait.",
    knobs: &[
        Knob {
            id: "tcp_rmem",
            lives: Lives::Sysctl("net/ipv4/tcp_rmem"),
            kind: ValueKind::Sizes,
            example: "4096 262144 16777216",
            default: ByDefault::Capped(
                &[(Since(4, 20), "4096 131072 6291456"), (Since(6, 16), "4096 131072 33554432")],
                "a 128th of memory at most",
            ),
            risk: Risk::Medium,
            why: "Receive buffers. The greatest size bounds the window to about half of it: a path of 80 ms \
                  and 1 Gbit/s holds 10 MB. Old guides set less than the default of kernels from 6.16 (32 \
                  MiB).",
            source: "Documentation/networking/ip-sysctl.rst; tcp_init in net/ipv4/tcp.c; commit 572be9bf9d0d",
            ..USUAL
        },
        Knob {
            id: "tcp_wmem",
            lives: Lives::Sysctl("net/ipv4/tcp_wmem"),
            kind: ValueKind::Sizes,
            example: "4096 65536 8388608",
            default: ByDefault::Capped(&[(Since(4, 0), "4096 16384 4194304")], "a 128th of memory at most"),
            risk: Risk::Medium,
            why: "Send buffers. The first size bounds what one write can hand over; the greatest, what is kept \
                  for retransmission on a long path.",
            ..USUAL
        },
        Knob {
            id: "tcp_moderate_rcvbuf",
            lives: Lives::Sysctl("net/ipv4/tcp_moderate_rcvbuf"),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            why: "1 lets receive buffers grow with what is read. 0 pins them to their first size, which is \
                  only for experiments.",
            ..USUAL
        },
        Knob {
            id: "tcp_window_scaling",
            lives: Lives::Sysctl("net/ipv4/tcp_window_scaling"),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            risk: Risk::Medium,
            why: "Without it windows end at 64 KiB. 0 is for experiments.",
            ..USUAL
        },
        Knob {
            id: "tcp_notsent_lowat",
            lives: Lives::Sysctl("net/ipv4/tcp_notsent_lowat"),
            kind: from_to(1, 4_294_967_295, "bytes"),
            example: "131072",
            default: ByDefault::Kernel(&[(OLDEST, "4294967295")]),
            reaches: Reaches::All,
            why: "The unsent data in a socket above which a writer has to wait: with little of it a server of \
                  HTTP/2 can decide late what goes first, and it saves memory.",
            ..USUAL
        },
        Knob {
            id: "tcp_shrink_window",
            lives: Lives::Sysctl("net/ipv4/tcp_shrink_window"),
            example: "1",
            default: ByDefault::Kernel(&[(Since(6, 5), "0")]),
            since: Some(Since(6, 5)),
            risk: Risk::Medium,
            why: "1 lets a receiver shrink the window if it has no memory for it, instead of dropping what \
                  comes. Late kernels of 6.1 have it too.",
            ..USUAL
        },
        Knob {
            id: "tcp_adv_win_scale",
            lives: Lives::Sysctl("net/ipv4/tcp_adv_win_scale"),
            kind: ValueKind::Signed { min: -31, max: 31 },
            example: "2",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            until: Some(Since(6, 6)),
            reaches: Reaches::All,
            why: "The share of a receive buffer that is not window: one part of 2^N with N above 0; from 0 down it is the \
                window that is one part of 2^-N. From 6.6 the kernel measures the share.",
            ..USUAL
        },
    ],
};
