//! A candidate's connections in the client's pod, as a trial loads them.

use std::net::SocketAddr;
use std::time::Duration;

use linux::CpuSet;
use linux::cpu::Scheduling;
use load::{Client, Pool, Target};
use record::{Void, Workload};

use super::protocol::{Answer, SpentInPod, Task};
use super::talk::{READY, Talk};
use crate::pools::{Opening, Pools};
use crate::traffic::TransferredAmounts;
use crate::trial::{Method, Subject};
use crate::usage::{CounterSnapshot, Usage};
use crate::void::stolen_from;
use crate::wire::Patience;
use crate::{ByRole, LabError, NodeCpus, Wires, target};

/// The client of a candidate: its connections, and the threads that use them.
pub(super) struct Caller {
    candidate: String,
    address: SocketAddr,
    workload: Workload,
    pools: Pools,
    /// One thread on each.
    cpus: CpuSet,
}

impl Caller {
    /// Opens connections for all sizes of answers.
    pub(super) fn open(
        candidate: String,
        address: SocketAddr,
        workload: Workload,
        cpus: CpuSet,
    ) -> Result<Caller, LabError> {
        let pools = Pools::of(workload.kind);
        let mut caller = Caller { candidate, address, workload, pools, cpus };
        for body_bytes in caller.workload.body_bytes.clone() {
            let target = caller.target(body_bytes);
            let opening = Opening {
                candidate: &caller.candidate,
                open: &|target: &Target, pool: Pool| Ok(Client::open(target, pool)),
                threads: caller.cpus.len(),
                ready: READY,
                connect: Wires::default().patience().connect(),
                relayed: false,
                check: &mut || Ok(()),
            };
            caller.pools.open(&target, body_bytes, caller.workload.connections, opening)?;
        }
        Ok(caller)
    }

    /// How trials are run in this pod; their times are the race's.
    pub(super) fn method(&self) -> Method {
        let cpus = NodeCpus { client: self.cpus.clone(), server: CpuSet::default() };
        Method::new(cpus, Scheduling::Normal)
    }

    /// The connections, with the way to the process that counts at the server.
    pub(super) fn asking<'a, 't>(&'a mut self, talk: &'a mut Talk<'t>) -> Asking<'a, 't> {
        Asking { caller: self, talk }
    }

    fn target(&self, body_bytes: u32) -> Target {
        target::target(&self.workload, self.address, body_bytes, None)
    }
}

/// A candidate's connections, and the way to the process that counts at the server.
pub(super) struct Asking<'a, 't> {
    caller: &'a mut Caller,
    talk: &'a mut Talk<'t>,
}

impl Subject for Asking<'_, '_> {
    fn name(&self) -> &str {
        &self.caller.candidate
    }

    fn patience(&self) -> Patience {
        Wires::default().patience()
    }

    fn clients(&mut self, body_bytes: u32) -> &mut [Client] {
        let target = self.caller.target(body_bytes);
        self.caller.pools.clients(body_bytes, || target)
    }

    /// The server's process looks by itself when the warm-up is over.
    fn begin(&mut self, warmup: Duration) -> Result<(), LabError> {
        self.talk.ask(Task::Count { after: warmup }).map(drop)
    }

    fn count(&mut self) -> Result<CounterSnapshot, LabError> {
        CounterSnapshot::here()
    }

    /// Both nodes work for others too: the time of all their CPUs is the cost, as on two machines. Whether the
    /// hypervisor let a side run is asked of its own CPUs.
    fn spent(
        &mut self,
        before: &CounterSnapshot,
        _cpus: &NodeCpus,
        _work: &ByRole<TransferredAmounts>,
    ) -> Result<(Usage, Option<Void>), LabError> {
        let counted = NodeCpus { client: linux::cpu::online()?, server: CpuSet::default() };
        let mut usage = CounterSnapshot::here()?.since(before, &counted);
        let Answer::Spent(there) = self.talk.ask(Task::Spent)? else {
            let what = "the server's pod does not say what a trial cost".to_owned();
            return Err(LabError::Broken { candidate: self.caller.candidate.clone(), what });
        };
        let SpentInPod { spent, void } = *there;
        let own = usage.client.iter().filter(|(cpu, _)| self.caller.cpus.contains(**cpu));
        let void = void.or_else(|| stolen_from(&own.map(|(cpu, time)| (*cpu, *time)).collect()));
        usage.add_server(&spent);
        Ok((usage, void))
    }

    fn check_server(&mut self) -> Result<(), LabError> {
        Ok(())
    }
}
