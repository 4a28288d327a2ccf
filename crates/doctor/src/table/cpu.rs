//! CPU time that is missing, and that is taken for a slow network.

use linux::procfs::CpuTicks;

use crate::finding::USUAL;
use crate::rate::{percent, share};
use crate::{Check, CheckGroup, Observation, Window};

const STAT: &str = "/proc/stat";

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "CPU time",
    checks: &[
        Check {
            code: "HG130",
            title: "a container is throttled: this is not the network",
            why: "A group of processes used up its quota before the period ended and stood still until the next \
                  one. Requests in progress waited for up to a period, which looks like a slow network.",
            remedy: "a larger quota, none at all, or fewer threads that spend it at once",
            verify: "nr_throttled in the group's cpu.stat no longer grows",
            source: "Documentation/scheduler/sched-bwc.rst",
            run: throttled,
            ..USUAL
        },
        Check {
            code: "HG131",
            title: "the hypervisor takes CPU time: this is not the network",
            why: "Virtual CPUs were ready and did not run, since the machine below had others to run. Packets wait meanwhile.",
            remedy: "a larger or less shared machine; no change on this one helps",
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
            remedy: "the kernel's log says why tsc was rejected; on virtual machines choose the hypervisor's clock",
            verify: "current_clocksource is tsc, kvm-clock or the like",
            source: "Documentation/timers/timekeeping.rst",
            run: clock,
            ..USUAL
        },
        Check {
            code: "HG133",
            title: "CPUs that take interrupts save power",
            why: "The powersave governor keeps the frequency low, so work after a pause starts slowly. A CPU that \
                  is busy and still slow is held back by its governor, by heat, or by a power limit.",
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
            remedy: "find what uses the time (top), and give the machine less to do",
            verify: "some CPU has idle time",
            source: "proc(5)",
            run: full,
            ..USUAL
        },
        Check {
            code: "HG135",
            title: "CPUs sleep so deeply that waking up takes a large part of the round trip",
            why: "An idle CPU sleeps, the deeper the longer it expects to rest. The first packet after a pause \
                  waits until the CPU has woken up, which takes up to some hundred microseconds; on a short path \
                  that is most of the latency.",
            remedy: "a limit on how long waking up may take, at the price of power",
            knobs: &["cpu_dma_latency"],
            verify: "usage of the deep states in /sys/devices/system/cpu/cpu*/cpuidle no longer grows, and rtt in ss -ti falls",
            source: "Documentation/admin-guide/pm/cpuidle.rst",
            run: deep_sleep,
            ..USUAL
        },
        Check {
            code: "HG136",
            title: "programs and the network wait for memory",
            why: "No memory was free, so programs that needed some had to wait until the kernel had written out or \
                  dropped other data. Packets that arrive meanwhile may get no memory at all.",
            remedy: "use less memory, or keep more of it free (vm.min_free_kbytes)",
            verify: "allocstall_* in /proc/vmstat grow more slowly",
            source: "Documentation/admin-guide/sysctl/vm.rst",
            run: no_memory,
            ..USUAL
        },
        Check {
            code: "HG137",
            title: "a CPU that takes interrupts shares its core with a busy CPU",
            why: "Two CPUs of one core share its units: while both work, each has little more than half of them. \
                  Packets are handled that much more slowly.",
            remedy: "move the interrupts to a core whose other CPU has less to do, or move the program",
            knobs: &["irq_affinity"],
            verify: "the other CPU of the core has idle time in /proc/stat",
            source: "Documentation/ABI/stable/sysfs-devices-system-cpu, thread_siblings_list",
            run: shared_core,
            ..USUAL
        },
    ],
};

fn throttled(window: &Window<'_>) -> Vec<Observation> {
    let mut found = Vec::new();
    for group in &window.after.groups.throttled {
        let Some(before) = window.before.groups.throttled.iter().find(|other| other.path == group.path)
        else {
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
        let seen = Observation::with_effect(of_all > 0.05, 30.0 + of_all * 60.0)
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

fn stolen(window: &Window<'_>) -> Vec<Observation> {
    let (stolen, all) = sum(window, |ticks| ticks.steal);
    let taken = share(stolen, all);
    if taken < 0.02 {
        return Vec::new();
    }
    let saw = format!("{} of all CPU time", percent(taken));
    vec![Observation::with_effect(taken > 0.1, 40.0 + taken * 50.0).saw(saw, STAT)]
}

fn clock(window: &Window<'_>) -> Vec<Observation> {
    const SLOW: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];
    let clock = window.after.machine.clocksource.as_str();
    if !SLOW.contains(&clock) {
        return Vec::new();
    }
    let (system, all) = sum(window, |ticks| ticks.system + ticks.softirq + ticks.irq);
    let busy = share(system, all);
    let from = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    vec![Observation::with_effect(busy > 0.2, busy * 40.0).saw(format!("it is {clock}"), from)]
}

fn governor(window: &Window<'_>) -> Vec<Observation> {
    let held: Vec<Observation> =
        window.after.power.keys().filter_map(|cpu| held_back(window, *cpu)).collect();
    if !held.is_empty() {
        return held.into_iter().take(1).collect();
    }
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
    vec![Observation::information().saw(saw, "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")]
}

/// A CPU without idle time that runs at less than seven tenths of its frequency in both snapshots.
fn held_back(window: &Window<'_>, cpu: u16) -> Option<Observation> {
    let ticks = *window.cpus().get(&cpu)?;
    let busy = share(ticks.busy(), ticks.total());
    let of_packets = share(ticks.softirq + ticks.irq, ticks.total());
    let runs_at = |snapshot: &crate::Snapshot| {
        let power = snapshot.power.get(&cpu)?;
        Some((power.now_khz?, power.max_khz?))
    };
    let ((before, _), (now, most)) = (runs_at(window.before)?, runs_at(window.after)?);
    let fastest = share(before.max(now), most);
    if busy < 0.8 || of_packets < 0.1 || fastest > 0.7 {
        return None;
    }
    let saw = format!(
        "CPU {cpu} is {} busy, {} with packets, and runs at {} of {} MHz",
        percent(busy),
        percent(of_packets),
        now / 1000,
        most / 1000
    );
    let from = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
    Some(Observation::warning(25.0 + of_packets * 30.0).saw(saw, from))
}

/// What the CPUs of the cards' interrupts took to wake up, in microseconds on average; and how often they did.
fn wake_ups(window: &Window<'_>) -> (f64, u64) {
    let (mut waited_us, mut taken) = (0, 0);
    for (cpu, now) in &window.after.power {
        let Some(before) = window.before.power.get(cpu) else { continue };
        for (then, now) in before.sleeps.iter().zip(&now.sleeps) {
            let times = now.taken.saturating_sub(then.taken);
            waited_us += times * now.latency_us;
            taken += times;
        }
    }
    (share(waited_us, taken), taken)
}

fn deep_sleep(window: &Window<'_>) -> Vec<Observation> {
    let (wake_us, taken) = wake_ups(window);
    let near = window.connections().into_iter().filter(|connection| {
        let in_use = connection.acked() + connection.received() > 10_000;
        (1..1000).contains(&connection.now.min_rtt) && in_use
    });
    // A sender on this host wakes no CPU of a container by a card's interrupt.
    let nearest = window.nearest(near).into_values().min_by_key(|connection| connection.now.min_rtt);
    let Some(nearest) = nearest else { return Vec::new() };
    let (least_us, rtt_us) = (f64::from(nearest.now.min_rtt), f64::from(nearest.now.rtt));
    // Less than ten microseconds, or than a tenth, is in the noise of any path.
    if taken == 0 || wake_us < 10.0 || wake_us < least_us * 0.1 {
        return Vec::new();
    }
    // The best round trip met no sleeping CPU; the usual one is longer by about what waking up takes.
    let felt = rtt_us - least_us >= wake_us && wake_us > rtt_us * 0.25;
    let seen = Observation::with_effect(felt, 20.0)
        .saw(
            format!("waking up takes {wake_us:.0} µs on average, {taken} times in the window"),
            "/sys/devices/system/cpu/cpu*/cpuidle",
        )
        .saw(
            format!(
                "a round trip takes {rtt_us:.0} µs, and {least_us:.0} µs at its best: {}",
                nearest.name()
            ),
            super::SOCK_DIAG,
        );
    vec![seen.set("cpu_dma_latency", 3)]
}

fn no_memory(window: &Window<'_>) -> Vec<Observation> {
    let stalls = window.after.memory_stalls.saturating_sub(window.before.memory_stalls);
    let per_s = stalls as f64 / window.seconds();
    if per_s < 1.0 {
        return Vec::new();
    }
    let saw = format!("{stalls} times, {per_s:.0} a second (allocstall)");
    vec![Observation::with_effect(per_s >= 10.0, 25.0 + (per_s / 10.0).min(25.0)).saw(saw, "/proc/vmstat")]
}

fn shared_core(window: &Window<'_>) -> Vec<Observation> {
    let cpus = window.cpus();
    let interrupted = window.interrupted();
    let busy = |cpu: u16| cpus.get(&cpu).map_or(0.0, |ticks| share(ticks.busy(), ticks.total()));
    let mut found = Vec::new();
    for (cpu, power) in &window.after.power {
        let of_packets = interrupted.get(cpu).copied().unwrap_or_default();
        let other = power.core.iter().find(|other| other != cpu && busy(*other) > 0.6);
        let Some(other) = other.filter(|_| of_packets > 0.4) else { continue };
        let saw = format!(
            "CPU {cpu} is {} busy with interrupts, CPU {other} of the same core {}",
            percent(of_packets),
            percent(busy(other))
        );
        found.push(Observation::information().saw(saw, STAT));
    }
    found.truncate(3);
    found
}

fn full(window: &Window<'_>) -> Vec<Observation> {
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
    vec![Observation::information().saw(saw, STAT)]
}
