//! flannel's backends: the ways between nodes that a network may have.

use datapath::{BACKENDS, DataPath};

/// The names of ways in an agent's state and in what it checks: the transports' own, and that of a cloud's tables.
pub(crate) const DIRECT: &str = "direct";
pub(crate) const VXLAN: &str = "vxlan";
pub(crate) const WIREGUARD: &str = "wireguard";
pub(crate) const AWS_VPC: &str = "aws-vpc";

/// A way between nodes that this agent has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackendKind {
    /// Routes by the nodes' own addresses, between neighbours.
    HostGw,
    /// Tunnels of Ethernet in UDP.
    Vxlan,
    /// Encrypted tunnels of IP in UDP.
    WireGuard,
    /// Routes in a cloud's tables; nothing is made on the node.
    AwsVpc,
}

impl BackendKind {
    /// All of them, in display order.
    const ALL: [BackendKind; 4] =
        [BackendKind::HostGw, BackendKind::Vxlan, BackendKind::WireGuard, BackendKind::AwsVpc];

    /// The one that has a name of flannel's (`Backend.Type`, `BackendType` of a lease).
    pub(crate) fn find(name: &str) -> Option<BackendKind> {
        BackendKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The names of all, as a sentence has them.
    pub(crate) fn names() -> String {
        let names = BackendKind::ALL.map(BackendKind::name);
        let (last, before) = names.split_last().expect("there are several");
        format!("{} and {last}", before.join(", "))
    }

    /// The name that flannel's configuration and leases have for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            BackendKind::HostGw => "host-gw",
            BackendKind::Vxlan => VXLAN,
            BackendKind::WireGuard => WIREGUARD,
            BackendKind::AwsVpc => AWS_VPC,
        }
    }

    /// The transport that makes it, alone ([`BACKENDS`]).
    pub(crate) fn path(self) -> &'static DataPath {
        match self {
            BackendKind::HostGw | BackendKind::AwsVpc => transport(DIRECT),
            BackendKind::Vxlan => transport(VXLAN),
            BackendKind::WireGuard => transport(WIREGUARD),
        }
    }

    /// Whether each node has a tunnel device, with an address in the pods' network, and says of it more
    /// than where it is.
    pub(crate) fn has_tunnels(self) -> bool {
        match self {
            BackendKind::HostGw | BackendKind::AwsVpc => false,
            BackendKind::Vxlan | BackendKind::WireGuard => true,
        }
    }
}

/// A transport by its own name.
pub(crate) fn transport(name: &str) -> &'static DataPath {
    BACKENDS.iter().find(|path| path.name == name).expect("the names here are those of the list")
}

/// Whether a way, by its transport's name, is a tunnel.
pub(crate) fn is_tunnel(by: &str) -> bool {
    BackendKind::ALL.into_iter().any(|kind| kind.has_tunnels() && kind.path().name == by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_backend_has_a_transport_and_is_found_by_its_name() {
        for kind in BackendKind::ALL {
            assert_eq!(BackendKind::find(kind.name()), Some(kind));
            assert_eq!(is_tunnel(kind.path().name), kind.has_tunnels());
        }
        assert_eq!(BackendKind::find("udp"), None);
    }
}
