//! Cards, links and queueing disciplines.

use doctor::Severity::{Information, Warning};

use super::{Fault, Harmless};
use crate::scene::Scene;

/// A megabyte and a half waits in both snapshots, while the link sends 12 MB/s.
fn standing(scene: &mut Scene, kind: &str) {
    for qdisc in scene.qdiscs() {
        (qdisc.kind, qdisc.backlog_bytes) = (kind.to_owned(), 1_500_000);
    }
    scene.qdiscs()[1].bytes = 126_000_000;
}

pub(super) const HARMLESS: &[Harmless] = &[
    ("HG140", "a card whose hypervisor counts what it drops", |scene| {
        scene.card("device/uevent", "DRIVER=vmxnet3\n");
    }),
    ("HG030", "a few packets of foreign protocols (ena)", |scene| {
        scene.card("device/uevent", "DRIVER=ena\n");
        scene.link("rx_dropped", 20);
    }),
    ("HG030", "packets that waited in vain for a CPU (ena)", |scene| {
        scene.card("device/uevent", "DRIVER=ena\n");
        scene.link("rx_dropped", 5000);
        scene.after.softnet[1][1] += 5000;
    }),
    ("HG030", "packets of foreign protocols", |scene| scene.link("rx_dropped", 5000)),
    ("HG044", "packets that fq paces", |scene| standing(scene, "fq")),
    ("HG044", "packets that fq paces in each of a card's queues", |scene| {
        standing(scene, "mq");
        for look in [&mut scene.before, &mut scene.after] {
            let qdiscs = look.answers.qdiscs.as_mut().unwrap();
            let mut queue = qdiscs[0].clone();
            (queue.kind, queue.root, queue.minor) = ("fq".to_owned(), false, 1);
            qdiscs.push(queue);
        }
    }),
];

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        code: "HG030",
        name: "a tiny ring that overflows (the kernel's counter)",
        severity: Warning,
        plant: |scene| scene.link("rx_missed_errors", 5000),
    },
    Fault {
        code: "HG030",
        name: "a ring that overflows (mlx5)",
        severity: Warning,
        plant: |scene| scene.driver("rx_out_of_buffer", 5000),
    },
    Fault {
        code: "HG030",
        name: "a ring that overflows (gve)",
        severity: Warning,
        plant: |scene| scene.driver("rx_queue_drop_cnt[2]", 5000),
    },
    Fault {
        code: "HG030",
        name: "a ring that overflows (ena)",
        severity: Warning,
        plant: |scene| {
            scene.card("device/uevent", "DRIVER=ena\n");
            scene.link("rx_dropped", 5000);
        },
    },
    Fault {
        code: "HG030",
        name: "packets that wait in the card for a place in the ring (igb)",
        severity: Information,
        plant: |scene| scene.driver("rx_no_buffer_count", 5000),
    },
    Fault {
        code: "HG030",
        name: "packets that wait in the card, and some that are lost (igb)",
        severity: Warning,
        plant: |scene| {
            scene.driver("rx_no_buffer_count", 5000);
            scene.link("rx_missed_errors", 40);
        },
    },
    Fault {
        code: "HG031",
        name: "no memory for packets (ena)",
        severity: Warning,
        plant: |scene| {
            scene.driver("queue_1_rx_page_alloc_fail", 40);
            scene.link("rx_missed_errors", 900);
        },
    },
    Fault {
        code: "HG032",
        name: "a send ring that is full (ena)",
        severity: Warning,
        plant: |scene| {
            scene.driver("queue_0_tx_queue_stop", 9000);
            let [_, after] = scene.qdiscs();
            (after.packets, after.requeues) = (101_000, 4000);
        },
    },
    Fault {
        code: "HG033",
        name: "a card that hung",
        severity: Warning,
        plant: |scene| scene.driver("tx_timeout", 1),
    },
    Fault {
        code: "HG034",
        name: "an allowance that is exceeded (ena)",
        severity: Warning,
        plant: |scene| {
            scene.driver("pps_allowance_exceeded", 7000);
            scene.count("TcpRetransSegs", 6000);
        },
    },
    Fault {
        code: "HG035",
        name: "a bad cable",
        severity: Warning,
        plant: |scene| scene.link("rx_crc_errors", 12),
    },
    Fault {
        code: "HG036",
        name: "pause frames (mlx5)",
        severity: Warning,
        plant: |scene| scene.driver("rx_pause_ctrl_phy", 90_000),
    },
    Fault {
        code: "HG037",
        name: "a link that flaps",
        severity: Warning,
        plant: |scene| {
            scene.after.texts.insert("sys/class/net/eth0/carrier_changes".to_owned(), "6\n".to_owned());
        },
    },
    Fault {
        code: "HG038",
        name: "a card that asks the other end to pause (mlx5)",
        severity: Warning,
        plant: |scene| scene.driver("tx_pause_ctrl_phy", 90_000),
    },
    Fault {
        code: "HG038",
        name: "a card that asks the other end to pause (ixgbe)",
        severity: Warning,
        plant: |scene| scene.driver("tx_flow_control_xoff", 90_000),
    },
    Fault {
        code: "HG038",
        name: "a card that asked for a pause a few times",
        severity: Information,
        plant: |scene| scene.driver("tx_pause_ctrl_phy", 90),
    },
    Fault {
        code: "HG038",
        name: "a port without room (mlx5)",
        severity: Warning,
        plant: |scene| scene.driver("rx_discards_phy", 5000),
    },
    Fault {
        code: "HG040",
        name: "receive offload switched off",
        severity: Warning,
        plant: |scene| {
            for nic in scene.nics() {
                nic.offloads.insert("gro".to_owned(), false);
            }
            scene.link("rx_bytes", 4_000_000_000);
            scene.ticks(1, [300, 0, 100, 150, 0, 0, 450, 0]);
        },
    },
    Fault {
        code: "HG041",
        name: "LRO on a router",
        severity: Information,
        plant: |scene| {
            for nic in scene.nics() {
                nic.offloads.insert("lro".to_owned(), true);
            }
            scene.sysctl("net/ipv4/ip_forward", "1");
        },
    },
    Fault {
        code: "HG042",
        name: "half duplex",
        severity: Warning,
        plant: |scene| {
            scene.card("duplex", "half\n");
            scene.link("collisions", 300);
        },
    },
    Fault {
        code: "HG043",
        name: "a shaper that drops",
        severity: Warning,
        plant: |scene| {
            scene.qdiscs().into_iter().for_each(|qdisc| qdisc.kind = "tbf".to_owned());
            let [_, after] = scene.qdiscs();
            (after.packets, after.drops) = (101_000, 3000);
            scene.count("TcpRetransSegs", 2900);
        },
    },
    Fault {
        code: "HG044",
        name: "a fifo that is always full",
        severity: Warning,
        plant: |scene| standing(scene, "pfifo"),
    },
    Fault {
        code: "HG045",
        name: "bbr without fq",
        severity: Information,
        plant: |scene| scene.sysctl("net/ipv4/tcp_congestion_control", "bbr"),
    },
    Fault {
        code: "HG046",
        name: "segments sent again from this host's own queue",
        severity: Warning,
        plant: |scene| scene.count("TcpExtTCPSpuriousRtxHostQueues", 50),
    },
    Fault {
        code: "HG047",
        name: "a tcpdump",
        severity: Information,
        plant: |scene| {
            let text = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n\
                        0000000000000000 3      3    0003   2     1 0      0      4711\n";
            scene.file("proc/thread-self/net/packet", text);
        },
    },
    Fault {
        code: "HG048",
        name: "a link that refuses",
        severity: Warning,
        plant: |scene| scene.link("tx_dropped", 2000),
    },
    Fault {
        code: "HG140",
        name: "a virtio card",
        severity: Information,
        plant: |scene| scene.card("device/uevent", "DRIVER=virtio_net\n"),
    },
    Fault {
        code: "HG141",
        name: "a virtual function",
        severity: Information,
        plant: |scene| scene.card("device/uevent", "DRIVER=iavf\n"),
    },
    Fault {
        code: "HG143",
        name: "a container's namespace",
        severity: Information,
        plant: |scene| {
            scene.remove("sys/class/net/eth0/device/");
        },
    },
];
