//! Receive work on the wrong CPUs.

use doctor::Severity::{Information, Warning};
use linux::nic::Channels;

use super::{Fault, Harmless};
use crate::scene::Scene;

/// A virtual link of one receive queue without RPS that received `packets` in between.
fn receiver(scene: &mut Scene, name: &str, kind: &str, packets: u64) {
    scene.virtual_link(name, kind);
    scene.file(&format!("sys/class/net/{name}/queues/rx-0/rps_cpus"), "0\n");
    let path = format!("sys/class/net/{name}/statistics/rx_packets");
    scene.before.texts.insert(path.clone(), "0\n".to_owned());
    scene.after.texts.insert(path, format!("{packets}\n"));
}

pub(super) const HARMLESS: &[Harmless] = &[
    ("HG020", "a bond of a card, whose RPS nothing asks for", |scene| {
        scene.saturate(3);
        receiver(scene, "bond0", "bond", 900_000);
    }),
    ("HG020", "a bond in a tree without kinds of links", |scene| {
        scene.saturate(3);
        receiver(scene, "bond0", "bond", 900_000);
        scene.file("sys/class/net/bond0/bonding/slaves", "eth0\n");
        [&mut scene.before, &mut scene.after].into_iter().for_each(|look| look.answers.kinds.clear());
    }),
];

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        code: "HG001",
        name: "a CPU full of soft interrupts of a veth",
        severity: Warning,
        plant: |scene| scene.saturate(2),
    },
    Fault {
        code: "HG001",
        name: "a CPU full of a few very dear packets",
        severity: Warning,
        plant: |scene| {
            scene.saturate(2);
            scene.after.net_rx[2] = scene.before.net_rx[2] + 400;
            scene.after.softnet[2][0] = scene.before.softnet[2][0] + 400;
        },
    },
    Fault {
        code: "HG002",
        name: "a backlog that overflows",
        severity: Warning,
        plant: |scene| scene.after.softnet[1][1] += 900,
    },
    Fault {
        code: "HG002",
        name: "a backlog that overflows while a column begins anew",
        severity: Warning,
        plant: |scene| {
            (scene.before.softnet[1][1], scene.after.softnet[1][1]) = (u64::from(u32::MAX) - 99, 800);
        },
    },
    Fault {
        code: "HG003",
        name: "flow limit drops",
        severity: Warning,
        plant: |scene| {
            scene.after.softnet[1][1] += 900;
            scene.after.softnet[1][10] += 900;
        },
    },
    Fault {
        code: "HG004",
        name: "budgets that run out, nothing lost",
        severity: Information,
        plant: |scene| scene.after.softnet[1][2] += 8000,
    },
    Fault {
        code: "HG005",
        name: "tasks that wait for interrupts",
        severity: Warning,
        plant: |scene| {
            scene.file("proc/pressure/irq", "full avg10=0.00 avg60=0.00 avg300=0.00 total=100\n");
            let text = "full avg10=20.00 avg60=0.00 avg300=0.00 total=2000100\n";
            scene.after.texts.insert("proc/pressure/irq".to_owned(), text.to_owned());
        },
    },
    Fault {
        code: "HG006",
        name: "RPS on a card with a queue for each CPU",
        severity: Warning,
        plant: |scene| {
            (0..4).for_each(|queue| scene.card(&format!("queues/rx-{queue}/rps_cpus"), "f\n"));
            (0..4).for_each(|cpu| scene.after.softnet[cpu][9] += 200_000);
        },
    },
    Fault {
        code: "HG010",
        name: "all interrupts on CPU 0",
        severity: Warning,
        plant: |scene| {
            scene.saturate(0);
            scene.after.interrupts = [[20_000, 0, 0, 0]; 4];
            (0..4).for_each(|queue| {
                scene.file(&format!("proc/irq/{}/effective_affinity_list", 40 + queue), "0\n");
            });
        },
    },
    Fault {
        code: "HG010",
        name: "queues that CPU 0 polls without end",
        severity: Warning,
        plant: |scene| {
            scene.saturate(0);
            scene.before.interrupts = [[7, 0, 0, 0]; 4];
            scene.after.interrupts = scene.before.interrupts;
            (0..4).for_each(|queue| {
                scene.file(&format!("proc/irq/{}/effective_affinity_list", 40 + queue), "0\n");
            });
        },
    },
    Fault {
        code: "HG010",
        name: "queues that CPU 0 polls, and one that has yet to move there",
        severity: Warning,
        plant: |scene| {
            scene.saturate(0);
            scene.before.interrupts = [[7, 0, 0, 0], [7, 0, 0, 0], [7, 0, 0, 0], [0, 0, 0, 1]];
            scene.after.interrupts = scene.before.interrupts;
            (0..4).for_each(|queue| scene.file(&format!("proc/irq/{}/smp_affinity_list", 40 + queue), "0\n"));
            (0..3).for_each(|queue| {
                scene.file(&format!("proc/irq/{}/effective_affinity_list", 40 + queue), "0\n");
            });
        },
    },
    Fault {
        code: "HG011",
        name: "interrupts on another node",
        severity: Warning,
        plant: |scene| {
            scene.single_queue();
            scene.card("device/local_cpulist", "2-3\n");
            scene.ticks(0, [300, 0, 100, 190, 5, 5, 400, 0]);
        },
    },
    Fault {
        code: "HG011",
        name: "interrupts on all nodes of a machine with time to spare",
        severity: Information,
        plant: |scene| scene.card("device/local_cpulist", "0-1\n"),
    },
    Fault {
        code: "HG012",
        name: "a balancer at work",
        severity: Information,
        plant: |scene| {
            scene.after.texts.insert("proc/irq/41/effective_affinity_list".to_owned(), "3\n".to_owned());
        },
    },
    Fault {
        code: "HG013",
        name: "interrupts on isolated CPUs",
        severity: Warning,
        plant: |scene| scene.file("sys/devices/system/cpu/isolated", "2-3\n"),
    },
    Fault {
        code: "HG014",
        name: "an interrupt for each packet",
        severity: Warning,
        plant: |scene| {
            for cpu in 0..4 {
                scene.after.interrupts[cpu][cpu] += 200_000;
                scene.ticks(cpu, [300, 0, 100, 400, 0, 100, 100, 0]);
            }
        },
    },
    Fault {
        code: "HG020",
        name: "one queue, RPS off, its CPU full",
        severity: Warning,
        plant: |scene| {
            scene.single_queue();
            scene.saturate(0);
        },
    },
    Fault {
        code: "HG020",
        name: "one queue, RPS off, and a CPU that polls it without end",
        severity: Warning,
        plant: |scene| {
            scene.single_queue();
            scene.saturate(0);
            scene.before.interrupts[0] = [7, 0, 0, 0];
            scene.after.interrupts[0] = [7, 0, 0, 0];
            scene.file("proc/irq/40/effective_affinity_list", "0\n");
        },
    },
    Fault {
        code: "HG020",
        name: "one queue, RPS off, its CPU full, and no interrupt that is known to be the card's",
        severity: Warning,
        plant: |scene| {
            scene.single_queue();
            scene.saturate(0);
            scene.remove("sys/class/net/eth0/device/msi_irqs/");
        },
    },
    Fault {
        code: "HG020",
        name: "a veth without RPS, and a full CPU",
        severity: Warning,
        plant: |scene| {
            scene.saturate(3);
            receiver(scene, "veth0", "veth", 900_000);
        },
    },
    Fault {
        code: "HG020",
        name: "a veth without RPS below the packets of a macvlan, and a full CPU",
        severity: Warning,
        plant: |scene| {
            scene.saturate(3);
            receiver(scene, "veth0", "veth", 800_000);
            receiver(scene, "mac0", "macvlan", 900_000);
        },
    },
    Fault {
        code: "HG020",
        name: "one queue, RPS off, no load",
        severity: Information,
        plant: |scene| scene.single_queue(),
    },
    Fault {
        code: "HG021",
        name: "RPS onto the interrupt's own CPU",
        severity: Warning,
        plant: |scene| {
            scene.single_queue();
            scene.card("queues/rx-0/rps_cpus", "f\n");
            scene.ticks(0, [10, 0, 10, 110, 0, 20, 850, 0]);
        },
    },
    Fault {
        code: "HG021",
        name: "RPS onto a CPU that is off line",
        severity: Information,
        plant: |scene| {
            scene.single_queue();
            scene.card("queues/rx-0/rps_cpus", "1e\n");
        },
    },
    Fault {
        code: "HG022",
        name: "an RFS table and no queue that uses it",
        severity: Information,
        plant: |scene| scene.sysctl("net/core/rps_sock_flow_entries", "32768"),
    },
    Fault {
        code: "HG022",
        name: "queues that follow flows and no table",
        severity: Information,
        plant: |scene| scene.card("queues/rx-0/rps_flow_cnt", "4096\n"),
    },
    Fault {
        code: "HG023",
        name: "a table smaller than the flows",
        severity: Information,
        plant: |scene| {
            scene.sysctl("net/core/rps_sock_flow_entries", "4096");
            (0..4).for_each(|queue| scene.card(&format!("queues/rx-{queue}/rps_flow_cnt"), "4096\n"));
        },
    },
    Fault {
        code: "HG024",
        name: "no XPS, and a driver that stops its queues",
        severity: Information,
        plant: |scene| {
            (0..4).for_each(|queue| scene.card(&format!("queues/tx-{queue}/xps_cpus"), "0\n"));
            let [_, after] = scene.qdiscs();
            (after.packets, after.requeues) = (101_000, 4000);
        },
    },
    Fault {
        code: "HG025",
        name: "one of four queues in use",
        severity: Warning,
        plant: |scene| {
            scene.single_queue();
            scene.saturate(0);
            scene.nics().into_iter().for_each(|nic| {
                nic.channels = Some(Channels { rx: 0, rx_max: 0, combined: 1, combined_max: 4 });
            });
        },
    },
    Fault {
        code: "HG026",
        name: "all packets in one of four queues",
        severity: Warning,
        plant: |scene| {
            scene.saturate(1);
            scene.after.interrupts = [[100, 0, 0, 0], [0, 80_000, 0, 0], [0, 0, 100, 0], [0, 0, 0, 100]];
        },
    },
];
