//! How CPUs save power and share cores: their idle states, the frequency at which they run, and which of them are
//! hyper-threads of one core.

use crate::{CpuSet, Files, Result};

/// What a CPU does to save power.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuPower {
    /// The kinds of sleep, from the lightest.
    pub sleeps: Vec<Sleep>,
    /// At what it runs, in kHz, where the driver reports it.
    pub now_khz: Option<u64>,
    /// At what it can run.
    pub max_khz: Option<u64>,
    /// The CPUs of its core, including itself; empty where the machine does not report it.
    pub core: CpuSet,
}

/// A kind of sleep (`cpuidle/stateN`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sleep {
    /// The driver's name for the state (`C1`).
    pub name: String,
    /// Microseconds that waking up from it takes.
    pub latency_us: u64,
    /// How often it was taken.
    pub taken: u64,
}

impl Files {
    /// What this CPU does to save power. Fields that the machine does not report are empty, as on most virtual
    /// machines.
    ///
    /// # Errors
    /// A file is not readable or does not hold a number.
    pub fn cpu_power(&self, cpu: u16) -> Result<CpuPower> {
        let at = format!("sys/devices/system/cpu/cpu{cpu}");
        let mut sleeps = Vec::new();
        for state in 0.. {
            let state = format!("{at}/cpuidle/state{state}");
            let Some(name) = self.read(&format!("{state}/name"))? else { break };
            let number = |file: &str| self.number(&format!("{state}/{file}")).map(Option::unwrap_or_default);
            let (latency_us, taken) = (number("latency")?, number("usage")?);
            sleeps.push(Sleep { name: name.trim().to_owned(), latency_us, taken });
        }
        let core = self.read(&format!("{at}/topology/thread_siblings_list"))?;
        Ok(CpuPower {
            sleeps,
            now_khz: self.frequency(&format!("{at}/cpufreq/scaling_cur_freq"))?,
            max_khz: self.frequency(&format!("{at}/cpufreq/cpuinfo_max_freq"))?,
            core: core.and_then(|list| list.trim().parse().ok()).unwrap_or_default(),
        })
    }

    /// The frequency in a file; drivers write `<unknown>` where they cannot read it.
    fn frequency(&self, path: &str) -> Result<Option<u64>> {
        Ok(self.read(path)?.and_then(|text| text.trim().parse().ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_states_are_listed_from_the_lightest() {
        let texts = [
            ("cpuidle/state0/name", "POLL\n"),
            ("cpuidle/state0/latency", "0\n"),
            ("cpuidle/state0/usage", "4\n"),
            ("cpuidle/state1/name", "C6\n"),
            ("cpuidle/state1/latency", "133\n"),
            ("cpuidle/state1/usage", "900\n"),
            ("cpufreq/scaling_cur_freq", "1200000\n"),
            ("cpufreq/cpuinfo_max_freq", "<unknown>\n"),
            ("topology/thread_siblings_list", "3,7\n"),
        ];
        let texts =
            texts.map(|(path, text)| (format!("sys/devices/system/cpu/cpu3/{path}"), text.to_owned()));
        let files = Files::of(texts.into());
        let power = files.cpu_power(3).unwrap();
        let deepest = Sleep { name: "C6".to_owned(), latency_us: 133, taken: 900 };
        assert_eq!((power.sleeps.len(), &power.sleeps[1]), (2, &deepest));
        assert_eq!((power.now_khz, power.max_khz), (Some(1_200_000), None));
        assert_eq!(power.core.to_string(), "3,7");
        assert_eq!(files.cpu_power(4).unwrap(), CpuPower::default());
    }

    #[test]
    fn the_kernels_own_files_are_understood() {
        Files::kernel().cpu_power(0).unwrap();
    }
}
