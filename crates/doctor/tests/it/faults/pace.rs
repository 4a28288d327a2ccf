//! How fast things go: links, slots, CPUs in power saving, and connections that start, pause and alternate.

use doctor::Severity::{Information, Warning};
use linux::nic::Coalescing;
use linux::sock_diag::{TcpInfo, TcpSocket};

use super::{Fault, Harmless};
use crate::scene::Scene;

/// A connection in both snapshots, with the same change in each.
fn connection(scene: &mut Scene, change: impl Fn(&mut TcpSocket, &mut TcpInfo)) {
    let change = |socket: &mut TcpSocket| {
        let mut tcp = socket.tcp.unwrap();
        change(socket, &mut tcp);
        socket.tcp = Some(tcp);
    };
    scene.connect(|_| ());
    for look in [&mut scene.before, &mut scene.after] {
        change(look.answers.sockets.as_mut().unwrap().last_mut().unwrap());
    }
}

/// Bursts over 80 ms with pauses of a second, in windows of `window` segments.
fn bursts(scene: &mut Scene, window: u32, congestion: &str) {
    connection(scene, |socket, tcp| {
        (tcp.rtt, tcp.min_rtt, tcp.rto) = (80_000, 80_000, 281_000);
        (tcp.last_data_sent_ms, tcp.snd_cwnd) = (900, window);
        congestion.clone_into(&mut socket.congestion);
    });
}

/// A new connection over 80 ms that left slow start at `threshold` of 400 segments.
fn climbs(scene: &mut Scene, threshold: u32) {
    scene.count("TcpExtTCPHystartTrainDetect", 1);
    scene.count("TcpExtTCPHystartTrainCwnd", threshold.into());
    scene.connect(|socket| {
        let tcp = socket.tcp.as_mut().unwrap();
        (tcp.rtt, tcp.min_rtt, tcp.busy_time) = (80_000, 80_000, 9_000_000);
        (tcp.snd_cwnd, tcp.snd_ssthresh) = (400, threshold);
    });
    scene.before.answers.sockets.as_mut().unwrap().pop();
}

/// Two small writes for each answer, over a path of 0.12 ms.
fn two_writes(scene: &mut Scene, rtt: u32, notsent: u32) {
    scene.connect(|socket| {
        let tcp = socket.tcp.as_mut().unwrap();
        (tcp.rtt, tcp.rttvar, tcp.min_rtt) = (rtt, rtt * 9 / 10, 120);
        (tcp.unacked, tcp.notsent_bytes) = (1, notsent);
        (tcp.bytes_acked, tcp.busy_time) = (1_000_000 + 400_000, 10_500_000);
    });
}

/// The idle states of each CPU, how often it entered them, and its frequency.
fn sleeps(scene: &mut Scene, light: u64, deep: u64) {
    for cpu in 0..4 {
        let at = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle");
        for (state, name, latency, taken) in [(0, "C1", 2, light), (1, "C6", 133, deep)] {
            scene.file(&format!("{at}/state{state}/name"), &format!("{name}\n"));
            scene.file(&format!("{at}/state{state}/latency"), &format!("{latency}\n"));
            scene.file(&format!("{at}/state{state}/usage"), "1000\n");
            scene.after.texts.insert(format!("{at}/state{state}/usage"), format!("{}\n", 1000 + taken));
        }
    }
}

fn slow_clock(scene: &mut Scene) {
    for cpu in 0..4 {
        let at = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq");
        scene.file(&format!("{at}/scaling_cur_freq"), "1200000\n");
        scene.file(&format!("{at}/cpuinfo_max_freq"), "3500000\n");
    }
}

/// CPU 0 is half busy with packets, and CPU 2 is the other half of its core.
fn shared_core(scene: &mut Scene, other: [u64; 8]) {
    scene.file("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,2\n");
    scene.ticks(0, [100, 0, 50, 300, 0, 50, 500, 0]);
    scene.ticks(2, other);
}

fn slot(scene: &mut Scene, speed: &str, lanes: u32) {
    scene.card("device/current_link_speed", &format!("{speed} GT/s PCIe\n"));
    scene.card("device/current_link_width", &format!("{lanes}\n"));
    scene.card("device/max_link_speed", "8.0 GT/s PCIe\n");
    scene.card("device/max_link_width", "8\n");
}

fn waits(scene: &mut Scene, adaptive_rx: bool) {
    for nic in scene.nics() {
        nic.coalescing = Some(Coalescing { rx_usecs: 250, rx_frames: 0, tx_usecs: 250, adaptive_rx });
    }
    scene.connect(|socket| {
        let tcp = socket.tcp.as_mut().unwrap();
        (tcp.rtt, tcp.min_rtt, tcp.bytes_acked) = (450, 400, 1_000_000 + 400_000);
    });
}

/// The connections go to a container of this host, by a bridge.
fn by_bridge(scene: &mut Scene) {
    for (file, text) in [("ifindex", "7"), ("mtu", "1500"), ("flags", "0x1003")] {
        scene.file(&format!("sys/class/net/docker0/{file}"), &format!("{text}\n"));
    }
    let text = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
                docker0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
    scene.file("proc/thread-self/net/route", text);
}

/// The connections use a VLAN on a bond of the card.
fn by_vlan(scene: &mut Scene) {
    let links = [
        ("bond0", "ifindex", "7"),
        ("bond0", "uevent", "DEVTYPE=bond"),
        ("bond0", "bonding/slaves", "eth0"),
        ("bond0.7", "ifindex", "8"),
        ("bond0.7", "iflink", "7"),
        ("bond0.7", "uevent", "DEVTYPE=vlan"),
    ];
    for (link, file, text) in links {
        scene.file(&format!("sys/class/net/{link}/{file}"), &format!("{text}\n"));
    }
    let text = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
                bond0.7\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
    scene.file("proc/thread-self/net/route", text);
}

/// The last connection uses IPv6 over the card.
fn by_ipv6(scene: &mut Scene) {
    for look in [&mut scene.before, &mut scene.after] {
        let socket = look.answers.sockets.as_mut().unwrap().last_mut().unwrap();
        (socket.local, socket.peer) =
            ("[2001:db8::1]:40000".parse().unwrap(), "[2001:db8::9]:443".parse().unwrap());
    }
    let (prefix, none) = ("20010db8000000000000000000000000", "0".repeat(32));
    let text = format!("{prefix} 40 {none} 00 {none} 00000100 00000001 00000000 00000001     eth0\n");
    scene.file("proc/thread-self/net/ipv6_route", &text);
}

/// Deep sleep, and a round trip much longer than the shortest one.
fn deep_sleep(scene: &mut Scene) {
    sleeps(scene, 1000, 50_000);
    scene.connect(|socket| {
        let tcp = socket.tcp.as_mut().unwrap();
        (tcp.min_rtt, tcp.rtt) = (150, 320);
    });
}

/// A full container of 100 MB, with `sockets` bytes of it in socket buffers.
fn full_container(scene: &mut Scene, sockets: u64, reached: u64) {
    let at = "sys/fs/cgroup/kube.slice/pod.scope";
    scene.file("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
    scene.file(&format!("{at}/memory.max"), "100000000\n");
    scene.file(&format!("{at}/memory.current"), "99000000\n");
    scene.file(&format!("{at}/memory.stat"), &format!("anon 9000000\nsock {sockets}\n"));
    scene.file(&format!("{at}/memory.events"), "low 0\nhigh 0\nmax 12\n");
    let after = format!("low 0\nhigh 0\nmax {}\n", 12 + reached);
    scene.after.texts.insert(format!("{at}/memory.events"), after);
}

fn stalls(scene: &mut Scene, times: u64) {
    let text = |times: u64| format!("nr_free_pages 9\nallocstall_normal {times}\nallocstall_movable 5\n");
    scene.file("proc/vmstat", &text(70));
    scene.after.texts.insert("proc/vmstat".to_owned(), text(70 + times));
}

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        code: "HG049",
        name: "datagrams in bursts",
        severity: Warning,
        plant: |scene| {
            scene.qdiscs().into_iter().for_each(|qdisc| qdisc.kind = "fq".to_owned());
            let [_, after] = scene.qdiscs();
            (after.packets, after.drops, after.flow_limited) = (101_000, 3000, 3000);
        },
    },
    Fault {
        code: "HG087",
        name: "bursts over a long path",
        severity: Warning,
        plant: |scene| bursts(scene, 120, "cubic"),
    },
    Fault {
        code: "HG087",
        name: "bursts over a long path, and a probe that was not needed",
        severity: Warning,
        plant: |scene| {
            bursts(scene, 120, "cubic");
            scene.tcp()[1].total_retrans = 1;
        },
    },
    Fault {
        code: "HG088",
        name: "slow start that ends at a sixth, and a probe that was not needed",
        severity: Warning,
        plant: |scene| {
            climbs(scene, 60);
            let [_, tcp] = scene.tcp();
            (tcp.total_retrans, tcp.dsack_dups) = (1, 1);
        },
    },
    Fault {
        code: "HG088",
        name: "slow start that ends at a sixth",
        severity: Warning,
        plant: |scene| climbs(scene, 60),
    },
    Fault {
        code: "HG089",
        name: "an answer in two writes",
        severity: Warning,
        plant: |scene| two_writes(scene, 22_000, 60),
    },
    Fault {
        code: "HG096",
        name: "a container whose sockets fill it",
        severity: Warning,
        plant: |scene| full_container(scene, 64_000_000, 40),
    },
    Fault {
        code: "HG133",
        name: "a CPU that is busy and slow",
        severity: Warning,
        plant: |scene| {
            slow_clock(scene);
            scene.ticks(1, [700, 0, 60, 40, 0, 0, 200, 0]);
        },
    },
    Fault { code: "HG135", name: "deep sleep on a path of 0.15 ms", severity: Warning, plant: deep_sleep },
    Fault {
        code: "HG135",
        name: "deep sleep on a short path of IPv6",
        severity: Warning,
        plant: |scene| {
            deep_sleep(scene);
            by_ipv6(scene);
        },
    },
    Fault {
        code: "HG135",
        name: "deep sleep on a path of a millisecond",
        severity: Information,
        plant: |scene| sleeps(scene, 1000, 50_000),
    },
    Fault {
        code: "HG136",
        name: "a machine without free memory",
        severity: Warning,
        plant: |scene| stalls(scene, 900),
    },
    Fault {
        code: "HG137",
        name: "packets and a program on one core",
        severity: Information,
        plant: |scene| shared_core(scene, [700, 0, 50, 200, 0, 0, 50, 0]),
    },
    Fault {
        code: "HG150",
        name: "ten gigabits of ten",
        severity: Warning,
        plant: |scene| {
            scene.link("tx_bytes", 12_000_000_000);
            scene.count("TcpRetransSegs", 1000);
        },
    },
    Fault {
        code: "HG151",
        name: "a broken pair in the cable",
        severity: Warning,
        plant: |scene| scene.card("speed", "100\n"),
    },
    Fault {
        code: "HG152",
        name: "a card in the wrong slot",
        severity: Warning,
        plant: |scene| {
            slot(scene, "2.5", 1);
            scene.link("rx_bytes", 2_000_000_000);
        },
    },
    Fault {
        code: "HG152",
        name: "a card in the wrong slot with little to do",
        severity: Information,
        plant: |scene| slot(scene, "2.5", 1),
    },
    Fault {
        code: "HG153",
        name: "a card that waits a quarter of a millisecond",
        severity: Warning,
        plant: |scene| waits(scene, false),
    },
    Fault {
        code: "HG153",
        name: "a card that waits, below a bond and a VLAN",
        severity: Warning,
        plant: |scene| {
            waits(scene, false);
            by_vlan(scene);
        },
    },
];

pub(super) const HARMLESS: &[Harmless] = &[
    ("HG049", "what the limit dropped long ago", |scene| {
        for qdisc in scene.qdiscs() {
            (qdisc.kind, qdisc.flow_limited) = ("fq".to_owned(), 3000);
        }
        scene.qdiscs()[1].packets = 101_000;
    }),
    ("HG083", "answers in two writes, for which no path is too narrow", |scene| {
        two_writes(scene, 22_000, 60);
    }),
    ("HG087", "bursts of bbr, which keeps what it knows", |scene| bursts(scene, 120, "bbr")),
    ("HG087", "bursts that fit in a first window", |scene| bursts(scene, 12, "cubic")),
    ("HG087", "bursts where windows are kept", |scene| {
        bursts(scene, 120, "cubic");
        scene.sysctl("net/ipv4/tcp_slow_start_after_idle", "0");
    }),
    ("HG087", "bursts of which a hundredth is lost", |scene| {
        bursts(scene, 120, "cubic");
        scene.tcp()[1].total_retrans = 70;
    }),
    ("HG088", "a loss that ended slow start", |scene| {
        climbs(scene, 60);
        scene.tcp()[1].total_retrans = 1;
    }),
    ("HG088", "slow start that ends near what the path takes", |scene| climbs(scene, 350)),
    ("HG089", "a second write that has been sent", |scene| two_writes(scene, 22_000, 0)),
    ("HG089", "small writes that the kernel joins for a moment", |scene| two_writes(scene, 300, 60)),
    ("HG096", "a container full of cached files", |scene| full_container(scene, 1_000_000, 40)),
    ("HG133", "a slow clock with little to do", slow_clock),
    ("HG135", "light sleep", |scene| sleeps(scene, 50_000, 1000)),
    ("HG135", "deep sleep, and a short path to a container", |scene| {
        deep_sleep(scene);
        by_bridge(scene);
    }),
    ("HG136", "a few that looked for memory", |scene| stalls(scene, 5)),
    ("HG137", "packets beside an idle half of a core", |scene| {
        shared_core(scene, [100, 0, 50, 800, 0, 0, 50, 0]);
    }),
    ("HG150", "a link half full", |scene| scene.link("tx_bytes", 6_000_000_000)),
    ("HG151", "a link that reports no speed", |scene| scene.card("speed", "-1\n")),
    ("HG152", "a slot of half the lanes that carries the link", |scene| slot(scene, "8.0", 4)),
    ("HG153", "a wait that the driver chooses", |scene| waits(scene, true)),
    ("HG153", "a short path to a container", |scene| {
        waits(scene, false);
        by_bridge(scene);
    }),
    ("HG153", "a Service whose endpoint is this host", |scene| {
        waits(scene, false);
        for look in [&mut scene.before, &mut scene.after] {
            let sockets = look.answers.sockets.as_mut().unwrap();
            let servers: Vec<TcpSocket> = sockets
                .iter()
                .map(|client| TcpSocket {
                    cookie: client.cookie + 1000,
                    local: "10.0.0.1:6443".parse().unwrap(),
                    peer: client.local,
                    ..client.clone()
                })
                .collect();
            sockets.extend(servers);
        }
    }),
];
