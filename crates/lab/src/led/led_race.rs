//! A race whose clients and server are all on other machines: this one keeps the record and passes on what they say.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linux::cpu::Scheduling;
use linux::{CpuSet, IfName};
use record::{Experiment, Writer};

use super::lead::{FAILED, Lead, LeadFailed, STOP, STOPPED};
use super::outward::Listener;
use super::relay::{self, Relay};
use crate::channel::{Channel, Conversation, SILENCE_MAX, silent};
use crate::race::Finished;
use crate::remote::{SshAddress, SshCommand};
use crate::{Event, LabError, OwnProgram};

/// How often it is looked whether to stop.
const LOOKS: Duration = Duration::from_millis(200);

/// A race that a client's machine leads.
#[derive(Debug)]
pub struct LedRace<'a> {
    /// The machine of the client that leads.
    pub client: &'a SshAddress,
    /// The machines of further clients.
    pub clients: &'a [&'a SshAddress],
    /// The machine of the server.
    pub server: &'a SshAddress,
    /// How all are reached.
    pub ssh: &'a SshCommand,
    /// This program, which runs there.
    pub own: &'a OwnProgram,
    /// The experiment that is raced.
    pub experiment: &'a Experiment,
    /// The record file to write; it must not exist yet.
    pub record: PathBuf,
    /// The CPUs of each client; `None`: all that the process there may use.
    pub cpus: Option<CpuSet>,
    /// The server's CPUs; `None`: all that the process there may use.
    pub server_cpus: Option<CpuSet>,
    /// Policy of the threads of client and server, where their machine permits it.
    pub scheduling: Scheduling,
    /// The client's link to the server's machine, where it is not the one that leads to the address by
    /// which ssh arrives there.
    pub nic: Option<IfName>,
    /// Set from outside to end the race.
    pub stop: Arc<AtomicBool>,
}

impl LedRace<'_> {
    /// Runs it. Rounds that were finished are in the record file, whatever happens, and all machines are as before.
    /// `reached` is called as soon as this program is on all of them, before anything is done there.
    ///
    /// # Errors
    /// [`LabError::Machine`]: one of them is not reached, or says why the race could not go on.
    pub fn run(self, reached: &mut dyn FnMut(), emit: &mut dyn FnMut(Event)) -> Result<Finished, LabError> {
        let all = [self.server, self.client];
        for machine in all.iter().chain(self.clients) {
            emit(Event::Connecting { machine: machine.to_string() });
        }
        let start = |address, arguments| self.ssh.start(address, self.own, arguments);
        let mut others = Vec::new();
        for address in std::iter::once(&self.server).chain(self.clients) {
            let Some(other) = start(address, "remote")? else { return Ok(Finished::Stopped) };
            others.push((*address, other));
        }
        let Some(mut client) = start(self.client, "remote --lead")? else { return Ok(Finished::Stopped) };
        reached();
        let writer = Writer::create(&self.record)?;
        emit(Event::Recording { path: self.record.clone() });
        let mut listener = Listener::new(writer, emit);
        let started = Instant::now();
        let said = client.say(&self.order());
        thread::scope(|scope| {
            let others = others.into_iter().enumerate();
            let relays = others.map(|(number, (address, other))| {
                Relay::begin(scope, (number, other), client.voice(), move || start(address, "remote"))
            });
            let relays: Vec<Relay<'_>> = relays.collect();
            let listened = self.listen(&client, &relays, &mut listener);
            if listened.is_err() {
                // It would not end by itself; there everything is taken back when the connection is gone.
                client.cut();
            }
            // One that ended before it was asked has said why, and that is better than that it could not be asked.
            let listened =
                listened.and_then(|failed| if failed.is_some() { Ok(failed) } else { said.map(|()| None) });
            let result = match listener.failure() {
                Some(failure) => Err(failure),
                None => self.ended(&mut client, listened),
            };
            // The leading one ends before the others, or its last requests would fail.
            drop(client);
            let ended = self.end(relays);
            let finished = listener.conclude(started, result)?;
            ended.map(|()| finished)
        })
    }

    /// What the leading machine is to do, as a line.
    fn order(&self) -> String {
        let order = Lead {
            experiment: self.experiment.to_toml(),
            server: self.server.to_string(),
            clients: self.clients.iter().map(ToString::to_string).collect(),
            cpus: self.cpus.clone(),
            server_cpus: self.server_cpus.clone(),
            scheduling: self.scheduling,
            nic: self.nic.as_ref().map(ToString::to_string),
        };
        serde_json::to_string(&order).expect("an order is plain data")
    }

    /// How the leading machine has ended, after what it said.
    fn ended(
        &self,
        client: &mut Channel,
        listened: Result<Option<LeadFailed>, String>,
    ) -> Result<Finished, LabError> {
        let failed = |why: String| LabError::of_machine(self.client.to_string(), why);
        match listened {
            Ok(Some(why)) => return Err(why.into_error(self.client)),
            Ok(None) => {}
            Err(why) => return Err(failed(why)),
        }
        match client.ended().map_err(failed)?.code() {
            Some(0) => Ok(Finished::Whole),
            Some(code) if code == i32::from(STOPPED) => Ok(Finished::Stopped),
            _ => Err(failed(client.lost())),
        }
    }

    /// Ends the processes on the other machines, and says of the first that could not undo something.
    fn end(&self, relays: Vec<Relay<'_>>) -> Result<(), LabError> {
        let names = std::iter::once(&self.server).chain(self.clients);
        let ended: Vec<Result<(), LabError>> = relays
            .into_iter()
            .zip(names)
            .map(|(relay, machine)| relay.end().map_err(|why| LabError::of_machine(machine.to_string(), why)))
            .collect();
        ended.into_iter().collect()
    }

    /// Hears the client's machine until it ends, and passes its questions on. Returns why it could not go on,
    /// if it says so.
    fn listen(
        &self,
        client: &Channel,
        relays: &[Relay<'_>],
        listener: &mut Listener<'_>,
    ) -> Result<Option<LeadFailed>, String> {
        let (mut stop_sent, mut failed) = (false, None);
        let mut heard = Instant::now();
        while !listener.has_failed() {
            if self.stop.load(Ordering::Relaxed) && !stop_sent {
                client.say(STOP)?;
                stop_sent = true;
            }
            let line = match client.next(LOOKS) {
                Ok(Some(line)) => line,
                Ok(None) if heard.elapsed() < SILENCE_MAX => continue,
                Ok(None) => return Err(silent(SILENCE_MAX)),
                // It has ended; its status says how.
                Err(_) => break,
            };
            heard = Instant::now();
            if relay::ask(relays, &line) {
                continue;
            }
            match line.strip_prefix(FAILED) {
                Some(words) => failed = serde_json::from_str(words).ok(),
                None => listener.take(line.as_bytes()),
            }
        }
        Ok(failed)
    }
}
