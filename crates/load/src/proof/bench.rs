//! A generator and a responder, each on its own CPU.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use linux::CpuSet;
use linux::cpu::{self, Scheduling};

use super::ProofError;
use crate::serve::{Faults, ResponderConfig, Served, Server};
use crate::{Client, Expect, Outcome, Run, Schedule, Target, Wait};

const CONNECTIONS: usize = 50;

/// Enough to come before other programs and to leave the kernel's own threads alone.
const FIFO: Scheduling = Scheduling::Fifo(10);

/// From the responder's start to that of the schedule. The first freeze is a period after the former, so a schedule of
/// some periods that began with it would end just before the last freeze.
const HEAD_START: Duration = Duration::from_millis(500);

pub(super) struct Bench {
    client: CpuSet,
    server: CpuSet,
    scheduling: Scheduling,
}

/// The result of a scene, and the properties of the bench.
pub(super) struct SceneResult {
    pub(super) outcome: Outcome,
    pub(super) served: Served,
    pub(super) rate_per_s: f64,
    /// The median response time in nanoseconds when the server adds no delay.
    pub(super) path_ns: f64,
    /// What the server answers when every connection is always busy.
    pub(super) capacity_per_s: f64,
}

impl Bench {
    pub(super) fn new() -> Result<Bench, ProofError> {
        let allowed = cpu::allowed().map_err(crate::LoadError::from)?;
        let mut cpus = allowed.iter().map(|cpu| CpuSet::from_iter([cpu]));
        let client = cpus.next().unwrap_or_default();
        // On a machine of one CPU they share it.
        let server = cpus.next().unwrap_or_else(|| client.clone());
        let alone = client != server;
        let scheduling = if alone && cpu::can_realtime() { FIFO } else { Scheduling::Normal };
        Ok(Bench { client, server, scheduling })
    }

    /// The median response time in nanoseconds when the server answers at once.
    pub(super) fn path_ns(&self) -> Result<f64, ProofError> {
        let schedule = Schedule::Constant { rate_per_s: 2000.0 };
        let (outcome, _) = self.run(Faults::default(), &Run::new(schedule, Duration::from_secs(1)))?;
        Ok(outcome.response.value_at_quantile(0.5) as f64)
    }

    pub(super) fn capacity_per_s(&self) -> Result<f64, ProofError> {
        let (outcome, _) =
            self.run(Faults::default(), &Run::new(Schedule::Saturate, Duration::from_secs(1)))?;
        Ok(outcome.answered_per_s())
    }

    /// Runs against a responder with these faults, some time after the responder has started.
    pub(super) fn run(&self, faults: Faults, run: &Run) -> Result<(Outcome, Served), ProofError> {
        let server = Server::bind(&ResponderConfig {
            faults,
            cpus: self.server.clone(),
            ..ResponderConfig::default()
        })?;
        let address = server.addresses()[0];
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let serving = scope.spawn(|| {
                // The responder's threads inherit it.
                cpu::set_current_thread_scheduling(self.scheduling).map_err(crate::LoadError::from)?;
                Ok::<_, ProofError>(server.run(&stop)?)
            });
            thread::sleep(HEAD_START);
            let outcome = self.ask(address, run);
            stop.store(true, Ordering::Relaxed);
            let served = serving.join().expect("the responder does not panic")?;
            Ok((outcome?, served))
        })
    }

    fn ask(&self, address: SocketAddr, run: &Run) -> Result<Outcome, ProofError> {
        let target = Target::get(address, "self-test", "/", Expect { status: 200, body_bytes: Some(100) });
        let client = Client::connect(&target, CONNECTIONS, Duration::from_secs(5))?;
        let run = Run {
            wait: Wait::Hybrid,
            drain: Duration::from_secs(5),
            threads: vec![self.client.clone()],
            scheduling: self.scheduling,
            ..run.clone()
        };
        Ok(crate::run(&mut [client], &run)?)
    }
}
