//! Counters of the stack: tables, listeners, losses and datagrams.

use doctor::PortsTaken;
use doctor::Severity::{Information, Warning};

use super::Fault;
use crate::scene::Scene;

/// `growth` is of three counters: packets that lost a race for an entry, all dropped packets, and connections
/// evicted early.
pub(crate) fn conntrack(scene: &mut Scene, growth: [u64; 3]) {
    let table = |[raced, drop, early]: [u64; 3]| {
        format!("entries  insert_failed drop early_drop\n00000500 {raced:08x} {drop:08x} {early:08x}\n")
    };
    scene.file("proc/thread-self/net/stat/nf_conntrack", &table([3; 3]));
    let after = table(growth.map(|growth| 3 + growth));
    scene.after.texts.insert("proc/thread-self/net/stat/nf_conntrack".to_owned(), after);
}

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        code: "HG050",
        name: "connection tracking nearly full",
        severity: Warning,
        plant: |scene| {
            scene.sysctl("net/netfilter/nf_conntrack_max", "1300");
            scene.sysctl("net/netfilter/nf_conntrack_count", "1250");
        },
    },
    Fault {
        code: "HG050",
        name: "connection tracking full, and dropping",
        severity: Warning,
        plant: |scene| {
            scene.sysctl("net/netfilter/nf_conntrack_max", "1200");
            conntrack(scene, [0, 500, 500]);
            scene.count("TcpExtTCPSynRetrans", 400);
        },
    },
    Fault {
        code: "HG051",
        name: "connections that are not entered",
        severity: Warning,
        plant: |scene| conntrack(scene, [0, 50, 0]),
    },
    Fault {
        code: "HG051",
        name: "a resolver that loses many races",
        severity: Warning,
        plant: |scene| conntrack(scene, [90, 90, 0]),
    },
    Fault {
        code: "HG051",
        name: "a resolver that loses a race now and then",
        severity: Information,
        plant: |scene| conntrack(scene, [8, 8, 0]),
    },
    Fault {
        code: "HG052",
        name: "few buckets",
        severity: Warning,
        plant: |scene| {
            scene.sysctl("net/netfilter/nf_conntrack_count", "100000");
            scene.sysctl("net/netfilter/nf_conntrack_buckets", "8192");
        },
    },
    Fault {
        code: "HG053",
        name: "a full table of neighbours",
        severity: Warning,
        plant: |scene| {
            let table = |fulls| format!("entries  allocs table_fulls\n00000400 00000000 {fulls:08x}\n");
            scene.file("proc/thread-self/net/stat/arp_cache", &table(0));
            scene.after.texts.insert("proc/thread-self/net/stat/arp_cache".to_owned(), table(70));
        },
    },
    Fault {
        code: "HG054",
        name: "asymmetric routes and rp_filter",
        severity: Warning,
        plant: |scene| scene.count("TcpExtIPReversePathFilter", 400),
    },
    Fault {
        code: "HG055",
        name: "packets without a route",
        severity: Warning,
        plant: |scene| scene.count("IpOutNoRoutes", 9000),
    },
    Fault {
        code: "HG060",
        name: "a listener's queue that overflows",
        severity: Warning,
        plant: |scene| {
            scene.listen(2, 1);
            scene.count("TcpExtListenOverflows", 60);
            scene.count("TcpExtListenDrops", 60);
            scene.count("TcpExtTCPSynRetrans", 60);
        },
    },
    Fault {
        code: "HG061",
        name: "a long queue",
        severity: Information,
        plant: |scene| scene.listen(100, 128),
    },
    Fault {
        code: "HG062",
        name: "half-open connections that overflow",
        severity: Warning,
        plant: |scene| {
            scene.count("TcpExtTCPReqQFullDoCookies", 300);
            scene.count("TcpExtSyncookiesSent", 300);
            scene.count("TcpExtSyncookiesRecv", 290);
        },
    },
    Fault {
        code: "HG062",
        name: "half-open connections that overflow the longest queue",
        severity: Warning,
        plant: |scene| {
            scene.sysctl("net/core/somaxconn", "32768");
            scene.listen(0, 32_768);
            for name in ["TCPReqQFullDoCookies", "SyncookiesSent", "SyncookiesRecv"] {
                scene.count(&format!("TcpExt{name}"), 300);
            }
        },
    },
    Fault {
        code: "HG063",
        name: "handshakes that are lost elsewhere",
        severity: Warning,
        plant: |scene| {
            scene.count("TcpExtTCPSynRetrans", 120);
            scene.count("TcpRetransSegs", 120);
        },
    },
    Fault {
        code: "HG063",
        name: "one program that knocks at one dead address",
        severity: Information,
        plant: |scene| {
            for (name, growth) in [("TcpActiveOpens", 2), ("TcpPassiveOpens", 1)] {
                scene.after.counters.insert(name.to_owned(), growth);
            }
            for name in ["TcpExtTCPSynRetrans", "TcpExtTCPTimeouts", "TcpRetransSegs"] {
                scene.count(name, 11);
            }
        },
    },
    Fault {
        code: "HG064",
        name: "ports that run out",
        severity: Warning,
        plant: |scene| {
            scene.sysctl("net/ipv4/ip_local_port_range", "40001 40100");
            for _ in 0..90 {
                scene.connect(|socket| socket.tcp = None);
            }
        },
    },
    Fault {
        code: "HG064",
        name: "ports that run out among more sockets than are listed",
        severity: Warning,
        plant: |scene| {
            scene.sysctl("net/ipv4/ip_local_port_range", "10240 65535");
            let (local, peer) = ("10.0.0.1".parse().unwrap(), "10.0.0.9:443".parse().unwrap());
            let ports = vec![PortsTaken { local, peer, ports: 50_000 }];
            scene.after.answers.ports = Some(ports);
        },
    },
    Fault {
        code: "HG065",
        name: "few remembered ends",
        severity: Warning,
        plant: |scene| {
            scene.sysctl("net/ipv4/tcp_max_tw_buckets", "1000");
            scene.count("TcpExtTCPTimeWaitOverflow", 400);
        },
    },
    Fault {
        code: "HG066",
        name: "clients that knock at a closed port",
        severity: Information,
        plant: |scene| scene.count("TcpOutRsts", 5000),
    },
    Fault {
        code: "HG070",
        name: "two per cent sent again",
        severity: Warning,
        plant: |scene| {
            scene.count("TcpRetransSegs", 4000);
            scene.count("TcpExtTCPFastRetrans", 3900);
        },
    },
    Fault {
        code: "HG071",
        name: "timeouts",
        severity: Warning,
        plant: |scene| {
            scene.count("TcpRetransSegs", 500);
            scene.count("TcpExtTCPTimeouts", 400);
            scene.before.answers.sockets = Some(Vec::new());
            scene.after.answers.sockets = Some(Vec::new());
        },
    },
    Fault {
        code: "HG071",
        name: "timeouts of a server whose clients do not answer either",
        severity: Warning,
        plant: |scene| {
            scene.after.counters.insert("TcpActiveOpens".to_owned(), 0);
            scene.after.counters.insert("TcpPassiveOpens".to_owned(), 90_000);
            scene.count("TcpExtTCPSynRetrans", 450);
            scene.count("TcpRetransSegs", 950);
            scene.count("TcpExtTCPTimeouts", 400);
            scene.before.answers.sockets = Some(Vec::new());
            scene.after.answers.sockets = Some(Vec::new());
        },
    },
    Fault {
        code: "HG072",
        name: "segments sent again that had arrived",
        severity: Warning,
        plant: |scene| {
            scene.count("TcpRetransSegs", 500);
            scene.count("TcpExtTCPDSACKRecv", 450);
        },
    },
    Fault {
        code: "HG073",
        name: "lost ends of answers",
        severity: Warning,
        plant: |scene| {
            scene.count("TcpRetransSegs", 300);
            scene.count("TcpExtTCPLossProbes", 280);
            scene.count("TcpExtTCPLossProbeRecovery", 250);
        },
    },
    Fault {
        code: "HG074",
        name: "packets in another order",
        severity: Warning,
        plant: |scene| {
            scene.count("TcpExtTCPSACKReorder", 2000);
            scene.count("TcpExtTCPDSACKUndo", 90);
            scene.count("TcpExtTCPDSACKRecv", 400);
            scene.count("TcpRetransSegs", 500);
        },
    },
    Fault {
        code: "HG075",
        name: "a policer",
        severity: Warning,
        plant: |scene| {
            scene.count("TcpRetransSegs", 400);
            scene.count("TcpExtTCPLostRetransmit", 300);
        },
    },
    Fault {
        code: "HG076",
        name: "peers that are gone",
        severity: Warning,
        plant: |scene| scene.count("TcpExtTCPAbortOnTimeout", 300),
    },
    Fault {
        code: "HG090",
        name: "pruned receive queues",
        severity: Warning,
        plant: |scene| {
            scene.count("TcpExtPruneCalled", 30);
            scene.count("TcpExtTCPRcvCollapsed", 2000);
        },
    },
    Fault {
        code: "HG090",
        name: "received packets that are thrown away",
        severity: Warning,
        plant: |scene| {
            scene.count("TcpExtPruneCalled", 3);
            scene.count("TcpExtOfoPruned", 2);
        },
    },
    Fault {
        code: "HG090",
        name: "a socket that was squeezed once",
        severity: Information,
        plant: |scene| {
            scene.count("TcpExtPruneCalled", 1);
            scene.count("TcpExtTCPRcvCollapsed", 40);
        },
    },
    Fault {
        code: "HG091",
        name: "windows that close",
        severity: Warning,
        plant: |scene| scene.count("TcpExtTCPToZeroWindowAdv", 200),
    },
    Fault {
        code: "HG093",
        name: "TCP short of memory",
        severity: Warning,
        plant: |scene| {
            let text = "TCP: inuse 900 orphan 3 tw 3 alloc 907 mem 590000\n";
            scene.file("proc/thread-self/net/sockstat", text);
            scene.count("TcpExtTCPMemoryPressures", 4);
            scene.count("TcpExtPruneCalled", 50);
        },
    },
    Fault {
        code: "HG094",
        name: "packets for a busy socket",
        severity: Warning,
        plant: |scene| scene.count("TcpExtTCPBacklogDrop", 40),
    },
    Fault {
        code: "HG095",
        name: "connections ended for memory",
        severity: Warning,
        plant: |scene| scene.count("TcpExtTCPAbortOnMemory", 5),
    },
    Fault {
        code: "HG102",
        name: "fragments that do not come together",
        severity: Warning,
        plant: |scene| {
            scene.count("IpReasmReqds", 900);
            scene.count("IpReasmFails", 300);
        },
    },
    Fault {
        code: "HG105",
        name: "a reader of datagrams that is too slow",
        severity: Warning,
        plant: |scene| {
            scene.sysctl("net/core/rmem_max", "4194304");
            scene.count("UdpRcvbufErrors", 3000);
            let lost = |drops: u64| {
                format!(
                    "  sl  local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode ref pointer drops\n\
                     351: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000 101 0 18334 2 0 {drops}\n\
                     352: 0100007F:0043 00000000:0000 07 00000000:00000000 00:00000000 00000000 101 0 18335 2 0 9\n"
                )
            };
            scene.file("proc/thread-self/net/udp", &lost(40));
            scene.after.texts.insert("proc/thread-self/net/udp".to_owned(), lost(3040));
        },
    },
    Fault {
        code: "HG106",
        name: "too much in all sockets",
        severity: Warning,
        plant: |scene| scene.count("UdpMemErrors", 3000),
    },
    Fault {
        code: "HG107",
        name: "datagrams faster than the link",
        severity: Warning,
        plant: |scene| {
            scene.count("UdpSndbufErrors", 3000);
            scene.count("IpOutDiscards", 3000);
        },
    },
    Fault {
        code: "HG107",
        name: "a program that waits when its buffer is full",
        severity: Information,
        plant: |scene| scene.count("UdpSndbufErrors", 3000),
    },
    Fault {
        code: "HG108",
        name: "datagrams to ports without a socket",
        severity: Information,
        plant: |scene| scene.count("UdpNoPorts", 3000),
    },
];
