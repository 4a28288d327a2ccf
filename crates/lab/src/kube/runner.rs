//! The cluster as the arena of a race: candidates stand when their connections are open.

use std::sync::Arc;

use datapath::SocketRole;
use record::{Capacity, Experiment, Load, Machine, TrialRecord, Witness, Workload, Writer};

use super::node_pair_pods::NodePairPods;
use super::path::{ClusterContender, Pods};
use super::pod_process::PodProcess;
use super::protocol::{Answer, Call, Pace, Task};
use crate::race::{Arena, LastBuild, Runner};
use crate::trial::Method;
use crate::trial_key::TrialKey;
use crate::{Event, LabError};

/// The pods of a race.
pub(super) struct ClusterArena<'a> {
    pub(super) pair: NodePairPods<'a>,
    pub(super) contenders: &'a [ClusterContender],
    pub(super) workload: &'a Workload,
    /// The client's CPUs, where the user names them.
    pub(super) cpus: Option<&'a linux::CpuSet>,
}

/// A candidate whose client has its connections.
pub(super) struct Connected<'a> {
    candidate: String,
    connections: u32,
    client: Arc<PodProcess>,
    server: Arc<PodProcess>,
    pods: Pods,
    pair: NodePairPods<'a>,
}

impl<'a> Arena for ClusterArena<'a> {
    type Runner = Connected<'a>;

    fn names(&self) -> Vec<&str> {
        self.contenders.iter().map(|contender| contender.name.as_str()).collect()
    }

    fn can_run(&self, entrant: usize) -> bool {
        self.contenders[entrant].unmet.is_empty()
    }

    fn is_in_turn(&self) -> bool {
        false
    }

    /// Opens its connections. The pods stand all the time; a build is new connections.
    fn stand(&mut self, entrant: usize) -> Result<Connected<'a>, LabError> {
        let contender = &self.contenders[entrant];
        let broken = |what: String| LabError::Broken { candidate: contender.name.clone(), what };
        let address = self.pair.address(&contender.path).map_err(broken)?;
        let pods = &contender.path.pods;
        let connected = Connected {
            candidate: contender.name.clone(),
            connections: self.workload.connections,
            client: self.pair.process(SocketRole::Client, pods),
            server: self.pair.process(SocketRole::Server, pods),
            pods: pods.clone(),
            pair: self.pair,
        };
        let call = Call {
            candidate: contender.name.clone(),
            address,
            workload: self.workload.clone(),
            workers: self.pair.workers(SocketRole::Client, self.cpus),
        };
        connected.ask(&Task::Open(Box::new(call)))?;
        Ok(connected)
    }

    /// The client's node, as its pod sees it.
    fn machine(&mut self) -> Result<Machine, LabError> {
        let process = self.pair.process(SocketRole::Client, &Pods::Host);
        let workers = self.pair.workers(SocketRole::Client, self.cpus);
        match process.ask(&Task::Look { workers }, None, "host")? {
            Answer::Seen(seen) => Ok(seen.machine),
            other => Err(process.strange(&other)),
        }
    }

    /// Instructions are not counted in a cluster.
    fn settle(&mut self, _: &mut Connected<'a>, _: &Method, _: &Load) -> Result<(), LabError> {
        Ok(())
    }

    /// A pod may not watch its node for stalls.
    fn adjust_witness(
        &mut self,
        _: &mut Connected<'a>,
        _: &Method,
        _: &[Load],
    ) -> Result<Option<Witness>, LabError> {
        Ok(None)
    }

    /// A profile and causes of late answers are refused before the race.
    fn after_rounds(
        &mut self,
        _: LastBuild<'_, Connected<'a>>,
        _: &Experiment,
        _: &mut Writer,
        _: &mut dyn FnMut(Event),
    ) -> Result<bool, LabError> {
        Ok(true)
    }
}

impl Connected<'_> {
    fn ask(&self, task: &Task) -> Result<Answer, LabError> {
        let answer = self.client.ask(task, Some(&self.server), &self.candidate);
        answer.map_err(|error| self.pair.because_of_a_pod(error, &self.pods))
    }
}

impl Runner for Connected<'_> {
    fn name(&self) -> &str {
        &self.candidate
    }

    fn connections(&mut self, _body_bytes: u32) -> usize {
        self.connections as usize
    }

    /// Takes some seconds, and does not end before, whatever is asked.
    fn capacity(
        &mut self,
        method: &Method,
        body_bytes: u32,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Capacity>, LabError> {
        let (candidate, pace) = (self.candidate.clone(), Pace::of(method));
        match self.ask(&Task::Capacity { candidate, body_bytes, pace })? {
            Answer::Capacity(found) => Ok((!stop()).then_some(*found)),
            other => Err(self.client.strange(&other)),
        }
    }

    fn trial(&mut self, method: &Method, load: &Load, key: TrialKey) -> Result<TrialRecord, LabError> {
        let (candidate, pace) = (self.candidate.clone(), Pace::of(method));
        match self.ask(&Task::Trial { candidate, load: load.clone(), key, pace })? {
            Answer::Trial(trial) => Ok(*trial),
            other => Err(self.client.strange(&other)),
        }
    }

    /// What a cluster's network does with a path is its own; nothing here was built that could change.
    fn changed(&mut self) -> Result<Option<String>, LabError> {
        Ok(None)
    }

    fn take_down(self) -> Result<Vec<String>, LabError> {
        self.ask(&Task::Close { candidate: self.candidate.clone() }).map(|_| Vec::new())
    }
}
