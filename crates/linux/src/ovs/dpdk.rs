//! A daemon with DPDK: threads of its own look at its ports again and again, and programs can be its ports.
//!
//! DPDK is told to keep everything to this one process: memory that it asks the kernel for as any program does (no huge
//! pages, which are the machine's), no card, and files in the directory of the switch.

use std::collections::BTreeMap;

use super::{SWITCH_DPDK, find, version};
use crate::CpuSet;

/// Mebibytes for packets, of which each switch has its own. A switch takes what it finds room for: a quarter of this is
/// its least.
const MEMORY_MIB: u32 = 128;
/// How long a thread that polls sleeps at most between two looks while the switch rests, in microseconds: the most that
/// Open vSwitch allows. It sleeps longer the longer it finds nothing.
const REST_US: u32 = 10_000;
/// The setting of the database for that, as Open vSwitch 3.1 has it and as later ones do. Each passes over the other.
pub(super) const REST: [&str; 2] = ["pmd-maxsleep", "pmd-sleep-max"];
/// The variable by which DPDK finds a directory for its files.
pub(super) const DIRECTORY: &str = "RUNTIME_DIRECTORY";

/// What a daemon with DPDK is started with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dpdk {
    /// A thread that polls for each of these CPUs; none: one, on the first that the daemon finds.
    pub poll_cpus: CpuSet,
}

/// Whether the program is there; else what has it, or which version is too old.
pub fn find_dpdk() -> Result<(), String> {
    version::DPDK.check(&find(SWITCH_DPDK)?)
}

impl Dpdk {
    /// The settings of the database by which the daemon starts, at rest.
    pub(super) fn settings(&self, name: &str) -> BTreeMap<&'static str, String> {
        let mut settings =
            BTreeMap::from([("dpdk-init", "true".to_owned()), ("dpdk-extra", arguments(name))]);
        settings.extend(resting());
        if !self.poll_cpus.is_empty() {
            settings.insert("pmd-cpu-mask", format!("0x{}", self.poll_cpus.to_mask().replace(',', "")));
        }
        settings
    }
}

/// The settings by which it rests. Without them threads do not sleep at all.
pub(super) fn resting() -> [(&'static str, String); 2] {
    REST.map(|key| (key, REST_US.to_string()))
}

/// The arguments of DPDK. Without `--legacy-mem` the daemon would ask for what `--no-huge` excludes.
fn arguments(name: &str) -> String {
    format!(
        "--no-huge --legacy-mem -m {MEMORY_MIB} --iova-mode=va --no-pci --no-telemetry --file-prefix={name}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_to_itself_and_rests_at_first() {
        let settings = Dpdk { poll_cpus: "1,33".parse().unwrap() }.settings("hg-x-n1-1");
        assert_eq!(settings["pmd-cpu-mask"], "0x200000002");
        assert_eq!((settings["dpdk-init"].as_str(), settings["pmd-maxsleep"].as_str()), ("true", "10000"));
        assert!(!Dpdk::default().settings("x").contains_key("pmd-cpu-mask"));
        let plain = arguments("hg-x-n1-1");
        for needed in ["--no-huge", "--no-pci", "--no-telemetry", "--file-prefix=hg-x-n1-1"] {
            assert!(plain.split(' ').any(|word| word == needed), "{plain}");
        }
    }
}
