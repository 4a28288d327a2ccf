//! Faults of both families: tables of neighbours, routes and packet sizes.

use std::net::{IpAddr, SocketAddr};

use doctor::Severity::{Information, Warning};
use linux::netlink::{PathMtu, RouteMtu};

use super::{Fault, Harmless};
use crate::scene::Scene;

const NEIGHBOURS: [&str; 2] = ["arp_cache", "ndisc_cache"];

/// A neighbour table with this many entries. `growth` is of its counters: failed lookups, packets dropped
/// meanwhile, and full tables.
fn neighbours(scene: &mut Scene, table: &str, entries: u64, growth: [u64; 3]) {
    let text = |[failed, dropped, fulls]: [u64; 3]| {
        let row = |entries| format!("{entries:08x} 00000009 {failed:08x} {dropped:08x} {fulls:08x}\n");
        // One row for each CPU. The sums are in the first row only.
        format!(
            "entries  allocs   res_failed unresolved_discards table_fulls\n{}{entries:08x} 0 0 0 0\n",
            row(entries)
        )
    };
    let path = format!("proc/thread-self/net/stat/{table}");
    scene.file(&path, &text([7; 3]));
    scene.after.texts.insert(path, text(growth.map(|growth| growth + 7)));
}

/// A router reported a path MTU for a destination behind the card.
fn learnt(scene: &mut Scene, dst: &str, mtu: u32) {
    let path = PathMtu { index: 2, dst: dst.parse().unwrap(), mtu };
    for look in [&mut scene.before, &mut scene.after] {
        look.answers.path_mtus.get_or_insert_default().push(path);
    }
}

/// A route over the card has its own MTU.
pub(super) fn route_mtu(scene: &mut Scene, dst: &str, mtu: u32) {
    let route = RouteMtu { index: 2, dst: dst.parse().unwrap(), mtu };
    for look in [&mut scene.before, &mut scene.after] {
        look.answers.route_mtus.get_or_insert_default().push(route);
    }
}

const PEER: &str = "2001:db8::9";

/// A connection over IPv6.
fn connect(scene: &mut Scene, change: impl FnOnce(&mut linux::sock_diag::TcpSocket)) {
    scene.connect(|socket| {
        let [local, peer]: [IpAddr; 2] = ["2001:db8::1", PEER].map(|address| address.parse().unwrap());
        (socket.local, socket.peer) = (SocketAddr::new(local, 40_000), SocketAddr::new(peer, 443));
        change(socket);
    });
}

fn traffic(scene: &mut Scene) {
    scene.count("Ip6InReceives", 50_000);
    scene.count("Ip6OutRequests", 50_000);
}

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        code: "HG053",
        name: "a full table of IPv6 neighbours",
        severity: Warning,
        plant: |scene| neighbours(scene, "ndisc_cache", 1024, [0, 0, 70]),
    },
    Fault {
        code: "HG053",
        name: "a table of IPv6 neighbours that will be full",
        severity: Information,
        plant: |scene| neighbours(scene, "ndisc_cache", 900, [0, 0, 0]),
    },
    Fault {
        code: "HG055",
        name: "IPv6 packets without a route, among others that have one",
        severity: Warning,
        plant: |scene| {
            traffic(scene);
            scene.count("Ip6OutNoRoutes", 9000);
        },
    },
    Fault {
        code: "HG055",
        name: "programs that try IPv6 where there is none",
        severity: Information,
        plant: |scene| scene.count("Ip6OutNoRoutes", 9000),
    },
    Fault {
        code: "HG056",
        name: "an address that is gone",
        severity: Warning,
        plant: |scene| neighbours(scene, "arp_cache", 9, [30, 400, 0]),
    },
    Fault {
        code: "HG056",
        name: "neighbour discovery that is filtered",
        severity: Warning,
        plant: |scene| neighbours(scene, "ndisc_cache", 9, [30, 400, 0]),
    },
    Fault {
        code: "HG100",
        name: "an IPv6 tunnel on the path",
        severity: Information,
        plant: |scene| {
            learnt(scene, PEER, 1400);
            scene.count("Icmp6InPktTooBigs", 1);
        },
    },
    Fault {
        code: "HG100",
        name: "an IPv6 tunnel on the path, and a connection that loses by it",
        severity: Warning,
        plant: |scene| {
            learnt(scene, PEER, 1400);
            connect(scene, |socket| {
                let tcp = socket.tcp.as_mut().unwrap();
                (tcp.rtt, tcp.min_rtt, tcp.total_retrans) = (20_000, 20_000, 200);
            });
        },
    },
    Fault {
        code: "HG100",
        name: "a path MTU that no connection of TCP keeps",
        severity: Information,
        plant: |scene| learnt(scene, "192.0.2.7", 1200),
    },
    Fault {
        code: "HG101",
        name: "a black hole for large IPv6 packets",
        severity: Warning,
        plant: |scene| {
            connect(scene, |socket| {
                socket.wqueue = 20_000;
                let tcp = socket.tcp.as_mut().unwrap();
                (tcp.bytes_acked, tcp.retransmits, tcp.backoff, tcp.rto) = (1, 5, 5, 6_400_000);
            });
        },
    },
    Fault {
        code: "HG102",
        name: "IPv6 fragments that do not come together",
        severity: Warning,
        plant: |scene| {
            scene.count("Ip6ReasmReqds", 900);
            scene.count("Ip6ReasmFails", 300);
        },
    },
];

pub(super) const HARMLESS: &[Harmless] = &[
    ("HG053", "tables of neighbours that are half full", |scene| {
        NEIGHBOURS.iter().for_each(|table| neighbours(scene, table, 512, [0; 3]));
    }),
    ("HG055", "IPv6 with all its routes", traffic),
    ("HG056", "a machine that is switched off now and then", |scene| {
        NEIGHBOURS.iter().for_each(|table| neighbours(scene, table, 9, [2, 3, 0]));
    }),
    ("HG100", "a path as wide as its link, which was narrower once", |scene| {
        learnt(scene, PEER, 1500);
        connect(scene, |_| ());
    }),
    ("HG100", "an IPv6 path that its route calls narrow", |scene| {
        learnt(scene, PEER, 1400);
        route_mtu(scene, "2001:db8::/32", 1400);
    }),
    ("HG101", "an IPv6 connection that carries full segments", |scene| {
        connect(scene, |socket| socket.wqueue = 20_000);
    }),
];
