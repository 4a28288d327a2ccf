//! The virtual machines that an experiment may ask for: other kernels than this machine's, and the exact mode.

use serde::{Deserialize, Serialize};

use crate::Experiment;
use crate::experiment_error::{ExperimentError, out_of_range, within};

/// What races in a virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Machines {
    /// The kernels, each of which gets its own race: `debian:6.12`, or the path of an image.
    pub kernels: Vec<String>,
    /// The folder of the modules of kernels that are given by their path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<String>,
    /// Instructions are counted instead of time: see [`Experiment::exact`].
    pub exact: bool,
    /// What the machines' clocks count.
    #[serde(skip_serializing_if = "Clock::is_usual")]
    pub clock: Clock,
    /// Virtual CPUs; where instructions are counted there is always one.
    pub cpus: u32,
    pub memory_mib: u32,
}

/// What a virtual machine's clock counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Its clock follows this machine's.
    #[default]
    Real,
    /// Instructions of its one CPU, a nanosecond each; what all processes would sleep is skipped. Delays of a wire are
    /// as long as they should be then, however slow or busy this machine is, and a race repeats.
    Counted,
}

impl Clock {
    /// True of this machine's time.
    pub fn is_usual(&self) -> bool {
        *self == Clock::Real
    }
}

impl Default for Machines {
    fn default() -> Machines {
        Machines {
            kernels: Vec::new(),
            modules: None,
            exact: false,
            clock: Clock::Real,
            cpus: 2,
            memory_mib: 2048,
        }
    }
}

impl Machines {
    /// Whether its clock counts instructions, for any purpose.
    pub fn counts(&self) -> bool {
        self.exact || self.clock == Clock::Counted
    }

    /// The most kernels of one experiment.
    pub const KERNELS_MAX: usize = 8;

    pub(crate) fn validate(&self) -> Result<(), ExperimentError> {
        if self.kernels.is_empty() || self.kernels.len() > Machines::KERNELS_MAX {
            let why = format!("1 to {} kernels are expected, as in [\"debian:6.12\"]", Machines::KERNELS_MAX);
            return Err(out_of_range("vm.kernels", format!("a list of {}", self.kernels.len()), why));
        }
        for (index, kernel) in self.kernels.iter().enumerate() {
            if self.kernels[..index].contains(kernel) {
                return Err(out_of_range("vm.kernels", kernel, "it is listed twice"));
            }
        }
        within("vm.cpus", self.cpus, 1..=64)?;
        within("vm.memory_mib", self.memory_mib, 512..=262_144)
    }
}

/// Repetitions of the exact mode: they differ by a thousandth or two, and three are enough to see how much.
const REPETITIONS: u32 = 3;
/// A slice of the exact mode.
const EXACT_SLICE_MS: u32 = 60;

impl Experiment {
    /// The rounds of one repetition in exact mode, whose figure is their median. Occasional work of the kernel
    /// (timers, workers, RCU) takes up to a quarter of a million instructions at once, and falls into one slice of
    /// several.
    pub const EXACT_ROUNDS: u32 = 7;

    /// Whether instructions are counted instead of time.
    ///
    /// The virtual machine's clock then advances one nanosecond per instruction and skips sleep. On one connection
    /// each request follows the previous answer, so that the CPU is never idle: it runs the client, the server, or one
    /// of both nodes' kernels between them. The time of a request is the number of instructions that all of them spend
    /// on it.
    pub fn exact(&self) -> bool {
        self.vm.as_ref().is_some_and(|vm| vm.exact)
    }

    /// The experiment as it is raced in the virtual machine of one of its kernels.
    ///
    /// # Panics
    /// If it has no virtual machines.
    #[must_use]
    pub fn on(&self, kernel: &str) -> Experiment {
        let mut one = self.clone();
        one.vm.as_mut().expect("the experiment has virtual machines").kernels = vec![kernel.to_owned()];
        if self.exact() {
            one.workload.connections = 1;
            one.workload.connections_min = None;
            one.candidates.iter_mut().for_each(|candidate| candidate.connections = None);
            // There is one processor, and it is never idle: a rate would measure sleep.
            one.rates = Vec::new();
            one.workload.arrivals = crate::Arrivals::Constant;
            one.underlay.steering = crate::Steering::Sender;
            one.builds = 1;
            one.rounds = one.rounds.min(REPETITIONS) * Experiment::EXACT_ROUNDS;
            one.slice_ms = EXACT_SLICE_MS;
        }
        one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(lines: &str) -> Result<Experiment, ExperimentError> {
        Experiment::from_toml(&format!("schema = 1\nname = \"x\"\n{lines}"))
    }

    #[test]
    fn machines_are_read_written_and_checked() {
        let read = experiment("[vm]\nkernels = [\"debian:6.1\", \"debian:6.12\"]\nexact = true").unwrap();
        assert!(read.exact() && read.vm.as_ref().unwrap().cpus == 2);
        assert_eq!(Experiment::from_toml(&toml::to_string(&read).unwrap()).unwrap(), read);
        let plain = experiment("").unwrap();
        assert!(!plain.exact() && !toml::to_string(&plain).unwrap().contains("vm"));
        for (lines, what) in [
            ("[vm]\nexact = true", "1 to 8 kernels are expected"),
            ("[vm]\nkernels = [\"a\", \"a\"]", "`vm.kernels` is a: it is listed twice"),
            ("[vm]\nkernels = [\"a\"]\ncpus = 0", "`vm.cpus` is 0"),
            ("[vm]\nkernels = [\"a\"]\nmemory_mib = 1", "`vm.memory_mib` is 1"),
            ("[vm]\nkernel = \"a\"", "did you mean `kernels`?"),
        ] {
            let message = experiment(lines).unwrap_err().to_string();
            assert!(message.contains(what), "{message}");
        }
    }

    #[test]
    fn one_kernel_s_race_asks_for_that_kernel() {
        let both = experiment("rounds = 12\n[vm]\nkernels = [\"a\", \"b\"]\n").unwrap();
        let one = both.on("b");
        assert_eq!((one.rounds, one.vm.unwrap().kernels), (12, vec!["b".to_owned()]));
        let exact = experiment("rates = [5]\n[vm]\nkernels = [\"a\", \"b\"]\nexact = true").unwrap().on("a");
        assert_eq!((exact.rounds, exact.builds, exact.workload.connections), (21, 1, 1));
        assert!(exact.rates.is_empty());
    }

    #[test]
    fn in_exact_mode_every_candidate_has_one_connection() {
        let own = "[[candidates]]\npath = \"ptp+direct\"\nname = \"many\"\nconnections = 64";
        let many = format!(
            "[workload]\nconnections = 2000\nconnections_min = 1000\n{own}\n[vm]\nkernels = [\"a\"]\nexact = true"
        );
        let exact = experiment(&many).unwrap().on("a");
        assert_eq!(exact.candidates[0].connections, None);
        // So the guest reads it.
        assert_eq!(Experiment::from_toml(&exact.to_toml()).unwrap(), exact);
    }
}
