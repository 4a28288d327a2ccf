//! A topology that stands: built, with its server and the client's connections. Dropping it takes it down.

mod applied_plan;
mod build;
mod connections;
mod inside;
mod path;
mod switches;
mod undo;

use std::sync::Arc;
use std::time::Duration;

use datapath::SocketRole;
use linux::Cgroup;
use linux::cpu::Scheduling;
use linux::rdma::VerbsDevice;
use load::serve::SWITCH_PATIENCE;
use load::{LoadError, Target, Tls};
use plan::forwarding::Splice;
use record::{Plant, StackKind, Workload, WorkloadKind};

pub(crate) use self::applied_plan::AppliedPlan;
use self::inside::Inside;
use crate::packets::Judge;
use crate::pools::Pools;
use crate::proxy::ProxyProgram;
use crate::remote::Machines;
use crate::server::{Server, ServerChoice};
use crate::{ByRole, LabError, Topology, target, verbs};

/// What a topology is stood up with.
#[derive(Debug, Clone)]
pub struct Staffing {
    /// The program that serves.
    pub server: ServerChoice,
    /// Policy of the server's threads.
    pub scheduling: Scheduling,
    /// The most connections that the server is given.
    pub connections: u32,
    /// The server goes on when this process ends.
    pub outlives_us: bool,
    /// The machines that serve and load beside this one; `None`: this one does everything, or the server of a topology
    /// between machines stands already.
    pub machines: Option<Arc<Machines>>,
    /// Answers that the server holds back on purpose.
    pub plant: Option<Plant>,
    /// What passes connections on beside client and server.
    pub proxies: ByRole<Option<ProxyProgram>>,
    /// What is done with it.
    pub workload: Workload,
}

impl Staffing {
    /// With what it is tried what steering costs: requests in the clear, whatever is raced afterwards.
    #[must_use]
    pub fn trying(&self) -> Staffing {
        let of = &self.workload;
        let usual = Workload { server: of.server, ipv6: of.ipv6, ..Workload::default() };
        let workload = match of.kind {
            WorkloadKind::Http | WorkloadKind::Connect => {
                Workload { body_bytes: of.body_bytes.clone(), connections: of.connections, ..usual }
            }
            WorkloadKind::Grpc
            | WorkloadKind::Download
            | WorkloadKind::TcpRr
            | WorkloadKind::UdpRr
            | WorkloadKind::Verbs
            | WorkloadKind::TcpStream
            | WorkloadKind::UdpStream
            | WorkloadKind::Packets => usual,
        };
        let connections = self.connections.max(workload.connections * workload.body_bytes.len() as u32);
        Staffing {
            connections,
            workload,
            outlives_us: false,
            plant: None,
            proxies: ByRole::default(),
            ..self.clone()
        }
    }
}

/// A topology in the kernel.
pub struct BuiltTopology {
    /// The name of the candidate, for tables and messages.
    pub name: String,
    /// The nodes and pods that stand.
    pub topology: Topology,
    /// What is done with it.
    pub workload: Workload,
    /// How clients speak TLS with the server, if they do.
    tls: Option<Tls>,
    /// The server, then what passes connections on to it.
    servers: Vec<Server>,
    /// The connections of the client, by the size of answers.
    pools: Pools,
    /// What judges its frames, in a race of packets or of a flood.
    pub(crate) judge: Option<Judge>,
    /// The client's RDMA device, where messages go by verbs.
    verbs: Option<Arc<VerbsDevice>>,
    applied: AppliedPlan,
    /// The machines on which its other halves stand, if this one leads.
    there: Option<Arc<Machines>>,
}

impl BuiltTopology {
    /// What is asked for a size.
    pub(crate) fn target(&self, body_bytes: u32) -> Target {
        let target = target::target(&self.workload, self.topology.called(), body_bytes, self.tls.clone());
        match &self.verbs {
            Some(device) => verbs::target(target, device, self.topology.shape.stack.wait),
            None => target,
        }
    }

    /// Where sockets of a side are opened.
    pub(crate) fn inside(&self, part: SocketRole) -> Result<Inside, LabError> {
        let place = match part {
            SocketRole::Client => &self.topology.client,
            SocketRole::Server => &self.topology.server,
        };
        Ok(Inside(place.open()?, self.group(part)?))
    }

    /// The control group of a side, if the data path wants one.
    fn group(&self, part: SocketRole) -> Result<Option<Cgroup>, LabError> {
        Ok(self.topology.groups().of(part).map(Splice::cgroup).transpose()?)
    }

    /// How long a fresh server may take until it answers.
    pub(crate) fn ready_limit(&self) -> Duration {
        let ready = self.topology.shape.wires.patience().ready();
        match self.topology.shape.stack.kind {
            // It answers when its switch has called, which does so each second, and both have agreed.
            StackKind::VhostUser => ready + SWITCH_PATIENCE,
            StackKind::Kernel | StackKind::Afxdp | StackKind::Verbs => ready,
        }
    }

    /// An error if the server or a proxy has ended, on whichever machine.
    pub fn check_server(&mut self) -> Result<(), LabError> {
        self.servers.iter_mut().try_for_each(Server::check)?;
        self.there.as_ref().map_or(Ok(()), |there| there.check_server(&self.name))
    }

    /// A generator's error in the lab's words.
    pub fn load_error(&self, why: LoadError) -> LabError {
        LabError::Load { candidate: self.name.clone(), why: Box::new(why) }
    }
}
