//! A candidate's connections in the client's pod, as a trial loads them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linux::CpuSet;
use linux::cpu::Scheduling;
use load::{Client, Pool, Target};
use record::{Void, Workload};

use super::protocol::{Answer, Task};
use super::talk::{READY, Talk};
use crate::pools::{Opening, Pools};
use crate::traffic::TransferredAmounts;
use crate::trial::{Method, Subject};
use crate::usage::{CounterSnapshot, Usage};
use crate::void::{stolen_from, throttled};
use crate::wire::Patience;
use crate::{ByRole, LabError, NodeCpus, Wires, target};

/// The longest way to the server's process and back for which a trial waits between its warm-up and its measured part:
/// half of the time after which an idle TCP connection begins anew with a small window.
const BETWEEN_MAX: Duration = Duration::from_millis(100);

/// The client of a candidate: its connections, and the threads that use them.
pub(super) struct Caller {
    candidate: String,
    address: SocketAddr,
    workload: Workload,
    pools: Pools,
    /// One thread on each.
    cpus: CpuSet,
    /// How long the server's process took to answer for the last time that it was to look at its counters.
    round_trip: Option<Duration>,
}

impl Caller {
    /// Opens connections for all sizes of answers.
    pub(super) fn open(
        candidate: String,
        address: SocketAddr,
        workload: Workload,
        cpus: CpuSet,
    ) -> Result<Caller, LabError> {
        let pools = Pools::of(workload.kind);
        let mut caller = Caller { candidate, address, workload, pools, cpus, round_trip: None };
        for body_bytes in caller.workload.body_bytes.clone() {
            let target = caller.target(body_bytes);
            let opening = Opening {
                candidate: &caller.candidate,
                open: &|target: &Target, pool: Pool| Ok(Client::open(target, pool)),
                threads: caller.cpus.len(),
                ready: READY,
                connect: Wires::default().patience().connect(),
                relayed: false,
                check: &mut || Ok(()),
            };
            caller.pools.open(&target, body_bytes, caller.workload.connections, opening)?;
        }
        Ok(caller)
    }

    /// How trials are run in this pod; their times are the race's.
    pub(super) fn method(&self) -> Method {
        let cpus = NodeCpus { client: self.cpus.clone(), server: CpuSet::default() };
        Method::new(cpus, Scheduling::Normal)
    }

    /// The connections, with the way to the process that counts at the server.
    pub(super) fn asking<'a, 't>(&'a mut self, talk: &'a mut Talk<'t>) -> Asking<'a, 't> {
        Asking { caller: self, talk }
    }

    fn target(&self, body_bytes: u32) -> Target {
        target::target(&self.workload, self.address, body_bytes, None)
    }
}

/// A candidate's connections, and the way to the process that counts at the server.
pub(super) struct Asking<'a, 't> {
    caller: &'a mut Caller,
    talk: &'a mut Talk<'t>,
}

impl Asking<'_, '_> {
    /// Has the server's process look at its counters after a time, and says how long the answer took.
    fn ask_to_count(&mut self, after: Duration) -> Result<Duration, LabError> {
        let asked = Instant::now();
        self.talk.ask(Task::Count { after })?;
        Ok(*self.caller.round_trip.insert(asked.elapsed()))
    }
}

impl Subject for Asking<'_, '_> {
    fn name(&self) -> &str {
        &self.caller.candidate
    }

    fn patience(&self) -> Patience {
        Wires::default().patience()
    }

    fn clients(&mut self, body_bytes: u32) -> &mut [Client] {
        let target = self.caller.target(body_bytes);
        self.caller.pools.clients(body_bytes, || target)
    }

    /// Where the way to the server's process is long, it is to look by itself when the warm-up is over, which begins
    /// here half a way there and back after it has heard.
    fn begin(&mut self, warmup: Duration) -> Result<(), LabError> {
        let round_trip = match self.caller.round_trip {
            Some(known) => known,
            None => self.ask_to_count(Duration::ZERO)?,
        };
        if round_trip > BETWEEN_MAX {
            self.ask_to_count(round_trip / 2 + warmup)?;
        }
        Ok(())
    }

    /// Else it looks when it is asked, after the warm-up: the requests of that are none of the slice's.
    fn count(&mut self) -> Result<CounterSnapshot, LabError> {
        if self.caller.round_trip.is_none_or(|known| known <= BETWEEN_MAX) {
            self.ask_to_count(Duration::ZERO)?;
        }
        CounterSnapshot::here()
    }

    /// Both nodes work for others too: the time of all their CPUs is the cost, as on two machines. Whether the
    /// hypervisor let a side run is asked of its own CPUs.
    fn spent(
        &mut self,
        before: &CounterSnapshot,
        _cpus: &NodeCpus,
        _work: &ByRole<TransferredAmounts>,
    ) -> Result<(Usage, Option<Void>), LabError> {
        let counted = NodeCpus { client: linux::cpu::online()?, server: CpuSet::default() };
        let mut usage = CounterSnapshot::here()?.since(before, &counted);
        let Answer::Spent(spent) = self.talk.ask(Task::Spent)? else {
            let what = "the server's pod did not report the cost of a trial".to_owned();
            return Err(LabError::Broken { candidate: self.caller.candidate.clone(), what });
        };
        let own = usage.client.iter().filter(|(cpu, _)| self.caller.cpus.contains(**cpu));
        let void = spent.void.clone().or_else(|| throttled(&usage, self.caller.cpus.len()));
        let void = void.or_else(|| stolen_from(&own.map(|(cpu, time)| (*cpu, *time)).collect()));
        usage.add_server(&spent);
        Ok((usage, void))
    }

    fn check_server(&mut self) -> Result<(), LabError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{self, Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    use record::{Counters, Load, WorkloadKind};

    use super::super::protocol::PodMessage;
    use super::*;
    use crate::trial::measure;
    use crate::trial_key::TrialKey;
    use crate::usage::Spent;

    /// A process at the server that notes what it is to do, and how many requests the server had seen by then.
    struct Noting {
        answers: Sender<String>,
        requests: Arc<AtomicU64>,
        takes: Duration,
        heard: Vec<(Task, u64)>,
    }

    impl Write for Noting {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let Ok(PodMessage::Ask(task)) = serde_json::from_slice(line) else { return Ok(line.len()) };
            self.heard.push((task.clone(), self.requests.load(Ordering::Relaxed)));
            let spent =
                Spent { cpus: BTreeMap::new(), counters: Counters::default(), detour: None, void: None };
            let answer = match task {
                Task::Spent => Answer::Spent(Box::new(spent)),
                _ => Answer::Done,
            };
            thread::sleep(self.takes);
            self.answers.send(serde_json::to_string(&answer).unwrap()).unwrap();
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What the server's process was asked in a trial, and the requests of its measured part, where an answer takes so
    /// long, which may be known.
    fn asked(takes: Duration, known: Option<Duration>) -> (Vec<(Task, u64)>, u64) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
        let seen = Arc::clone(&requests);
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 8];
            while stream.read_exact(&mut request).is_ok() {
                seen.fetch_add(1, Ordering::Relaxed);
                stream.write_all(&request).unwrap();
            }
        });
        let workload = Workload { body_bytes: vec![8], connections: 1, ..Workload::of(WorkloadKind::TcpRr) };
        let cpus = linux::cpu::allowed().unwrap().iter().take(1).collect();
        let mut caller = Caller::open("pod".to_owned(), address, workload, cpus).unwrap();
        caller.round_trip = known;
        let method = caller.method();
        let (answers, heard) = channel();
        let mut noting = Noting { answers, requests, takes, heard: Vec::new() };
        let mut talk = Talk { heard: &heard, output: &mut noting };
        let load = Load::at_rate(8, 100.0);
        let key = TrialKey { entrant: 2, load: 0 };
        let trial = measure(&mut caller.asking(&mut talk), &method, &load, key).unwrap();
        drop(caller);
        server.join().unwrap();
        (noting.heard, trial.sent)
    }

    #[test]
    fn a_server_begins_to_count_when_the_warm_up_is_over() {
        let (asked, sent) = asked(Duration::ZERO, Some(Duration::ZERO));
        let [(Task::Count { after }, before), (Task::Spent, all)] = &asked[..] else { panic!("{asked:?}") };
        assert!(after.is_zero() && *before > 0, "{asked:?}");
        assert_eq!(all - before, sent, "{asked:?}");
    }

    #[test]
    fn where_the_way_is_long_no_time_passes_between_warm_up_and_slice() {
        let takes = BETWEEN_MAX + Duration::from_millis(10);
        let (asked, _) = asked(takes, None);
        let [(Task::Count { .. }, 0), (Task::Count { after }, 0), (Task::Spent, _)] = &asked[..] else {
            panic!("{asked:?}")
        };
        // Two requests of warm-up take 20 ms.
        assert!(*after >= takes / 2 + Duration::from_millis(20), "{asked:?}");
    }
}
