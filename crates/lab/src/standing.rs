//! A topology that stands: built, with its server and the client's connections. Dropping it takes it down.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use datapath::Family;
use ipnet::IpNet;
use linux::Cgroup;
use linux::cpu::Scheduling;
use linux::netns::Netns;
use load::{Ask, Client, Expect, LoadError, Request, Target};
use plan::forwarding::Splice;
use plan::{Journal, Kernel, Undone};

use crate::cni::Attachment;
use crate::server::{Place, Server, ServerChoice};
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
    /// Sizes of the answers' bodies.
    pub body_bytes: Vec<u32>,
}

/// A topology in the kernel.
pub struct Standing {
    /// The candidate's name.
    pub name: String,
    /// What stands.
    pub topology: Topology,
    server: Option<Server>,
    clients: Vec<Client>,
    /// The size of the answers that they ask for.
    asked_bytes: u32,
    journal: Option<Journal>,
    kernel: Kernel,
    dir: PathBuf,
}

/// How much longer than a few everything may take for each connection. A connection takes some tens of microseconds; a CPU
/// that is busy with other things makes ten times of it.
const CONNECT_LIMIT: Duration = Duration::from_millis(1);

impl Standing {
    /// Builds the topology and starts its server. `dir` is a directory of ours that does not exist yet; it gets the
    /// journal and the server's files. On failure everything that was done is undone before the error is returned.
    pub fn build(name: &str, shape: Shape, staffing: &Staffing, dir: &Path) -> Result<Standing, LabError> {
        let topology = Topology::plan(shape)?;
        std::fs::create_dir_all(dir).map_err(LabError::file("create", dir))?;
        let journal = Journal::create(&dir.with_extension("journal"))?;
        let mut standing = Standing {
            name: name.to_owned(),
            topology,
            server: None,
            clients: Vec::new(),
            asked_bytes: 0,
            journal: Some(journal),
            kernel: Kernel::new()?,
            dir: dir.to_owned(),
        };
        standing.apply()?;
        standing.attach()?;
        standing.start_server(staffing)?;
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
        let place = Place {
            candidate: &self.name,
            netns: &self.topology.server,
            cgroup: self.group(1)?,
            cpus: &self.topology.shape.cpus.server,
            dir: &self.dir,
            scheduling: staffing.scheduling,
            connections: staffing.connections,
            outlives_us: staffing.outlives_us,
            body_bytes: &staffing.body_bytes,
        };
        self.server = Some(staffing.server.start(&place)?);
        let body = staffing.body_bytes.first().copied().unwrap_or(100);
        self.connect(body, 1).map_err(|error| self.of_plugins(error))?;
        self.clients.clear();
        Ok(())
    }

    /// That nobody could call a server that runs, in words of the plugins that were to see to it.
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

    /// Opens the client's connections, spread over one thread a CPU of the client's node, and asks for answers of a size.
    /// Tried again until the server is ready. Connections that there were are closed.
    pub fn connect(&mut self, body_bytes: u32, connections: u32) -> Result<(), LabError> {
        self.clients.clear();
        let address = self.topology.address;
        let Request { host, path, expect, .. } = self.request(body_bytes);
        let target = Target::get(address, &host, &path, expect);
        let cpus = self.topology.shape.cpus.client.len();
        let threads = u32::try_from(cpus).unwrap_or(u32::MAX).clamp(1, connections);
        let inside = (Netns::open(&self.topology.client)?, self.group(0)?);
        let deadline =
            Instant::now() + self.topology.shape.wires.patience().ready() + CONNECT_LIMIT * connections;
        let mut clients = Vec::new();
        for thread in 0..threads {
            // The remainder goes to the first threads, one each.
            let share = connections / threads + u32::from(thread < connections % threads);
            clients.push(self.connect_one(&inside, &target, share as usize, deadline)?);
        }
        (self.clients, self.asked_bytes) = (clients, body_bytes);
        Ok(())
    }

    fn connect_one(
        &mut self,
        (netns, cgroup): &(Netns, Option<Cgroup>),
        target: &Target,
        connections: usize,
        deadline: Instant,
    ) -> Result<Client, LabError> {
        let many = CONNECT_LIMIT * u32::try_from(connections).unwrap_or(u32::MAX);
        let limit = self.topology.shape.wires.patience().connect() + many;
        loop {
            let connect = || netns.run(|| Client::connect(target, connections, limit));
            // A socket belongs to the group of the task that opens it.
            let connected = match cgroup {
                Some(cgroup) => cgroup.run(connect)?,
                None => connect(),
            };
            let error = match connected? {
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

    /// The client's connections, which ask for answers of a size from now on. All sizes have the same ones: as many for
    /// each would take as many open files, and a client has one pool.
    pub fn clients(&mut self, body_bytes: u32) -> &mut [Client] {
        if self.asked_bytes != body_bytes {
            let ask = Ask::Http(vec![self.request(body_bytes)]);
            for client in &mut self.clients {
                client.ask_for(ask.clone()).expect("a size makes no other kind of answer of it");
            }
            self.asked_bytes = body_bytes;
        }
        &mut self.clients
    }

    /// The request for an answer of a size.
    fn request(&self, body_bytes: u32) -> Request {
        let expect = Expect { status: 200, body_bytes: Some(body_bytes.into()) };
        Request::get(&self.topology.address.to_string(), &format!("/{body_bytes}"), expect)
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
        self.clients.clear();
        if let Some(server) = self.server.take() {
            server.leave_running();
        }
        self.journal = None;
    }

    fn undo(&mut self) -> Result<(), LabError> {
        let Some(mut journal) = self.journal.take() else { return Ok(()) };
        self.clients.clear();
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
                | Undone::Gone
                | Undone::Rebooted
                | Undone::ChangedByOther { .. } => None,
            })
            .collect();
        if !failures.is_empty() {
            // The journal stays, so that `hostgap clean` can try again.
            return Err(LabError::NotUndone { candidate: self.name.clone(), failures: failures.join("; ") });
        }
        let path = self.dir.with_extension("journal");
        std::fs::remove_file(&path).map_err(LabError::file("remove", &path))?;
        std::fs::remove_dir_all(&self.dir).map_err(LabError::file("remove", &self.dir))?;
        // What plugins could not take back was in the namespaces, or is nothing that the lab knows of.
        attached.into_iter().next().map_or(stopped, Err)
    }
}

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
            "gave not both pods an {version} address (the client's: {}; the server's: {}), and clients call by {version}",
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
