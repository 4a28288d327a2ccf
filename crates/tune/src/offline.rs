//! CPUs that a setting names and that do not run.

use linux::CpuSet;

use crate::{Cpus, Setting, Value};

impl Setting {
    /// Why it cannot be made where these CPUs are online: it names others. The kernel refuses some of them when they
    /// are written, and leaves others out without a word, so that the setting is not what was asked for.
    pub fn offline(&self, online: &CpuSet) -> Option<String> {
        let wanted: CpuSet = match &self.value {
            Value::Cpus(Cpus::These(cpus)) => cpus.clone(),
            Value::Cpus(Cpus::Groups(lists)) => lists.iter().flat_map(CpuSet::iter).collect(),
            _ => return None,
        };
        let absent = wanted.without(online);
        let (one, are) = if absent.len() == 1 { ("CPU", "is") } else { ("CPUs", "are") };
        (!absent.is_empty()).then(|| format!("{one} {absent} {are} not online; online are {online}"))
    }
}

#[cfg(test)]
mod tests {
    use record::RequestedValue;

    use super::*;
    use crate::find;

    #[test]
    fn cpus_that_do_not_run_are_named() {
        let check = |knob: &str, wanted: &str, expected: Option<&str>| {
            let setting =
                Setting::read(find(knob).unwrap(), &RequestedValue::Text(wanted.to_owned())).unwrap();
            assert_eq!(setting.offline(&"0-2,4".parse().unwrap()).as_deref(), expected, "{knob} = {wanted}");
        };
        for sound in ["0-2", "4", "none", "node"] {
            check("rps_cpus", sound, None);
        }
        check("irq_affinity", "3", Some("CPU 3 is not online; online are 0-2,4"));
        check("rps_cpus", "0-99", Some("CPUs 3,5-99 are not online; online are 0-2,4"));
        check("xps_cpus", "0;3;5", Some("CPUs 3,5 are not online; online are 0-2,4"));
        check("somaxconn", "3", None);
    }
}
