//! Samples of this machine's CPUs, while one of our threads keeps one of them busy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linux::cpu;
use linux::perf::{Profiler, Symbols};

/// Nearly all of its time is spent in the kernel, in one system call.
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
        // Other tasks use the CPU too. Repeat until our thread was found in two slices, since a profiler can be
        // restarted.
        let found = (0..100).filter(|_| is_seen(&mut profiler, &symbols)).take(2).count();
        stop.store(true, Ordering::Relaxed);
        found
    });
    assert_eq!(found, 2, "a thread that lives in a system call was hardly ever seen in one");
    profiler.start().unwrap();
    let taken = profiler.stop().unwrap();
    let names =
        taken.samples.iter().flat_map(|sample| &sample.kernel).filter_map(|address| symbols.name(*address));
    let reading = names.filter(|name| ["read_zero", "read_iter_zero"].contains(name)).count();
    assert_eq!(reading, 0, "what was taken before was given before");
}

/// Longer slices, on a machine that stood still, may have more samples than there is room for.
const SLICE_MAX: Duration = Duration::from_millis(500);

/// Whether this process is found in a read of `/dev/zero` within a slice.
fn is_seen(profiler: &mut Profiler, symbols: &Symbols) -> bool {
    let begun = Instant::now();
    profiler.start().expect("root may");
    std::thread::sleep(Duration::from_millis(40));
    let taken = profiler.stop().expect("it was started");
    assert!(taken.lost == 0 || begun.elapsed() > SLICE_MAX, "{} lost", taken.lost);
    let ours = taken.samples.iter().filter(|sample| sample.process == std::process::id() && !sample.user);
    let stacks = ours.map(|sample| sample.kernel.iter().filter_map(|address| symbols.name(*address)));
    // The innermost first: what clears memory is called by what reads, and that by the system call's entry.
    stacks.into_iter().any(|stack| {
        let stack: Vec<&str> = stack.collect();
        let place = |name: &str| stack.iter().position(|frame| *frame == name);
        matches!((place("vfs_read"), place("ksys_read")), (Some(inner), Some(outer)) if inner < outer)
    })
}
