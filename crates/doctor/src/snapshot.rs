//! All values that are read from a machine at one moment.

use std::collections::BTreeMap;

use linux::power::CpuPower;
use linux::procfs::{
    Counters, Interrupt, PacketTap, PerCpu, Pressure, Procfs, Route, SoftnetCpu, Stat, UdpSocket,
};
use linux::sysctl::{Assignment, Configured};
use linux::throttle::Limited;
use linux::{CpuSet, Device, Files, NetnsName};

use crate::KernelAnswers;
use crate::answers::{SOCKETS_MAX, There, kept};
use crate::sysctls;

/// What was read at one moment. A file that this kernel does not have leaves its place empty.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Snapshot {
    /// Nanoseconds since the machine's start.
    pub at_ns: u64,
    /// The release of the kernel (`uname -r`).
    pub kernel: String,
    /// The name of the network namespace, if it was named.
    pub netns: Option<NetnsName>,
    /// The time that each CPU spent in each state, since the start (`/proc/stat`).
    pub stat: Stat,
    /// Soft interrupts by kind.
    pub softirqs: BTreeMap<String, PerCpu>,
    /// Interrupts of devices, each with the CPUs that may take it.
    pub interrupts: Vec<Interrupt>,
    /// The backlog of each CPU (`/proc/net/softnet_stat`).
    pub softnet: Vec<SoftnetCpu>,
    /// Counters of the stack.
    pub counters: Counters,
    /// Sockets and their memory.
    pub sockstat: BTreeMap<String, u64>,
    /// Waits for interrupts to end (Linux 6.1).
    pub irq_pressure: Option<Pressure>,
    /// The links of the namespace, with the hardware below them.
    pub devices: Vec<Device>,
    /// Kernel parameters by their path below `/proc/sys`.
    pub sysctls: BTreeMap<String, String>,
    /// What connection tracking counts.
    pub conntrack: BTreeMap<String, u64>,
    /// What the table of IPv4 neighbours counts.
    pub neighbours: BTreeMap<String, u64>,
    /// What the table of IPv6 neighbours counts.
    pub neighbours6: BTreeMap<String, u64>,
    /// Routes of both families.
    pub routes: Vec<Route>,
    /// Packet sockets, which see packets before the stack does.
    pub taps: Vec<PacketTap>,
    pub datagrams: Vec<UdpSocket>,
    /// Control groups that are short of CPU time or memory.
    pub groups: Limited,
    /// How often an allocation found no free memory and had to reclaim some itself.
    pub memory_stalls: u64,
    /// How the CPUs save power that may take interrupts of cards.
    pub power: BTreeMap<u16, CpuPower>,
    /// Properties that all namespaces share.
    pub machine: MachineFacts,
    /// The parameters that files set at every start, in the order in which they are read; of two lines for one
    /// parameter the later applies. The words of a value are separated by one blank.
    pub configured: Vec<Assignment>,
    /// What was asked instead of read.
    pub answers: KernelAnswers,
    /// What could not be seen, and why.
    pub unseen: Vec<String>,
}

/// Properties of the CPUs and the clock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct MachineFacts {
    /// CPUs kept from the scheduler or the timer (`isolcpus`, `nohz_full`).
    pub isolated: CpuSet,
    pub memory_bytes: u64,
    /// What the kernel reads the time from.
    pub clocksource: String,
    /// How the frequency of each CPU is chosen, where it can be.
    pub governors: BTreeMap<u16, String>,
}

impl Snapshot {
    /// Takes a snapshot from the machine's files, and from queries to the kernel in the calling thread's namespace.
    pub fn take(files: &Files) -> Snapshot {
        let mut snapshot = Snapshot::read(files, KernelAnswers::default());
        // Virtual links have neither rings nor statistics of their own that are read.
        let cards =
            snapshot.devices.iter().filter(|device| device.hardware).map(|device| device.name.clone());
        let cards: Vec<_> = cards.collect();
        // Those of this namespace; "alloc" counts all of the machine.
        let sockets = snapshot.sockets(&["TCP inuse", "TCP6 inuse", "TCP tw"]);
        let range = snapshot.sysctls.get("net/ipv4/ip_local_port_range");
        let local_ports = range.and_then(|range| {
            let (first, last) = range.split_once(' ')?;
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        let there = There { sockets, routes: snapshot.routes.len() as u64, local_ports };
        snapshot.answers = KernelAnswers::ask(&cards, there, &mut snapshot.unseen);
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        snapshot.at_ns = now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned();
        snapshot
    }

    /// The parts that this snapshot lacks and without which a diagnosis of the network is impossible. Every kernel has
    /// them, so they were not readable, or were removed from a tree.
    pub fn blind(&self) -> Vec<&'static str> {
        let has_cards = self.devices.iter().any(|device| device.hardware && device.up);
        let network = self.sysctls.keys().any(|key| key.starts_with("net/"));
        let lacks = [
            (self.devices.is_empty(), "links (sys/class/net)"),
            (
                self.counters.iter().next().is_none(),
                "counters of the stack (proc/net/snmp, proc/net/netstat)",
            ),
            (self.softnet.is_empty(), "the CPUs' backlogs (proc/net/softnet_stat)"),
            (self.softirqs.is_empty(), "soft interrupts (proc/softirqs)"),
            (!network, "kernel parameters of the network (proc/sys/net)"),
            (has_cards && self.interrupts.is_empty(), "interrupts of the cards (proc/interrupts)"),
        ];
        lacks.into_iter().filter(|(lacks, _)| *lacks).map(|(_, what)| what).collect()
    }

    /// The same without what a container has of its own in the network of its host: control groups, and files that set
    /// kernel parameters. Those of the host are not seen.
    #[must_use]
    pub fn without_files_of_a_container(mut self) -> Snapshot {
        self.groups = Limited::default();
        self.configured = Vec::new();
        let of_the_host =
            ["control groups of the host (sys/fs/cgroup)", "files that set kernel parameters (etc/sysctl.d)"];
        self.unseen.extend(of_the_host.map(|what| format!("{what}: this container has its own")));
        self
    }

    /// Reads the files alone, and takes these answers for what would have been asked.
    pub fn read(files: &Files, answers: KernelAnswers) -> Snapshot {
        let mut unseen = Vec::new();
        let procfs = Procfs::of(files);
        let sysctls = read_sysctls(files, &mut unseen);
        let release = sysctls.get("kernel/osrelease").cloned().unwrap_or_default();
        let mut snapshot = Snapshot {
            at_ns: 0,
            kernel: release,
            netns: None,
            stat: or_default(procfs.stat(), &mut unseen),
            softirqs: or_default(procfs.softirqs(), &mut unseen),
            interrupts: interrupts(&procfs, &mut unseen),
            softnet: or_default(procfs.softnet(), &mut unseen),
            counters: or_default(procfs.counters(), &mut unseen),
            sockstat: or_default(procfs.sockstat(), &mut unseen),
            irq_pressure: or_default(procfs.pressure("irq"), &mut unseen),
            devices: or_default(files.devices(), &mut unseen),
            conntrack: or_default(procfs.net_stat("nf_conntrack"), &mut unseen),
            neighbours: or_default(procfs.net_stat("arp_cache"), &mut unseen),
            neighbours6: or_default(procfs.net_stat("ndisc_cache"), &mut unseen),
            routes: or_default(procfs.routes(), &mut unseen),
            taps: or_default(procfs.packet_taps(), &mut unseen),
            datagrams: Vec::new(),
            groups: or_default(files.limited_groups(), &mut unseen),
            memory_stalls: or_default(procfs.memory_stalls(), &mut unseen),
            power: BTreeMap::new(),
            machine: or_default(machine(files), &mut unseen),
            configured: or_default(configured(files), &mut unseen),
            sysctls,
            answers,
            unseen,
        };
        snapshot.read_power(files);
        snapshot.read_datagrams(&procfs);
        snapshot
    }

    /// CPUs on which no card's interrupt comes are of no interest, and there may be hundreds.
    fn read_power(&mut self, files: &Files) {
        const CPUS_MAX: usize = 16;
        let cards = self.devices.iter().filter(|device| device.hardware && device.up);
        let numbers: Vec<u32> = cards.flat_map(|card| card.interrupts.iter().copied()).collect();
        let of_cards = self.interrupts.iter().filter(|interrupt| numbers.contains(&interrupt.number));
        let cpus: CpuSet = of_cards.flat_map(|interrupt| interrupt.affinity.iter()).collect();
        for cpu in cpus.iter().take(CPUS_MAX) {
            self.power.insert(cpu, or_default(files.cpu_power(cpu), &mut self.unseen));
        }
    }

    /// How many sockets the kernel counts under these names together.
    fn sockets(&self, counts: &[&str]) -> u64 {
        counts.iter().filter_map(|count| self.sockstat.get(*count)).sum()
    }

    /// Reads the UDP sockets, unless there are so many that the list would cost more than doctor's limit.
    fn read_datagrams(&mut self, procfs: &Procfs) {
        let there = self.sockets(&["UDP inuse", "UDP6 inuse"]);
        if there > SOCKETS_MAX {
            let unseen = format!(
                "sockets for datagrams: {there} are too many to list within the cost that is allowed"
            );
            self.unseen.push(unseen);
        } else {
            self.datagrams = or_default(procfs.udp_sockets(), &mut self.unseen);
        }
    }
}

fn or_default<T: Default>(result: linux::Result<T>, unseen: &mut Vec<String>) -> T {
    kept(result, unseen).unwrap_or_default()
}

fn read_sysctls(files: &Files, unseen: &mut Vec<String>) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for key in sysctls::READ {
        let text = kept(files.read(&format!("proc/sys/{key}")), unseen).flatten();
        values.extend(text.map(|text| ((*key).to_owned(), words(&text))));
    }
    values
}

/// Words with one blank between them, as people write them; the kernel separates with tabs.
fn words(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

fn interrupts(procfs: &Procfs, unseen: &mut Vec<String>) -> Vec<Interrupt> {
    let mut interrupts = or_default(procfs.interrupts(), unseen);
    for interrupt in &mut interrupts {
        // The kernel's own lines also have numbers, but no directory, or one that only root may read.
        interrupt.affinity = procfs.interrupt_affinity(interrupt.number).unwrap_or_default();
    }
    interrupts
}

fn machine(files: &Files) -> linux::Result<MachineFacts> {
    let cpus = "sys/devices/system/cpu";
    let mut isolated: Vec<u16> = Vec::new();
    for file in ["isolated", "nohz_full"] {
        let text = files.read(&format!("{cpus}/{file}"))?.unwrap_or_default();
        // Without the feature the file nohz_full contains "(null)".
        let set: CpuSet = text.trim().parse().unwrap_or_default();
        isolated.extend(set.iter());
    }
    let clocksource = files.read("sys/devices/system/clocksource/clocksource0/current_clocksource")?;
    let mut governors = BTreeMap::new();
    for name in files.list(cpus)? {
        let Some(Ok(cpu)) = name.strip_prefix("cpu").map(str::parse) else { continue };
        let governor = files.read(&format!("{cpus}/{name}/cpufreq/scaling_governor"))?;
        // With these drivers the processor chooses its frequency itself, and "powersave" is the name of its normal
        // mode (Documentation/admin-guide/pm/intel_pstate.rst, amd-pstate.rst).
        let driver = files.read(&format!("{cpus}/{name}/cpufreq/scaling_driver"))?.unwrap_or_default();
        let chooses = matches!(driver.trim(), "intel_pstate" | "amd-pstate-epp");
        governors.extend(governor.filter(|_| !chooses).map(|governor| (cpu, governor.trim().to_owned())));
    }
    let clocksource = clocksource.unwrap_or_default().trim().to_owned();
    let memory_bytes = Procfs::of(files).memory_bytes()?.get("MemTotal").copied().unwrap_or_default();
    Ok(MachineFacts { isolated: isolated.into_iter().collect(), memory_bytes, clocksource, governors })
}

fn configured(files: &Files) -> linux::Result<Vec<Assignment>> {
    let lines = Configured::read(files)?.resolved(sysctls::READ);
    Ok(lines.into_iter().map(|line| Assignment { value: words(&line.value), ..line }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_tree_is_a_snapshot_that_says_what_it_lacks() {
        let snapshot = Snapshot::read(&Files::of(BTreeMap::new()), KernelAnswers::default());
        assert!(snapshot.devices.is_empty() && snapshot.stat.cpus.is_empty());
        assert!(snapshot.unseen.iter().any(|text| text.contains("proc/stat")), "{:?}", snapshot.unseen);
        assert_eq!(snapshot.blind().len(), 5, "{:?}", snapshot.blind());
    }

    #[test]
    fn this_machine_is_seen() {
        let snapshot = Snapshot::take(&Files::kernel());
        assert!(snapshot.at_ns > 0 && !snapshot.kernel.is_empty());
        assert!(snapshot.devices.iter().any(|device| device.name.as_str() == "lo"));
        assert!(snapshot.answers.sockets.is_some());
        assert!(snapshot.blind().is_empty(), "{:?}", snapshot.blind());
    }
}
