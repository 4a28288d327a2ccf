//! The other machines of a race: the one that serves, and the clients' beside the one that leads.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linux::CpuSet;
use linux::cpu::Scheduling;
use linux::features::Facts;
use record::{Experiment, Header, Load, Machine, Workload};

use super::client::RemoteClient;
use super::host::Remote;
use super::order::Order;
use super::protocol::BeginClient;
use super::ssh::{SshAddress, SshCommand};
use crate::part::{LoadPart, LoadedPart, connections_of, load_of};
use crate::shape::MachineNodes;
use crate::traffic::TransferredAmounts;
use crate::usage::Spent;
use crate::{Event, LabError, OwnProgram};

/// How often a half is built anew where its machine is lost meanwhile.
const TRIES: u32 = 3;

/// The other machines of a race. Dropping them ends the processes there, which undoes everything.
#[derive(Debug)]
pub struct Machines {
    server: Remote,
    /// The clients' machines beside the leading one.
    clients: Vec<RemoteClient>,
    /// Set from outside to give up reaching a machine.
    stop: Arc<AtomicBool>,
}

impl Machines {
    /// A race whose only client is on the leading machine.
    pub fn with_server(server: Remote, stop: &Arc<AtomicBool>) -> Machines {
        Machines { server, clients: Vec::new(), stop: Arc::clone(stop) }
    }

    /// Connects to clients' machines, and takes them for the race; `None` if asked to stop before.
    ///
    /// # Errors
    /// [`LabError::Machine`]: one is not reached, is another kind of machine, has a race already, permits too little,
    /// or there is no way from it to the server; or it does not have what it was asked for.
    pub fn connect_clients(
        mut self,
        addresses: &[&SshAddress],
        ssh: &SshCommand,
        own: &OwnProgram,
        experiment: &Experiment,
        (cpus, scheduling): (Option<CpuSet>, Scheduling),
        emit: &mut dyn FnMut(Event),
    ) -> Result<Option<Machines>, LabError> {
        let begin = self.begin(experiment, 1 + addresses.len(), (cpus, scheduling));
        for address in addresses {
            let Some(client) = RemoteClient::connect(address, ssh, own, begin.clone(), emit)? else {
                return Ok(None);
            };
            self.clients.push(client);
        }
        Ok(Some(self))
    }

    /// The first request to a client's machine, of so many in all.
    pub(crate) fn begin(
        &self,
        experiment: &Experiment,
        clients: usize,
        (cpus, scheduling): (Option<CpuSet>, Scheduling),
    ) -> BeginClient {
        let server = self.server.ends().server.clone();
        BeginClient { workload: most_of_one(experiment, clients), cpus, scheduling, server }
    }

    /// Adds a machine that was taken for the race.
    pub(crate) fn add(&mut self, client: RemoteClient) {
        self.clients.push(client);
    }

    /// How many machines have clients.
    pub(crate) fn clients(&self) -> usize {
        1 + self.clients.len()
    }

    /// The server's machine.
    pub fn server(&self) -> &Remote {
        &self.server
    }

    /// Each other machine with what it is called, what its kernel can do, and the router between it and the server.
    pub(crate) fn facts(&self) -> impl Iterator<Item = (String, &Facts, Option<IpAddr>)> {
        let server = ("the server's machine".to_owned(), self.server.facts(), self.server.router());
        let clients = self.clients.iter().map(|one| (one.name().to_owned(), one.facts(), one.router()));
        std::iter::once(server).chain(clients)
    }

    /// Adds to the facts of the leading machine those of the others that may matter to a reader of the figures.
    pub(crate) fn describe(&self, machine: &mut Machine, workload: &Workload) {
        self.server.describe(machine);
        if self.clients.is_empty() {
            return;
        }
        let share = |client| connections_of(client, self.clients(), workload.connections);
        let leading = format!("the leading one {} of {} connections", share(0), workload.connections);
        let others = self.clients.iter().enumerate();
        let others = others.map(|(at, client)| format!("{} {}", client.name(), share(at + 1)));
        let shares = std::iter::once(leading).chain(others).collect::<Vec<_>>().join(", ");
        machine.facts.insert(Header::CLIENTS.to_owned(), format!("{}: {shares}", self.clients()));
        for client in &self.clients {
            let Machine { kernel, cpu_model, cpus, client_cpus, .. } = client.machine();
            let link = client.link();
            let what = format!(
                "Linux {kernel}, {cpu_model}, {cpus} CPUs, client on {client_cpus}; {}: {}",
                link.name, link.card
            );
            machine.facts.insert(format!("client's machine {}", client.name()), what);
        }
    }

    /// All machines as nodes of the topology of this number.
    pub(crate) fn nodes(&self, number: u16) -> MachineNodes {
        let ends = self.server.ends();
        let others = self.clients.iter().map(|client| client.link().clone());
        let clients = std::iter::once(ends.client.clone()).chain(others).collect();
        MachineNodes { clients, client: 0, server: ends.server.clone(), number }
    }

    /// Why the other machines cannot have the settings of their halves, in words.
    ///
    /// # Errors
    /// One of them does not answer.
    pub(crate) fn unmet(&self, order: &Order) -> Result<Vec<String>, LabError> {
        let of = |whose: &str, reasons: Vec<String>| {
            reasons.into_iter().map(move |why| format!("{whose}: {why}")).collect::<Vec<_>>()
        };
        let mut all = of("the server's machine", self.server.unmet(order)?);
        for (at, client) in (1..).zip(&self.clients) {
            let own = order.for_client(at, self.connections_of(at, order.workload.connections));
            all.extend(of(client.name(), client.unmet(&own)?));
        }
        Ok(all)
    }

    /// Has the server's half of a topology built, with a server in it.
    pub(crate) fn serve(&self, order: Order) -> Result<(), LabError> {
        self.server.stand(order)
    }

    /// Has the other clients' halves built, with their parts of the connections.
    ///
    /// # Errors
    /// [`LabError::Broken`]: the candidate cannot stand on one of them; [`LabError::Machine`]: one was lost, and
    /// cannot be reached again.
    pub(crate) fn call(&self, order: &Order) -> Result<(), LabError> {
        for (at, client) in (1..).zip(&self.clients) {
            client.expect(order.for_client(at, self.connections_of(at, order.workload.connections)));
        }
        self.gather(&order.candidate)
    }

    /// How many of the connections a client has; the leading one is the first.
    pub(crate) fn connections_of(&self, client: usize, connections: u32) -> u32 {
        connections_of(client, self.clients(), connections)
    }

    /// Builds what is missing on the clients' machines: at first, and where one was lost since.
    fn gather(&self, candidate: &str) -> Result<(), LabError> {
        let mut tries = TRIES;
        loop {
            let missing: Vec<&RemoteClient> = self.clients.iter().filter(|one| !one.stands()).collect();
            if missing.is_empty() {
                return Ok(());
            }
            // All are told before the first is heard, and all are heard, whatever one says.
            let told: Vec<Result<(), LabError>> =
                missing.iter().map(|one| one.tell_order(&self.stop)).collect();
            let told =
                missing.iter().zip(told).map(|(one, told)| told.and_then(|()| one.await_order(candidate)));
            let failures: Vec<LabError> = told.filter_map(Result::err).collect();
            tries -= 1;
            let is_last = tries == 0 || self.stop.load(Ordering::Relaxed);
            for failure in failures {
                match failure {
                    LabError::ClientLost { .. } if !is_last => {}
                    // The race cannot go on without it.
                    LabError::ClientLost { machine, why } if tries == 0 => {
                        return Err(LabError::of_machine(machine, why));
                    }
                    other => return Err(other),
                }
            }
        }
    }

    /// A client's part of a load over so many connections; the leading one is the first.
    pub(crate) fn own_part(&self, load: &Load, connections: u32) -> Load {
        load_of(0, self.clients(), connections, load)
    }

    /// Lets the other clients begin their parts of a slice over so many connections.
    ///
    /// # Errors
    /// Those of [`Machines::call`].
    pub(crate) fn begin_load(
        &self,
        candidate: &str,
        slice: &LoadPart,
        connections: u32,
    ) -> Result<(), LabError> {
        self.gather(candidate)?;
        for (at, client) in (1..).zip(&self.clients) {
            let load = load_of(at, self.clients(), connections, &slice.load);
            // Each has random instants of its own; together they are random again.
            let seed = slice.seed.wrapping_add(at as u64);
            client.begin_load(candidate, LoadPart { load, seed, ..slice.clone() });
        }
        Ok(())
    }

    /// What came of their parts, when all are done.
    ///
    /// # Errors
    /// [`LabError::Broken`]: the candidate does not answer on one of them; [`LabError::ClientLost`].
    pub(crate) fn loaded(&self, candidate: &str) -> Result<Vec<LoadedPart>, LabError> {
        let heard: Vec<Result<LoadedPart, LabError>> =
            self.clients.iter().map(|client| client.loaded(candidate)).collect();
        heard.into_iter().collect()
    }

    /// Lets the clients look at their clocks, and all at a candidate's counters, before the measured part of a trial.
    ///
    /// # Errors
    /// [`LabError::ClientLost`]; of the server's machine any.
    pub(crate) fn count(&self, candidate: &str) -> Result<(), LabError> {
        // Before the looks: what is counted is to be the trial's.
        self.clients.iter().try_for_each(|client| client.compare_clocks(candidate))?;
        self.server.begin_count(candidate);
        self.clients.iter().for_each(|client| client.begin_count(candidate));
        let counted = self.server.counted(candidate);
        let clients: Vec<Result<(), LabError>> =
            self.clients.iter().map(|client| client.counted(candidate)).collect();
        counted.and_then(|()| clients.into_iter().collect())
    }

    /// What has happened on the server's machine since.
    pub(crate) fn spent(&self, candidate: &str, work: &TransferredAmounts) -> Result<Spent, LabError> {
        self.server.spent(candidate, work)
    }

    /// An error if the server has ended.
    pub(crate) fn check_server(&self, candidate: &str) -> Result<(), LabError> {
        self.server.check(candidate).map(drop)
    }

    /// What has changed of a topology on these machines since it was built; an error if the server has ended.
    pub(crate) fn check(&self, candidate: &str) -> Result<Option<String>, LabError> {
        let changed = self.server.check(candidate)?;
        Ok(changed.or_else(|| self.clients.iter().find_map(|client| client.check(candidate))))
    }

    /// Ends the server and undoes everything of a topology. Returns what another program has changed since, which is
    /// left as that has it, in words.
    ///
    /// # Errors
    /// Something could not be undone on one of them.
    pub(crate) fn take_down(&self, candidate: &str) -> Result<Vec<String>, LabError> {
        self.clients.iter().for_each(|client| client.begin_take_down(candidate));
        let server = self.server.take_down(candidate);
        let all: Vec<Result<Vec<String>, LabError>> = std::iter::once(server)
            .chain(self.clients.iter().map(|client| client.taken_down(candidate)))
            .collect();
        all.into_iter().collect::<Result<Vec<_>, _>>().map(|left| left.concat())
    }

    /// Ends the processes there.
    ///
    /// # Errors
    /// Something could not be undone on one of them.
    pub fn end(&self) -> Result<(), LabError> {
        let clients: Vec<Result<(), LabError>> = self.clients.iter().map(RemoteClient::end).collect();
        self.server.end().and_then(|()| clients.into_iter().collect())
    }
}

/// What one of so many clients asks of servers, with as many connections as it has of any candidate.
fn most_of_one(experiment: &Experiment, clients: usize) -> Workload {
    let own = experiment.candidates.iter().filter_map(|candidate| candidate.connections);
    let most = own.fold(experiment.workload.connections, u32::max);
    Workload { connections: connections_of(0, clients, most), ..experiment.workload.clone() }
}

#[cfg(test)]
mod tests {
    use record::Candidate;

    use super::*;

    /// A machine is asked whether it suffices for its own part.
    #[test]
    fn a_client_is_ready_for_its_part_of_the_most_connections() {
        let mut experiment = Experiment::default();
        experiment.workload.connections = 60_000;
        assert_eq!(most_of_one(&experiment, 3).connections, 20_000);
        experiment.workload.connections = 8;
        experiment.candidates =
            vec![Candidate { connections: Some(301), ..Candidate::default() }, Candidate::default()];
        assert_eq!(most_of_one(&experiment, 3).connections, 101);
    }
}
