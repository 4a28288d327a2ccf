//! CPU time that is missing, and that is taken for a slow network.

use linux::procfs::CpuTicks;

use crate::finding::USUAL;
use crate::rate::{percent, share};
use crate::{Check, Family, Seen, Window};

const STAT: &str = "/proc/stat";

pub(super) const FAMILY: Family = Family {
    title: "CPU time",
    checks: &[
        Check {
            code: "HG130",
            title: "a container is throttled: this is not the network",
            why: "A group of processes used up its quota before the period ended and stood still until the next one. Requests that \
                were under way waited for up to a period, which looks like a slow network.",
            remedy: "a larger quota, none at all, or fewer threads that spend it at once",
            verify: "nr_throttled in the group's cpu.stat stays as it is",
            source: "Documentation/scheduler/sched-bwc.rst",
            run: throttled,
            ..USUAL
        },
        Check {
            code: "HG131",
            title: "the hypervisor takes CPU time: this is not the network",
            why: "Virtual CPUs were ready and did not run, since the machine below had others to run. Packets wait meanwhile.",
            remedy: "a larger or less shared machine; nothing in this one helps",
            verify: "steal in /proc/stat grows more slowly",
            source: "proc(5)",
            run: stolen,
            ..USUAL
        },
        Check {
            code: "HG132",
            title: "the clock is read the slow way",
            why: "The kernel reads the time from a device instead of the CPU, because it does not trust the CPU's counter. Each \
                packet and each system call that needs the time takes microseconds longer.",
            remedy: "look in the kernel's log why tsc was given up; on virtual machines choose the hypervisor's clock",
            verify: "current_clocksource is tsc, kvm-clock or the like",
            source: "Documentation/timers/timekeeping.rst",
            run: clock,
            ..USUAL
        },
        Check {
            code: "HG133",
            title: "CPUs that take interrupts save power",
            why: "The powersave governor keeps the frequency low, and what wakes up runs slowly at first.",
            remedy: "the performance governor, at least on the CPUs that take the card's interrupts",
            verify: "scaling_governor is performance or schedutil",
            source: "Documentation/admin-guide/pm/cpufreq.rst",
            run: governor,
            ..USUAL
        },
        Check {
            code: "HG134",
            title: "all CPUs are busy: this is not the network",
            why: "There is no CPU time left. Packets are handled late and programs read late, whatever the network does.",
            remedy: "find who uses the time (top), and give the machine less to do",
            verify: "some CPU has idle time",
            source: "proc(5)",
            run: full,
            ..USUAL
        },
    ],
};

fn throttled(window: &Window<'_>) -> Vec<Seen> {
    let mut found = Vec::new();
    for group in &window.after.groups {
        let Some(before) = window.before.groups.iter().find(|other| other.path == group.path) else {
            continue;
        };
        let stopped = group.throttled.saturating_sub(before.throttled);
        let periods = group.periods.saturating_sub(before.periods);
        let of_all = share(stopped, periods);
        // Once a window is the end of a task, not a limit.
        if stopped < 3 || of_all < 0.01 {
            continue;
        }
        let for_us = group.throttled_us.saturating_sub(before.throttled_us);
        let cpus = group.quota_us as f64 / group.period_us.max(1) as f64;
        let seen = Seen::with_effect(of_all > 0.05, 30.0 + of_all * 60.0)
            .on(&group.path)
            .saw(
                format!(
                    "stopped in {stopped} of {periods} periods, {}, for {} ms",
                    percent(of_all),
                    for_us / 1000
                ),
                format!("/sys/fs/cgroup/{}/cpu.stat", group.path),
            )
            .saw(format!("it may use {cpus:.2} CPUs"), format!("/sys/fs/cgroup/{}", group.path));
        found.push(seen);
    }
    found
}

fn sum(window: &Window<'_>, part: impl Fn(&CpuTicks) -> u64) -> (u64, u64) {
    let cpus = window.cpus();
    (cpus.values().map(part).sum(), cpus.values().map(CpuTicks::total).sum())
}

fn stolen(window: &Window<'_>) -> Vec<Seen> {
    let (stolen, all) = sum(window, |ticks| ticks.steal);
    let taken = share(stolen, all);
    if taken < 0.02 {
        return Vec::new();
    }
    let saw = format!("{} of all CPU time", percent(taken));
    vec![Seen::with_effect(taken > 0.1, 40.0 + taken * 50.0).saw(saw, STAT)]
}

fn clock(window: &Window<'_>) -> Vec<Seen> {
    const SLOW: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];
    let clock = window.after.machine.clocksource.as_str();
    if !SLOW.contains(&clock) {
        return Vec::new();
    }
    let (system, all) = sum(window, |ticks| ticks.system + ticks.softirq + ticks.irq);
    let busy = share(system, all);
    let from = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    vec![Seen::with_effect(busy > 0.2, busy * 40.0).saw(format!("it is {clock}"), from)]
}

fn governor(window: &Window<'_>) -> Vec<Seen> {
    let interrupted = window.interrupted();
    let governors = &window.after.machine.governors;
    let slow: Vec<u16> = governors
        .iter()
        .filter(|(cpu, governor)| {
            *governor == "powersave" && interrupted.get(cpu).is_some_and(|share| *share > 0.05)
        })
        .map(|(cpu, _)| *cpu)
        .collect();
    if slow.is_empty() {
        return Vec::new();
    }
    let cpus: linux::CpuSet = slow.into_iter().collect();
    let saw = format!("powersave on CPUs {cpus}, which handle packets");
    vec![Seen::information().saw(saw, "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")]
}

fn full(window: &Window<'_>) -> Vec<Seen> {
    let cpus = window.cpus();
    let least =
        cpus.values().map(|ticks| share(ticks.busy() + ticks.steal, ticks.total())).fold(1.0, f64::min);
    let (user, all) = sum(window, |ticks| ticks.user + ticks.nice);
    if cpus.is_empty() || least < 0.95 {
        return Vec::new();
    }
    let saw = format!(
        "each of {} CPUs at least {} busy, {} of it in programs",
        cpus.len(),
        percent(least),
        percent(share(user, all))
    );
    vec![Seen::information().saw(saw, STAT)]
}
