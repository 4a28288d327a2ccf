//! Which CPUs each node gets.

use datapath::SocketRole;
use linux::CpuSet;

use crate::LabError;

/// The CPUs of the two nodes. A node pays on its own CPUs for its application and for its receive path, as a machine
/// of its own would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCpus {
    /// CPUs of the client's node.
    pub client: CpuSet,
    /// CPUs of the server's node.
    pub server: CpuSet,
}

impl NodeCpus {
    /// Those of a side's node.
    pub(crate) fn of(&self, part: SocketRole) -> &CpuSet {
        match part {
            SocketRole::Client => &self.client,
            SocketRole::Server => &self.server,
        }
    }

    /// Splits the allowed CPUs into two halves: whole cores to each node, so that client and server do not share one
    /// by hyper-threading, and the cores of a package together. An odd core out stays idle, so that the nodes are
    /// equal. With one core its threads are split, with one CPU both nodes share it; see [`NodeCpus::shared`].
    pub fn split(allowed: &CpuSet) -> NodeCpus {
        NodeCpus::split_cores(&linux::cpu::cores(allowed))
    }

    fn split_cores(cores: &[CpuSet]) -> NodeCpus {
        let half = cores.len() / 2;
        match cores {
            [] => NodeCpus { client: CpuSet::default(), server: CpuSet::default() },
            [core] if core.len() == 1 => NodeCpus { client: core.clone(), server: core.clone() },
            [core] => {
                let threads: Vec<CpuSet> = core.iter().map(|cpu| [cpu].into_iter().collect()).collect();
                NodeCpus::split_cores(&threads)
            }
            cores => {
                let join = |cores: &[CpuSet]| cores.iter().flat_map(CpuSet::iter).collect();
                NodeCpus { client: join(&cores[..half]), server: join(&cores[half..half * 2]) }
            }
        }
    }

    /// What the nodes share that two machines would not, in words.
    pub fn shared(&self) -> Option<&'static str> {
        if self.client == self.server {
            return Some("both share one CPU: each pays for the other's work");
        }
        let cores = linux::cpu::cores(&self.all());
        let both = |core: &CpuSet| {
            core.iter().any(|cpu| self.client.contains(cpu))
                && core.iter().any(|cpu| self.server.contains(cpu))
        };
        cores.iter().any(both).then_some("both share a core by hyper-threading: each slows the other")
    }

    /// One set a thread of the client: each of its CPUs alone.
    pub fn each_client(&self) -> Vec<CpuSet> {
        self.client.iter().map(|cpu| [cpu].into_iter().collect()).collect()
    }

    /// All CPUs of both nodes.
    pub fn all(&self) -> CpuSet {
        self.client.iter().chain(self.server.iter()).collect()
    }
}

/// The CPUs of this machine that were asked for from another one; without a wish, all that this process may use.
/// `whose` says for which side: "client".
///
/// # Errors
/// [`LabError::Experiment`]: one does not exist here or is not allowed, or none is named.
pub(crate) fn granted(asked: Option<CpuSet>, whose: &str) -> Result<CpuSet, LabError> {
    let allowed = linux::cpu::allowed()?;
    let Some(asked) = asked else { return Ok(allowed) };
    let missing = asked.iter().find(|cpu| !allowed.contains(*cpu));
    let why = match missing {
        Some(cpu) => format!("CPU {cpu} does not exist there or is not allowed; allowed are {allowed}"),
        None if asked.is_empty() => format!("no CPU is named; allowed are {allowed}"),
        None => return Ok(asked),
    };
    Err(LabError::Experiment { what: format!("the {whose}'s CPUs {asked}"), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cores: &[&str], client: &str, server: &str) {
        let cores: Vec<CpuSet> = cores.iter().map(|core| core.parse().unwrap()).collect();
        let split = NodeCpus::split_cores(&cores);
        assert_eq!((split.client.to_string().as_str(), split.server.to_string().as_str()), (client, server));
    }

    #[test]
    fn nodes_get_equal_halves_of_whole_cores() {
        check(&["0", "1"], "0", "1");
        check(&["0", "1", "2"], "0", "1");
        check(&["0,4", "1,5", "2,6", "3,7"], "0-1,4-5", "2-3,6-7");
        check(&["0-1"], "0", "1");
        check(&["0"], "0", "0");
    }

    #[test]
    fn each_thread_of_the_client_has_a_cpu() {
        let cpus = NodeCpus { client: "0-2".parse().unwrap(), server: "3-5".parse().unwrap() };
        let each: Vec<String> = cpus.each_client().iter().map(CpuSet::to_string).collect();
        assert_eq!(each, ["0", "1", "2"]);
    }
}
