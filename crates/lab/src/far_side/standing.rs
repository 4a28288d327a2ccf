//! A candidate's half on the server's machine: what was built there, and the server in it.

use std::path::Path;

use datapath::{NodeSpec, Reach, SocketRole};
use linux::CpuSet;
use linux::cpu::Scheduling;
use linux::features::Facts;
use plan::forwarding::Splice;

use super::half::StandingHalf;
use crate::built_topology::AppliedPlan;
use crate::candidate::slug;
use crate::remote::order::Order;
use crate::remote::protocol::{RemoteRequest, Reply};
use crate::server::{Server, ServerChoice, ServerSetup};
use crate::topology::Half;
use crate::traffic::TransferredAmounts;
use crate::usage::{CounterSnapshot, Spent};
use crate::void::{stolen_from, throttled};
use crate::{LabError, NodeCpus, Shape, Topology, cards, side_settings};

/// What is the same for all halves of a race.
pub(super) struct Staff {
    pub(super) server: ServerChoice,
    pub(super) cpus: CpuSet,
    /// Those whose time counts: interrupts of a card may come to others than the server's.
    pub(super) counted: CpuSet,
    pub(super) scheduling: Scheduling,
    pub(super) facts: Facts,
}

impl Staff {
    /// Why this machine cannot have the settings of a server, in words.
    pub(super) fn unmet(&self, order: &Order) -> Result<Vec<String>, LabError> {
        order.unmet(SocketRole::Server, &self.facts)
    }
}

/// Half a topology that stands.
pub(super) struct Standing {
    applied: AppliedPlan,
    half: Half,
    server: Option<Server>,
    /// How many CPUs it is to use.
    server_cpus: usize,
    /// Those whose time is counted.
    cpus: NodeCpus,
    before: Option<CounterSnapshot>,
}

impl Standing {
    /// Builds it and starts the server. On failure what was begun is undone.
    pub(super) fn build(order: &Order, staff: &Staff, id: &str, dir: &Path) -> Result<Standing, LabError> {
        let cpus = NodeCpus { client: CpuSet::default(), server: staff.cpus.clone() };
        let shape = order.shape(id, SocketRole::Server, cpus, &staff.facts)?;
        let topology = Topology::plan(shape).map_err(|error| error.of_plan(&order.candidate))?;
        let splice = topology.groups().of(SocketRole::Server).map(Splice::cgroup).transpose()?;
        let Topology { shape, nodes, server: place, address, there, .. } = topology;
        let half = there.expect("a topology between machines has a half there");
        let dir = dir.join(slug(&order.candidate));
        let applied = AppliedPlan::begin(&order.candidate, &shape.prefix, &dir, |_| Ok(()))?;
        let cpus = NodeCpus { client: CpuSet::default(), server: staff.counted.clone() };
        let server_cpus = staff.cpus.len();
        let mut standing = Standing { applied, half, server: None, server_cpus, cpus, before: None };
        standing.set_up(&order.candidate, &shape, &nodes.server)?;
        let setup = ServerSetup {
            candidate: &order.candidate,
            place: &place,
            port: shape.server_port(),
            // The host's is on the machine itself, where others are not to find it by other ways.
            address: (shape.path.reach == Reach::Node).then_some(address.ip()),
            families: shape.families,
            cgroup: splice,
            cpus: &staff.cpus,
            dir: &dir,
            scheduling: staff.scheduling,
            connections: order.workload.connections,
            outlives_us: false,
            plant: order.plant,
            wait: shape.stack.wait,
            stack: None,
            messages: None,
            workload: &order.workload,
            secret: None,
        };
        standing.server = Some(staff.server.start(&setup)?);
        match standing.applied.take_stock(&standing.half.plan)?.first() {
            Some(change) => {
                // What cannot be undone is still in the journal.
                let what = AppliedPlan::otherwise(change, standing.undo().unwrap_or_default());
                Err(LabError::Broken { candidate: order.candidate.clone(), what })
            }
            None => Ok(standing),
        }
    }

    /// Does what the plan says, and what takes a card that is up.
    fn set_up(&mut self, candidate: &str, shape: &Shape, node: &NodeSpec) -> Result<(), LabError> {
        self.applied.apply(&self.half.plan)?;
        cards::await_carrier(candidate, &[node])?;
        let placed = side_settings::own_interrupts(shape, SocketRole::Server, node);
        let placed = placed.map_err(|error| error.of_plan(candidate))?;
        self.applied.apply(&placed)?;
        self.half.plan.extend(placed);
        Ok(())
    }

    /// What has changed since it was built, in words; an error if the server has ended.
    fn check(&mut self) -> Result<Option<String>, LabError> {
        self.server.iter_mut().try_for_each(Server::check)?;
        self.applied.changed()
    }

    /// Looks at the counters.
    fn count(&mut self) -> Result<(), LabError> {
        self.before = Some(CounterSnapshot::at(&self.half.places, &self.half.traces)?);
        Ok(())
    }

    /// What has happened since it looked last.
    fn spent(&mut self, work: &TransferredAmounts) -> Result<Spent, LabError> {
        let now = CounterSnapshot::at(&self.half.places, &self.half.traces)?;
        let before = self.before.take().unwrap_or_else(|| now.clone());
        let usage = now.since(&before, &self.cpus);
        let detour = match self.check()? {
            Some(what) => Some(what),
            None => usage.traffic.detour(&self.half.traces, work).map(|what| self.applied.for_readers(&what)),
        };
        let void = throttled(&usage, self.server_cpus).or_else(|| stolen_from(&usage.server));
        Ok(Spent { cpus: usage.server, counters: usage.counters, detour, void })
    }

    fn undo(&mut self) -> Result<Vec<String>, LabError> {
        let stopped = self.server.take().map_or(Ok(()), Server::stop);
        let left = self.applied.undo()?;
        stopped.map(|()| left)
    }
}

impl StandingHalf for Standing {
    fn answer(&mut self, request: &RemoteRequest) -> Result<Option<Reply>, LabError> {
        Ok(Some(match request {
            RemoteRequest::Count { .. } => {
                self.count()?;
                Reply::Done
            }
            RemoteRequest::Spent { work, .. } => Reply::Spent(Box::new(self.spent(work)?)),
            RemoteRequest::Check { .. } => Reply::Changed(self.check()?),
            _ => return Ok(None),
        }))
    }

    /// Ends the server and undoes the rest.
    fn take_down(mut self) -> Result<Vec<String>, LabError> {
        self.undo()
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        // Something stands here only on an error, whose own message matters more; what fails is still in the journal.
        let _ = self.undo();
    }
}
