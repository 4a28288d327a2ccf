//! The witness of stalls: what it counts as a stall, and what it does not.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bpf::witness::{Senses, Stall, StallReport, Witness};
use libbpf_rs::{Object, ObjectBuilder, ProgramInput as Input, ProgramMut, TC_INGRESS, TcHookBuilder};
use linux::cpu::{self, Scheduling};
use linux::perf::Ticker;
use linux::{CpuSet, clock};
use testkit::World;

const PERIOD_NS: u64 = 500_000;
const SENSES: Senses =
    Senses { period_ns: Some(PERIOD_NS), late_ns: 60_000, stolen_ns: 50_000, woken_late_ns: 150_000 };

fn all() -> CpuSet {
    cpu::online().unwrap()
}

/// Collects what the witness saw until it is enough.
fn look_until(witness: &Witness, seen: &mut StallReport, enough: impl Fn(&StallReport) -> bool) {
    loop {
        witness.look(seen).unwrap();
        if enough(seen) {
            return;
        }
        thread::yield_now();
    }
}

#[test]
fn every_cpu_is_seen_until_it_stops() {
    let witness = Witness::new(&all(), SENSES).unwrap();
    let mut seen = StallReport::default();
    let begun_ns = clock::now_ns();
    while clock::now_ns() < begun_ns + 10 * PERIOD_NS {
        thread::yield_now();
    }
    witness.look(&mut seen).unwrap();
    assert_eq!((seen.ticks, seen.until_ns), (0, 0), "it watches before its start");
    witness.start().unwrap();
    let begun_ns = clock::now_ns();
    // `until_ns` is the earliest of all CPUs' last ticks, so it passes this instant only once every CPU has ticked.
    look_until(&witness, &mut seen, |seen| seen.until_ns > begun_ns + 20 * PERIOD_NS);
    // An emulated machine sleeps through many ticks.
    assert!(seen.ticks > 0 && seen.until_ns <= clock::now_ns());
    witness.stop().unwrap();
    witness.look(&mut seen).unwrap();
    let (ticks, stopped_ns) = (seen.ticks, clock::now_ns());
    while clock::now_ns() < stopped_ns + 10 * PERIOD_NS {
        thread::yield_now();
    }
    witness.look(&mut seen).unwrap();
    assert_eq!(seen.ticks, ticks, "it watches after its stop");
    // The earlier results are cleared, and the time in between is no stall.
    let again_ns = clock::now_ns();
    witness.start().unwrap();
    let started_ns = clock::now_ns();
    let mut fresh = StallReport::default();
    look_until(&witness, &mut fresh, |seen| seen.until_ns > started_ns);
    assert!(fresh.stalls.iter().all(|stall| stall.from_ns >= again_ns), "{:?}", fresh.stalls);
    witness.stop().unwrap();
}

/// The kernel's own ticks alone.
const KERNELS: Senses = Senses { period_ns: None, ..SENSES };

#[test]
fn idle_cpus_are_caught_up_with() {
    let witness = Witness::new(&all(), KERNELS).unwrap();
    witness.start().unwrap();
    let mut seen = StallReport::default();
    for _ in 0..20 {
        let now_ns = clock::now_ns();
        assert!(witness.catch_up(now_ns, Duration::from_secs(60), &mut seen).unwrap());
        assert!(seen.until_ns >= now_ns);
    }
    witness.stop().unwrap();
    let never = clock::now_ns();
    assert!(!witness.catch_up(never, Duration::ZERO, &mut seen).unwrap(), "it watches after its stop");
}

#[test]
fn the_kernels_ticks_see_a_busy_cpu_stand_still() {
    let cpus = all();
    let witness = Witness::new(&cpus, KERNELS).unwrap();
    let keepers = keepers();
    let link = program(&keepers, "stopped").attach().unwrap();
    // Each of these ticks makes the CPU stand still, and the next is due long after that.
    let stops: Vec<Ticker> = cpus.iter().map(|cpu| Ticker::open(cpu, 30_000_000).unwrap()).collect();
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        for cpu in cpus.iter() {
            let done = &done;
            scope.spawn(move || {
                cpu::pin_current_thread(&CpuSet::from_iter([cpu])).unwrap();
                while !done.load(Ordering::Relaxed) {}
            });
        }
        let mut seen = StallReport::default();
        witness.start().unwrap();
        stops.iter().for_each(|ticker| ticker.start().unwrap());
        let late = |stall: &&Stall| stall.late_ns >= 1_000_000;
        look_until(&witness, &mut seen, |seen| seen.stalls.iter().filter(late).count() >= 5);
        done.store(true, Ordering::Relaxed);
        seen
    });
    witness.stop().unwrap();
    drop((link, stops));
    let tick_ns = clock::kernel_tick_ns();
    for stall in seen.stalls.iter().filter(|stall| stall.late_ns > 0) {
        assert!(stall.to_ns - stall.from_ns <= stall.late_ns + tick_ns, "{stall:?}");
    }
}

/// A CPU that nobody asked for ticks beside one with a greater number, which is watched.
#[test]
fn a_cpu_that_is_not_watched_has_no_stalls() {
    let cpus: Vec<u16> = all().iter().collect();
    let [unwatched, watched, ..] = *cpus.as_slice() else {
        return testkit::skip("it takes two CPUs");
    };
    let witness = Witness::new(&CpuSet::from_iter([watched]), KERNELS).unwrap();
    let control = Witness::new(&CpuSet::from_iter([unwatched]), SENSES).unwrap();
    let keepers = keepers();
    let link = program(&keepers, "stopped").attach().unwrap();
    witness.start().unwrap();
    control.start().unwrap();
    let mut there = StallReport::default();
    look_until(&control, &mut there, |seen| seen.stalls.iter().filter(|stall| is_long(stall)).count() >= 3);
    control.stop().unwrap();
    let mut seen = StallReport::default();
    witness.look(&mut seen).unwrap();
    witness.stop().unwrap();
    drop(link);
    assert!(seen.stalls.iter().all(|stall| stall.cpu == watched), "{:?}", seen.stalls);
}

/// How long a CPU has been idle, in ticks of `/proc/stat`.
fn idle_ticks(cpu: u16) -> u64 {
    linux::procfs::Procfs::kernel().stat().unwrap().cpus[&cpu].idle
}

/// A thread on one CPU wakes one of another, which is idle and at times held with interrupts off.
#[test]
fn an_idle_cpu_that_wakes_late_stood_still() {
    let cpus: Vec<u16> = all().iter().collect();
    let is_virtual = linux::procfs::Procfs::kernel().is_virtual_machine().unwrap();
    let ([own, other, ..], true) = (cpus.as_slice(), is_virtual) else {
        return testkit::skip("it takes two CPUs of a virtual machine");
    };
    let (own, other) = (CpuSet::from_iter([*own]), CpuSet::from_iter([*other]));
    let witness = Witness::new(&all(), KERNELS).unwrap();
    let keepers = keepers();
    let link = program(&keepers, "stopped").attach().unwrap();
    let number = other.iter().next().unwrap();
    let stops = Ticker::open(number, 30_000_000).unwrap();
    let (wake, woken) = std::sync::mpsc::channel();
    let seen = thread::scope(|scope| {
        let other = &other;
        scope.spawn(move || {
            cpu::pin_current_thread(other).unwrap();
            cpu::set_current_thread_scheduling(Scheduling::Fifo(10)).unwrap();
            woken.iter().for_each(|()| ());
        });
        cpu::pin_current_thread(&own).unwrap();
        let mut seen = StallReport::default();
        witness.start().unwrap();
        stops.start().unwrap();
        // Longer than a stop lasts, so that the CPU is idle whenever one begins.
        let late = |stall: &&Stall| {
            other.contains(stall.cpu)
                && stall.late_ns >= 500_000
                && stall.late_ns == stall.to_ns - stall.from_ns
        };
        let is_found = |seen: &StallReport| seen.stalls.iter().any(|stall| late(&stall));
        // Beside other work the CPU is seldom idle when a stop begins, and beside a busy loop never.
        let was_idle = loop {
            let before = idle_ticks(number);
            for _ in 0..5_000 {
                wake.send(()).unwrap();
                thread::sleep(Duration::from_micros(300));
                witness.look(&mut seen).unwrap();
                if is_found(&seen) {
                    break;
                }
            }
            if is_found(&seen) || idle_ticks(number) == before {
                break is_found(&seen);
            }
        };
        drop(wake);
        was_idle.then_some(seen)
    });
    witness.stop().unwrap();
    drop((link, stops));
    // Other work left the CPU no idle moment, and none was reported.
    let Some(seen) = seen else { return };
    assert!(seen.stalls.iter().all(|stall| stall.to_ns >= stall.from_ns), "{:?}", seen.stalls);
}

/// How long a CPU stood still according to the witness.
fn stalled_ns(stalls: &[Stall], cpu: u16) -> u64 {
    let times = stalls.iter().filter(|stall| stall.cpu == cpu && stall.late_ns >= SENSES.late_ns);
    times.map(|stall| stall.to_ns - stall.from_ns).sum()
}

#[test]
fn a_cpu_that_is_busy_does_not_stand_still() {
    let cpus = all();
    let busy = cpus.iter().max().unwrap();
    let witness = Witness::new(&cpus, SENSES).unwrap();
    // A real-time task that never sleeps keeps every other task off the CPU, including ours when it should
    // wake.
    let attempt = || {
        thread::scope(|scope| {
            let spinner = scope.spawn(|| {
                cpu::pin_current_thread(&CpuSet::from_iter([busy])).unwrap();
                cpu::set_current_thread_scheduling(Scheduling::Fifo(50)).unwrap();
                let mut seen = StallReport::default();
                let begun_ns = clock::now_ns();
                witness.start().unwrap();
                look_until(&witness, &mut seen, |seen| seen.until_ns > begun_ns + 40 * PERIOD_NS);
                witness.stop().unwrap();
                (clock::now_ns() - begun_ns, stalled_ns(&seen.stalls, busy))
            });
            spinner.join().unwrap()
        })
    };
    // The machine itself may stall during one attempt, but not during every one.
    let mut attempts = Vec::new();
    while attempts.last().is_none_or(|(spun_ns, stalled_ns): &(u64, u64)| stalled_ns * 2 >= *spun_ns) {
        assert!(attempts.len() < 20, "{attempts:?}");
        attempts.push(attempt());
    }
}

/// Compiles the programs that hold a CPU for three milliseconds.
fn keepers() -> Object {
    let directory = tempfile::tempdir().unwrap();
    let object = directory.path().join("stopped.o");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/stopped.bpf.c");
    let machine = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let compiled = Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", &machine, "-c"])
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    ObjectBuilder::default().open_file(&object).unwrap().load().unwrap()
}

fn program<'a>(keepers: &'a Object, name: &str) -> ProgramMut<'a> {
    keepers.progs_mut().find(|program| program.name() == name).unwrap()
}

/// Whether a stall covers most of the three milliseconds.
fn is_long(stall: &Stall) -> bool {
    stall.late_ns >= 2_000_000 && stall.to_ns - stall.from_ns >= 2_500_000
}

/// Runs the closure while a real-time thread on `cpu` wakes every millisecond.
fn beside_a_waker<T>(cpu: u16, run: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            cpu::pin_current_thread(&CpuSet::from_iter([cpu])).unwrap();
            cpu::set_current_thread_scheduling(Scheduling::Fifo(10)).unwrap();
            while !done.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        });
        let ran = run();
        done.store(true, Ordering::Relaxed);
        ran
    })
}

#[test]
fn who_keeps_a_real_time_thread_waiting_is_a_stall() {
    let cpus = all();
    let busy = cpus.iter().max().unwrap();
    let witness = Witness::new(&cpus, SENSES).unwrap();
    let keepers = keepers();
    let seen = beside_a_waker(busy, || {
        cpu::pin_current_thread(&CpuSet::from_iter([busy])).unwrap();
        let mut seen = StallReport::default();
        witness.start().unwrap();
        // The kernel lets no other task onto the CPU during a test run of a program.
        while seen.stalls.iter().filter(|stall| stall.blocked_ns >= 1_000_000).count() < 3 {
            let input = Input { data_in: Some(&[0; 64]), ..Input::default() };
            program(&keepers, "busy").test_run(input).unwrap();
            witness.look(&mut seen).unwrap();
        }
        witness.stop().unwrap();
        seen
    });
    for stall in seen.stalls.iter().filter(|stall| stall.blocked_ns > 0) {
        assert!(stall.late_ns == 0 && stall.to_ns > stall.from_ns, "{stall:?}");
    }
}

#[test]
fn a_softirq_of_any_length_is_no_stall() {
    let cpus = all();
    let busy = cpus.iter().max().unwrap();
    let witness = Witness::new(&cpus, SENSES).unwrap();
    let keepers = keepers();
    let world = World::new();
    const PACKETS: usize = 40;
    let (spent_ns, seen) = world
        .add("busy")
        .run(|| {
            linux::netlink::Netlink::open().unwrap().link_set_up(1, true).unwrap();
            let hook = TcHookBuilder::new(program(&keepers, "busy").as_fd())
                .ifindex(1)
                .handle(1)
                .priority(1)
                .hook(TC_INGRESS);
            let mut hook = hook;
            hook.create().unwrap();
            hook.attach().unwrap();
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            // A softirq of the sending CPU receives a packet over loopback.
            cpu::pin_current_thread(&CpuSet::from_iter([busy])).unwrap();
            let mut seen = StallReport::default();
            witness.start().unwrap();
            // The kernel waits for each of them, and the program below runs at normal priority.
            let (begun_ns, ended_ns) = beside_a_waker(busy, || {
                let begun_ns = clock::now_ns();
                for _ in 0..PACKETS {
                    socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
                    socket.recv(&mut [0; 8]).unwrap();
                }
                (begun_ns, clock::now_ns())
            });
            look_until(&witness, &mut seen, |seen| seen.until_ns > ended_ns);
            witness.stop().unwrap();
            (ended_ns - begun_ns, seen)
        })
        .unwrap();
    assert!(spent_ns > PACKETS as u64 * 3_000_000, "the program ran for each packet: {spent_ns} ns");
    let long = seen.stalls.iter().filter(|stall| stall.cpu == busy && is_long(stall)).count();
    // The machine itself may stall at the same time, and an emulated one often does. But if a softirq counted
    // as a stall, there would be one for every packet.
    assert!(long < PACKETS, "{long} of {PACKETS}: {:?}", seen.stalls);
    let blocked =
        seen.stalls.iter().filter(|stall| stall.cpu == busy && stall.blocked_ns >= 1_000_000).count();
    assert!(blocked < PACKETS / 8, "{blocked} of {PACKETS}: {:?}", seen.stalls);
}

#[test]
fn a_cpu_that_runs_nothing_stands_still() {
    let witness = Witness::new(&all(), SENSES).unwrap();
    let keepers = keepers();
    let link = program(&keepers, "stopped").attach().unwrap();
    let mut seen = StallReport::default();
    witness.start().unwrap();
    look_until(&witness, &mut seen, |seen| seen.stalls.iter().filter(|stall| is_long(stall)).count() >= 3);
    witness.stop().unwrap();
    drop(link);
}

#[test]
fn an_idle_cpu_is_watched_too() {
    let cpus = all();
    let witness = Witness::new(&cpus, SENSES).unwrap();
    witness.start().unwrap();
    let begun_ns = clock::now_ns();
    // Long enough for perf to stop a clock that it samples.
    thread::sleep(Duration::from_secs(1));
    let mut seen = StallReport::default();
    witness.look(&mut seen).unwrap();
    let periods = (clock::now_ns() - begun_ns) / PERIOD_NS * cpus.iter().count() as u64;
    witness.stop().unwrap();
    // The time that it did not see was a stall, and is reported as one.
    let stalled_ns: u64 = seen.stalls.iter().map(|stall| stall.late_ns).sum();
    assert!(seen.ticks + stalled_ns / PERIOD_NS > periods * 9 / 10, "{} of {periods}", seen.ticks);
}
