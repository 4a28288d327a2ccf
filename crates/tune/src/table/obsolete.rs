//! Knobs that guides still name.

use super::USUAL;
use crate::{Family, Knob, Lives, Risk};

pub(super) const FAMILY: Family = Family {
    title: "Obsolete",
    about: "What guides still name and no kernel heeds. Asking for one is an error that says what to do instead.",
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
                gone: "it does nothing since Linux 4.14",
                instead: "the way around the prequeue that it chose is the only one now; there is nothing to set",
            },
            example: "1",
            why: "It chose between two ways from the network to the reader, one of which is gone.",
            source: super::IP_SYSCTL,
            ..USUAL
        },
    ],
};
