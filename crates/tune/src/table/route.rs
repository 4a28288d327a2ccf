//! Properties of routes that connections use.

use linux::netlink::RouteMetric;

use super::{USUAL, from_to};
use crate::{ByDefault, Knob, KnobGroup, Lives, Risk, ValueKind};

pub(super) const GROUP: KnobGroup = KnobGroup {
    title: "Routes",
    about: "Settings for one destination, which override those of the namespace; they are set on the routes to the other side.",
    knobs: &[
        Knob {
            id: "congctl",
            lives: Lives::Route(RouteMetric::CongestionControl),
            kind: ValueKind::Algorithm,
            example: "reno",
            default: ByDefault::Unset("tcp_congestion_control counts"),
            risk: Risk::Medium,
            why: "The congestion control of connections to this destination. Any algorithm that the kernel has \
                  or can load, whether allowed to all users or not.",
            source: "ip-route(8); include/uapi/linux/rtnetlink.h (RTAX_…)",
            ..USUAL
        },
        Knob {
            id: "initcwnd",
            lives: Lives::Route(RouteMetric::InitCwnd),
            kind: from_to(1, 1_000, "segments"),
            example: "16",
            default: ByDefault::Unset("10 segments"),
            risk: Risk::Medium,
            why: "How much is sent before the first acknowledgement: 10 segments are 14 kB, and an answer of \
                  20 kB takes one round trip less with 16. More makes a burst, which slow paths drop.",
            source: "ip-route(8); include/uapi/linux/rtnetlink.h (RTAX_…)",
            ..USUAL
        },
        Knob {
            id: "initrwnd",
            lives: Lives::Route(RouteMetric::InitRwnd),
            kind: from_to(1, 1_000, "segments"),
            example: "32",
            default: ByDefault::Unset("as many segments as 64 KiB hold: 44 of 1460 bytes"),
            why: "The most that the other side may send at first. Since Linux 4.20 that is 64 KiB by itself, \
                  if the first size of tcp_rmem has room for twice as much; this setting can only reduce it.",
            source: "tcp_select_initial_window in net/ipv4/tcp_output.c, commit a337531b942b",
            ..USUAL
        },
        Knob {
            id: "rto_min",
            lives: Lives::Route(RouteMetric::RtoMin),
            kind: from_to(1, 10_000, "milliseconds"),
            example: "10",
            default: ByDefault::Unset("tcp_rto_min_us counts, and before Linux 6.11 200 ms"),
            risk: Risk::Medium,
            why: "Like tcp_rto_min_us, for one destination: 10 ms within a data centre, but never over the \
                  Internet.",
            source: "ip-route(8); include/uapi/linux/rtnetlink.h (RTAX_…)",
            ..USUAL
        },
        Knob {
            id: "quickack",
            lives: Lives::Route(RouteMetric::QuickAck),
            example: "1",
            default: ByDefault::Unset("acknowledgements wait for the next segment, or for 40 ms"),
            why: "Acknowledges every segment at once: a peer that waits for acknowledgements continues sooner, \
                  for more packets.",
            source: "ip-route(8); include/uapi/linux/rtnetlink.h (RTAX_…)",
            ..USUAL
        },
        Knob {
            id: "route_mtu",
            lives: Lives::Route(RouteMetric::Mtu),
            kind: from_to(576, 65_535, "bytes"),
            example: "1400",
            default: ByDefault::Unset("the MTU of the link, or what the kernel learnt to be less"),
            risk: Risk::Medium,
            why: "Smaller packets to a destination whose path cannot carry larger ones, for example a tunnel, \
                  while the link keeps its MTU for all others. IPv6 refuses less than 1280.",
            source: "ip-route(8); include/uapi/linux/rtnetlink.h (RTAX_MTU)",
            ..USUAL
        },
    ],
};
