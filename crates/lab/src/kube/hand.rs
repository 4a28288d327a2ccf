//! What runs in a pod: serves, or loads a server, as it is asked.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use linux::CpuSet;
use linux::cpu::Scheduling;
use record::Capacity;

use super::caller::Caller;
use super::protocol::{Answer, Call, Said, Seen, Serve, Task};
use super::serving::Serving;
use crate::capacity::capacity;
use crate::machine::machine;
use crate::remote::{Failed, Spent, answers};
use crate::trial::measure;
use crate::usage::CounterSnapshot;
use crate::{LabError, NodeCpus};

/// How long a question to the server's hand may take.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How long it is tried whether an address answers.
const REACH_MAX: Duration = Duration::from_secs(2);

/// Does what the lines of the input ask, until it ends, nothing is heard any more, or `stop` is set. All that was opened is
/// closed then.
///
/// # Errors
/// The limit of open files cannot be looked at, or no thread started.
pub fn hand(
    version: &str,
    stop: &Arc<AtomicBool>,
    input: impl Read + Send + 'static,
    output: &mut dyn Write,
) -> Result<(), LabError> {
    linux::process::raise_open_files()?;
    let heard = answers(input, Arc::clone(stop))?;
    let mut hand =
        Hand { version: version.to_owned(), serving: None, callers: BTreeMap::new(), before: None };
    while let Some(line) = next(&heard, stop) {
        // Both sides are one program; a line that was torn is the last.
        let Ok(task) = serde_json::from_str(&line) else { break };
        let mut talk = Talk { heard: &heard, output: &mut *output };
        let answer = hand.answer(task, &mut talk).unwrap_or_else(|error| failed(&error));
        if talk.say(&Said::Answer(answer)).is_err() {
            break;
        }
    }
    Ok(())
}

/// The next line; `None`: there will be none.
fn next(heard: &Receiver<String>, stop: &AtomicBool) -> Option<String> {
    loop {
        match heard.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => return Some(line),
            Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Relaxed) => {}
            Err(_) => return None,
        }
    }
}

fn failed(error: &LabError) -> Answer {
    let broken = match error {
        LabError::Broken { what, .. } => Some(what.clone()),
        LabError::Load { why, .. } => Some(format!("could not {why}")),
        _ => None,
    };
    Answer::Failed(Failed { why: error.to_string(), remedy: error.remedy().map(str::to_owned), broken })
}

/// The way to the server's hand, which leads over the other side.
pub(super) struct Talk<'a> {
    heard: &'a Receiver<String>,
    output: &'a mut dyn Write,
}

impl Talk<'_> {
    fn say(&mut self, said: &Said) -> io::Result<()> {
        let line = serde_json::to_string(said)?;
        writeln!(self.output, "{line}")?;
        self.output.flush()
    }

    /// Has the server's hand do something.
    pub(super) fn ask(&mut self, task: Task) -> Result<Answer, LabError> {
        let lost =
            |why: String| LabError::Machine { machine: "the server's pod".to_owned(), why, remedy: None };
        self.say(&Said::Ask(task)).map_err(|error| lost(error.to_string()))?;
        let line = self.heard.recv_timeout(ANSWER_MAX).map_err(|error| lost(error.to_string()))?;
        match serde_json::from_str(&line).map_err(|error| lost(error.to_string()))? {
            Answer::Failed(Failed { why, remedy, .. }) => {
                Err(LabError::Machine { machine: "the server's pod".to_owned(), why, remedy })
            }
            answer => Ok(answer),
        }
    }
}

/// What a hand has.
struct Hand {
    version: String,
    serving: Option<Serving>,
    callers: BTreeMap<String, Caller>,
    before: Option<CounterSnapshot>,
}

impl Hand {
    fn answer(&mut self, task: Task, talk: &mut Talk<'_>) -> Result<Answer, LabError> {
        match task {
            Task::Look { workers } => return Ok(Answer::Seen(Box::new(self.look(workers)?))),
            Task::Serve(Serve { workload, address, port, cpus, workers }) => {
                let cpus = cpus.map_or_else(|| workers_of(workers), Ok)?;
                let serving = Serving::start(&workload, address, port, cpus)?;
                let port = serving.port();
                self.serving = Some(serving);
                return Ok(Answer::Serves { port });
            }
            Task::Open(call) => {
                let Call { candidate, address, workload, cpus, workers } = *call;
                let cpus = cpus.map_or_else(|| workers_of(workers), Ok)?;
                let address = resolve(&candidate, &address, workload.ipv6)?;
                let caller = Caller::open(candidate.clone(), address, workload, cpus)?;
                self.callers.insert(candidate, caller);
            }
            Task::Capacity { candidate, body_bytes, pace } => {
                let caller = self.caller(&candidate)?;
                let method = pace.applied(&caller.method());
                let never = || false;
                let found: Option<Capacity> = capacity(&mut caller.asking(talk), &method, body_bytes, never)?;
                return Ok(Answer::Capacity(Box::new(found.expect("it is not stopped"))));
            }
            Task::Trial { candidate, load, indexes, pace } => {
                let caller = self.caller(&candidate)?;
                let method = pace.applied(&caller.method());
                let trial = measure(&mut caller.asking(talk), &method, &load, indexes)?;
                return Ok(Answer::Trial(Box::new(trial)));
            }
            Task::Close { candidate } => {
                self.callers.remove(&candidate);
            }
            Task::Reach { address, ipv6 } => {
                let reached = resolve("", &address, ipv6)
                    .is_ok_and(|address| std::net::TcpStream::connect_timeout(&address, REACH_MAX).is_ok());
                return Ok(Answer::Reached(reached));
            }
            Task::Count => {
                self.serving.iter().try_for_each(Serving::check)?;
                self.before = Some(CounterSnapshot::here()?);
            }
            Task::Spent => return self.spent(),
        }
        Ok(Answer::Done)
    }

    fn look(&self, workers: u32) -> Result<Seen, LabError> {
        let (allowed, workers) = (linux::cpu::allowed()?, workers_of(workers)?);
        let nodes = NodeCpus { client: workers.clone(), server: CpuSet::default() };
        let machine = machine(&nodes, Scheduling::Normal)?;
        Ok(Seen { version: self.version.clone(), machine, allowed, workers })
    }

    fn spent(&mut self) -> Result<Answer, LabError> {
        self.serving.iter().try_for_each(Serving::check)?;
        let now = CounterSnapshot::here()?;
        let before = self.before.take().unwrap_or_else(|| now.clone());
        let counted = NodeCpus { client: CpuSet::default(), server: linux::cpu::online()? };
        let usage = now.since(&before, &counted);
        let spent = Spent { cpus: usage.server, counters: usage.counters, detour: None };
        Ok(Answer::Spent(Box::new(spent)))
    }

    fn caller(&mut self, candidate: &str) -> Result<&mut Caller, LabError> {
        let what = "it has no connections".to_owned();
        self.callers
            .get_mut(candidate)
            .ok_or_else(|| LabError::Broken { candidate: candidate.to_owned(), what })
    }
}

/// The last CPUs of those that the pod may use, as many as it has asked for: interrupts mostly come to the first. Where
/// the kubelet has given it CPUs of its own, they are all.
fn workers_of(workers: u32) -> Result<CpuSet, LabError> {
    let allowed: Vec<u16> = linux::cpu::allowed()?.iter().collect();
    let first = allowed.len().saturating_sub(workers as usize);
    Ok(allowed[first..].iter().copied().collect())
}

/// An address of a family.
fn resolve(candidate: &str, address: &str, ipv6: bool) -> Result<std::net::SocketAddr, LabError> {
    let broken = |why: String| LabError::Broken {
        candidate: candidate.to_owned(),
        what: format!("could not find the address of {address}: {why}"),
    };
    let mut found = address.to_socket_addrs().map_err(|error| broken(error.to_string()))?;
    let family = if ipv6 { "IPv6" } else { "IPv4" };
    found.find(|found| found.is_ipv6() == ipv6).ok_or_else(|| broken(format!("it has none of {family}")))
}
