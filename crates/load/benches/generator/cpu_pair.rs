//! The CPUs in use: one for the client, one for the server, and no other work on them if the kernel permits
//! it.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use linux::cpu::{self, Scheduling};
use linux::{CpuSet, clock};
use load::serve::{ResponderConfig, Server};
use load::{Client, Expect, Outcome, Pool, Run, Target};

use crate::{CONNECTIONS, Failure, SLICE};

const FIFO: Scheduling = Scheduling::Fifo(10);

/// The CPUs of client and server.
pub(crate) struct CpuPair {
    pub(crate) client: CpuSet,
    pub(crate) server: CpuSet,
    pub(crate) scheduling: Scheduling,
}

impl CpuPair {
    /// `None`: this machine has one CPU.
    pub(crate) fn find() -> Result<Option<CpuPair>, Failure> {
        let online = cpu::online()?;
        let mut cpus = online.iter().map(|cpu| CpuSet::from_iter([cpu]));
        let (Some(client), Some(server)) = (cpus.next(), cpus.next()) else { return Ok(None) };
        let allowed = cpu::can_realtime();
        if !allowed {
            println!("without SCHED_FIFO, which needs root: other programs are in these figures");
        }
        Ok(Some(CpuPair { client, server, scheduling: if allowed { FIFO } else { Scheduling::Normal } }))
    }

    /// Runs `work` while our own responder answers.
    pub(crate) fn with_responder<T>(
        &self,
        work: impl FnOnce(SocketAddr) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let server =
            Server::bind(&ResponderConfig { cpus: self.server.clone(), ..ResponderConfig::default() })?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let serving = scope.spawn(|| {
                // The responder's threads inherit the scheduling class.
                cpu::set_current_thread_scheduling(self.scheduling)?;
                Ok::<_, Failure>(server.run(&stop)?)
            });
            let done = work(server.addresses()[0]);
            stop.store(true, Ordering::Relaxed);
            serving.join().expect("the responder does not panic")?;
            done
        })
    }

    /// Runs the closure in a thread on the client's CPU, with the generator's scheduling class and timer
    /// precision. Processes that it starts inherit all of these.
    pub(crate) fn on_client<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        self.on(&self.client, work)
    }

    /// The same on the server's CPU.
    pub(crate) fn on_server<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        self.on(&self.server, work)
    }

    fn on<T: Send>(
        &self,
        cpus: &CpuSet,
        work: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                cpu::pin_current_thread(cpus)?;
                cpu::set_current_thread_scheduling(self.scheduling)?;
                clock::set_timer_slack_ns(NonZeroU64::MIN)?;
                work()
            });
            thread.join().expect("a part of the benchmark does not panic")
        })
    }

    /// Runs our own generator for one slice.
    pub(crate) fn ours(
        &self,
        address: SocketAddr,
        path: &str,
        depth: usize,
        run: &Run,
    ) -> Result<Outcome, Failure> {
        let expect = Expect { status: 200, body_bytes: Some(100) };
        let target = Target::get(address, "bench", path, expect);
        let client = Client::open(&target, Pool { depth, ..Pool::of(CONNECTIONS, SLICE * 2) })?;
        let run = Run { threads: vec![self.client.clone()], scheduling: self.scheduling, ..run.clone() };
        Ok(load::run(&mut [client], &run)?)
    }
}
