//! cyclonus: which of some pods reaches which.

use std::fmt;

use anyhow::{Context, Result, bail};

use crate::{Cluster, image, run};

/// By what pods call each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalledBy {
    /// The pod's own address.
    PodAddress,
    /// The address of a Service before it.
    ServiceAddress,
    /// The name of that Service, for which [`Cluster::serve_names`] is needed.
    ServiceName,
}

impl CalledBy {
    /// All of them, in the order of their variants.
    pub const ALL: [CalledBy; 3] = [CalledBy::PodAddress, CalledBy::ServiceAddress, CalledBy::ServiceName];
}

impl fmt::Display for CalledBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CalledBy::PodAddress => "the pod's address",
            CalledBy::ServiceAddress => "the Service's address",
            CalledBy::ServiceName => "the Service's name",
        })
    }
}

/// How often all is called again while a call is not answered. cyclonus waits a second for each answer, and a busy
/// machine may take longer to begin with it.
const TRIES: usize = 8;

impl Cluster {
    /// Lets each of two pods in each of two namespaces call all four, by TCP and by UDP, and returns how many calls
    /// were answered, each at one of its tries. The namespaces `probe-x` and `probe-y` stay for the next time.
    ///
    /// # Errors
    /// A call is not answered at any of its tries; the error has the last table.
    pub fn probe(&self, by: CalledBy) -> Result<usize> {
        self.provide(&image::AGNHOST)?;
        let mode = match by {
            CalledBy::PodAddress => "pod-ip",
            CalledBy::ServiceAddress => "service-ip",
            CalledBy::ServiceName => "service-name",
        };
        let probe = || {
            let mut cyclonus = self.inside("cyclonus");
            cyclonus.env("KUBECONFIG", self.folder.join("admin.kubeconfig"));
            cyclonus.args(["probe", "--noisy", "--probe-mode", mode, "--pod-creation-timeout-seconds=900"]);
            cyclonus.args(["--server-namespace=probe-x,probe-y", "--server-pod=a,b"]);
            cyclonus.args(["--job-timeout-seconds=60", "--server-port=80", "--server-protocol=TCP,UDP"]);
            cyclonus.arg("--perturbation-wait-seconds=0");
            run(&mut cyclonus).with_context(|| self.last_words())
        };
        let mut calls = Answered::default();
        for _ in 1..TRIES {
            if let Ok(all) = calls.add(&probe()?) {
                return Ok(all);
            }
        }
        calls.add(&probe()?)
    }
}

/// The calls that were answered at one try or another.
#[derive(Default)]
struct Answered(Vec<bool>);

impl Answered {
    /// Adds those of a try, and returns how many there are.
    ///
    /// # Errors
    /// One is not answered yet.
    fn add(&mut self, printed: &str) -> Result<usize> {
        let calls = calls(printed);
        self.0.resize(calls.len(), false);
        for (is_answered, call) in self.0.iter_mut().zip(&calls) {
            *is_answered |= *call == ".";
        }
        if calls.is_empty() || self.0.contains(&false) {
            bail!("not every call of a pod was answered: {printed}");
        }
        Ok(calls.len())
    }
}

/// The calls of the last table of what was found. Its rows are callers, its columns whom they call, and a cell has a
/// dot for each protocol that is answered, and an X for one that is not.
fn calls(printed: &str) -> Vec<&str> {
    let table = printed.rsplit_once("kube results").map(|(_, after)| after);
    let table = table.and_then(|after| after.split("\n\n").next()).unwrap_or_default();
    table
        .lines()
        .filter(|line| line.starts_with("| probe-"))
        .flat_map(|line| line.split_whitespace().skip(2))
        .filter(|word| *word != "|")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(cell: &str) -> String {
        let table = |title: &str, cell: &str| {
            format!(
                "{title}\n+---+---+\n|  TCP/80   | PROBE-X/A |\n|  UDP/80   |  |\n| probe-x/a | {cell}   |\n+---+---+\n"
            )
        };
        format!(
            "{}\n{}\n{}",
            table("expected:", ". ."),
            table("kube results, try 0:", cell),
            table("Actual vs expected", ".")
        )
    }

    #[test]
    fn calls_count_if_each_is_answered_at_one_of_its_tries() {
        assert_eq!(Answered::default().add(&printed(". .")).unwrap(), 2);
        for broken in ["X X", ""] {
            assert!(Answered::default().add(&printed(broken)).is_err(), "{broken:?}");
        }
        assert!(Answered::default().add("nothing was found out").is_err());
        let mut calls = Answered::default();
        assert!(calls.add(&printed(". X")).is_err() && calls.add(&printed(". X")).is_err());
        assert_eq!(calls.add(&printed("X .")).unwrap(), 2);
    }
}
