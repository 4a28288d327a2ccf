//! The programs that packets meet at links: their names, hooks and pins.

use std::path::{Path, PathBuf};

use linux::IfName;
use serde::{Deserialize, Serialize};

use crate::Hook;

/// A program at links. Each is for one kind of link; see `forward.bpf.c` and `guard.bpf.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// At the node's end of a pod's veth pair.
    FromPod,
    /// At the node's end of a pod's netkit pair.
    FromNetkit,
    /// At the link to the other nodes, and at those beside it ([`crate::forward::add_uplink`]).
    FromWire,
    /// At the tunnel's device.
    FromTunnel,
    /// At the node's end of a pod's veth pair, where the kernel forwards.
    Guard,
}

impl Program {
    /// Every program, as they are listed for people.
    pub const ALL: &[Program] =
        &[Program::FromPod, Program::FromNetkit, Program::FromWire, Program::FromTunnel, Program::Guard];
    /// Those that forward, which are loaded together.
    pub const FORWARD: &[Program] =
        &[Program::FromPod, Program::FromNetkit, Program::FromWire, Program::FromTunnel];

    /// What the pins of bpf links begin with.
    pub(crate) const LINK: &str = "link_";

    /// The name of its function, and of its pin.
    pub fn name(self) -> &'static str {
        match self {
            Program::FromPod => "from_pod",
            Program::FromNetkit => "from_netkit",
            Program::FromWire => "from_wire",
            Program::FromTunnel => "from_tunnel",
            Program::Guard => "guard",
        }
    }

    /// The hook to which it is attached.
    pub fn hook(self) -> Hook {
        match self {
            Program::FromNetkit => Hook::NetkitPeer,
            Program::FromPod | Program::FromWire | Program::FromTunnel | Program::Guard => Hook::Ingress,
        }
    }

    /// Where it is pinned in a node's folder.
    pub fn pin(self, folder: &Path) -> PathBuf {
        folder.join(self.name())
    }

    /// Where its bpf link to a network link is pinned.
    pub fn link_pin(self, folder: &Path, link: &IfName) -> PathBuf {
        // A name of a pin has no dot: bpffs keeps those for itself.
        folder.join(format!("{}{}", Program::LINK, link.as_str().replace('.', "_")))
    }
}
