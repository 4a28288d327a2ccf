//! How a topology comes to stand: the plan, what CNI plugins add, the server that answers.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use datapath::{Family, SocketRole};
use ipnet::IpNet;
use record::Plant;

use super::{AppliedPlan, BuiltTopology, Staffing};
use crate::card_look;
use crate::cards;
use crate::cni::Attachment;
use crate::packets::{JUNK_PORT, Judge};
use crate::pools::Pools;
use crate::proxy::ProxySetup;
use crate::remote::{Machines, Order};
use crate::server::{Secret, ServerSetup};
use crate::{ByRole, LabError, Shape, Topology, side_settings, target, verbs};

impl BuiltTopology {
    /// Builds the topology and starts its server. `dir` is a directory of ours that does not exist yet; it gets the
    /// journal and the server's files. On failure everything that was done is undone before the error is returned.
    pub fn build(
        name: &str,
        shape: Shape,
        staffing: &Staffing,
        dir: &Path,
    ) -> Result<BuiltTopology, LabError> {
        let mut topology = Topology::plan(shape).map_err(|error| error.of_plan(name))?;
        // No thread of a stream sleeps, and what is before them would starve them.
        if !staffing.workload.kind.is_stream() {
            topology.schedule(staffing.scheduling);
        }
        let prefix = topology.shape.prefix.clone();
        let applied = AppliedPlan::begin(name, &prefix, dir, |dir| topology.keep_keys(dir))?;
        let mut built = BuiltTopology {
            name: name.to_owned(),
            topology,
            workload: staffing.workload.clone(),
            tls: None,
            servers: Vec::new(),
            pools: Pools::of(staffing.workload.kind),
            judge: None,
            verbs: None,
            applied,
            there: None,
        };
        built.applied.apply(&built.topology.plan)?;
        if built.topology.shape.cards.is_some() {
            cards::await_carrier(name, &built.topology.nodes.as_ref().both())?;
            built.place_interrupts()?;
        }
        if built.topology.shape.machines.is_some() {
            cards::await_carrier(name, &[&built.topology.nodes.client])?;
            built.place_own_interrupts()?;
        }
        if let Some(wire) = &built.topology.shape.rdma {
            built.verbs = Some(verbs::await_devices(name, *wire)?);
        }
        built.attach()?;
        built.start_server(staffing)?;
        let Topology { shape, nodes, .. } = &built.topology;
        if let (Some(filter), Some(_)) = (shape.filter, shape.flood) {
            built.judge = Some(Judge::new(filter, Some(JUNK_PORT), nodes)?);
        }
        built.take_stock()?;
        Ok(built)
    }

    /// Gives interrupts of cards their CPUs, which takes cards that are up: their drivers name interrupts then.
    fn place_interrupts(&mut self) -> Result<(), LabError> {
        let Topology { shape, nodes, .. } = &self.topology;
        let found = card_look::interrupts(nodes)?;
        let placed = side_settings::interrupts(shape, nodes, &found);
        let placed = placed.map_err(|why| LabError::from(why).of_plan(&self.name))?;
        self.applied.apply(&placed)?;
        self.topology.plan.extend(placed);
        self.topology.card_interrupts = Some(found);
        Ok(())
    }

    /// The same of this machine's card, where the server's is another's. What both have is not counted.
    fn place_own_interrupts(&mut self) -> Result<(), LabError> {
        let Topology { shape, nodes, .. } = &self.topology;
        let placed = side_settings::own_interrupts(shape, SocketRole::Client, &nodes.client);
        let placed = placed.map_err(|error| error.of_plan(&self.name))?;
        self.applied.apply(&placed)?;
        self.topology.plan.extend(placed);
        Ok(())
    }

    /// Lets CNI plugins join the pods; the server's address is what they say.
    fn attach(&mut self) -> Result<(), LabError> {
        let Some(pods) = &mut self.topology.attachments else { return Ok(()) };
        let client = pods.client.add(&self.name, self.applied.dir())?;
        let server = pods.server.add(&self.name, self.applied.dir())?;
        Attachment::save(pods.as_ref(), self.applied.dir())?;
        let ip = callable(&client, &server, self.topology.shape.family)
            .map_err(|what| LabError::Unreachable { candidate: self.name.clone(), what })?;
        self.topology.address.set_ip(ip);
        Ok(())
    }

    fn start_server(&mut self, staffing: &Staffing) -> Result<(), LabError> {
        let kind = self.workload.kind;
        let body = self.workload.body_bytes.first().copied().unwrap_or(100);
        if !kind.is_served() {
            return self.open(body, 1).map_err(|error| self.of_plugins(error));
        }
        if self.topology.there.is_some() {
            if let Some(machines) = &staffing.machines {
                self.stand_there(machines, staffing.plant)?;
            }
            self.connect(body, 1)?;
            self.pools.clear();
            return Ok(());
        }
        let secret = self.workload.tls.then(|| self.agree_on_tls()).transpose()?;
        let setup = ServerSetup {
            candidate: &self.name,
            place: &self.topology.server,
            port: self.topology.shape.server_port(),
            address: None,
            families: self.topology.shape.families,
            cgroup: self.group(SocketRole::Server)?,
            cpus: &self.topology.shape.cpus.server,
            dir: self.applied.dir(),
            scheduling: staffing.scheduling,
            connections: staffing.connections,
            outlives_us: staffing.outlives_us,
            plant: staffing.plant,
            wait: self.topology.shape.stack.wait,
            stack: self.topology.own_stack(),
            messages: self.topology.shape.rdma.map(|wire| wire.device(SocketRole::Server)),
            workload: &self.workload,
            secret: secret.as_ref(),
        };
        let server = staffing.server.start(&setup)?;
        self.servers.push(server);
        self.start_proxies(staffing)?;
        self.connect(body, 1).map_err(|error| self.of_plugins(error))?;
        self.pools.clear();
        Ok(())
    }

    /// Has the server's half built on its machine, with a server in it.
    fn stand_there(&mut self, machines: &Arc<Machines>, plant: Option<Plant>) -> Result<(), LabError> {
        machines.serve(Order::of(&self.name, &self.topology.shape, &self.workload, plant))?;
        self.there = Some(Arc::clone(machines));
        Ok(())
    }

    /// Opens the client's connections for all sizes of answers, of which clients on other machines have their part.
    ///
    /// # Errors
    /// They cannot be opened, or a client's half cannot be built.
    pub(crate) fn open_all(&mut self, connections: u32) -> Result<(), LabError> {
        let machines = self.there.clone();
        let own = machines.as_ref().map_or(connections, |machines| machines.connections_of(0, connections));
        for body in self.workload.body_bytes.clone() {
            self.open(body, own)?;
        }
        let Some(machines) = machines else { return Ok(()) };
        machines.call(&Order::of(&self.name, &self.topology.shape, &self.workload, None))
    }

    fn start_proxies(&mut self, staffing: &Staffing) -> Result<(), LabError> {
        for part in [SocketRole::Server, SocketRole::Client] {
            let Some(program) = staffing.proxies.of(part) else { continue };
            let Topology { client, server, shape, address, .. } = &self.topology;
            let processes = ByRole { client, server };
            let cpus = ByRole { client: &shape.cpus.client, server: &shape.cpus.server };
            let setup = ProxySetup {
                candidate: &self.name,
                part,
                place: processes.of(part),
                cgroup: self.group(part)?,
                family: shape.family,
                server: *address,
                cpus: cpus.of(part),
                dir: self.applied.dir(),
                scheduling: staffing.scheduling,
                connections: staffing.connections,
                outlives_us: staffing.outlives_us,
            };
            let proxy = program.start(&setup)?;
            self.servers.push(proxy);
        }
        Ok(())
    }

    /// Makes the server's secret, and what clients need to trust it.
    fn agree_on_tls(&mut self) -> Result<Secret, LabError> {
        let secret = Secret::make(&self.name, self.applied.dir())?;
        let tls = target::tls(&secret, &self.workload).map_err(|error| self.load_error(error))?;
        self.tls = Some(tls);
        Ok(secret)
    }

    /// The error that clients cannot reach a running server, phrased about the CNI plugins if there are any.
    fn of_plugins(&self, error: LabError) -> LabError {
        let LabError::Load { why, .. } = &error else { return error };
        if self.topology.attachments.is_none() {
            return error;
        }
        let pods = self.topology.nodes.as_ref().map(|node| node.pods.only(&[self.topology.shape.family]));
        let what = format!(
            "gave the server's pod {}, where the client cannot call it (it could not {why}); the nodes route {} and {} to \
             each other, pods of other prefixes must be neighbours on the wire",
            self.topology.address.ip(),
            pods.client,
            pods.server,
        );
        LabError::Unreachable { candidate: self.name.clone(), what }
    }
}

/// The server's address in a family, if the client's pod has another.
fn callable(client: &[IpNet], server: &[IpNet], family: Family) -> Result<IpAddr, String> {
    let listed = |addresses: &[IpNet]| match addresses {
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
            listed(client),
            listed(server)
        )),
    }
}
