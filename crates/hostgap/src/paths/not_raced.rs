//! Ways that race nowhere here: they take a card, a driver or a program that no race can make. Each has the reason, by
//! what this machine has, and what there is in its place. `docs/datapaths/not-raced.md` has a section for each.

use linux::sysfs::NetSysfs;
use linux::{IfName, Netns, RdmaName};

/// A way that is not raced.
pub(super) struct NotRaced {
    pub(super) name: &'static str,
    pub(super) stands_for: &'static str,
    why: fn(&Machine) -> String,
    /// What hostgap has in its place.
    instead: &'static str,
}

/// What of this machine decides.
pub(super) struct Machine {
    /// In words, why the cards are not known.
    cards: Result<Cards, String>,
}

struct Cards {
    /// Cards that can have virtual functions, each with the most of them.
    functions: Vec<(IfName, u32)>,
    rdma: Vec<RdmaName>,
}

pub(super) const NOT_RACED: [NotRaced; 6] = [
    NotRaced {
        name: "zero-copy",
        stands_for: "AF_XDP with the buffers of a card's driver",
        why: |_| {
            "the nodes of a race are joined by links whose buffers are the kernel's own, and sockets of AF_XDP are bound for \
             copies"
                .to_owned()
        },
        instead: "stack afxdp, whose frames are copied",
    },
    NotRaced {
        name: "sr-iov",
        stands_for: "virtual functions of a card as the links of pods",
        why: |machine| machine.because(functions),
        instead: "host-device of the CNI plugin hands one to a container",
    },
    NotRaced {
        name: "rdma-card",
        stands_for: "RDMA by a card",
        why: |machine| machine.because(rdma_cards),
        instead: "stack verbs, where the kernel does a card's work; hostgap load verbs://… --rdma DEVICE asks by a card",
    },
    NotRaced {
        name: "freeflow",
        stands_for: "virtual RDMA for containers, by a router on the host",
        why: |_| {
            "it is a fork of a card's drivers (Mellanox OFED 4.0, for Ubuntu 14.04), and was not carried on after 2018"
                .to_owned()
        },
        instead: "stack verbs, in pods that share the host's device",
    },
    NotRaced {
        name: "userspace-cni",
        stands_for: "a CNI plugin whose containers get a socket of vhost-user or memif, and no link",
        why: |_| {
            "it takes a switch of DPDK or VPP, and applications that speak to it without the kernel's sockets: nginx cannot"
                .to_owned()
        },
        instead: "ovs-dpdk+direct with stack vhost-user: such a switch, and a server with a stack of its own in a pod's place",
    },
    NotRaced {
        name: "gvisor",
        stands_for: "containers in gVisor (runsc), whose kernel in user space has a network stack of its own",
        why: |_| {
            "the runsc of Debian 12 takes each namespace for the machine's first one from Linux 6.11 on, and starts nothing with \
             its own network there"
                .to_owned()
        },
        instead: "pasta and slirp4netns, networks in user space of containers that keep the kernel's sockets",
    },
];

impl NotRaced {
    pub(super) fn json(&self, machine: &Machine) -> serde_json::Value {
        serde_json::json!({
            "name": self.name,
            "stands_for": self.stands_for,
            "reasons": [(self.why)(machine)],
            "instead": self.instead,
        })
    }

    /// Its lines in the list.
    pub(super) fn lines(&self, machine: &Machine) -> [String; 3] {
        [self.stands_for.to_owned(), (self.why)(machine), format!("instead: {}", self.instead)]
    }
}

impl Machine {
    /// Looks at this machine. What cannot be seen is a reason of its own, not an error.
    pub(super) fn here() -> Machine {
        let cards =
            Netns::current().and_then(|netns| NetSysfs::open(&netns)).and_then(|sysfs| Cards::of(&sysfs));
        Machine { cards: cards.map_err(|error| format!("its cards are not known: could not {error}")) }
    }

    fn because(&self, why: fn(&Cards) -> String) -> String {
        self.cards.as_ref().map_or_else(Clone::clone, why)
    }
}

impl Cards {
    fn of(sysfs: &NetSysfs) -> linux::Result<Cards> {
        let with_functions = |link: IfName| Some((sysfs.functions_max(&link)?, link));
        let functions = sysfs.links()?.into_iter().filter_map(with_functions);
        let functions = functions.map(|(most, link)| (link, most)).collect();
        Ok(Cards { functions, rdma: sysfs.rdma_cards()? })
    }
}

fn functions(cards: &Cards) -> String {
    if cards.functions.is_empty() {
        return "no card here has virtual functions".to_owned();
    }
    let each = cards.functions.iter().map(|(card, most)| format!("{card} can have {most}"));
    format!("no race makes functions of a card that others use ({})", each.collect::<Vec<_>>().join(", "))
}

fn rdma_cards(cards: &Cards) -> String {
    if cards.rdma.is_empty() {
        return "there is no such card here".to_owned();
    }
    let names: Vec<&str> = cards.rdma.iter().map(RdmaName::as_str).collect();
    format!("a race makes its RDMA devices itself, and takes none that others use ({})", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, machine: &Machine, says: &str) {
        let found = NOT_RACED.iter().find(|one| one.name == name).unwrap();
        assert!((found.why)(machine).contains(says), "{}", (found.why)(machine));
    }

    #[test]
    fn the_reason_is_what_the_machine_has_or_lacks() {
        let bare = Machine { cards: Ok(Cards { functions: Vec::new(), rdma: Vec::new() }) };
        check("sr-iov", &bare, "no card here has virtual functions");
        check("rdma-card", &bare, "there is no such card here");
        let functions = vec![(IfName::new("ens1").unwrap(), 8), (IfName::new("ens2").unwrap(), 63)];
        let rich = Cards { functions, rdma: vec![RdmaName::new("mlx5_0").unwrap()] };
        let rich = Machine { cards: Ok(rich) };
        check("sr-iov", &rich, "(ens1 can have 8, ens2 can have 63)");
        check("rdma-card", &rich, "(mlx5_0)");
        let dark = Machine { cards: Err("its cards are not known: could not look".to_owned()) };
        check("sr-iov", &dark, "not known");
        check("rdma-card", &dark, "not known");
    }
}
