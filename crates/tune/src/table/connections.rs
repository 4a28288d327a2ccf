//! Beginnings and ends of connections, and ports.

use super::{OLDEST, USUAL, from_to, up_to};
use crate::{ByDefault, Knob, KnobGroup, Lives, Reaches, Risk, Since, ValueKind};

pub(super) const GROUP: KnobGroup = KnobGroup {
    title: "Start and end of connections",
    about: "Queues of servers, ports of clients, and the state that remains when a connection has ended.",
    knobs: &[
        Knob {
            id: "notrack",
            lives: Lives::Notrack,
            kind: from_to(1, 65_535, ""),
            example: "8080",
            default: ByDefault::Unset("what the rules of a namespace want is tracked"),
            reaches: Reaches::NewConnections,
            risk: Risk::High,
            why: "Connections to this TCP port are not tracked: no entry, no look-up. On a host that is a port \
                  served there; in a race it is the port of a pod, and the nodes that forward its packets do \
                  not track them. It breaks address translation and rules about the state of a connection, \
                  which Docker and Kubernetes need; where there are such rules it is refused.",
            source: "nft(8), section NOTRACK STATEMENT",
            ..USUAL
        },
        Knob {
            id: "somaxconn",
            lives: Lives::Sysctl("net/core/somaxconn"),
            kind: from_to(1, 65_535, "connections"),
            example: "1024",
            default: ByDefault::Kernel(&[(Since(5, 4), "4096")]),
            reaches: Reaches::NewListeners,
            why: "The most connections that may wait in a listener until they are accepted, whatever it asks \
                  for.",
            source: "Documentation/admin-guide/sysctl/net.rst",
            ..USUAL
        },
        Knob {
            id: "tcp_max_syn_backlog",
            lives: Lives::Sysctl("net/ipv4/tcp_max_syn_backlog"),
            kind: from_to(1, 2_147_483_647, "connections"),
            example: "6000",
            default: ByDefault::Memory(
                "one for each 16 MiB, rounded up to a power of two: 128 at least, 4096 at most",
            ),
            reaches: Reaches::All,
            why: "Used only where tcp_syncookies is 0: three quarters of it are for any half-open connections, \
                  the rest for peers that connected before. With cookies a listener remembers as many as may \
                  wait in it, the lesser of its own backlog and somaxconn, and answers with cookies beyond.",
            source: "inet_csk_reqsk_queue_is_full and tcp_conn_request in net/ipv4/tcp_input.c",
            ..USUAL
        },
        Knob {
            id: "tcp_syncookies",
            lives: Lives::Sysctl("net/ipv4/tcp_syncookies"),
            kind: up_to(2),
            example: "0",
            default: ByDefault::Kernel(&[(OLDEST, "1")]),
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "1 answers with cookies when a listener has as many half-open connections as may wait in it \
                  (somaxconn); 0 drops them; 2 always answers with cookies, which is for tests.",
            ..USUAL
        },
        Knob {
            id: "tcp_abort_on_overflow",
            lives: Lives::Sysctl("net/ipv4/tcp_abort_on_overflow"),
            example: "1",
            default: ByDefault::Kernel(&[(OLDEST, "0")]),
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "1 resets a connection that cannot be accepted, instead of letting the client try again.",
            ..USUAL
        },
        Knob {
            id: "ip_local_port_range",
            lives: Lives::Sysctl("net/ipv4/ip_local_port_range"),
            kind: ValueKind::Ports,
            example: "1024 65535",
            default: ByDefault::Kernel(&[(OLDEST, "32768 60999")]),
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "The ports for outgoing connections. The usual 28232 per destination are enough for 470 \
                  connections a second, since each stays in use for a minute after its end; ports of \
                  services in the range must be reserved.",
            ..USUAL
        },
        Knob {
            id: "tcp_tw_reuse",
            lives: Lives::Sysctl("net/ipv4/tcp_tw_reuse"),
            kind: up_to(2),
            example: "1",
            default: ByDefault::Kernel(&[(Since(4, 19), "2")]),
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "1 lets a client reuse a port a second after its connection has ended, to all destinations; \
                  2, the default, only over loopback.",
            ..USUAL
        },
        Knob {
            id: "tcp_tw_reuse_delay",
            lives: Lives::Sysctl("net/ipv4/tcp_tw_reuse_delay"),
            kind: from_to(1, 60_000, "milliseconds"),
            example: "500",
            default: ByDefault::Kernel(&[(Since(6, 14), "1000")]),
            since: Some(Since(6, 14)),
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "How long after.",
            ..USUAL
        },
        Knob {
            id: "tcp_max_tw_buckets",
            lives: Lives::Sysctl("net/ipv4/tcp_max_tw_buckets"),
            kind: from_to(1, 2_147_483_647, "connections"),
            example: "300000",
            default: ByDefault::Memory("one for each 256 KiB, rounded up to a power of two: 262144 at most"),
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "How many ended connections are remembered; those beyond are forgotten at once. A smaller \
                  number solves no problem.",
            ..USUAL
        },
        Knob {
            id: "tcp_fin_timeout",
            lives: Lives::Sysctl("net/ipv4/tcp_fin_timeout"),
            kind: from_to(1, 3_600, "seconds"),
            example: "15",
            default: ByDefault::Kernel(&[(OLDEST, "60")]),
            reaches: Reaches::All,
            why: "How long the peer may take to end a connection that this side has closed. It is not how long \
                  ports stay taken, which is always a minute.",
            ..USUAL
        },
        Knob {
            id: "tcp_orphan_retries",
            lives: Lives::Sysctl("net/ipv4/tcp_orphan_retries"),
            kind: from_to(0, 255, "attempts"),
            example: "3",
            default: ByDefault::Kernel(&[(OLDEST, "0")]),
            reaches: Reaches::All,
            why: "How often data left in a closed socket is retransmitted.",
            ..USUAL
        },
        Knob {
            id: "tcp_keepalive_time",
            lives: Lives::Sysctl("net/ipv4/tcp_keepalive_time"),
            kind: from_to(1, 32_767, "seconds"),
            example: "300",
            default: ByDefault::Kernel(&[(OLDEST, "7200")]),
            reaches: Reaches::All,
            why: "How long a connection is silent before it is probed, if its program asks for that: load \
                  balancers forget in about 350 s.",
            ..USUAL
        },
        Knob {
            id: "tcp_keepalive_intvl",
            lives: Lives::Sysctl("net/ipv4/tcp_keepalive_intvl"),
            kind: from_to(1, 32_767, "seconds"),
            example: "30",
            default: ByDefault::Kernel(&[(OLDEST, "75")]),
            reaches: Reaches::All,
            why: "Between such tries.",
            ..USUAL
        },
        Knob {
            id: "tcp_keepalive_probes",
            lives: Lives::Sysctl("net/ipv4/tcp_keepalive_probes"),
            kind: from_to(1, 127, "attempts"),
            example: "5",
            default: ByDefault::Kernel(&[(OLDEST, "9")]),
            reaches: Reaches::All,
            why: "After how many probes without an answer the connection is given up.",
            ..USUAL
        },
    ],
};
