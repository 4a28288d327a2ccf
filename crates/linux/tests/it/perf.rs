//! Samples of this machine's CPUs while a thread of ours keeps one of them busy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux::cpu;
use linux::perf::{Profiler, Symbols};

/// Spends nearly all of its time in one system call.
fn read_zeros(stop: &AtomicBool) {
    use std::io::Read;
    let mut zero = std::fs::File::open("/dev/zero").expect("every system has it");
    let mut buffer = vec![0; 1 << 20];
    while !stop.load(Ordering::Relaxed) {
        zero.read_exact(&mut buffer).expect("it never ends");
    }
}

#[test]
fn a_busy_thread_is_found_at_its_work_and_only_while_sampled() {
    let cpu = cpu::allowed().unwrap().iter().next().unwrap();
    let only = [cpu].into_iter().collect();
    let symbols = Symbols::kernel().unwrap();
    let mut profiler = Profiler::new(&only, 200_000).unwrap();
    let stop = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            cpu::pin_current_thread(&only).unwrap();
            read_zeros(&stop);
        });
        // Other tasks use the CPU too, so repeat until our thread was found in two slices. Two, because a
        // profiler can be restarted.
        let found = (0..100).filter(|_| is_seen(&mut profiler, &symbols)).take(2).count();
        stop.store(true, Ordering::Relaxed);
        found
    });
    assert_eq!(found, 2, "the thread was hardly ever seen in its system call");
    profiler.start().unwrap();
    let taken = profiler.stop().unwrap();
    let names =
        taken.samples.iter().flat_map(|sample| &sample.kernel).filter_map(|address| symbols.name(*address));
    let reading = names.filter(|name| ["read_zero", "read_iter_zero"].contains(name)).count();
    assert_eq!(reading, 0, "earlier samples were already returned");
}

/// Longer slices, on a machine that stalled, may have more samples than the buffer holds.
const SLICE_MAX: Duration = Duration::from_millis(500);

/// Whether one slice shows this process in a read of `/dev/zero`.
fn is_seen(profiler: &mut Profiler, symbols: &Symbols) -> bool {
    let begun = Instant::now();
    profiler.start().expect("root may");
    std::thread::sleep(Duration::from_millis(40));
    let taken = profiler.stop().expect("it was started");
    assert!(taken.lost == 0 || begun.elapsed() > SLICE_MAX, "{} lost", taken.lost);
    let ours = taken.samples.iter().filter(|sample| sample.process == std::process::id() && !sample.user);
    let stacks = ours.map(|sample| sample.kernel.iter().filter_map(|address| symbols.name(*address)));
    // The innermost frame comes first: `vfs_read` is called by `ksys_read`.
    stacks.into_iter().any(|stack| {
        let stack: Vec<&str> = stack.collect();
        let place = |name: &str| stack.iter().position(|frame| *frame == name);
        matches!((place("vfs_read"), place("ksys_read")), (Some(inner), Some(outer)) if inner < outer)
    })
}
