//! The client's side of a topology that stands: the connections that stay open between trials.

use std::time::{Duration, Instant};

use datapath::SocketRole;
use load::{Address, Client, LoadError, Pool, Run, Schedule, Target};

use super::BuiltTopology;
use crate::LabError;
use crate::workload::Inside;

/// How much longer than a few everything may take for each connection. A connection takes some tens of microseconds; a
/// CPU that is busy with other things makes ten times of it.
const CONNECT_LIMIT: Duration = Duration::from_millis(1);

impl BuiltTopology {
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
        let inside = self.inside(SocketRole::Client)?;
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

    /// How many connections the client has for answers of a size.
    pub(crate) fn connections(&mut self, body_bytes: u32) -> usize {
        self.clients(body_bytes).iter().map(Client::connections).sum()
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
