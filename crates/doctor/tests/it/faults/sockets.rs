//! Limits of connections, and packet sizes.

use std::net::SocketAddr;

use doctor::Severity::{Information, Warning};
use linux::sock_diag::TcpInfo;

use super::Fault;
use crate::scene::Scene;

/// A round trip of 80 ms, 0.2 % loss, an MSS of 1448. The formula gives 4 Mbit/s, and so does the connection.
/// It was busy for ten seconds.
pub(super) fn lossy(scene: &mut Scene) {
    scene.connect(|socket| {
        change(socket, |tcp| {
            (tcp.rtt, tcp.min_rtt, tcp.snd_cwnd, tcp.unacked) = (80_000, 80_000, 28, 20);
            tcp.busy_time = 11_000_000;
            tcp.bytes_acked = 1_000_000 + 4_900_000;
            (tcp.data_segs_out, tcp.total_retrans) = (13_500, 7);
        });
    });
}

/// A round trip of 80 ms, and a send buffer of 32 KB that is entirely in flight.
pub(super) fn filled(scene: &mut Scene) {
    scene.connect(|socket| {
        change(socket, |tcp| {
            (tcp.rtt, tcp.min_rtt, tcp.busy_time) = (80_000, 80_000, 11_000_000);
            (tcp.snd_cwnd, tcp.unacked) = (28, 13);
        });
        socket.memory.as_mut().unwrap().send_buffer = 32_768;
        socket.wqueue = 18_824;
    });
}

fn change(socket: &mut linux::sock_diag::TcpSocket, change: impl FnOnce(&mut TcpInfo)) {
    change(socket.tcp.as_mut().unwrap());
}

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        code: "HG080",
        name: "a window of 64 KB over 80 ms",
        severity: Warning,
        plant: |scene| {
            scene.connect(|socket| {
                change(socket, |tcp| {
                    (tcp.rtt, tcp.min_rtt, tcp.snd_wnd) = (80_000, 80_000, 65_535);
                    (tcp.busy_time, tcp.rwnd_limited) = (11_000_000, 9_800_000);
                    tcp.bytes_acked = 1_000_000 + 8_000_000;
                });
            });
        },
    },
    Fault {
        code: "HG081",
        name: "a send buffer of 64 KB over 80 ms",
        severity: Warning,
        plant: |scene| {
            scene.connect(|socket| {
                change(socket, |tcp| {
                    (tcp.rtt, tcp.min_rtt) = (80_000, 80_000);
                    (tcp.busy_time, tcp.sndbuf_limited) = (11_000_000, 9_800_000);
                });
                socket.memory.as_mut().unwrap().send_buffer = 65_536;
            });
        },
    },
    Fault {
        code: "HG081",
        name: "a full send buffer that the kernel did not notice",
        severity: Warning,
        plant: filled,
    },
    Fault { code: "HG082", name: "0.2 % loss over 80 ms", severity: Warning, plant: lossy },
    Fault {
        code: "HG082",
        name: "0.2 % loss on a machine that stood still just before the second look",
        severity: Warning,
        plant: |scene| {
            lossy(scene);
            scene.tcp()[1].rtt = 300_000;
        },
    },
    Fault {
        code: "HG083",
        name: "a connection that has the whole path",
        severity: Information,
        plant: |scene| scene.connect(|socket| change(socket, |tcp| tcp.busy_time = 11_000_000)),
    },
    Fault {
        code: "HG084",
        name: "a program that has little to send",
        severity: Information,
        plant: |scene| scene.connect(|socket| change(socket, |tcp| tcp.busy_time = 1_500_000)),
    },
    Fault {
        code: "HG085",
        name: "a full queue at a modem",
        severity: Warning,
        plant: |scene| {
            scene.connect(|socket| change(socket, |tcp| (tcp.rtt, tcp.min_rtt) = (300_000, 20_000)));
        },
    },
    Fault {
        code: "HG085",
        name: "a queue that a transfer fills on a connection that rested",
        severity: Warning,
        plant: |scene| {
            scene.connect(|socket| change(socket, |tcp| (tcp.rtt, tcp.min_rtt) = (300_000, 20_000)));
            scene.tcp()[0].rtt = 20_000;
        },
    },
    Fault {
        code: "HG086",
        name: "200 ms of waiting on a route of 1 ms",
        severity: Warning,
        plant: |scene| {
            scene.count("TcpRetransSegs", 60);
            scene.count("TcpExtTCPTimeouts", 50);
            scene.connect(|socket| change(socket, |tcp| tcp.total_retrans = 40));
        },
    },
    Fault {
        code: "HG092",
        name: "a program that does not read",
        severity: Warning,
        plant: |scene| {
            scene.count("TcpExtTCPToZeroWindowAdv", 30);
            scene.connect(|socket| socket.rqueue = 90_000);
        },
    },
    Fault {
        code: "HG100",
        name: "a tunnel on the path",
        severity: Information,
        plant: |scene| scene.connect(|socket| change(socket, |tcp| tcp.pmtu = 1400)),
    },
    Fault {
        code: "HG100",
        name: "a tunnel that is narrower than its route says, among routes to elsewhere",
        severity: Information,
        plant: |scene| {
            super::ipv6::route_mtu(scene, "10.0.0.0/24", 1450);
            super::ipv6::route_mtu(scene, "10.1.0.0/16", 1280);
            scene.connect(|socket| change(socket, |tcp| tcp.pmtu = 1400));
        },
    },
    Fault {
        code: "HG101",
        name: "a black hole for large packets",
        severity: Warning,
        plant: |scene| {
            scene.count("TcpExtTCPTimeouts", 6);
            scene.connect(|socket| {
                socket.wqueue = 20_000;
                socket.peer = SocketAddr::from(([10, 0, 0, 77], 443));
                change(socket, |tcp| {
                    (tcp.bytes_acked, tcp.retransmits, tcp.backoff, tcp.rto) = (1, 5, 5, 6_400_000);
                });
            });
        },
    },
    Fault {
        code: "HG110",
        name: "16 MB from a guide, and a connection that feels it",
        severity: Warning,
        plant: |scene| {
            scene.sysctl("net/ipv4/tcp_rmem", "4096 87380 16777216");
            scene.connect(|socket| {
                change(socket, |tcp| {
                    (tcp.rtt, tcp.min_rtt, tcp.bytes_received) = (80_000, 80_000, 900_000_000);
                });
                socket.memory.as_mut().unwrap().receive_buffer = 16_777_216;
            });
        },
    },
    Fault {
        code: "HG110",
        name: "16 MB from a guide, with a file that says so",
        severity: Information,
        plant: |scene| {
            scene.sysctl("net/ipv4/tcp_rmem", "4096 87380 16777216");
            scene.file("etc/sysctl.d/99-fast.conf", "net.ipv4.tcp_rmem = 4096 87380 16777216\n");
        },
    },
    Fault {
        code: "HG111",
        name: "a receive buffer at its limit",
        severity: Warning,
        plant: |scene| {
            scene.connect(|socket| {
                change(socket, |tcp| {
                    (tcp.rtt, tcp.min_rtt, tcp.bytes_received) = (80_000, 80_000, 2_000_000_000);
                });
                socket.memory.as_mut().unwrap().receive_buffer = 33_554_432;
            });
        },
    },
    Fault {
        code: "HG111",
        name: "a receive buffer of 1 GiB at its limit",
        severity: Warning,
        plant: |scene| {
            scene.sysctl("net/ipv4/tcp_rmem", "4096 131072 1073741824");
            scene.connect(|socket| {
                change(socket, |tcp| {
                    (tcp.rtt, tcp.min_rtt, tcp.bytes_received) = (80_000, 80_000, 100_000_000_000);
                });
                socket.memory.as_mut().unwrap().receive_buffer = 1 << 30;
            });
        },
    },
];
