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

    /// Where its bpf link to a network link is pinned, or would be.
    ///
    /// A name of a pin has no dot: bpffs keeps those for itself. A pin of before has `_` for it, and also for itself.
    pub fn link_pin(self, folder: &Path, link: &IfName) -> PathBuf {
        let pin = |name: &str| folder.join(format!("{}{name}", Program::LINK));
        let own = pin(&link.as_str().replace('_', "__").replace('.', "_d"));
        let before = pin(&link.as_str().replace('.', "_"));
        if !own.exists() && before.exists() { before } else { own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_link_has_a_pin_of_its_own_and_keeps_one_of_before() {
        let folder = tempfile::tempdir().unwrap();
        let pin = |link: &str| {
            let pin = Program::FromWire.link_pin(folder.path(), &IfName::new(link).unwrap());
            pin.file_name().unwrap().to_string_lossy().into_owned()
        };
        let links = ["eth0", "eth0.5", "eth0_5", "eth0_d5", "eth0._5", "eth0_.5"];
        let pins = [
            "link_eth0",
            "link_eth0_d5",
            "link_eth0__5",
            "link_eth0__d5",
            "link_eth0_d__5",
            "link_eth0___d5",
        ];
        assert_eq!(links.map(pin), pins);
        std::fs::write(folder.path().join("link_eth0_5"), "").unwrap();
        assert_eq!(pin("eth0.5"), "link_eth0_5");
        std::fs::write(folder.path().join("link_eth0_d5"), "").unwrap();
        assert_eq!(pin("eth0.5"), "link_eth0_d5");
    }
}
