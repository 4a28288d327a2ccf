//! The client's side of a topology that stands: the connections that stay open between trials.

use std::time::Duration;

use datapath::SocketRole;
use linux::features::Feature;
use load::{Client, Pool, Target};
use record::{Load, Void};

use super::BuiltTopology;
use crate::part::{LoadPart, LoadedPart};
use crate::pools::{Opening, Pools};
use crate::traffic::TransferredAmounts;
use crate::trial::Subject;
use crate::usage::{CounterSnapshot, Usage};
use crate::wire::Patience;
use crate::{ByRole, LabError, NodeCpus};

impl BuiltTopology {
    /// Opens the client's connections for answers of a size, spread over one thread a CPU of the client's node. Tried
    /// again until the server is ready.
    pub fn connect(&mut self, body_bytes: u32, connections: u32) -> Result<(), LabError> {
        let target = self.target(body_bytes);
        let inside = self.inside(SocketRole::Client)?;
        // They are not looked at while they are opened.
        let mut pools = std::mem::replace(&mut self.pools, Pools::of(self.workload.kind));
        let opening = Opening {
            candidate: &self.name.clone(),
            open: &|target: &Target, pool: Pool| inside.run(|| Client::open(target, pool)),
            threads: self.topology.shape.cpus.client.len(),
            ready: self.ready_limit(),
            connect: self.patience().connect() + self.backlog_patience(),
            relayed: self.topology.shape.path.attach.relay_mtu().is_some(),
            check: &mut || BuiltTopology::check_server(self),
        };
        let opened = pools.open(&target, body_bytes, connections, opening);
        self.pools = pools;
        opened
    }

    /// slirp4netns listens with a backlog of one: of connections that are opened at once a few are accepted, and the
    /// SYNs of the others are sent again each second.
    fn backlog_patience(&self) -> Duration {
        let is_slow = self.topology.shape.path.needs().contains(&Feature::Slirp4netns);
        if is_slow { Duration::from_secs(30) } else { Duration::ZERO }
    }

    /// The client's connections, which ask for answers of a size from now on.
    pub fn clients(&mut self, body_bytes: u32) -> &mut [Client] {
        let target = self.target(body_bytes);
        self.pools.clients(body_bytes, || target)
    }
}

impl Subject for BuiltTopology {
    fn name(&self) -> &str {
        &self.name
    }

    fn patience(&self) -> Patience {
        self.topology.shape.wires.patience()
    }

    fn clients(&mut self, body_bytes: u32) -> &mut [Client] {
        BuiltTopology::clients(self, body_bytes)
    }

    fn own_part(&self, load: &Load) -> Load {
        match &self.there {
            Some(machines) => machines.own_part(load, self.workload.connections),
            None => load.clone(),
        }
    }

    fn begin_elsewhere(&mut self, slice: &LoadPart) -> Result<(), LabError> {
        let Some(machines) = &self.there else { return Ok(()) };
        machines.begin_load(&self.name, slice, self.workload.connections)
    }

    fn loaded_elsewhere(&mut self) -> Result<Vec<LoadedPart>, LabError> {
        self.there.as_ref().map_or(Ok(Vec::new()), |machines| machines.loaded(&self.name))
    }

    fn count(&mut self) -> Result<CounterSnapshot, LabError> {
        BuiltTopology::count(self)
    }

    fn spent(
        &mut self,
        before: &CounterSnapshot,
        cpus: &NodeCpus,
        work: &ByRole<TransferredAmounts>,
    ) -> Result<(Usage, Option<Void>), LabError> {
        BuiltTopology::spent(self, before, cpus, work)
    }

    fn check_server(&mut self) -> Result<(), LabError> {
        BuiltTopology::check_server(self)
    }
}
