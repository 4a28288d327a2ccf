//! Limits of the machine that the kernel would report only when a setting is made.

use ::tune::{Cpus, Lives, Setting, Value};
use linux::CpuSet;

use super::host::Host;

/// Why a value is out of bounds: CPUs that are offline, an MTU above the driver's limit.
pub(super) fn beyond(setting: &Setting, host: &Host) -> anyhow::Result<Option<String>> {
    Ok(match (&setting.value, setting.lives) {
        (Value::Cpus(Cpus::These(cpus)), _) => beyond_cpus(cpus, &linux::cpu::online()?),
        (Value::Cpus(Cpus::Groups(lists)), _) => {
            let all: CpuSet = lists.iter().flat_map(CpuSet::iter).collect();
            beyond_cpus(&all, &linux::cpu::online()?).or_else(|| setting.refused_by(&host.site.nic))
        }
        (Value::Number(mtu), Lives::Mtu) => {
            let most = host.mtu_max.filter(|most| *mtu > u64::from(*most));
            most.map(|most| format!("the MTU of {} can be at most {most}", host.site.wire))
        }
        _ => None,
    })
}

fn beyond_cpus(asked: &CpuSet, online: &CpuSet) -> Option<String> {
    let absent: CpuSet = asked.iter().filter(|cpu| !online.contains(*cpu)).collect();
    let (one, are) = if absent.len() == 1 { ("CPU", "is") } else { ("CPUs", "are") };
    (!absent.is_empty()).then(|| format!("{one} {absent} {are} not online; online are {online}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_are_not_there_are_named() {
        let cpus = |list: &str| list.parse::<CpuSet>().unwrap();
        let check = |asked: &str, expected: Option<&str>| {
            assert_eq!(beyond_cpus(&cpus(asked), &cpus("0-2,4")).as_deref(), expected, "{asked}");
        };
        check("0-2", None);
        check("4", None);
        check("3", Some("CPU 3 is not online; online are 0-2,4"));
        check("0-99", Some("CPUs 3,5-99 are not online; online are 0-2,4"));
    }
}
