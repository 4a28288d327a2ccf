//! A topology that stands: built, with its server and the client's connections. Dropping it takes it down.

mod path;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use datapath::Family;
use ipnet::IpNet;
use linux::Cgroup;
use linux::cpu::Scheduling;
use linux::netns::Netns;
use load::{Address, Client, LoadError, Pool, Run, Schedule, Target, Tls};
use plan::forwarding::Splice;
use plan::{Journal, Kernel, Made, Undone};
use record::{Workload, WorkloadKind};

use crate::cni::Attachment;
use crate::server::{Place, Server, ServerChoice};
use crate::workload::{self, Inside, Secret};
use crate::{LabError, Shape, Topology};

/// What a topology is stood up with.
#[derive(Debug, Clone)]
pub struct Staffing {
    /// Who answers.
    pub server: ServerChoice,
    /// Policy of the server's threads.
    pub scheduling: Scheduling,
    /// The most connections that the server is given.
    pub connections: u32,
    /// The server goes on when this process ends.
    pub outlives_us: bool,
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
            | WorkloadKind::TcpStream
            | WorkloadKind::UdpStream => usual,
        };
        let connections = self.connections.max(workload.connections * workload.body_bytes.len() as u32);
        Staffing { connections, workload, outlives_us: false, ..self.clone() }
    }
}

/// A topology in the kernel.
pub struct Standing {
    /// The candidate's name.
    pub name: String,
    /// What stands.
    pub topology: Topology,
    /// What is done with it.
    pub workload: Workload,
    /// How clients speak TLS with the server, if they do.
    tls: Option<Tls>,
    server: Option<Server>,
    /// The client's connections, each pool with the size that it asks for.
    pools: Vec<(u32, Vec<Client>)>,
    journal: Option<Journal>,
    kernel: Kernel,
    /// What was built, to be compared with what is there after a trial.
    made: Option<Made>,
    dir: PathBuf,
}

/// How much longer than a few everything may take for each connection. A connection takes some tens of microseconds; a
/// CPU that is busy with other things makes ten times of it.
const CONNECT_LIMIT: Duration = Duration::from_millis(1);

/// The journal beside a candidate's directory. Names with a point have no extension: `loss 0.1 %` and `loss 0.5 %` are
/// two candidates.
fn journal_of(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_os_string();
    name.push(".journal");
    dir.with_file_name(name)
}

impl Standing {
    /// Builds the topology and starts its server. `dir` is a directory of ours that does not exist yet; it gets the
    /// journal and the server's files. On failure everything that was done is undone before the error is returned.
    pub fn build(name: &str, shape: Shape, staffing: &Staffing, dir: &Path) -> Result<Standing, LabError> {
        let topology = Topology::plan(shape)?;
        std::fs::create_dir_all(dir).map_err(LabError::file("create", dir))?;
        let journal = Journal::create(&journal_of(dir))?;
        let mut standing = Standing {
            name: name.to_owned(),
            topology,
            workload: staffing.workload.clone(),
            tls: None,
            server: None,
            pools: Vec::new(),
            journal: Some(journal),
            kernel: Kernel::new()?,
            made: None,
            dir: dir.to_owned(),
        };
        standing.apply()?;
        standing.attach()?;
        standing.start_server(staffing)?;
        standing.take_stock()?;
        Ok(standing)
    }

    fn apply(&mut self) -> Result<(), LabError> {
        let journal =
            self.journal.as_mut().expect("a standing topology has its journal until it is taken down");
        plan::apply(&self.topology.plan, journal, &mut self.kernel)
            .map_err(|source| LabError::Build { candidate: self.name.clone(), source: Box::new(source) })?;
        Ok(())
    }

    /// Lets CNI plugins join the pods; the server's address is what they say.
    fn attach(&mut self) -> Result<(), LabError> {
        let mut given = Vec::new();
        for attachment in &mut self.topology.attachments {
            given.push(attachment.add(&self.name, &self.dir)?);
        }
        let [client, server] = given.as_slice() else { return Ok(()) };
        Attachment::save(&self.topology.attachments, &self.dir)?;
        let ip = callable(client, server, self.topology.shape.family)
            .map_err(|what| LabError::Unreachable { candidate: self.name.clone(), what })?;
        self.topology.address.set_ip(ip);
        Ok(())
    }

    fn start_server(&mut self, staffing: &Staffing) -> Result<(), LabError> {
        let kind = self.workload.kind;
        let body = self.workload.body_bytes.first().copied().unwrap_or(100);
        if !workload::of(kind).is_served() {
            return self.open(body, 1).map_err(|error| self.of_plugins(error));
        }
        let secret = self.workload.tls.then(|| Secret::make(&self.name, &self.dir)).transpose()?;
        if let Some(secret) = &secret {
            let tls = workload::tls(secret, &self.workload).map_err(|error| self.load_error(error))?;
            self.tls = Some(tls);
        }
        let place = Place {
            candidate: &self.name,
            netns: &self.topology.server,
            cgroup: self.group(1)?,
            cpus: &self.topology.shape.cpus.server,
            dir: &self.dir,
            scheduling: staffing.scheduling,
            connections: staffing.connections,
            outlives_us: staffing.outlives_us,
            workload: &self.workload,
            secret: secret.as_ref(),
        };
        self.server = Some(staffing.server.start(&place)?);
        self.connect(body, 1).map_err(|error| self.of_plugins(error))?;
        self.pools.clear();
        Ok(())
    }

    /// The error that clients cannot reach a running server, phrased about the CNI plugins if there are any.
    fn of_plugins(&self, error: LabError) -> LabError {
        let LabError::Load { source, .. } = &error else { return error };
        if self.topology.attachments.is_empty() {
            return error;
        }
        let [client, server] =
            self.topology.nodes.each_ref().map(|node| node.pods.of(self.topology.shape.family));
        let what = format!(
            "gave the server's pod {}, where the client cannot call it ({source}); the nodes route {client} and \
             {server} to each other, pods of other prefixes must be neighbours on the wire",
            self.topology.address.ip()
        );
        LabError::Unreachable { candidate: self.name.clone(), what }
    }

    /// Opens what stays open for a size between trials; tried again until the server is ready.
    pub fn open(&mut self, body_bytes: u32, connections: u32) -> Result<(), LabError> {
        workload::of(self.workload.kind).open(self, body_bytes, connections)
    }

    /// What is asked for a size.
    pub(crate) fn target(&self, body_bytes: u32) -> Target {
        workload::target(&self.workload, self.topology.address, body_bytes, self.tls.clone())
    }

    /// Where sockets of the client (0) or the server (1) are opened.
    pub(crate) fn inside(&self, of: usize) -> Result<Inside, LabError> {
        let netns = if of == 0 { &self.topology.client } else { &self.topology.server };
        Ok(Inside(Netns::open(netns)?, self.group(of)?))
    }

    /// Opens the client's connections for answers of a size, spread over one thread a CPU of the client's node. Tried
    /// again until the server is ready. Of HTTP all sizes have the same ones: as many for each would take as many open
    /// files.
    pub fn connect(&mut self, body_bytes: u32, connections: u32) -> Result<(), LabError> {
        if self.workload.kind.is_http() && !self.pools.is_empty() {
            return Ok(());
        }
        let target = self.target(body_bytes);
        let cpus = self.topology.shape.cpus.client.len();
        let threads = u32::try_from(cpus).unwrap_or(u32::MAX).clamp(1, connections);
        let inside = self.inside(0)?;
        let deadline = Instant::now() + self.ready_limit() + CONNECT_LIMIT * connections;
        let mut clients = Vec::new();
        for thread in 0..threads {
            // The remainder goes to the first threads, one each.
            let share = connections / threads + u32::from(thread < connections % threads);
            clients.push(self.connect_one(&inside, &target, share as usize, deadline)?);
        }
        self.pools.push((body_bytes, clients));
        Ok(())
    }

    fn connect_one(
        &mut self,
        inside: &Inside,
        target: &Target,
        connections: usize,
        deadline: Instant,
    ) -> Result<Client, LabError> {
        let many = CONNECT_LIMIT * u32::try_from(connections).unwrap_or(u32::MAX);
        let limit = self.topology.shape.wires.patience().connect() + many;
        let fresh = self.workload.kind.makes_connections();
        let pool = Pool { fresh, ..Pool::of(connections, limit) };
        loop {
            let connected = inside.run(|| Client::open(target, pool))?;
            let error = match connected.and_then(|client| answered(client, target)) {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            self.check_server()?;
            if Instant::now() >= deadline {
                return Err(self.load_error(error));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The control group of the client (0) or the server (1), if the data path wants one.
    fn group(&self, of: usize) -> Result<Option<Cgroup>, LabError> {
        Ok(self.topology.groups()[of].map(Splice::cgroup).transpose()?)
    }

    /// The client's connections, which ask for answers of a size from now on.
    pub fn clients(&mut self, body_bytes: u32) -> &mut [Client] {
        if self.workload.kind.is_http() && self.pools.iter().all(|(asked, _)| *asked != body_bytes) {
            let ask = self.target(body_bytes).ask;
            let (asked, clients) =
                self.pools.first_mut().expect("connections are opened before the first trial");
            for client in clients {
                client.ask_for(ask.clone()).expect("a size makes no other kind of answer of it");
            }
            *asked = body_bytes;
        }
        let found = self.pools.iter_mut().find(|(asked, _)| *asked == body_bytes);
        &mut found.expect("connections are opened for every size before the first trial").1
    }

    /// How long a fresh server may take until it answers.
    pub(crate) fn ready_limit(&self) -> Duration {
        self.topology.shape.wires.patience().ready()
    }

    /// An error if the server has ended.
    pub fn check_server(&mut self) -> Result<(), LabError> {
        self.server.as_mut().map_or(Ok(()), Server::check)
    }

    /// A generator's error in the lab's words.
    pub fn load_error(&self, source: LoadError) -> LabError {
        LabError::Load { candidate: self.name.clone(), source: Box::new(source) }
    }

    /// Ends the server and undoes the plan. All that could not be undone is in the error.
    pub fn take_down(mut self) -> Result<(), LabError> {
        self.undo()
    }

    /// Lets everything stand when this process ends.
    pub fn leave_standing(mut self) {
        self.pools.clear();
        if let Some(server) = self.server.take() {
            server.leave_running();
        }
        self.journal = None;
    }

    fn undo(&mut self) -> Result<(), LabError> {
        let Some(mut journal) = self.journal.take() else { return Ok(()) };
        self.pools.clear();
        let stopped = self.server.take().map_or(Ok(()), Server::stop);
        let attachments = self.topology.attachments.iter_mut().rev();
        let attached: Vec<LabError> =
            attachments.flat_map(|attachment| attachment.del(&self.name, &self.dir)).collect();
        let failures: Vec<String> = plan::undo(&mut journal, &mut self.kernel)
            .into_iter()
            .filter_map(|(placed, undone)| match undone {
                Undone::Failed { why } => Some(format!("{}: {why}", placed.commands().join("; "))),
                Undone::Restored
                | Undone::AlreadySo
                | Undone::LeftToOthers { .. }
                | Undone::Gone
                | Undone::Rebooted
                | Undone::ChangedByOther { .. } => None,
            })
            .collect();
        if !failures.is_empty() {
            // The journal stays, so that `hostgap clean` can try again.
            return Err(LabError::NotUndone { candidate: self.name.clone(), failures: failures.join("; ") });
        }
        let path = journal_of(&self.dir);
        std::fs::remove_file(&path).map_err(LabError::file("remove", &path))?;
        std::fs::remove_dir_all(&self.dir).map_err(LabError::file("remove", &self.dir))?;
        // What plugins could not take back was in the namespaces, or is nothing that the lab knows of.
        attached.into_iter().next().map_or(stopped, Err)
    }
}

/// A client whose server answers. A datagram socket connects even if no server is there yet.
fn answered(mut client: Client, target: &Target) -> Result<Client, LoadError> {
    let Address::Udp(_) = target.address else { return Ok(client) };
    let run = Run { drain: KNOCK, ..Run::new(Schedule::Saturate, KNOCK) };
    let outcome = load::run(std::slice::from_mut(&mut client), &run)?;
    if outcome.answered > 0 {
        return Ok(client);
    }
    let wanted = client.connections();
    Err(LoadError::ConnectTimeout {
        address: target.address.clone(),
        connected: 0,
        wanted,
        waited: 2 * KNOCK,
    })
}

/// The interval between probes of a UDP server that does not answer yet.
const KNOCK: Duration = Duration::from_millis(10);

/// The server's address in a family, if the client's pod has another.
fn callable(client: &[IpNet], server: &[IpNet], family: Family) -> Result<IpAddr, String> {
    let told = |addresses: &[IpNet]| match addresses {
        [] => "none".to_owned(),
        some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let of_family = |net: &&IpNet| net.addr().is_ipv6() == (family == Family::V6);
    let found = [client, server].map(|addresses| addresses.iter().find(of_family).map(IpNet::addr));
    let version = if family == Family::V6 { "IPv6" } else { "IPv4" };
    match found {
        [Some(client), Some(server)] if client != server => Ok(server),
        [Some(_), Some(both)] => Err(format!(
            "gave both pods the address {both}: each node has leases of its own, so give each a prefix or a range of \
             its own too, with \"subnet\": \"usePodCidr\" or \"rangeStart\": \"10.244.${{NODE}}.2\""
        )),
        [None, _] | [_, None] => Err(format!(
            "did not give both pods an {version} address (the client's: {}; the server's: {}), but clients connect over {version}",
            told(client),
            told(server)
        )),
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        // Reached with a journal only on an error or a panic, whose own message matters more. What fails here is
        // still in the journal and is tried again by the next start.
        let _ = self.undo();
    }
}
