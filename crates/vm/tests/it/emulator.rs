//! An emulator that dies by itself, as QEMU was seen to do while a kernel booted.

#![expect(
    clippy::unwrap_used,
    reason = "every line of this file is test code, also outside #[test] functions"
)]

use std::fs;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use vm::Error;

use crate::boot::{limits, shell, text, with_vm};

#[test]
fn an_emulator_that_dies_while_it_boots_is_started_once_more() {
    with_vm(|vm| {
        let output = while_emulators_die(1, || vm.run(&shell("echo done"), &limits())).unwrap();
        assert_eq!(text(&output.stdout), "done\n");
    });
}

#[test]
fn an_emulator_that_always_dies_is_an_error() {
    with_vm(|vm| {
        let error = while_emulators_die(2, || vm.run(&shell("echo done"), &limits())).unwrap_err();
        assert!(matches!(error, Error::Died { .. }), "{error}");
    });
}

/// Runs `work`. Meanwhile the first `count` emulators of this process are aborted as soon as they have
/// started.
fn while_emulators_die<T>(count: usize, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let killer = scope.spawn(move || abort_emulators(count, &is_done));
        let result = work();
        drop(done);
        assert_eq!(killer.join().unwrap(), count, "emulators that were made to abort");
        result
    })
}

/// Returns how many emulators were aborted.
fn abort_emulators(count: usize, is_done: &Receiver<()>) -> usize {
    let mut aborted = Vec::new();
    while aborted.len() < count && is_done.try_recv() == Err(TryRecvError::Empty) {
        match emulator().filter(|pid| !aborted.contains(pid)) {
            Some(pid) => {
                kill_process(pid, Signal::ABORT).unwrap();
                aborted.push(pid);
            }
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
    aborted.len()
}

/// The emulator of this process. Its console writes to a file that is named after the process that started
/// it.
fn emulator() -> Option<Pid> {
    let console = format!("file:{}/hgvm-{}-", std::env::temp_dir().display(), std::process::id());
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_emulator = |pid: &i32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut arguments = arguments.split(|byte| *byte == 0);
        let is_qemu = arguments.next().is_some_and(|program| program.ends_with(b"/qemu-system-x86_64"));
        is_qemu && arguments.any(|argument| argument.starts_with(console.as_bytes()))
    };
    pids.into_iter().find(is_emulator).and_then(Pid::from_raw)
}
