//! Two namespaces on one wire, with addresses.

use linux::Netns;

use crate::{World, run};

/// A wire between two namespaces: link `a0` with 192.0.2.1 and fd00::1 at the near end, `b0` with 192.0.2.2 and fd00::2
/// at the far end. Without IPv6 in the kernel the addresses of IPv6 are left out.
pub struct Wire {
    /// The namespace of link `a0`.
    pub near: Netns,
    /// The namespace of link `b0`.
    pub far: Netns,
    _world: World,
}

impl Wire {
    /// Makes both namespaces and the wire between them.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn up() -> Wire {
        let world = World::new();
        let (near, far) = (world.add("a"), world.add("b"));
        let ip = |netns: &Netns, arguments: &str| {
            run(netns, "ip", &arguments.split(' ').collect::<Vec<_>>());
        };
        ip(&near, &format!("link add a0 type veth peer name b0 netns {}", world.name("b")));
        for (netns, link, host) in [(&near, "a0", 1), (&far, "b0", 2)] {
            ip(netns, &format!("address add 192.0.2.{host}/24 dev {link}"));
            if linux::features::has_ipv6() {
                ip(netns, &format!("address add fd00::{host}/64 dev {link} nodad"));
            }
            ip(netns, &format!("link set {link} up"));
        }
        Wire { near, far, _world: world }
    }
}
