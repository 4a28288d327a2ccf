//! Which CPUs each node gets.

use datapath::SocketRole;
use linux::CpuSet;
use record::Placement;

use crate::LabError;
use crate::by_role::ByRole;

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

    /// The same, but where switches poll, a core for each is neither node's, if there are enough that each node has one
    /// too.
    pub fn split_beside(allowed: &CpuSet, polls: bool, placement: Placement) -> NodeCpus {
        let polling = if polls { switches(placement) } else { 0 };
        NodeCpus::split_cores(beside(&linux::cpu::cores(allowed), polling))
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

    /// The allowed CPUs that are neither node's, for switches: one of each core, if there is a core for each switch.
    pub fn spare(&self, allowed: &CpuSet, placement: Placement) -> CpuSet {
        let taken = self.all();
        let free: CpuSet = allowed.iter().filter(|cpu| !taken.contains(*cpu)).collect();
        match linux::cpu::cores(&free) {
            cores if cores.len() >= switches(placement) => {
                cores.iter().filter_map(|core| core.iter().next()).collect()
            }
            _ => free,
        }
    }

    /// The CPU on which each node's switch polls: one of those that are neither node's, where there is one for each
    /// switch. Else it is the last of the node's own, and of the server's where both are on one node: the client sends
    /// from its CPUs by threads that are not to be late.
    pub(crate) fn polled(&self, spare: &CpuSet, placement: Placement) -> ByRole<CpuSet> {
        let spare: Vec<u16> = spare.iter().collect();
        let last = |cpus: &CpuSet| cpus.iter().last().into_iter().collect();
        let one = |cpu: u16| CpuSet::from_iter([cpu]);
        match (placement, spare.as_slice()) {
            (Placement::TwoNodes, [first, second, ..]) => {
                ByRole { client: one(*first), server: one(*second) }
            }
            (Placement::TwoNodes, _) => ByRole { client: last(&self.client), server: last(&self.server) },
            (Placement::SameNode, [first, ..]) => ByRole { client: one(*first), server: one(*first) },
            (Placement::SameNode, []) => ByRole { client: last(&self.server), server: last(&self.server) },
        }
    }

    /// Each node's CPUs with those on which its switch polls. One that is both sides' is the server's, and one that is
    /// another side's stays there.
    pub(crate) fn with(&self, polled: &ByRole<CpuSet>) -> NodeCpus {
        let server = |cpu: u16| self.server.contains(cpu) || polled.server.contains(cpu);
        let own = self.client.iter();
        let client = own.chain(polled.client.iter().filter(|cpu| !server(*cpu))).collect();
        let others = polled.server.iter().filter(|cpu| !self.client.contains(*cpu));
        NodeCpus { client, server: self.server.iter().chain(others).collect() }
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

/// How many switches a data path that has them has between client and server: one in each node.
pub(crate) fn switches(placement: Placement) -> usize {
    match placement {
        Placement::TwoNodes => 2,
        Placement::SameNode => 1,
    }
}

/// The cores that are left for the nodes beside switches that poll.
fn beside(cores: &[CpuSet], polling: usize) -> &[CpuSet] {
    match cores.len().checked_sub(polling) {
        Some(left @ 2..) => &cores[..left],
        _ => cores,
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
    fn switches_that_poll_get_cores_where_the_nodes_have_one_each() {
        for (cores, polling, left) in [
            (&["0", "1"][..], 1, 2),
            (&["0", "1"], 2, 2),
            (&["0", "1", "2"], 1, 2),
            (&["0", "1", "2"], 2, 3),
            (&["0", "1", "2", "3"], 2, 2),
            (&["0", "1", "2", "3"], 0, 4),
            (&["0", "1", "2", "3", "4", "5", "6", "7"], 2, 6),
        ] {
            let cores: Vec<CpuSet> = cores.iter().map(|core| core.parse().unwrap()).collect();
            assert_eq!(beside(&cores, polling).len(), left, "{cores:?} and {polling}");
        }
    }

    /// These CPUs are on no machine, so that each counts as a core of its own.
    #[test]
    fn what_is_neither_node_s_is_for_switches() {
        let allowed: CpuSet = "4000-4004".parse().unwrap();
        for (polls, nodes, spare) in [(false, "4000-4003", "4004"), (true, "4000-4001", "4002-4004")] {
            let cpus = NodeCpus::split_beside(&allowed, polls, Placement::TwoNodes);
            let found = [cpus.all(), cpus.spare(&allowed, Placement::TwoNodes)].map(|cpus| cpus.to_string());
            assert_eq!(found, [nodes, spare]);
        }
    }

    #[test]
    fn each_thread_of_the_client_has_a_cpu() {
        let cpus = NodeCpus { client: "0-2".parse().unwrap(), server: "3-5".parse().unwrap() };
        let each: Vec<String> = cpus.each_client().iter().map(CpuSet::to_string).collect();
        assert_eq!(each, ["0", "1", "2"]);
    }

    #[test]
    fn switches_poll_on_spare_cpus_and_else_on_their_nodes() {
        let set = |text: &str| -> CpuSet { text.parse().unwrap() };
        let cpus = NodeCpus { client: set("0-1"), server: set("2-3") };
        let check = |spare: &str, placement, polled: [&str; 2], counted: [&str; 2]| {
            let spare: CpuSet = spare.split(',').filter_map(|cpu| cpu.parse::<u16>().ok()).collect();
            let found = cpus.polled(&spare, placement);
            assert_eq!(found.as_ref().both().map(CpuSet::to_string), polled, "{spare}");
            let NodeCpus { client, server } = cpus.with(&found);
            assert_eq!([client, server].map(|cpus| cpus.to_string()), counted, "{spare}");
        };
        check("", Placement::TwoNodes, ["1", "3"], ["0-1", "2-3"]);
        check("4", Placement::TwoNodes, ["1", "3"], ["0-1", "2-3"]);
        check("4,5", Placement::TwoNodes, ["4", "5"], ["0-1,4", "2-3,5"]);
        check("", Placement::SameNode, ["3", "3"], ["0-1", "2-3"]);
        check("4", Placement::SameNode, ["4", "4"], ["0-1", "2-4"]);
    }
}
