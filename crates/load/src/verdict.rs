//! Whether a run is valid, and why not.

use linux::CpuSet;
use linux::procfs::{CpuTicks, Stat};

use crate::checks::{self, CheckResult, CheckWeight};
use crate::{Outcome, Schedule};

/// A run: what was asked, what it gave and whether that counts.
#[derive(Debug)]
pub struct CheckedRun {
    /// When its requests were intended.
    pub schedule: Schedule,
    /// The outcome of the run.
    pub outcome: Outcome,
    /// What its checks found.
    pub verdict: RunVerdict,
}

/// The results of a run's checks.
#[derive(Debug)]
pub struct RunVerdict {
    /// All checks, in fixed order.
    pub checks: Vec<CheckResult>,
    /// Whether a doubt makes the run fail too.
    pub strict: bool,
    /// How many independent samples the intervals are based on; `None`: there are no intervals.
    pub independent: Option<u64>,
}

impl RunVerdict {
    /// Checks a run. `stolen` is the share of the CPUs' time that a hypervisor took ([`stolen`]).
    pub fn new(outcome: &Outcome, schedule: &Schedule, stolen: Option<f64>, strict: bool) -> RunVerdict {
        let mut checks = checks::checks(outcome, schedule);
        checks.push(checks::steal(stolen));
        RunVerdict { checks, strict, independent: checks::independent_samples(outcome) }
    }

    /// Whether the run is what was requested; if strict, also whether it left no doubt.
    pub fn is_valid(&self) -> bool {
        self.complaints().next().is_none()
    }

    /// The failed checks for which the run is not valid: truths, and under `strict` doubts too.
    pub fn complaints(&self) -> impl Iterator<Item = &CheckResult> {
        self.failed().filter(|check| self.strict || check.kind == CheckWeight::Truth)
    }

    /// Every check that failed.
    pub fn failed(&self) -> impl Iterator<Item = &CheckResult> {
        self.checks.iter().filter(|check| check.passed == Some(false))
    }
}

/// The share (0 to 1) of the CPUs' time that a hypervisor took between two readings of the kernel's counters; without
/// `cpus`, of all CPUs. `None` if fewer than a hundred ticks passed, since one of them would be a per cent.
pub fn stolen(before: &Stat, after: &Stat, cpus: Option<&CpuSet>) -> Option<f64> {
    const TICKS_MIN: u64 = 100;
    let spent: Vec<CpuTicks> = after
        .cpus
        .iter()
        .filter(|(cpu, _)| cpus.is_none_or(|cpus| cpus.contains(**cpu)))
        .filter_map(|(cpu, ticks)| Some(ticks.since(before.cpus.get(cpu)?)))
        .collect();
    let total: u64 = spent.iter().map(CpuTicks::total).sum();
    let steal: u64 = spent.iter().map(|ticks| ticks.steal).sum();
    (total >= TICKS_MIN).then(|| steal as f64 / total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(truth: bool, doubt: bool, strict: bool) -> RunVerdict {
        let check = |id, kind, passed| CheckResult { id, kind, passed, text: String::new(), figures: vec![] };
        let checks = vec![
            check("truth", CheckWeight::Truth, Some(truth)),
            check("doubt", CheckWeight::Doubt, Some(doubt)),
            check("unjudged", CheckWeight::Truth, None),
        ];
        RunVerdict { checks, strict, independent: None }
    }

    #[test]
    fn doubts_count_under_strict_alone() {
        assert!(verdict(true, true, true).is_valid());
        assert!(verdict(true, false, false).is_valid());
        assert!(!verdict(true, false, true).is_valid());
        assert!(!verdict(false, true, false).is_valid());
        assert_eq!(verdict(true, false, false).failed().count(), 1);
    }

    #[test]
    fn stolen_time_is_that_of_the_cpus_in_use() {
        let look = |ticks: [CpuTicks; 2]| Stat { cpus: (0..).zip(ticks).collect(), ..Stat::default() };
        let before = look([CpuTicks { user: 50, ..CpuTicks::default() }, CpuTicks::default()]);
        let quiet = CpuTicks { user: 350, ..CpuTicks::default() };
        let after = look([quiet, CpuTicks { idle: 75, steal: 25, ..CpuTicks::default() }]);
        let of = |cpus: [u16; 1]| stolen(&before, &after, Some(&CpuSet::from_iter(cpus)));
        assert_eq!((of([0]), of([1])), (Some(0.0), Some(0.25)));
        assert_eq!(stolen(&before, &after, None), Some(0.0625));
        assert_eq!(stolen(&after, &after, None), None);
    }
}
