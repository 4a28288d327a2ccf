//! What a process in a pod does: the tasks that come as lines, such as to serve, or to load a server.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux::CpuSet;
use linux::cpu::Scheduling;
use linux::throttle::Throttled;
use record::Capacity;

use super::caller::Caller;
use super::protocol::{Answer, Call, PodFacts, PodMessage, Serve, Task, Workers};
use super::serving::Serving;
use super::talk::{READY, Talk};
use crate::capacity::capacity;
use crate::led::answers;
use crate::machine::machine;
use crate::remote::Failed;
use crate::trial::measure;
use crate::usage::{CounterSnapshot, Spent};
use crate::void::{stolen_from, throttled};
use crate::{LabError, NodeCpus};

/// How long an attempt to connect to an address that is not to answer takes.
const ENTER_MAX: Duration = Duration::from_secs(2);

/// Does what the lines of the input ask, until it ends, nothing is heard any more, or `stop` is set. All that was
/// opened is closed then.
///
/// # Errors
/// The limit of open files cannot be looked at, or no thread started.
pub fn do_pod_tasks(
    version: &str,
    stop: &Arc<AtomicBool>,
    input: impl Read + Send + 'static,
    output: &mut dyn Write,
) -> Result<(), LabError> {
    linux::process::raise_open_files()?;
    let heard = answers(input, Arc::clone(stop))?;
    let (callers, cpus) = (BTreeMap::new(), CpuSet::default());
    let mut state = TaskState { version: version.to_owned(), serving: None, callers, cpus, before: None };
    while let Some(line) = next(&heard, stop) {
        // Both sides are one program; a line that was torn is the last.
        let Ok(task) = serde_json::from_str(&line) else { break };
        let mut talk = Talk { heard: &heard, output: &mut *output };
        let answer = state.answer(task, &mut talk).unwrap_or_else(|error| failed(&error));
        if talk.say(&PodMessage::Answer(answer)).is_err() {
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
    let remedy = error.remedy().map(str::to_owned);
    Answer::Failed(Failed { why: error.to_string(), remedy, broken, fault: error.fault() })
}

/// The state of the process in a pod, between two tasks.
struct TaskState {
    version: String,
    serving: Option<Serving>,
    callers: BTreeMap<String, Caller>,
    /// The CPUs of the server's threads.
    cpus: CpuSet,
    before: Option<FirstLook>,
}

/// The look at the counters that comes before a trial's measured part.
enum FirstLook {
    Taken(Box<CounterSnapshot>),
    /// By a thread, after a while.
    Coming(JoinHandle<Result<CounterSnapshot, LabError>>),
}

impl TaskState {
    fn answer(&mut self, task: Task, talk: &mut Talk<'_>) -> Result<Answer, LabError> {
        match task {
            Task::Look { workers } => return Ok(Answer::Seen(Box::new(self.look(workers)?))),
            Task::Serve(Serve { workload, address, port, workers }) => {
                let cpus = workers_of(workers)?;
                self.cpus = cpus.clone();
                let serving = Serving::start(&workload, address, port, cpus)?;
                let port = serving.port();
                self.serving = Some(serving);
                return Ok(Answer::Serves { port });
            }
            Task::Open(call) => {
                let Call { candidate, address, workload, workers } = *call;
                let cpus = workers_of(workers)?;
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
            Task::Trial { candidate, load, key, pace } => {
                let caller = self.caller(&candidate)?;
                let method = pace.applied(&caller.method());
                let trial = measure(&mut caller.asking(talk), &method, &load, key)?;
                return Ok(Answer::Trial(Box::new(trial)));
            }
            Task::Close { candidate } => {
                self.callers.remove(&candidate);
            }
            Task::TryToEnter { address, ipv6 } => {
                return Ok(Answer::KeptOut(is_kept_out(resolve("", &address, ipv6)?)));
            }
            Task::Count { after } => {
                self.serving.iter().try_for_each(Serving::check)?;
                self.before = Some(FirstLook::after(after)?);
            }
            Task::Spent => return self.spent(),
        }
        Ok(Answer::Done)
    }

    fn look(&self, workers: Workers) -> Result<PodFacts, LabError> {
        let (allowed, workers) = (linux::cpu::allowed()?, workers_of(workers)?);
        let nodes = NodeCpus { client: workers.clone(), server: CpuSet::default() };
        let machine = machine(&nodes, Scheduling::Normal)?;
        let quotas = linux::Files::kernel().own_quotas()?;
        let cpu_limit = quotas.iter().map(Throttled::cpus).min_by(f64::total_cmp);
        Ok(PodFacts { version: self.version.clone(), machine, allowed, workers, cpu_limit })
    }

    fn spent(&mut self) -> Result<Answer, LabError> {
        self.serving.iter().try_for_each(Serving::check)?;
        let now = CounterSnapshot::here()?;
        let before = match self.before.take() {
            Some(FirstLook::Taken(before)) => *before,
            Some(FirstLook::Coming(looking)) => looking.join().expect("a look does not panic")?,
            None => now.clone(),
        };
        let counted = NodeCpus { client: CpuSet::default(), server: linux::cpu::online()? };
        let usage = now.since(&before, &counted);
        // The others' time is part of the cost, but says nothing of whether the server ran.
        let own = usage.server.iter().filter(|(cpu, _)| self.cpus.contains(**cpu));
        let own = own.map(|(cpu, time)| (*cpu, *time)).collect();
        let void = throttled(&usage, self.cpus.len()).or_else(|| stolen_from(&own));
        let spent = Spent { cpus: usage.server, counters: usage.counters, detour: None, void };
        Ok(Answer::Spent(Box::new(spent)))
    }

    fn caller(&mut self, candidate: &str) -> Result<&mut Caller, LabError> {
        let what = "it has no connections".to_owned();
        self.callers
            .get_mut(candidate)
            .ok_or_else(|| LabError::Broken { candidate: candidate.to_owned(), what })
    }
}

impl FirstLook {
    fn after(time: Duration) -> Result<FirstLook, LabError> {
        if time.is_zero() {
            return Ok(FirstLook::Taken(Box::new(CounterSnapshot::here()?)));
        }
        Ok(FirstLook::Coming(std::thread::spawn(move || {
            std::thread::sleep(time);
            CounterSnapshot::here()
        })))
    }
}

/// The CPUs of threads. Interrupts mostly come to the first of a machine, so that the last are taken. Where the kubelet
/// has given the pod CPUs of its own, they are all.
fn workers_of(workers: Workers) -> Result<CpuSet, LabError> {
    let (count, others) = match workers {
        Workers::Named(cpus) => return Ok(cpus),
        Workers::Last { count, others } => (count as usize, others as usize),
    };
    let allowed: Vec<u16> = linux::cpu::allowed()?.iter().collect();
    // A pod with CPUs of its own has no others among them.
    let end = if allowed.len() > count { allowed.len().saturating_sub(others) } else { allowed.len() };
    Ok(allowed[end.saturating_sub(count)..end].iter().copied().collect())
}

/// Whether an address has come to refuse, or not to answer, within [`READY`].
fn is_kept_out(address: SocketAddr) -> bool {
    let until = Instant::now() + READY;
    while TcpStream::connect_timeout(&address, ENTER_MAX).is_ok() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(AGAIN);
    }
    true
}

/// How long a name that is not known yet is left alone.
const AGAIN: Duration = Duration::from_millis(500);

/// An address of a family. A name that is new is asked for until it is known.
fn resolve(candidate: &str, address: &str, ipv6: bool) -> Result<SocketAddr, LabError> {
    let family = if ipv6 { "IPv6" } else { "IPv4" };
    let find = || -> Result<SocketAddr, String> {
        let mut found = address.to_socket_addrs().map_err(|error| error.to_string())?;
        found.find(|found| found.is_ipv6() == ipv6).ok_or_else(|| format!("it has none of {family}"))
    };
    let until = Instant::now() + READY;
    loop {
        match find() {
            Ok(found) => return Ok(found),
            Err(_) if Instant::now() < until => std::thread::sleep(AGAIN),
            Err(why) => {
                let what = format!("could not find the address of {address}: {why}");
                return Err(LabError::Broken { candidate: candidate.to_owned(), what });
            }
        }
    }
}
