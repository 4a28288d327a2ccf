//! cyclonus: who of some pods reaches whom.

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
    /// All of them.
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

impl Cluster {
    /// Lets each of two pods in each of two namespaces call all four, by TCP and by UDP, and returns how many calls were
    /// answered. The namespaces `probe-x` and `probe-y` stay for the next time.
    ///
    /// # Errors
    /// A call is not answered; the error has the whole table.
    pub fn probe(&self, by: CalledBy) -> Result<usize> {
        self.provide(&image::AGNHOST)?;
        let mode = match by {
            CalledBy::PodAddress => "pod-ip",
            CalledBy::ServiceAddress => "service-ip",
            CalledBy::ServiceName => "service-name",
        };
        let mut cyclonus = self.inside("cyclonus");
        cyclonus.env("KUBECONFIG", self.folder.join("admin.kubeconfig"));
        cyclonus.args(["probe", "--noisy", "--probe-mode", mode, "--pod-creation-timeout-seconds=900"]);
        cyclonus.args(["--server-namespace=probe-x,probe-y", "--server-pod=a,b", "--job-timeout-seconds=60"]);
        cyclonus.args(["--server-port=80", "--server-protocol=TCP,UDP", "--perturbation-wait-seconds=0"]);
        let said = run(&mut cyclonus).with_context(|| self.last_words())?;
        answered(&said)
    }
}

/// How many calls were answered in the last table of what was found. Its rows are callers, its columns whom they call, and a
/// cell has a dot for each protocol that is answered, and an X for one that is not.
fn answered(said: &str) -> Result<usize> {
    let table = said.rsplit_once("kube results").map(|(_, after)| after);
    let table = table.and_then(|after| after.split("\n\n").next()).unwrap_or_default();
    let calls: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| probe-"))
        .flat_map(|line| line.split_whitespace().skip(2))
        .filter(|word| *word != "|")
        .collect();
    if calls.is_empty() || calls.iter().any(|call| *call != ".") {
        bail!("not every call of a pod was answered: {said}");
    }
    Ok(calls.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(cell: &str) -> String {
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
    fn calls_count_if_all_are_answered() {
        assert_eq!(answered(&said(". .")).unwrap(), 2);
        for broken in [". X", "X X", ""] {
            assert!(answered(&said(broken)).is_err(), "{broken:?}");
        }
        assert!(answered("nothing was found out").is_err());
    }
}
