//! A client's connections, which stay open between trials.

use std::time::{Duration, Instant};

use load::{Address, Client, LoadError, Pool, Run, Schedule, Target};
use record::WorkloadKind;

use crate::LabError;

/// How much longer than a few everything may take for each connection. A connection takes some tens of microseconds; a
/// CPU that is busy with other things makes ten times of it.
const CONNECT_LIMIT: Duration = Duration::from_millis(1);
/// For how long datagrams are sent to a UDP server, to see whether it answers, and for how long answers are waited for
/// at first. Twice as long each time: a server may not be there yet, and the way may be long.
const KNOCK: Duration = Duration::from_millis(10);

/// Pools of connections, each with the size of the answers that it asks for. Of HTTP all sizes have the same one: as
/// many for each would take as many open files.
pub(crate) struct Pools {
    kind: WorkloadKind,
    pools: Vec<(u32, Vec<Client>)>,
}

/// Opens a client's connections where the client is; the inner failure is one of the connections.
pub(crate) type Open<'a> = dyn Fn(&Target, Pool) -> Result<Result<Client, LoadError>, LabError> + 'a;

/// How connections are opened.
pub(crate) struct Opening<'a> {
    /// The name of the candidate, for messages.
    pub(crate) candidate: &'a str,
    /// Opens a client's connections where the client is.
    pub(crate) open: &'a Open<'a>,
    /// Threads that share them.
    pub(crate) threads: usize,
    /// How long a fresh server may take until it answers.
    pub(crate) ready: Duration,
    /// How long a few connections may take.
    pub(crate) connect: Duration,
    /// Another program accepts them in the server's place, so that one that stands is no proof of a server.
    pub(crate) relayed: bool,
    /// An error if the server has ended, so that it is waited for in vain.
    pub(crate) check: &'a mut dyn FnMut() -> Result<(), LabError>,
}

impl Pools {
    /// None yet, for requests of a kind.
    pub(crate) fn of(kind: WorkloadKind) -> Pools {
        Pools { kind, pools: Vec::new() }
    }

    /// Closes all connections. The next request of each size opens new ones.
    pub(crate) fn clear(&mut self) {
        self.pools.clear();
    }

    /// Opens connections for answers of a size, spread over the threads. Tried again until the server is ready.
    pub(crate) fn open(
        &mut self,
        target: &Target,
        body_bytes: u32,
        connections: u32,
        mut opening: Opening<'_>,
    ) -> Result<(), LabError> {
        if self.kind.is_http() && !self.pools.is_empty() {
            return Ok(());
        }
        let threads = u32::try_from(opening.threads).unwrap_or(u32::MAX).clamp(1, connections);
        let deadline = Instant::now() + opening.ready + CONNECT_LIMIT * connections;
        let mut clients = Vec::new();
        for thread in 0..threads {
            // The remainder goes to the first threads, one each.
            let share = connections / threads + u32::from(thread < connections % threads);
            clients.push(self.open_one(target, share, deadline, &mut opening)?);
        }
        self.pools.push((body_bytes, clients));
        Ok(())
    }

    fn open_one(
        &self,
        target: &Target,
        connections: u32,
        deadline: Instant,
        opening: &mut Opening<'_>,
    ) -> Result<Client, LabError> {
        let limit = opening.connect + CONNECT_LIMIT * connections;
        let pool = Pool { fresh: self.kind.makes_connections(), ..Pool::of(connections as usize, limit) };
        let mut patience = KNOCK;
        loop {
            let connected = (opening.open)(target, pool)?;
            let error = match connected.and_then(|client| answered(client, target, patience, opening.relayed))
            {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            (opening.check)()?;
            if Instant::now() >= deadline {
                return Err(LabError::Load { candidate: opening.candidate.to_owned(), why: Box::new(error) });
            }
            patience = (patience * 2).min(limit);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The connections, which ask for answers of a size from now on. `target` is what is asked for it.
    pub(crate) fn clients(&mut self, body_bytes: u32, target: impl FnOnce() -> Target) -> &mut [Client] {
        if self.kind.is_http() && self.pools.iter().all(|(bytes, _)| *bytes != body_bytes) {
            let ask = target().ask;
            let (bytes, clients) =
                self.pools.first_mut().expect("connections are opened before the first trial");
            for client in clients {
                client.ask_for(ask.clone()).expect("a size makes no other kind of answer of it");
            }
            *bytes = body_bytes;
        }
        let found = self.pools.iter_mut().find(|(bytes, _)| *bytes == body_bytes);
        &mut found.expect("connections are opened for every size before the first trial").1
    }
}

/// A client whose server answers within a time. A datagram socket connects even if no server is there yet, and so does
/// any by way of a relay.
fn answered(
    mut client: Client,
    target: &Target,
    within: Duration,
    relayed: bool,
) -> Result<Client, LoadError> {
    if !relayed && !matches!(target.address, Address::Udp(_)) {
        return Ok(client);
    }
    let run = Run { drain: within, ..Run::new(Schedule::Saturate, KNOCK) };
    let outcome = load::run(std::slice::from_mut(&mut client), &run)?;
    if outcome.answered > 0 {
        return Ok(client);
    }
    let wanted = client.connections();
    let waited = KNOCK + within;
    Err(LoadError::ConnectTimeout { address: target.address.clone(), connected: 0, wanted, waited })
}
