//! `download`: a trial is all objects of all clients, however long that takes.

use std::time::Duration;

use datapath::SocketRole;
use linux::cpu::Scheduling;
use load::download::{self, Downloaded};
use record::{Histogram, Latencies, Load, Transfer, TrialRecord, Void};

use super::WorkloadDriver;
use crate::traffic::TransferredAmounts;
use crate::trial::{Method, recorded_handshakes};
use crate::trial_key::TrialKey;
use crate::usage::{CounterSnapshot, Usage};
use crate::void::kept_from_cpus;
use crate::{BuiltTopology, LabError};

/// Clients fetch objects, a new connection for each.
pub(super) struct Download;

/// What a trial may take before it is known how fast anything is.
const LIMIT: Duration = Duration::from_secs(30);
/// And for each byte: the time at 2 Mbit/s, slower than any path worth comparing.
const BYTES_PER_S_MIN: u64 = 250_000;

impl WorkloadDriver for Download {
    fn open(&self, _: &mut BuiltTopology, _: u32, _: u32) -> Result<(), LabError> {
        // Connections are made in the trial, and that there is a server was seen when it was started.
        Ok(())
    }

    fn trial(
        &self,
        built: &mut BuiltTopology,
        method: &Method,
        load: &Load,
        key: TrialKey,
    ) -> Result<TrialRecord, LabError> {
        let workload = &built.workload;
        let (clients, objects) = (workload.connections, workload.objects.unwrap_or(1));
        let bytes = u64::from(clients) * u64::from(objects) * u64::from(load.body_bytes);
        // A connection and the first windows of an object take some round trips on a long wire.
        let patience = built.topology.shape.wires.patience().answer() * 20;
        let order = download::Download {
            clients: clients as usize,
            objects,
            limit: LIMIT + Duration::from_secs(bytes / BYTES_PER_S_MIN) + patience * objects,
            threads: method.cpus.each_client(),
            // It takes seconds, and the kernel stops real-time threads that take all of a CPU for so long.
            scheduling: Scheduling::Normal,
        };
        let (target, inside) = (built.target(load.body_bytes), built.inside(SocketRole::Client)?);
        let before = CounterSnapshot::take(&built.topology)?;
        let downloaded = download::download(&target, &order, &inside.0);
        let usage = CounterSnapshot::take(&built.topology)?.since(&before, &method.cpus);
        built.check_server()?;
        let downloaded = downloaded.map_err(|error| built.load_error(error))?;
        let work = TransferredAmounts::download(downloaded.objects, downloaded.bytes);
        let void = built.detour(&usage.traffic, &work)?.or_else(|| kept_from_cpus(&usage));
        Ok(record(&downloaded, &usage, key, void))
    }
}

fn record(downloaded: &Downloaded, usage: &Usage, key: TrialKey, void: Option<Void>) -> TrialRecord {
    let objects = downloaded.objects;
    let times = Histogram::from(&downloaded.times);
    TrialRecord {
        duration_ns: u64::try_from(downloaded.wall().as_nanos()).unwrap_or(u64::MAX),
        intended: objects,
        sent: objects,
        answered: objects,
        answered_in_time: objects,
        latencies: Latencies { response: times.clone(), service: times, lag: Histogram::new() },
        carried: Some(Transfer {
            bytes: downloaded.bytes,
            objects_ns: Some(downloaded.times_ns),
            packets: None,
        }),
        handshakes: recorded_handshakes(downloaded.handshakes),
        void,
        ..usage.of_trial(key, &downloaded.threads)
    }
}
