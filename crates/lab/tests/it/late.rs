//! Planted causes of late answers, each of which the race names. A test asks which cause is named, never how
//! long something took. Lost packets cannot be planted here, because rules in a namespace of a race would
//! count as a changed path. Their events are tested in `bpf`, which reports them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::{Event, Home, NodeCpus, PluginDirs, Race, RaceOptions};
use linux::CpuSet;
use linux::cpu::{self, Scheduling};
use record::{Candidate, Cause, Experiment, Late, RequestedRate, ServerKind};

/// Races the host against itself at a rate that any machine sustains. `plant` is called once, before the
/// first slice with late answers under observation. Its result lives until the race is over.
fn raced<T>(plant: impl FnOnce() -> T) -> Vec<Late> {
    let root = tempfile::tempdir().unwrap();
    let nginx = std::env::var_os("HOSTGAP_NGINX").map(std::path::PathBuf::from);
    let path = root.path().join("race.jsonl");
    let settings = RaceOptions {
        guest: None,
        plugins: PluginDirs::default(),
        record: path.clone(),
        nginx,
        own: "unused".into(),
        cpus: cpu::allowed().unwrap(),
        // Ahead of whatever else a busy machine runs, so that only the planted cause takes CPU time.
        scheduling: Scheduling::Fifo(10),
        stop: Arc::default(),
    };
    let mut experiment = Experiment {
        // Without a named path all data paths would race.
        candidates: vec![Candidate { path: "host".to_owned(), ..Candidate::default() }],
        rates: vec![RequestedRate::PerSecond(2_000.0)],
        rounds: 1,
        builds: 1,
        why_late: true,
        ..Experiment::default()
    };
    experiment.workload.server = ServerKind::Nginx;
    let facts = linux::features::probe().unwrap();
    let home = Home::at(root.path().join("run"));
    let race = Race::prepare(experiment, settings, &facts, home.clone()).unwrap();
    let (mut plant, mut planted) = (Some(plant), None);
    let finished = race.run(&mut |event| {
        if matches!(event, Event::Watching { .. }) {
            planted = planted.take().or_else(|| plant.take().map(|plant| plant()));
        }
    });
    drop(planted);
    finished.unwrap();
    assert_eq!(home.remains().unwrap(), []);
    let race = record::RaceRecord::read(&path).unwrap();
    assert_eq!(race.late.len(), 2, "host and host again, at one load");
    race.late
}

/// Late answers of both hosts by cause.
fn by_cause(late: &[Late]) -> BTreeMap<Cause, u64> {
    let mut sums = BTreeMap::new();
    for (cause, of) in late.iter().flat_map(|late| &late.causes) {
        *sums.entry(*cause).or_insert(0) += of.count();
    }
    sums
}

/// A thread with a higher priority than all others that takes a CPU away for part of the time, until it is
/// dropped.
struct Hog {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const BUSY: Duration = Duration::from_millis(4);
const IDLE: Duration = Duration::from_millis(36);

impl Hog {
    fn on(cpus: &CpuSet) -> Hog {
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, cpus) = (Arc::clone(&stop), cpus.clone());
        let thread = std::thread::spawn(move || {
            cpu::pin_current_thread(&cpus).unwrap();
            cpu::set_current_thread_scheduling(Scheduling::Fifo(60)).unwrap();
            while !asked.load(Ordering::Relaxed) {
                let until = Instant::now() + BUSY;
                while Instant::now() < until {}
                std::thread::sleep(IDLE);
            }
        });
        Hog { stop, thread: Some(thread) }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Both plants are in one test, because two such threads at once would each be found in the other's race. Whoever else
/// takes a CPU meanwhile does so in both races: so they are compared with each other.
#[test]
fn who_was_without_a_cpu_is_named() {
    let nodes = NodeCpus::split(&cpu::allowed().unwrap());
    if nodes.client == nodes.server {
        testkit::skip("with one CPU a thread takes it from both nodes");
        return;
    }
    let server = by_cause(&raced(|| Hog::on(&nodes.server)));
    let client = by_cause(&raced(|| Hog::on(&nodes.client)));
    let count = |found: &BTreeMap<Cause, u64>, cause| found.get(&cause).copied().unwrap_or(0);
    let share = |found: &BTreeMap<Cause, u64>, cause| {
        let starved = count(found, Cause::ServerWaited) + count(found, Cause::Generator);
        count(found, cause) as f64 / starved.max(1) as f64
    };
    for (cause, planted, other) in
        [(Cause::ServerWaited, &server, &client), (Cause::Generator, &client, &server)]
    {
        let what = format!("{cause:?}: {planted:?}, and with the other node's CPU taken {other:?}");
        assert!(count(planted, cause) >= 5, "{what}");
        assert!(share(planted, cause) > share(other, cause), "{what}");
        // A server without its CPU, or whose client has none, is not called slow.
        assert!(count(planted, cause) > count(planted, Cause::Server), "{what}");
    }
}
