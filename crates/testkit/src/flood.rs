//! More packets than a CPU can take.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use linux::{CpuSet, Netns, cpu};

use crate::run;

/// A thread on one CPU that repeats the same step until this is dropped.
#[derive(Debug)]
pub struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Starts the thread and returns after its first step, so that a flood dropped at once has still sent a
    /// packet.
    ///
    /// # Panics
    /// If the first step panics.
    pub fn from(cpu: u16, mut step: impl FnMut() + Send + 'static) -> Flood {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (begun, first) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            cpu::pin_current_thread(&CpuSet::from_iter([cpu])).expect("the CPU is on line");
            step();
            begun.send(()).expect("it is waited for");
            while !stopped.load(Ordering::Relaxed) {
                step();
            }
        });
        first.recv().expect("the first step does not panic");
        Flood { stop, thread: Some(thread) }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is joined once");
        // If the thread panicked, the test fails on the missing packets.
        let _ = thread.join();
    }
}

/// Adds rules for packets that arrive in a namespace. None matches and each is tried, so receiving costs more
/// than sending and one sender can fill a receiver's CPU. The rules are alone in the table `ip hgt`.
pub fn dear_rules(netns: &Netns, count: u16) {
    let mut script =
        "add table ip hgt\nflush table ip hgt\nadd chain ip hgt in { type filter hook prerouting priority 0; }\n".to_owned();
    script.extend((10_000..10_000 + count).map(|port| format!("add rule ip hgt in udp dport {port} drop\n")));
    let mut file = tempfile::NamedTempFile::new().expect("there is room for a file");
    file.write_all(script.as_bytes()).expect("there is room in it");
    run(netns, "nft", &["-f", file.path().to_str().expect("its path is plain")]);
}
