//! Knobs that guides name and that are not set.

use super::USUAL;
use crate::{Knob, KnobGroup, Lives, Risk};

pub(super) const GROUP: KnobGroup = KnobGroup {
    title: "Obsolete, or left to others",
    about: "Settings in guides that have no effect any more, or that other programs depend on. Asking for one is an error that \
            says what to do instead.",
    knobs: &[
        Knob {
            id: "tcp_tw_recycle",
            lives: Lives::Nowhere {
                gone: "it was removed in Linux 4.12",
                instead: "it broke clients behind address translation; tcp_tw_reuse = 1 is for clients that run out of ports",
            },
            example: "1",
            risk: Risk::High,
            why: "It forgot ended connections within seconds, and with them the protection of clients that \
                share an address.",
            source: "commit 4396e46187ca (tcp: remove tcp_tw_recycle)",
            ..USUAL
        },
        Knob {
            id: "tcp_low_latency",
            lives: Lives::Nowhere {
                gone: "it has done nothing since Linux 4.14",
                instead: "the way around the prequeue that it chose is the only one now; there is nothing to set",
            },
            example: "1",
            why: "It chose between two ways from the network to the reader, one of which is gone.",
            source: super::IP_SYSCTL,
            ..USUAL
        },
        Knob {
            id: "ip_forward",
            lives: Lives::Nowhere {
                gone: "it decides whether this machine passes packets on, and writing it resets other parameters",
                instead: "Docker, Kubernetes and VPNs set it and need it; leave it to them",
            },
            example: "1",
            risk: Risk::High,
            why: "It has nothing to do with speed: without it the pods of a node reach no other host.",
            source: super::IP_SYSCTL,
            ..USUAL
        },
        Knob {
            id: "rp_filter",
            lives: Lives::Nowhere {
                gone: "it decides which packets are let in",
                instead: "CNI plugins set it as they need it; where routes are not symmetric, 2 on that link by hand: sysctl \
                          -w net.ipv4.conf.LINK.rp_filter=2",
            },
            example: "2",
            risk: Risk::High,
            why: "It keeps out packets with forged addresses, and valid ones that come in on another link than \
                  their answers leave by.",
            source: super::IP_SYSCTL,
            ..USUAL
        },
    ],
};
