//! A race whose client and server are both on other machines: this one keeps the record and passes on what they say.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux::cpu::Scheduling;
use linux::{CpuSet, IfName};
use record::{Experiment, Writer};

use super::host::first_answer;
use super::lead::{ASK, FAILED, Lead, LeadFailed, STOP, STOPPED};
use super::protocol::{Failed, Reply};
use super::ssh::{SshAddress, SshCommand};
use crate::channel::{Channel, Conversation};
use crate::outward::Listener;
use crate::race::Finished;
use crate::{Event, LabError, OwnProgram};

/// How often it is looked whether to stop.
const LOOKS: Duration = Duration::from_millis(200);

/// A race that a client's machine leads.
#[derive(Debug)]
pub struct LedRace<'a> {
    /// The machine of the client.
    pub client: &'a SshAddress,
    /// The machine of the server.
    pub server: &'a SshAddress,
    /// How both are reached.
    pub ssh: &'a SshCommand,
    /// This program, which runs there.
    pub own: &'a OwnProgram,
    /// The experiment that is raced.
    pub experiment: &'a Experiment,
    /// The record file to write; it must not exist yet.
    pub record: PathBuf,
    /// The client's CPUs; `None`: all that the process there may use.
    pub cpus: Option<CpuSet>,
    /// The server's CPUs; `None`: all that the process there may use.
    pub server_cpus: Option<CpuSet>,
    /// Policy of the threads of client and server, where their machine permits it.
    pub scheduling: Scheduling,
    /// The client's link to the server's machine, where it is not the one that leads to the address by which ssh arrives
    /// there.
    pub nic: Option<IfName>,
    /// Set from outside to end the race.
    pub stop: Arc<AtomicBool>,
}

impl LedRace<'_> {
    /// Runs it. Rounds that were finished are in the record file, whatever happens, and both machines are as before. `reached` is
    /// called as soon as this program is on both machines, before anything is done there.
    ///
    /// # Errors
    /// [`LabError::Machine`]: one of them is not reached, or says why the race could not go on; [`LabError::NotThere`]: one does
    /// not have what it was asked for.
    pub fn run(self, reached: &mut dyn FnMut(), emit: &mut dyn FnMut(Event)) -> Result<Finished, LabError> {
        for machine in [self.server, self.client] {
            emit(Event::Connecting { machine: machine.to_string() });
        }
        let start = |address, arguments| self.ssh.start(address, self.own, arguments);
        let Some(mut server) = start(self.server, "remote")? else { return Ok(Finished::Stopped) };
        let Some(mut client) = start(self.client, "remote --lead")? else { return Ok(Finished::Stopped) };
        reached();
        let order = Lead {
            experiment: self.experiment.to_toml(),
            server: self.server.to_string(),
            cpus: self.cpus.clone(),
            server_cpus: self.server_cpus.clone(),
            scheduling: self.scheduling,
            nic: self.nic.as_ref().map(ToString::to_string),
        };
        let order = serde_json::to_string(&order).expect("an order is plain data");
        let of_client =
            |why: String| LabError::Machine { machine: self.client.to_string(), why, remedy: None };
        let writer = Writer::create(&self.record)?;
        emit(Event::Recording { path: self.record.clone() });
        let mut listener = Listener::new(writer, emit);
        let started = Instant::now();
        let said = client.say(&order);
        let listened = self.listen(&client, &server, &mut listener);
        // One that ended before it was asked has said why, and that is better than that it could not be asked.
        let listened =
            listened.and_then(|failed| if failed.is_some() { Ok(failed) } else { said.map(|()| None) });
        let result = match (listener.failure(), listened) {
            (Some(failure), _) => Err(failure),
            (None, Ok(Some(failed))) => Err(failed.into_error(self.client)),
            (None, Ok(None)) => client.ended().map(|status| status.code()).map_err(of_client),
            (None, Err(why)) => Err(of_client(why)),
        };
        let result = result.and_then(|code| match code {
            Some(0) => Ok(Finished::Whole),
            Some(code) if code == i32::from(STOPPED) => Ok(Finished::Stopped),
            _ => Err(of_client(client.lost())),
        });
        // The client ends before the server, or its last requests would fail.
        drop(client);
        let ended = server.end();
        let finished = listener.conclude(started, result)?;
        ended.map_err(|why| LabError::Machine { machine: self.server.to_string(), why, remedy: None })?;
        Ok(finished)
    }

    /// Hears the client's machine until it ends, and passes its questions on. Returns why it could not go on, if it says so.
    fn listen(
        &self,
        client: &Channel,
        server: &Channel,
        listener: &mut Listener<'_>,
    ) -> Result<Option<LeadFailed>, String> {
        let (mut stop_sent, mut failed) = (false, None);
        while !listener.has_failed() {
            if self.stop.load(Ordering::Relaxed) && !stop_sent {
                client.say(STOP)?;
                stop_sent = true;
            }
            // Whether the machine is still there is for ssh to find out: a trial says nothing for as long as it takes.
            let line = match client.next(LOOKS) {
                Ok(Some(line)) => line,
                Ok(None) => continue,
                // It has ended; its status says how.
                Err(_) => break,
            };
            if let Some(question) = line.strip_prefix(ASK) {
                pass_on(question, client, server)?;
            } else if let Some(words) = line.strip_prefix(FAILED) {
                failed = serde_json::from_str(words).ok();
            } else {
                listener.take(line.as_bytes());
            }
        }
        Ok(failed)
    }
}

/// Passes a question on, and the answer back.
fn pass_on(question: &str, client: &Channel, server: &Channel) -> Result<(), String> {
    let answered = server.say(question).and_then(|()| first_answer(server));
    let answer = answered.map(|(said, _)| said).unwrap_or_else(|why| {
        let failed = Reply::Failed(Failed { why, remedy: None, broken: None });
        serde_json::to_string(&failed).expect("replies are plain data")
    });
    client.say(&answer)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::channel::ANSWER_MAX;

    fn shell(script: &str) -> Channel {
        Channel::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn what_a_login_shell_prints_is_no_answer() {
        let server =
            shell("echo welcome; echo; while read line; do [ -z \"$line\" ] || echo '\"Done\"'; done");
        let client = shell("cat");
        for question in ["one", "two"] {
            pass_on(question, &client, &server).unwrap();
            assert_eq!(client.hear(ANSWER_MAX), Ok("\"Done\"".to_owned()));
        }
    }
}
