//! The machine, as far as it may matter to a reader of the figures.

use std::collections::BTreeMap;
use std::path::Path;

use linux::cpu::Scheduling;
use linux::procfs::Procfs;
use record::Machine;

use crate::{LabError, NodeCpus};

/// Facts that must not change while a race runs.
const STEADY: &[&str] = &["clock source", "frequency governor", "congestion control", "online CPUs"];

/// Looks at the machine.
pub fn machine(cpus: &NodeCpus, scheduling: Scheduling) -> Result<Machine, LabError> {
    let procfs = Procfs::kernel();
    let mut facts = BTreeMap::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(name.to_owned(), value);
        }
    };
    fact("clock source", line("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
    fact("frequency governor", line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
    fact("online CPUs", line("/sys/devices/system/cpu/online"));
    fact("hyper-threading", line("/sys/devices/system/cpu/smt/control"));
    fact("transparent huge pages", line("/sys/kernel/mm/transparent_hugepage/enabled").map(|l| chosen(&l)));
    fact("congestion control", line("/proc/sys/net/ipv4/tcp_congestion_control"));
    fact("autogroup", line("/proc/sys/kernel/sched_autogroup_enabled"));
    fact("load average", Some(procfs.load_average()?.minute.to_string()));
    fact("hypervisor", line("/sys/class/dmi/id/sys_vendor"));
    fact(
        "scheduling",
        Some(match scheduling {
            Scheduling::Normal => "normal".to_owned(),
            Scheduling::Fifo(priority) => format!("SCHED_FIFO {priority} for client and server"),
        }),
    );
    fact(
        "real-time budget",
        line("/proc/sys/kernel/sched_rt_runtime_us").map(|us| format!("{us} µs of each second")),
    );
    fact(
        "br_netfilter",
        Some(if Path::new("/proc/sys/net/bridge").exists() {
            "loaded: bridged packets pass netfilter".to_owned()
        } else {
            "not loaded".to_owned()
        }),
    );
    fact("nodes", cpus.shared().map(str::to_owned));
    Ok(Machine {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpu_model: procfs.cpu_model()?.unwrap_or_else(|| "unknown".to_owned()),
        cpus: u32::try_from(linux::cpu::online()?.len()).unwrap_or(u32::MAX),
        client_cpus: cpus.client.to_string(),
        server_cpus: cpus.server.to_string(),
        memory_bytes: procfs.memory_bytes()?.get("MemTotal").copied().unwrap_or(0),
        facts,
    })
}

/// The first steady fact in which two looks differ: which, from what, to what.
pub(crate) fn drifted(before: &Machine, after: &Machine) -> Option<String> {
    STEADY.iter().find_map(|name| {
        let (old, new) = (before.facts.get(*name), after.facts.get(*name));
        let word = |value: Option<&String>| value.cloned().unwrap_or_else(|| "unknown".to_owned());
        (old != new).then(|| format!("{name} from {} to {}", word(old), word(new)))
    })
}

fn line(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The chosen word of a list such as `always [madvise] never`.
fn chosen(list: &str) -> String {
    list.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(list, |(word, _)| word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen("on"), "on");
    }

    #[test]
    fn only_steady_facts_count_as_drift() {
        let with = |name: &str, value: &str| Machine {
            facts: [(name.to_owned(), value.to_owned())].into(),
            ..Machine::default()
        };
        let drift = drifted(&with("clock source", "tsc"), &with("clock source", "hpet"));
        assert_eq!(drift.as_deref(), Some("clock source from tsc to hpet"));
        assert_eq!(drifted(&with("load average", "1"), &with("load average", "2")), None);
    }
}
