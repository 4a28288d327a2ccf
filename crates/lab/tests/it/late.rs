//! Planted causes of late answers, each of which the race names. A test asks which cause leads, never how long something
//! took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::{Event, Home, NodeCpus, PluginDirs, Race, Settings};
use linux::cpu::{self, Scheduling};
use linux::{CpuSet, Netns, netns};
use record::{Cause, Experiment, Late, Rate, ServerKind};

/// A race of the host with itself at a rate that any machine keeps. `plant` is called once, before the first slice that
/// looks at late answers; what it returns lives until the race is over.
fn raced<T>(plant: impl FnOnce() -> T) -> Vec<Late> {
    let root = tempfile::tempdir().unwrap();
    let nginx = std::env::var_os("HOSTGAP_NGINX").map(std::path::PathBuf::from);
    let path = root.path().join("race.jsonl");
    let settings = Settings {
        guest: None,
        plugins: PluginDirs::default(),
        record: path.clone(),
        nginx,
        own: "unused".into(),
        cpus: cpu::allowed().unwrap(),
        scheduling: Scheduling::Normal,
        stop: Arc::default(),
    };
    let mut experiment = Experiment {
        rates: vec![Rate::PerSecond(2_000.0)],
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
        if let (Event::Watching { .. }, Some(plant)) = (event, plant.take()) {
            planted = Some(plant());
        }
    });
    drop(planted);
    finished.unwrap();
    assert_eq!(home.remains().unwrap(), []);
    let race = record::Race::read(&path).unwrap();
    assert_eq!(race.late.len(), 2, "host and host again, at one load");
    race.late
}

/// Late answers of both by cause.
fn by_cause(late: &[Late]) -> BTreeMap<Cause, u64> {
    let mut sums = BTreeMap::new();
    for (cause, of) in late.iter().flat_map(|late| &late.causes) {
        *sums.entry(*cause).or_insert(0) += of.count();
    }
    sums
}

#[track_caller]
fn leads(late: &[Late], causes: &[Cause]) {
    let found = by_cause(late);
    let most = found.iter().max_by_key(|(_, count)| **count).map(|(cause, _)| *cause);
    assert!(most.is_some_and(|most| causes.contains(&most)), "{found:?}");
}

/// The namespaces of the race's servers, which are its second nodes.
fn servers() -> Vec<Netns> {
    let own = netns::list().unwrap().into_iter().filter(|name| {
        let name = name.as_str();
        name.starts_with("hg-") && name.contains("-host") && name.ends_with("-n2")
    });
    own.map(|name| Netns::open(&name).unwrap()).collect()
}

/// A thread before all others that takes a CPU away for a part of the time, until it is dropped.
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

fn nodes() -> Option<NodeCpus> {
    let nodes = NodeCpus::split(&cpu::allowed().unwrap());
    if nodes.client == nodes.server {
        testkit::skip("with one CPU a thread takes it from both nodes");
        return None;
    }
    Some(nodes)
}

#[test]
fn lost_requests_are_sent_again_by_tcps_timers() {
    let late = raced(|| {
        for server in servers() {
            let rules = "add table ip t; add chain ip t c { type filter hook input priority 0; }; \
                         add rule ip t c tcp dport 80 ip length > 60 numgen random mod 25 0 drop";
            testkit::run(&server, "nft", &[rules]);
        }
    });
    leads(&late, &[Cause::Probe, Cause::TimeOut]);
    for late in &late {
        let again = late.retransmitted;
        assert!(again.probes + again.time_outs > 0, "{again:?}");
        if !late.missing.iter().any(|name| name == "kfree_skb") {
            assert!(late.drops.get("NETFILTER_DROP").is_some_and(|drops| *drops > 0), "{:?}", late.drops);
        }
    }
}

#[test]
fn a_server_without_its_cpu_is_not_called_slow() {
    let Some(nodes) = nodes() else { return };
    let late = raced(|| Hog::on(&nodes.server));
    leads(&late, &[Cause::ServerWaited]);
}

#[test]
fn a_generator_without_its_cpu_blames_itself() {
    let Some(nodes) = nodes() else { return };
    let late = raced(|| Hog::on(&nodes.client));
    leads(&late, &[Cause::Generator]);
}

#[test]
fn packets_that_take_long_to_receive_are_softirq_work() {
    let late = raced(|| {
        for server in servers() {
            // Rules of which none matches, and each is tried, for one request in 25.
            let mut script = "add table ip t\nadd chain ip t dear\n\
                              add chain ip t c { type filter hook input priority 0; }\n\
                              add rule ip t c tcp dport 80 ip length > 60 numgen random mod 25 0 jump dear\n"
                .to_owned();
            script.extend((0..RULES).map(|ttl| format!("add rule ip t dear ip ttl 1 ip id {ttl} drop\n")));
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), script).unwrap();
            testkit::run(&server, "nft", &["-f", file.path().to_str().unwrap()]);
        }
    });
    leads(&late, &[Cause::Softirq]);
}

/// Some milliseconds on any machine: a rule takes some ten nanoseconds or more.
const RULES: u32 = 30_000;
