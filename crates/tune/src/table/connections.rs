//! Beginnings and ends of connections, and ports.

use super::{USUAL, from_to, up_to};
use crate::{Family, Kind, Knob, Lives, Reaches, Risk, Since};

pub(super) const FAMILY: Family = Family {
    title: "Beginnings and ends of connections",
    about: "Queues of servers, ports of clients, and what is left when a connection has ended.",
    knobs: &[
        Knob {
            id: "notrack",
            lives: Lives::Notrack,
            kind: from_to(1, 65_535, ""),
            example: "8080",
            reaches: Reaches::NewConnections,
            risk: Risk::High,
            why: "Connections to this TCP port, served here, are not tracked: no entry, no look-up. It breaks address \
                translation and rules that ask for a connection's state, on which Docker and Kubernetes stand; where there are \
                such rules it is refused.",
            source: "nft(8), section NOTRACK STATEMENT",
            ..USUAL
        },
        Knob {
            id: "somaxconn",
            lives: Lives::Sysctl("net/core/somaxconn"),
            kind: from_to(1, 65_535, "connections"),
            example: "1024",
            reaches: Reaches::NewListeners,
            why: "The most that a listener can let wait until they are accepted, whatever it asks for.",
            source: "Documentation/admin-guide/sysctl/net.rst",
            ..USUAL
        },
        Knob {
            id: "tcp_max_syn_backlog",
            lives: Lives::Sysctl("net/ipv4/tcp_max_syn_backlog"),
            kind: from_to(1, 2_147_483_647, "connections"),
            example: "6000",
            reaches: Reaches::All,
            why: "How many half-open connections a listener remembers before it answers with cookies.",
            ..USUAL
        },
        Knob {
            id: "tcp_syncookies",
            lives: Lives::Sysctl("net/ipv4/tcp_syncookies"),
            kind: up_to(2),
            example: "0",
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "1 answers by cookies when that is full; 0 drops, 2 always answers so, which is for tests.",
            ..USUAL
        },
        Knob {
            id: "tcp_abort_on_overflow",
            lives: Lives::Sysctl("net/ipv4/tcp_abort_on_overflow"),
            example: "1",
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "1 resets a connection that cannot be accepted, instead of letting the client try again.",
            ..USUAL
        },
        Knob {
            id: "ip_local_port_range",
            lives: Lives::Sysctl("net/ipv4/ip_local_port_range"),
            kind: Kind::Ports,
            example: "1024 65535",
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "The ports that clients get. The usual 28232 a destination last for 470 connections a second, \
                since each stays taken for a minute; ports of services in the range must be reserved.",
            ..USUAL
        },
        Knob {
            id: "tcp_tw_reuse",
            lives: Lives::Sysctl("net/ipv4/tcp_tw_reuse"),
            kind: up_to(2),
            example: "1",
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "1 lets a client take a port again a second after its connection has ended, to all \
                destinations; 2, the default, over loopback alone.",
            ..USUAL
        },
        Knob {
            id: "tcp_tw_reuse_delay",
            lives: Lives::Sysctl("net/ipv4/tcp_tw_reuse_delay"),
            kind: from_to(1, 60_000, "milliseconds"),
            example: "500",
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
            reaches: Reaches::All,
            risk: Risk::Medium,
            why: "How many ended connections are remembered; those beyond are forgotten at once. Less is no \
                cure for anything.",
            ..USUAL
        },
        Knob {
            id: "tcp_fin_timeout",
            lives: Lives::Sysctl("net/ipv4/tcp_fin_timeout"),
            kind: from_to(1, 3_600, "seconds"),
            example: "15",
            reaches: Reaches::All,
            why: "How long the peer may take to end a connection that this side has closed. It is not how long \
                ports stay taken, which is a minute always.",
            ..USUAL
        },
        Knob {
            id: "tcp_orphan_retries",
            lives: Lives::Sysctl("net/ipv4/tcp_orphan_retries"),
            kind: from_to(0, 255, "attempts"),
            example: "3",
            reaches: Reaches::All,
            why: "How often what is left in a closed socket is sent again.",
            ..USUAL
        },
        Knob {
            id: "tcp_keepalive_time",
            lives: Lives::Sysctl("net/ipv4/tcp_keepalive_time"),
            kind: from_to(1, 32_767, "seconds"),
            example: "300",
            reaches: Reaches::All,
            why: "After what silence a connection is tried, where its program asks for that: load balancers \
                forget in about 350 s.",
            ..USUAL
        },
        Knob {
            id: "tcp_keepalive_intvl",
            lives: Lives::Sysctl("net/ipv4/tcp_keepalive_intvl"),
            kind: from_to(1, 32_767, "seconds"),
            example: "30",
            reaches: Reaches::All,
            why: "Between such tries.",
            ..USUAL
        },
        Knob {
            id: "tcp_keepalive_probes",
            lives: Lives::Sysctl("net/ipv4/tcp_keepalive_probes"),
            kind: from_to(1, 127, "attempts"),
            example: "5",
            reaches: Reaches::All,
            why: "After how many the connection is given up.",
            ..USUAL
        },
    ],
};
