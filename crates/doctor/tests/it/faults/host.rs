//! Settings, CPU time, and things that cannot be read.

use doctor::Severity::{Information, Warning};

use super::Fault;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        code: "HG120",
        name: "tcp_low_latency from a guide",
        severity: Information,
        plant: |scene| scene.sysctl("net/ipv4/tcp_low_latency", "1"),
    },
    Fault {
        code: "HG120",
        name: "tcp_tw_recycle in a file",
        severity: Information,
        plant: |scene| scene.file("etc/sysctl.conf", "net.ipv4.tcp_tw_recycle = 1\n"),
    },
    Fault {
        code: "HG121",
        name: "no SACK, and losses",
        severity: Warning,
        plant: |scene| {
            scene.sysctl("net/ipv4/tcp_sack", "0");
            scene.count("TcpRetransSegs", 4000);
            scene.count("TcpExtTCPTimeouts", 400);
        },
    },
    Fault {
        code: "HG121",
        name: "no SACK, and a loss now and then",
        severity: Information,
        plant: |scene| {
            scene.sysctl("net/ipv4/tcp_sack", "0");
            scene.count("TcpRetransSegs", 100);
            scene.count("TcpExtTCPTimeouts", 6);
        },
    },
    Fault {
        code: "HG121",
        name: "no timestamps and no DSACK, and losses",
        severity: Information,
        plant: |scene| {
            scene.sysctl("net/ipv4/tcp_timestamps", "0");
            scene.sysctl("net/ipv4/tcp_dsack", "0");
            scene.count("TcpRetransSegs", 1500);
            scene.count("TcpExtTCPTimeouts", 200);
        },
    },
    Fault {
        code: "HG121",
        name: "no window scaling, and a window that limits",
        severity: Warning,
        plant: |scene| {
            scene.sysctl("net/ipv4/tcp_window_scaling", "0");
            scene.connect(|socket| {
                let tcp = socket.tcp.as_mut().unwrap();
                (tcp.rtt, tcp.min_rtt, tcp.snd_wnd) = (80_000, 80_000, 65_535);
                (tcp.busy_time, tcp.rwnd_limited) = (11_000_000, 9_800_000);
            });
        },
    },
    Fault {
        code: "HG122",
        name: "a file that the kernel does not follow",
        severity: Information,
        plant: |scene| scene.file("etc/sysctl.d/50-a.conf", "net.netfilter.nf_conntrack_max = 1048576\n"),
    },
    Fault {
        code: "HG130",
        name: "a throttled container (version 2)",
        severity: Warning,
        plant: |scene| {
            scene.file("sys/fs/cgroup/cgroup.controllers", "cpu\n");
            scene.file("sys/fs/cgroup/kube.slice/pod.scope/cpu.max", "20000 100000\n");
            let path = "sys/fs/cgroup/kube.slice/pod.scope/cpu.stat";
            scene.file(path, "nr_periods 50\nnr_throttled 7\nthrottled_usec 9000\n");
            let text = "nr_periods 150\nnr_throttled 97\nthrottled_usec 4000000\n";
            scene.after.texts.insert(path.to_owned(), text.to_owned());
            scene.connect(|socket| socket.rqueue = 90_000);
        },
    },
    Fault {
        code: "HG130",
        name: "a throttled container (version 1)",
        severity: Warning,
        plant: |scene| {
            scene.file("sys/fs/cgroup/cpu/release_agent", "\n");
            scene.file("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "20000\n");
            scene.file("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
            let path = "sys/fs/cgroup/cpu/box/cpu.stat";
            scene.file(path, "nr_periods 50\nnr_throttled 7\nthrottled_time 9000000\n");
            let text = "nr_periods 150\nnr_throttled 97\nthrottled_time 4000000000\n";
            scene.after.texts.insert(path.to_owned(), text.to_owned());
        },
    },
    Fault {
        code: "HG131",
        name: "a hypervisor with too many guests",
        severity: Warning,
        plant: |scene| (0..4).for_each(|cpu| scene.ticks(cpu, [300, 0, 100, 195, 0, 5, 100, 300])),
    },
    Fault {
        code: "HG132",
        name: "a clock that is a device",
        severity: Warning,
        plant: |scene| {
            scene.file("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
            (0..4).for_each(|cpu| scene.ticks(cpu, [100, 0, 500, 300, 0, 0, 100, 0]));
        },
    },
    Fault {
        code: "HG133",
        name: "CPUs that save power",
        severity: Information,
        plant: |scene| {
            (0..4).for_each(|cpu| {
                let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
                scene.file(&path, "powersave\n");
            });
        },
    },
    Fault {
        code: "HG134",
        name: "a machine with too much work",
        severity: Information,
        plant: |scene| (0..4).for_each(|cpu| scene.ticks(cpu, [880, 0, 50, 10, 0, 0, 60, 0])),
    },
    Fault {
        code: "HG142",
        name: "a file that is not what it was",
        severity: Information,
        plant: |scene| scene.file("proc/pressure/irq", "full total=none\n"),
    },
];
