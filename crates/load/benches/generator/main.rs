//! The generator against others, and against the least that a generator can be, on this machine.
//!
//! `cargo bench -p load`; about a minute. One client CPU, one server CPU, our own responder, loopback, 50 connections.
//! All take turns for a second each, because the machine's drift is slower than that; what counts are the ratios of one
//! round, and their median. Where the kernel lets us, all of them and the responder run under `SCHED_FIFO`, or the ratios
//! would be those of other programs' work. Nothing is asserted: figures are for people, and differ by machine and hour.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]

mod figures;
mod floor;
mod peers;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use linux::cpu::{self, Scheduling};
use linux::{CpuSet, clock};
use load::serve::{Config, Server};
use load::{Client, Expect, Outcome, Run, Schedule, Target, Wait};

use figures::Series;
use peers::Peer;

const CONNECTIONS: usize = 50;
const ROUNDS: usize = 7;
const SLICE: Duration = Duration::from_secs(1);
const RATE_PER_S: u64 = 20_000;
const FIFO: Scheduling = Scheduling::Fifo(10);

type Failure = Box<dyn Error + Send + Sync>;

/// Where client and server run.
struct Place {
    client: CpuSet,
    address: SocketAddr,
    scheduling: Scheduling,
}

fn main() -> Result<(), Failure> {
    // Cargo runs this program among the tests as well, and then without the word.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let online = cpu::online()?;
    let mut cpus = online.iter().map(|cpu| CpuSet::from_iter([cpu]));
    let (Some(client), Some(server)) = (cpus.next(), cpus.next()) else {
        println!("skipped: client and server need a CPU each, and this machine has one");
        return Ok(());
    };
    let server = Server::bind(&Config { cpus: server, ..Config::default() })?;
    let place = Place { client, address: server.addresses()[0], scheduling: scheduling() };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            // The responder's threads inherit it.
            cpu::set_current_thread_scheduling(place.scheduling)?;
            Ok::<_, Failure>(server.run(&stop)?)
        });
        let measured = saturation(&place).and_then(|()| constant(&place));
        stop.store(true, Ordering::Relaxed);
        serving.join().expect("the responder does not panic")?;
        measured
    })
}

/// `SCHED_FIFO`, if a thread of ours can have it.
fn scheduling() -> Scheduling {
    let allowed = thread::scope(|scope| {
        scope.spawn(|| cpu::set_current_thread_scheduling(FIFO).is_ok()).join().expect("it does not panic")
    });
    if allowed {
        return FIFO;
    }
    println!("without SCHED_FIFO, which needs root: other programs are in these figures");
    Scheduling::Normal
}

/// Requests per second, each connection asking again as soon as it has its answer.
fn saturation(place: &Place) -> Result<(), Failure> {
    println!("requests/s at saturation, {CONNECTIONS} connections, one client CPU, {ROUNDS} rounds");
    let mut floor = Series::new("bare epoll loop");
    let mut ours = Series::new("hostgap load");
    let mut peers: Vec<(Peer, Series)> = Vec::new();
    for peer in Peer::ALL {
        match peer.is_installed() {
            true => peers.push((peer, Series::new(peer.name()))),
            false => println!("skipped: {} is not installed", peer.name()),
        }
    }
    for _ in 0..ROUNDS {
        floor.push(place.on_client(|| floor::saturate(place.address, CONNECTIONS, SLICE))?);
        ours.push(run(place, Schedule::Saturate, Wait::Sleep)?.answered_per_s());
        for (peer, series) in &mut peers {
            series.push(place.on_client(|| peer.saturate(place.address, CONNECTIONS, SLICE))?);
        }
    }
    floor.print("/s", &ours);
    ours.print("/s", &ours);
    peers.iter().for_each(|(_, series)| series.print("/s", &ours));
    Ok(())
}

/// The median response time at a rate far below saturation. The floor polls without a pause, which is the soonest that
/// a program can know of an answer, and takes all of a CPU.
fn constant(place: &Place) -> Result<(), Failure> {
    println!("p50 of response time at {RATE_PER_S}/s, {CONNECTIONS} connections, {ROUNDS} rounds");
    let mut floor = Series::new("bare epoll loop, polling");
    let schedule = Schedule::Constant { rate_per_s: RATE_PER_S as f64 };
    let mut waits = [
        (Wait::Hybrid, Series::new("hostgap load, hybrid")),
        (Wait::Sleep, Series::new("hostgap load, sleep")),
    ];
    for _ in 0..ROUNDS {
        floor.push(place.on_client(|| floor::constant(place.address, CONNECTIONS, SLICE, RATE_PER_S))?);
        for (wait, series) in &mut waits {
            series.push(run(place, schedule, *wait)?.response.value_at_quantile(0.5) as f64 / 1000.0);
        }
    }
    let [(_, hybrid), _] = &waits;
    floor.print(" µs", hybrid);
    waits.iter().for_each(|(_, series)| series.print(" µs", hybrid));
    Ok(())
}

fn run(place: &Place, schedule: Schedule, wait: Wait) -> Result<Outcome, Failure> {
    let target = Target {
        address: place.address,
        host: "bench".to_owned(),
        path: "/".to_owned(),
        expect: Expect { status: 200, body_bytes: Some(100) },
    };
    let client = Client::connect(&target, CONNECTIONS, Duration::from_secs(2))?;
    let run = Run {
        schedule,
        duration: SLICE,
        drain: Duration::from_secs(1),
        wait,
        threads: vec![place.client.clone()],
        scheduling: place.scheduling,
    };
    Ok(load::run(&mut [client], &run)?)
}

impl Place {
    /// Runs the closure on a thread on the client's CPU, in the generator's scheduling class, with timers as exact as
    /// its. Processes started by it have all that too.
    fn on_client<T: Send>(&self, work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                cpu::pin_current_thread(&self.client)?;
                cpu::set_current_thread_scheduling(self.scheduling)?;
                clock::set_timer_slack_ns(std::num::NonZeroU64::MIN)?;
                work()
            });
            thread.join().expect("a client of the benchmark does not panic")
        })
    }
}
