//! Planted causes of late answers, each of which the race names. A test asks which cause is named, never how
//! long something took. Lost packets cannot be planted here, because rules in a namespace of a race would
//! count as a changed path. Their events are tested in `bpf`, which reports them.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab::{Event, Home, NodeCpus, PluginDirs, Race, RaceOptions};
use linux::CpuSet;
use linux::cpu::{self, Scheduling};
use record::{Candidate, Cause, Experiment, Late, RequestedRate, ServerKind};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use testkit::{World, dear_rules};

/// Races the host against itself at a rate that any machine sustains. `plant` is called once, before the
/// first slice with late answers under observation. Its result lives until the race is over.
fn raced<T>(plant: impl FnOnce() -> T) -> Vec<Late> {
    let root = tempfile::tempdir().unwrap();
    let nginx = std::env::var_os("HOSTGAP_NGINX").map(std::path::PathBuf::from);
    let path = root.path().join("race.jsonl");
    let settings = RaceOptions {
        machines: None,
        guest: None,
        plugins: PluginDirs::default(),
        record: path.clone(),
        nginx,
        own: crate::own("unused"),
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

/// A thread with a higher priority than all others that repeats a disturbance, until it is dropped.
struct Plant {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

const ATTEMPTS: usize = 3;
const DISTURBED: Duration = Duration::from_millis(4);
const UNDISTURBED: Duration = Duration::from_millis(36);

impl Plant {
    fn on(cpus: &CpuSet, mut disturb: impl FnMut() + Send + 'static) -> Plant {
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, cpus) = (Arc::clone(&stop), cpus.clone());
        let thread = std::thread::spawn(move || {
            cpu::pin_current_thread(&cpus).unwrap();
            cpu::set_current_thread_scheduling(Scheduling::Fifo(60)).unwrap();
            while !asked.load(Ordering::Relaxed) {
                disturb();
                std::thread::sleep(UNDISTURBED);
            }
        });
        Plant { stop, thread: Some(thread) }
    }

    /// It takes a CPU from all others.
    fn hog(cpus: &CpuSet) -> Plant {
        Plant::on(cpus, || {
            let until = Instant::now() + DISTURBED;
            while Instant::now() < until {}
        })
    }

    /// It stops the servers.
    fn stop_of_servers(cpus: &CpuSet) -> Plant {
        let servers = descendants();
        assert!(!servers.is_empty(), "the race's servers are descendants of this process");
        let signal = move |signal| {
            for server in &servers {
                // It may have ended with the race.
                let _ = pidfd_send_signal(server, signal);
            }
        };
        Plant::on(cpus, move || {
            signal(Signal::STOP);
            std::thread::sleep(DISTURBED);
            signal(Signal::CONT);
        })
    }

    /// It has packets received that take long.
    fn softirqs(cpus: &CpuSet, world: &World) -> Plant {
        let netns = world.add("dear");
        testkit::run(&netns, "ip", &["link", "set", "lo", "up"]);
        // At five to thirty nanoseconds a rule, a packet takes longer than what is reported (50 µs).
        dear_rules(&netns, 30_000);
        let socket = netns.run(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
        socket.set_read_timeout(Some(DISTURBED)).unwrap();
        let own = socket.local_addr().unwrap();
        // What is sent over loopback is received by a softirq of the same CPU, before the call returns.
        Plant::on(cpus, move || {
            let until = Instant::now() + DISTURBED;
            while Instant::now() < until {
                socket.send_to(b"x", own).unwrap();
                // One that the kernel leaves to its own thread may come late.
                let _ = socket.recv(&mut [0; 8]);
            }
        })
    }
}

impl Drop for Plant {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// The processes that this one has started, and theirs.
fn descendants() -> Vec<OwnedFd> {
    let parent = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the name, which may hold anything: state and parent.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<i32>().ok()
    };
    let own = std::process::id() as i32;
    let is_ours = |pid: &i32| std::iter::successors(parent(*pid), |pid| parent(*pid)).any(|pid| pid == own);
    let processes = std::fs::read_dir("/proc").unwrap();
    let pids = processes.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    // One may have ended since.
    let opened = |pid| pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok();
    pids.filter(is_ours).filter_map(opened).collect()
}

/// All plants are in one test, because two at once would each be found in the other's race. Whoever else disturbs a CPU
/// meanwhile does so in all races: so they are compared with each other. A disturbance that lasts for one race alone,
/// such as a plant of another run of this test, is gone at another attempt.
#[test]
fn each_planted_cause_is_named() {
    let nodes = NodeCpus::split(&cpu::allowed().unwrap());
    if nodes.client == nodes.server {
        testkit::skip("with one CPU a thread takes it from both nodes");
        return;
    }
    let mut faults = Vec::new();
    for _ in 0..ATTEMPTS {
        match named(&nodes) {
            Ok(()) => return,
            Err(fault) => faults.push(fault),
        }
    }
    panic!("{faults:#?}");
}

/// Plants each cause, and says which is not named.
fn named(nodes: &NodeCpus) -> Result<(), String> {
    let world = World::new();
    let races = [
        (Cause::ServerWaited, by_cause(&raced(|| Plant::hog(&nodes.server)))),
        (Cause::Generator, by_cause(&raced(|| Plant::hog(&nodes.client)))),
        (Cause::Softirq, by_cause(&raced(|| Plant::softirqs(&nodes.server, &world)))),
        (Cause::Queue, by_cause(&raced(|| Plant::stop_of_servers(&nodes.server)))),
    ];
    for (cause, planted) in &races {
        let count = |cause: &Cause| planted.get(cause).copied().unwrap_or(0);
        // Whoever disturbs one of the other races does not disturb most of them.
        let others = races.iter().filter(|(other, _)| other != cause);
        let mut shares: Vec<f64> = others.map(|(_, found)| share(found, *cause)).collect();
        shares.sort_by(f64::total_cmp);
        // A server without its CPU, whose packets lie in a softirq, or whose client has none is not called slow.
        let is_named = count(cause) >= 5 && count(cause) > count(&Cause::Server);
        if !is_named || share(planted, *cause) <= shares[shares.len() / 2] {
            return Err(format!("{cause:?}: {races:?}"));
        }
    }
    Ok(())
}

/// The part of late answers that has this cause.
fn share(found: &BTreeMap<Cause, u64>, cause: Cause) -> f64 {
    let all: u64 = found.values().sum();
    found.get(&cause).copied().unwrap_or(0) as f64 / all.max(1) as f64
}
